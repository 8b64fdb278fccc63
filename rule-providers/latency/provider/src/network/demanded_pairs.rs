//! The pairs that active rules name, and their assignment to the agents that measure them. The
//! module is pure: callers pass all times, as durations since one fixed moment.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tautline_core::planning::fnv1a_64;

/// The maximum number of demanded pairs that a node measures: at a visit every 2 s, they take 5
/// visits a second.
pub(crate) const NODE_SLOTS: usize = 10;
/// The maximum number of demanded pairs. A pair that several namespaces demand counts once for
/// each.
const MAX_PAIRS: usize = 100_000;
const MAX_NAMESPACE_PAIRS: usize = MAX_PAIRS / 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester<'a> {
    pub namespace: &'a str,
    pub trusted: bool,
}

type Requesters = Vec<(Arc<str>, Duration)>;

#[derive(Debug, Default)]
pub(crate) struct DemandedPairs {
    /// The requesters of each pair, by the lesser node, then by the greater one.
    pairs: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Requesters>>,
    by_namespace: HashMap<Arc<str>, usize>,
    len: usize,
    /// The ends of the demands above the bounds, by the hash of their pair; at most [`MAX_PAIRS`].
    refused: HashMap<u64, Duration>,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Assignment<T> {
    pub targets: BTreeMap<T, Vec<T>>,
    pub pairs: usize,
    pub excess: usize,
}

impl DemandedPairs {
    /// Adds or extends a demand; returns true if the pair is new, or newly refused.
    pub fn add(&mut self, requester: Requester<'_>, a: &str, b: &str, until: Duration) -> bool {
        let (a, b) = (a.min(b), a.max(b));
        if a == b {
            return false;
        }
        let known = self.pairs.get_mut(a).and_then(|of| of.get_mut(b));
        let is_known = known.is_some();
        let same = |(namespace, _): &&mut (Arc<str>, Duration)| **namespace == *requester.namespace;
        if let Some((_, end)) = known.and_then(|requesters| requesters.iter_mut().find(same)) {
            *end = until.max(*end);
            return false;
        }
        let own = self.by_namespace.get_key_value(requester.namespace);
        let (namespace, own) = match own {
            Some((namespace, own)) => (Arc::clone(namespace), *own),
            None => (requester.namespace.into(), 0),
        };
        let hash = fnv1a_64(&[a, b]);
        if self.len >= MAX_PAIRS || !requester.trusted && own >= MAX_NAMESPACE_PAIRS {
            if is_known {
                // The pair is measured for other namespaces.
                return false;
            }
            let room = self.refused.len() < MAX_PAIRS || self.refused.contains_key(&hash);
            return room && self.refused.insert(hash, until).is_none();
        }
        self.refused.remove(&hash);
        self.len += 1;
        let of_a = self.pairs.entry(a.into()).or_default();
        let requesters = of_a.entry(b.into()).or_default();
        requesters.push((Arc::clone(&namespace), until));
        self.by_namespace.insert(namespace, own + 1);
        !is_known
    }

