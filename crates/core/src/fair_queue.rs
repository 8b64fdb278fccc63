//! A queue in which namespaces take turns, however much one of them has queued.

use std::{collections::VecDeque, sync::Arc};

use hashbrown::HashMap;

/// A queue with a lane for each namespace. The items of a lane keep their order.
#[derive(Debug)]
pub struct FairQueue<T> {
    lanes: HashMap<Arc<str>, Lane<T>>,
    /// The namespaces with items, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    len: usize,
}

#[derive(Debug)]
struct Lane<T> {
    urgent: VecDeque<T>,
    others: VecDeque<T>,
}

impl<T> Lane<T> {
    fn len(&self) -> usize {
        self.urgent.len() + self.others.len()
    }
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            lanes: HashMap::new(),
            turns: VecDeque::new(),
            len: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Adds an item to the lane of its namespace.
    pub fn push(&mut self, namespace: &str, item: T) {
        self.lane(namespace).others.push_back(item);
    }

    /// Adds an item that comes before the items of its namespace that [`push`](Self::push) added.
    pub fn push_urgent(&mut self, namespace: &str, item: T) {
        self.lane(namespace).urgent.push_back(item);
    }

    /// Counts a new item and returns the lane for it.
    fn lane(&mut self, namespace: &str) -> &mut Lane<T> {
        self.len += 1;
        if !self.lanes.contains_key(namespace) {
            self.turns.push_back(namespace.into());
        }
        self.lanes.entry(namespace.into()).or_insert_with(|| Lane {
            urgent: VecDeque::new(),
            others: VecDeque::new(),
        })
    }

    /// Adds an item. If the queue then has more than `most` items, the longest lane loses its last
    /// item; returns the namespace of that lane.
    pub fn push_bounded(&mut self, namespace: &str, item: T, most: usize) -> Option<Arc<str>> {
        self.push(namespace, item);
        if self.len <= most {
            return None;
        }
        // Among lanes of equal length, the lane of the new item loses an item.
        let length = |(of, lane): &(&Arc<str>, &Lane<T>)| (lane.len(), ***of == *namespace);
        let longest = Arc::clone(self.lanes.iter().max_by_key(length)?.0);
        let lane = self.lanes.get_mut(&longest)?;
        if lane.others.pop_back().is_none() {
            lane.urgent.pop_back();
        }
        self.len -= 1;
        if lane.len() == 0 {
            self.lanes.remove(&longest);
            self.turns.retain(|of| *of != longest);
        }
        Some(longest)
    }

    /// Removes the oldest item of the namespace whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let namespace = self.turns.pop_front()?;
        let lane = self.lanes.get_mut(&namespace)?;
        let urgent = lane.urgent.pop_front();
        let item = urgent.or_else(|| lane.others.pop_front())?;
        self.len -= 1;
        if lane.len() == 0 {
            self.lanes.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        Some(item)
    }

    /// Returns the number of items of all namespaces.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no namespace has an item.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain<T>(queue: &mut FairQueue<T>) -> Vec<T> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn namespaces_take_turns() {
        let mut queue = FairQueue::default();
        for item in 0..4 {
            queue.push("loud", item);
        }
        queue.push("quiet", 10);
        queue.push("quiet", 11);
        assert_eq!(drain(&mut queue), [0, 10, 1, 11, 2, 3]);
        assert!(queue.is_empty() && queue.turns.is_empty() && queue.lanes.is_empty());
    }

    #[test]
    fn urgent_items_come_first_in_their_namespace() {
        let mut queue = FairQueue::default();
        queue.push("a", 3);
        queue.push("b", 10);
        queue.push_urgent("a", 1);
        queue.push_urgent("a", 2);
        assert_eq!(drain(&mut queue), [1, 10, 2, 3]);
    }

    #[test]
    fn a_full_queue_takes_from_the_longest_lane() {
        let mut queue = FairQueue::default();
        for item in 0..100 {
            let lost = queue.push_bounded("loud", item, 10);
            assert_eq!(lost.as_deref(), (item >= 10).then_some("loud"));
        }
        for item in 100..103 {
            assert_eq!(
                queue.push_bounded("quiet", item, 10).as_deref(),
                Some("loud")
            );
        }
        assert_eq!(queue.len(), 10);
        assert_eq!(drain(&mut queue), [0, 100, 1, 101, 2, 102, 3, 4, 5, 6]);
    }

    #[test]
    fn a_queue_of_equal_lanes_refuses_the_new_item() {
        let mut queue = FairQueue::default();
        queue.push_bounded("a", 1, 2);
        queue.push_bounded("b", 2, 2);
        assert_eq!(queue.push_bounded("c", 3, 2).as_deref(), Some("c"));
        assert_eq!(drain(&mut queue), [1, 2]);
    }

    proptest! {
        /// Every item comes out once, in the order of its namespace, and within a round of turns
        /// of it being the first of its lane.
        #[test]
        fn no_item_is_lost(items in proptest::collection::vec(0u8..4, 0..60)) {
            let mut queue = FairQueue::default();
            for (i, namespace) in items.iter().enumerate() {
                queue.push(&namespace.to_string(), (*namespace, i));
            }
            let out = drain(&mut queue);
            prop_assert_eq!(out.len(), items.len());
            for namespace in 0..4 {
                let of: Vec<usize> = out.iter().filter(|(n, _)| *n == namespace).map(|(_, i)| *i).collect();
                prop_assert!(of.is_sorted());
                let places: Vec<usize> = (0..out.len()).filter(|at| out[*at].0 == namespace).collect();
                prop_assert!(places.windows(2).all(|w| w[1] - w[0] <= 4));
            }
        }
    }
}
