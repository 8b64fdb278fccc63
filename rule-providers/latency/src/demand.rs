//! The pairs that active rules name, and who measures them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// So many pairs of one node, visited every 2 s, are 5 visits a second.
pub(crate) const ROOM: usize = 10;
/// So many pairs are kept at the most; more is no use to anyone.
const MOST: usize = 100_000;

/// What rules ask for, until when. Times are given, since any one moment.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    of: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Duration>>,
    len: usize,
}

/// Who measures what.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Shares<T> {
    /// By the node that measures.
    pub of: BTreeMap<T, Vec<T>>,
    pub pairs: usize,
    /// Pairs for which neither end has room.
    pub excess: usize,
}

impl Demand {
    /// Asks for a pair; says whether it is new.
    pub fn ask(&mut self, a: &str, b: &str, until: Duration) -> bool {
        let (a, b) = (a.min(b), a.max(b));
        if a == b {
            return false;
        }
        if let Some(known) = self.of.get_mut(a).and_then(|of| of.get_mut(b)) {
            *known = until.max(*known);
            return false;
        }
        if self.len >= MOST {
            return false;
        }
        self.len += 1;
        self.of.entry(a.into()).or_default().insert(b.into(), until);
        true
    }

    /// Drops what nobody has asked for any more; says whether there was such.
    pub fn expire(&mut self, now: Duration) -> bool {
        self.of.retain(|_, of| {
            of.retain(|_, until| *until > now);
            !of.is_empty()
        });
        let left = self.of.values().map(BTreeMap::len).sum();
        std::mem::replace(&mut self.len, left) > left
    }

    /// The pairs in the order of their names, which is the same at all replicas.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.of.iter();
        all.flat_map(|(a, of)| of.keys().map(move |b| (&**a, &**b)))
    }
}

/// Gives each pair to the end that has more room, then to the other too if it has
/// some. Ends that `may` not measure have none. The same pairs in the same order
/// are shared alike.
pub(crate) fn share<T: Copy + Ord>(
    pairs: impl Iterator<Item = (T, T)>,
    room: usize,
    may: impl Fn(T) -> bool,
) -> Shares<T> {
    let mut shares = Shares {
        of: BTreeMap::new(),
        pairs: 0,
        excess: 0,
    };
    let mut halves = Vec::new();
    let left = |of: &BTreeMap<T, Vec<T>>, node: T| match may(node) {
        true => room.saturating_sub(of.get(&node).map_or(0, Vec::len)),
        false => 0,
    };
    for (a, b) in pairs {
        shares.pairs += 1;
        let (of_a, of_b) = (left(&shares.of, a), left(&shares.of, b));
        let (from, to) = if of_a >= of_b { (a, b) } else { (b, a) };
        if of_a.max(of_b) == 0 {
            shares.excess += 1;
            continue;
        }
        shares.of.entry(from).or_default().push(to);
        halves.push((to, from));
    }
    for (from, to) in halves {
        if left(&shares.of, from) > 0 {
            shares.of.entry(from).or_default().push(to);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_pair_is_one_both_ways_and_ends_when_nobody_asks() {
        let mut demand = Demand::default();
        assert!(demand.ask("b", "a", SECOND * 5));
        assert!(!demand.ask("a", "b", SECOND * 9));
        assert!(!demand.ask("a", "a", SECOND * 9));
        assert_eq!(demand.pairs().collect::<Vec<_>>(), [("a", "b")]);
        assert!(!demand.expire(SECOND * 8));
        assert!(demand.expire(SECOND * 9));
        assert_eq!(demand.len, 0);
    }

    #[test]
    fn both_ends_measure_where_both_have_room() {
        let shares = share([(1, 2)].into_iter(), ROOM, |_| true);
        assert_eq!(shares.of[&1], [2]);
        assert_eq!(shares.of[&2], [1]);
        let shares = share([(1, 2)].into_iter(), ROOM, |n| n == 2);
        assert_eq!(shares.of, BTreeMap::from([(2, vec![1])]));
        // A hub of 40: the others measure it, and it measures ten of them.
        let shares = share((1..41).map(|i| (0, i)), ROOM, |_| true);
        assert_eq!((shares.excess, shares.of[&0].len()), (0, ROOM));
        assert!((1..41).all(|i| shares.of.get(&i).is_some_and(|to| *to == [0]) || i <= 10));
    }

    proptest! {
        #[test]
        fn nobody_measures_too_much_and_what_is_left_out_has_no_room(
            pairs in proptest::collection::btree_set((0u8..12, 0u8..12), 0..80),
            room in 0usize..6,
        ) {
            let pairs: Vec<_> = pairs.into_iter().filter(|(a, b)| a < b).collect();
            let may = |n: u8| !n.is_multiple_of(5);
            let shares = share(pairs.iter().copied(), room, may);
            let measured = |a: u8, b: u8| shares.of.get(&a).is_some_and(|to| to.contains(&b));
            let full = |n: u8| !may(n) || shares.of.get(&n).is_some_and(|to| to.len() == room) || room == 0;
            let mut left_out = 0;
            for (a, b) in &pairs {
                if !measured(*a, *b) && !measured(*b, *a) {
                    left_out += 1;
                    prop_assert!(full(*a) && full(*b));
                }
            }
            prop_assert_eq!(left_out, shares.excess);
            prop_assert_eq!(pairs.len(), shares.pairs);
            for (from, to) in &shares.of {
                prop_assert!(may(*from) && to.len() <= room);
            }
        }
    }
}