    pub fn expire(&mut self, now: Duration) -> bool {
        let refused = self.refused.len();
        self.refused.retain(|_, until| *until > now);
        self.by_namespace.clear();
        self.pairs.retain(|_, of| {
            of.retain(|_, requesters| {
                requesters.retain(|(_, until)| *until > now);
                for (namespace, _) in &*requesters {
                    *self.by_namespace.entry(Arc::clone(namespace)).or_default() += 1;
                }
                !requesters.is_empty()
            });
            !of.is_empty()
        });
        let left = self.by_namespace.values().sum();
        std::mem::replace(&mut self.len, left) > left || self.refused.len() < refused
    }

    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Returns the pairs in order of priority, which changes every minute and is the same at all
    /// replicas. Namespaces take turns: the pairs that are a namespace's first at both of their
    /// nodes come first, then the second ones, and so on. With `n` namespaces, a namespace with at
    /// most [`NODE_SLOTS`]` / n` pairs at each node therefore has a slot for each pair.
    pub fn pairs(&self, minute: u64) -> impl Iterator<Item = (&str, &str)> {
        let (all, minute) = (self.pairs.iter(), minute.to_string());
        let all = all.flat_map(|(a, of)| {
            of.iter()
                .map(move |(b, requesters)| (&**a, &**b, requesters))
        });
        let mut pairs: Vec<(&str, &str, &Requesters)> = all.collect();
        pairs.sort_by_cached_key(|(a, b, _)| fnv1a_64(&[&minute, a, b]));
        if self.by_namespace.len() > 1 {
            let mut counts: HashMap<(&str, &str), usize> = HashMap::new();
            pairs.sort_by_cached_key(|&(a, b, requesters)| {
                let turns = requesters.iter().map(|(namespace, _)| {
                    let turn_at = [a, b].map(|node| {
                        let count = counts.entry((&**namespace, node)).or_default();
                        *count += 1;
                        *count
                    });
                    turn_at[0].max(turn_at[1])
                });
                turns.min()
            });
        }
        pairs.into_iter().map(|(a, b, _)| (a, b))
    }
}

/// Assigns each pair to the node with more free slots, then also to its other node, if that has a
/// free slot. Nodes for which `can_measure` is false have no slots. The assignment is
/// deterministic, and each node's targets are sorted.
pub(crate) fn assign<T: Copy + Ord>(
    pairs: impl Iterator<Item = (T, T)>,
    slots: usize,
    can_measure: impl Fn(T) -> bool,
) -> Assignment<T> {
    let mut assignment = Assignment {
        targets: BTreeMap::new(),
        pairs: 0,
        excess: 0,
    };
    let mut other_ends = Vec::new();
    let free = |targets: &BTreeMap<T, Vec<T>>, node: T| {
        if can_measure(node) {
            slots.saturating_sub(targets.get(&node).map_or(0, Vec::len))
        } else {
            0
        }
    };
    for (a, b) in pairs {
        assignment.pairs += 1;
        let (free_a, free_b) = (free(&assignment.targets, a), free(&assignment.targets, b));
        let (from, to) = if free_a >= free_b { (a, b) } else { (b, a) };
        if free_a.max(free_b) == 0 {
            assignment.excess += 1;
            continue;
        }
        assignment.targets.entry(from).or_default().push(to);
        other_ends.push((to, from));
    }
    for (from, to) in other_ends {
        if free(&assignment.targets, from) > 0 {
            assignment.targets.entry(from).or_default().push(to);
        }
    }
    assignment
        .targets
        .values_mut()
        .for_each(|of| of.sort_unstable());
    assignment
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Requester<'static> {
        pub const TRUSTED: Self = Self {
            namespace: "system",
            trusted: true,
        };
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pair_is_symmetric_and_expires() {
        let mut demand = DemandedPairs::default();
        assert!(demand.add(Requester::TRUSTED, "b", "a", SECOND * 5));
        assert!(!demand.add(Requester::TRUSTED, "a", "b", SECOND * 9));
        assert!(!demand.add(Requester::TRUSTED, "a", "a", SECOND * 9));
        assert_eq!(demand.pairs(0).collect::<Vec<_>>(), [("a", "b")]);
        assert!(!demand.expire(SECOND * 8));
        assert!(demand.expire(SECOND * 9));
        assert_eq!(demand.len, 0);
    }

    #[test]
    fn refused_pairs_are_counted_until_they_expire() {
        let mut demand = DemandedPairs::default();
        let name = |i: usize| format!("n{i:06}");
        for i in 0..MAX_PAIRS {
            demand.add(
                Requester::TRUSTED,
                "a",
                &name(i),
                SECOND * if i == 0 { 5 } else { 9 },
            );
        }
        assert!(demand.add(Requester::TRUSTED, "a", "x", SECOND * 9));
        assert!(
            !demand.add(Requester::TRUSTED, "x", "a", SECOND * 9),
            "counted once"
        );
        assert!(demand.add(Requester::TRUSTED, "a", "y", SECOND * 7));
        assert_eq!((demand.len, demand.refused()), (MAX_PAIRS, 2));
        assert!(demand.expire(SECOND * 5));
        assert!(demand.add(Requester::TRUSTED, "a", "x", SECOND * 9));
        assert_eq!((demand.len, demand.refused()), (MAX_PAIRS, 1));
        assert!(demand.expire(SECOND * 7));
        assert_eq!(demand.refused(), 0);
    }

    const TENANT: Requester<'_> = Requester {
        namespace: "tenant",
        trusted: false,
    };

    #[test]
    fn untrusted_namespace_is_bounded() {
        let mut demand = DemandedPairs::default();
        let name = |i: usize| format!("n{i:06}");
        for i in 0..MAX_PAIRS {
            demand.add(TENANT, "a", &name(i), SECOND * 5);
        }
        assert_eq!(
            (demand.len, demand.refused()),
            (MAX_NAMESPACE_PAIRS, MAX_PAIRS - MAX_NAMESPACE_PAIRS)
        );
        let other = Requester {
            namespace: "other",
            ..TENANT
        };
        assert!(demand.add(other, "b", "c", SECOND * 9));
        let last = name(MAX_PAIRS - 1);
        assert!(demand.add(other, "a", &last, SECOND * 9));
        assert!(
            !demand.add(TENANT, "a", &last, SECOND * 9),
            "it is measured already"
        );
        assert!(!demand.add(other, "a", &name(0), SECOND * 9));
        assert!(demand.expire(SECOND * 5));
        assert_eq!((demand.len, demand.pairs(0).count()), (3, 3));
        assert!(demand.add(TENANT, "a", &name(MAX_PAIRS / 2), SECOND * 9));
    }

