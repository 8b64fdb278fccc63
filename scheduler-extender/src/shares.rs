//! Stores values by namespace, bounded in bytes. Over the bound the namespace with the most bytes
//! loses its oldest value.

use std::collections::{HashMap, VecDeque};

#[derive(Debug)]
pub(crate) struct Shares<T> {
    namespaces: HashMap<String, Share<T>>,
    most_bytes: usize,
    bytes: usize,
    /// The number of values ever pushed.
    pushed: u64,
}

#[derive(Debug)]
struct Share<T> {
    values: VecDeque<Kept<T>>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept<T> {
    number: u64,
    bytes: usize,
    value: T,
}

impl<T> Shares<T> {
    pub fn new(most_bytes: usize) -> Self {
        Self {
            namespaces: HashMap::new(),
            most_bytes,
            bytes: 0,
            pushed: 0,
        }
    }

    /// Adds a value, and returns the values that it displaced. A single value may be larger than
    /// the bound.
    pub fn push(&mut self, namespace: &str, bytes: usize, value: T) -> Vec<T> {
        self.pushed += 1;
        if !self.namespaces.contains_key(namespace) {
            let share = Share {
                values: VecDeque::new(),
                bytes: 0,
            };
            self.namespaces.insert(namespace.to_owned(), share);
        }
        if let Some(share) = self.namespaces.get_mut(namespace) {
            share.bytes += bytes;
            share.values.push_back(Kept {
                number: self.pushed,
                bytes,
                value,
            });
            self.bytes += bytes;
        }
        let mut displaced = Vec::new();
        while self.bytes > self.most_bytes {
            match self.displace() {
                Some(oldest) => displaced.push(oldest),
                None => break,
            }
        }
        displaced
    }

    /// Removes the oldest value of the namespace with the most bytes, but not the value pushed
    /// last.
    fn displace(&mut self) -> Option<T> {
        let most = self.namespaces.iter_mut().filter(|(_, share)| {
            let oldest = share.values.front();
            oldest.is_some_and(|oldest| oldest.number < self.pushed)
        });
        let (namespace, share) = most.max_by_key(|(_, share)| share.bytes)?;
        let oldest = share.values.pop_front()?;
        share.bytes -= oldest.bytes;
        self.bytes -= oldest.bytes;
        if share.values.is_empty() {
            let namespace = namespace.clone();
            self.namespaces.remove(&namespace);
        }
        Some(oldest.value)
    }

    /// The values of a namespace, the newest first.
    pub fn of(&self, namespace: &str) -> impl Iterator<Item = &T> {
        let share = self.namespaces.get(namespace).into_iter();
        share.flat_map(|share| share.values.iter().rev().map(|kept| &kept.value))
    }

    /// The newest values of all namespaces, the newest first.
    pub fn newest(&self, most: usize) -> Vec<&T> {
        let shares = self.namespaces.values();
        let mut all: Vec<&Kept<T>> = shares
            .flat_map(|share| share.values.iter().rev().take(most))
            .collect();
        all.sort_unstable_by_key(|kept| std::cmp::Reverse(kept.number));
        all.truncate(most);
        all.into_iter().map(|kept| &kept.value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_that_holds_most_loses_its_oldest() {
        let mut shares = Shares::new(100);
        assert!(shares.push("quiet", 20, 'a').is_empty());
        for value in ['b', 'c', 'd', 'e'] {
            assert!(shares.push("busy", 20, value).is_empty());
        }
        assert_eq!(shares.push("busy", 20, 'f'), ['b']);
        assert_eq!(shares.push("other", 30, 'g'), ['c', 'd']);
        assert_eq!(shares.of("quiet").collect::<String>(), "a");
        assert_eq!(shares.of("busy").collect::<String>(), "fe");
        assert_eq!(shares.newest(3).into_iter().collect::<String>(), "gfe");
        assert_eq!(shares.newest(9).into_iter().collect::<String>(), "gfea");
        assert_eq!(shares.of("none").count(), 0);
    }

    #[test]
    fn the_last_value_stays_even_above_the_bound() {
        let mut shares = Shares::new(10);
        shares.push("a", 5, 1);
        assert_eq!(shares.push("b", 50, 2), [1]);
        assert_eq!(shares.push("b", 5, 3), [2]);
        assert_eq!(shares.of("b").collect::<Vec<_>>(), [&3]);
        assert_eq!((shares.bytes, shares.namespaces.len()), (5, 1));
    }
}