    #[test]
    fn excess_pairs_rotate_each_minute() {
        let mut demand = DemandedPairs::default();
        let names: Vec<String> = (0..40).map(|i| format!("n{i:02}")).collect();
        for name in &names {
            demand.add(Requester::TRUSTED, "hub", name, SECOND);
        }
        let measured = |minute: u64| {
            let assignment = assign(demand.pairs(minute), NODE_SLOTS, |n| n == "hub");
            assert_eq!((assignment.excess, assignment.pairs), (30, 40));
            assert!(assignment.targets["hub"].is_sorted());
            assignment.targets["hub"].clone()
        };
        assert_eq!(measured(7), measured(7));
        let mut ever: Vec<&str> = (0..60).flat_map(measured).collect();
        ever.sort_unstable();
        ever.dedup();
        assert_eq!(ever.len(), 40, "each within the hour");
    }

    #[test]
    fn both_ends_measure_where_both_have_slots() {
        let assignment = assign([(1, 2)].into_iter(), NODE_SLOTS, |_| true);
        assert_eq!(assignment.targets[&1], [2]);
        assert_eq!(assignment.targets[&2], [1]);
        let assignment = assign([(1, 2)].into_iter(), NODE_SLOTS, |n| n == 2);
        assert_eq!(assignment.targets, BTreeMap::from([(2, vec![1])]));
        let assignment = assign((1..41).map(|i| (0, i)), NODE_SLOTS, |_| true);
        assert_eq!(
            (assignment.excess, assignment.targets[&0].len()),
            (0, NODE_SLOTS)
        );
        assert!(
            (1..41).all(|i| assignment.targets.get(&i).is_some_and(|to| *to == [0]) || i <= 10)
        );
    }

    proptest! {
        #[test]
        fn namespace_within_its_share_has_all_pairs_assigned(
            others in proptest::collection::vec((0usize..3, 0usize..9, 0usize..9), 0..200),
            own in proptest::collection::vec((0usize..9, 0usize..9), 0..20),
            slots in 4usize..13,
            minute in any::<u64>(),
        ) {
            let node = |i: usize| format!("n{i}");
            let mut demand = DemandedPairs::default();
            for (namespace, a, b) in &others {
                let namespace = format!("tenant-{namespace}");
                let requester = Requester { namespace: &namespace, trusted: false };
                demand.add(requester, &node(*a), &node(*b), SECOND);
            }
            let (mut count, mut accepted) = ([0; 9], Vec::new());
            for (a, b) in own {
                let (a, b) = (a.min(b), a.max(b));
                let full = [a, b].iter().any(|n| count[*n] >= slots / 4);
                if a == b || full || accepted.contains(&(a, b)) {
                    continue;
                }
                demand.add(TENANT, &node(a), &node(b), SECOND);
                accepted.push((a, b));
                count[a] += 1;
                count[b] += 1;
            }
            let assignment = assign(demand.pairs(minute), slots, |_| true);
            for (a, b) in accepted {
                let (a, b) = (node(a), node(b));
                let measured = |a: &str, b: &str| assignment.targets.get(a).is_some_and(|to| to.contains(&b));
                prop_assert!(measured(&a, &b) || measured(&b, &a), "{} {}", a, b);
            }
        }

        #[test]
        fn slots_are_respected_and_excess_pairs_have_no_free_slot(
            pairs in proptest::collection::btree_set((0u8..12, 0u8..12), 0..80),
            slots in 0usize..6,
        ) {
            let pairs: Vec<_> = pairs.into_iter().filter(|(a, b)| a < b).collect();
            let may = |n: u8| !n.is_multiple_of(5);
            let assignment = assign(pairs.iter().copied(), slots, may);
            let measured = |a: u8, b: u8| assignment.targets.get(&a).is_some_and(|to| to.contains(&b));
            let full = |n: u8| !may(n) || assignment.targets.get(&n).is_some_and(|to| to.len() == slots) || slots == 0;
            let mut left_out = 0;
            for (a, b) in &pairs {
                if !measured(*a, *b) && !measured(*b, *a) {
                    left_out += 1;
                    prop_assert!(full(*a) && full(*b));
                }
            }
            prop_assert_eq!(left_out, assignment.excess);
            prop_assert_eq!(pairs.len(), assignment.pairs);
            for (from, to) in &assignment.targets {
                prop_assert!(may(*from) && to.len() <= slots);
            }
        }
    }
}
