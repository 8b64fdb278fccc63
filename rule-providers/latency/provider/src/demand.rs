//! The pairs that active rules name, and who measures them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tautline_core::planning::fnv1a_64;

/// So many pairs of one node, visited every 2 s, are 5 visits a second.
pub(crate) const ROOM: usize = 10;
/// So many pairs are kept at the most; more is no use to anyone. A pair that several
/// namespaces ask for counts for each.
const MOST: usize = 100_000;
/// Of these for one namespace that is not trusted.
const MOST_OF_ONE: usize = MOST / 10;

/// The namespace whose rule names a pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub namespace: &'a str,
    /// It may ask for all pairs that there is a place for.
    pub trusted: bool,
}

#[cfg(test)]
impl Asker<'static> {
    pub const TRUSTED: Self = Self {
        namespace: "system",
        trusted: true,
    };
}

/// The namespaces that ask for a pair, each until when.
type Askers = Vec<(Arc<str>, Duration)>;

/// What rules ask for, until when. Times are given, since any one moment.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    of: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Askers>>,
    /// How many pairs each namespace asks for.
    by_namespace: HashMap<Arc<str>, usize>,
    len: usize,
    /// Those that there was no place for, by their hashes; no more than places.
    refused: HashMap<u64, Duration>,
}

/// Changes each minute, at all replicas at about the same time.
pub(crate) fn minute() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() / 60)
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
    /// Asks for a pair; says whether it is new, or newly refused.
    pub fn ask(&mut self, asker: Asker<'_>, a: &str, b: &str, until: Duration) -> bool {
        let (a, b) = (a.min(b), a.max(b));
        if a == b {
            return false;
        }
        let known = self.of.get_mut(a).and_then(|of| of.get_mut(b));
        let is_known = known.is_some();
        let same = |(namespace, _): &&mut (Arc<str>, Duration)| **namespace == *asker.namespace;
        if let Some((_, kept)) = known.and_then(|askers| askers.iter_mut().find(same)) {
            *kept = until.max(*kept);
            return false;
        }
        let own = self.by_namespace.get_key_value(asker.namespace);
        let (namespace, own) = match own {
            Some((namespace, own)) => (Arc::clone(namespace), *own),
            None => (asker.namespace.into(), 0),
        };
        let hash = fnv1a_64(&[a, b]);
        if self.len >= MOST || !asker.trusted && own >= MOST_OF_ONE {
            if is_known {
                // It is measured for others.
                return false;
            }
            let room = self.refused.len() < MOST || self.refused.contains_key(&hash);
            return room && self.refused.insert(hash, until).is_none();
        }
        self.refused.remove(&hash);
        self.len += 1;
        let of_a = self.of.entry(a.into()).or_default();
        let askers = of_a.entry(b.into()).or_default();
        askers.push((Arc::clone(&namespace), until));
        self.by_namespace.insert(namespace, own + 1);
        !is_known
    }

    /// Drops what nobody has asked for any more; says whether there was such.
    pub fn expire(&mut self, now: Duration) -> bool {
        let refused = self.refused.len();
        self.refused.retain(|_, until| *until > now);
        self.by_namespace.clear();
        self.of.retain(|_, of| {
            of.retain(|_, askers| {
                askers.retain(|(_, until)| *until > now);
                for (namespace, _) in &*askers {
                    *self.by_namespace.entry(Arc::clone(namespace)).or_default() += 1;
                }
                !askers.is_empty()
            });
            !of.is_empty()
        });
        let left = self.by_namespace.values().sum();
        std::mem::replace(&mut self.len, left) > left || self.refused.len() < refused
    }

    /// Pairs that there was no place for.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// The pairs in an order that is another each minute, and the same at all
    /// replicas. The namespaces take turns: first come the pairs that are the first
    /// ones of a namespace at both of their nodes, then the second ones, and so on.
    /// Where `n` namespaces ask, a namespace with at most `ROOM / n` pairs at each
    /// node so has room for them all.
    pub fn pairs(&self, minute: u64) -> impl Iterator<Item = (&str, &str)> {
        let (all, minute) = (self.of.iter(), minute.to_string());
        let all = all.flat_map(|(a, of)| of.iter().map(move |(b, askers)| (&**a, &**b, askers)));
        let mut pairs: Vec<(&str, &str, &Askers)> = all.collect();
        pairs.sort_by_cached_key(|(a, b, _)| fnv1a_64(&[&minute, a, b]));
        if self.by_namespace.len() > 1 {
            let mut turns = Turns::default();
            pairs.sort_by_cached_key(|(a, b, askers)| turns.next(a, b, askers));
        }
        pairs.into_iter().map(|(a, b, _)| (a, b))
    }
}

/// How many pairs of each namespace at each node have had their turn.
#[derive(Debug, Default)]
struct Turns<'a>(HashMap<(&'a str, &'a str), usize>);

impl<'a> Turns<'a> {
    /// The turn of a pair: the earliest that one of its namespaces has for it.
    fn next(&mut self, a: &'a str, b: &'a str, askers: &'a Askers) -> usize {
        let turns = askers.iter().map(|(namespace, _)| {
            let at = [a, b].map(|node| {
                let count = self.0.entry((&**namespace, node)).or_default();
                *count += 1;
                *count
            });
            at[0].max(at[1])
        });
        turns.min().unwrap_or(usize::MAX)
    }
}

/// Gives each pair to the end that has more room, then to the other too if it has
/// some. Ends that `may` not measure have none. The same pairs in the same order
/// are shared alike, and each end's are in their own order.
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
    shares.of.values_mut().for_each(|of| of.sort_unstable());
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
        assert!(demand.ask(Asker::TRUSTED, "b", "a", SECOND * 5));
        assert!(!demand.ask(Asker::TRUSTED, "a", "b", SECOND * 9));
        assert!(!demand.ask(Asker::TRUSTED, "a", "a", SECOND * 9));
        assert_eq!(demand.pairs(0).collect::<Vec<_>>(), [("a", "b")]);
        assert!(!demand.expire(SECOND * 8));
        assert!(demand.expire(SECOND * 9));
        assert_eq!(demand.len, 0);
    }

    #[test]
    fn those_without_a_place_are_counted_until_nobody_asks() {
        let mut demand = Demand::default();
        let name = |i: usize| format!("n{i:06}");
        for i in 0..MOST {
            demand.ask(
                Asker::TRUSTED,
                "a",
                &name(i),
                SECOND * if i == 0 { 5 } else { 9 },
            );
        }
        assert!(demand.ask(Asker::TRUSTED, "a", "x", SECOND * 9));
        assert!(
            !demand.ask(Asker::TRUSTED, "x", "a", SECOND * 9),
            "counted once"
        );
        assert!(demand.ask(Asker::TRUSTED, "a", "y", SECOND * 7));
        assert_eq!((demand.len, demand.refused()), (MOST, 2));
        // One place is free.
        assert!(demand.expire(SECOND * 5));
        assert!(demand.ask(Asker::TRUSTED, "a", "x", SECOND * 9));
        assert_eq!((demand.len, demand.refused()), (MOST, 1));
        assert!(demand.expire(SECOND * 7));
        assert_eq!(demand.refused(), 0);
    }

    const TENANT: Asker<'_> = Asker {
        namespace: "tenant",
        trusted: false,
    };

    #[test]
    fn a_namespace_that_is_not_trusted_leaves_places_to_others() {
        let mut demand = Demand::default();
        let name = |i: usize| format!("n{i:06}");
        for i in 0..MOST {
            demand.ask(TENANT, "a", &name(i), SECOND * 5);
        }
        assert_eq!(
            (demand.len, demand.refused()),
            (MOST_OF_ONE, MOST - MOST_OF_ONE)
        );
        let other = Asker {
            namespace: "other",
            ..TENANT
        };
        assert!(demand.ask(other, "b", "c", SECOND * 9));
        let last = name(MOST - 1);
        assert!(demand.ask(other, "a", &last, SECOND * 9));
        assert!(
            !demand.ask(TENANT, "a", &last, SECOND * 9),
            "it is measured already"
        );
        // What one namespace asks no more is kept for another.
        assert!(!demand.ask(other, "a", &name(0), SECOND * 9));
        assert!(demand.expire(SECOND * 5));
        assert_eq!((demand.len, demand.pairs(0).count()), (3, 3));
        assert!(demand.ask(TENANT, "a", &name(MOST / 2), SECOND * 9));
    }

    #[test]
    fn who_goes_without_changes_each_minute() {
        let mut demand = Demand::default();
        let names: Vec<String> = (0..40).map(|i| format!("n{i:02}")).collect();
        for name in &names {
            demand.ask(Asker::TRUSTED, "hub", name, SECOND);
        }
        let measured = |minute: u64| {
            let shares = share(demand.pairs(minute), ROOM, |n| n == "hub");
            assert_eq!((shares.excess, shares.pairs), (30, 40));
            assert!(shares.of["hub"].is_sorted());
            shares.of["hub"].clone()
        };
        assert_eq!(measured(7), measured(7));
        let mut ever: Vec<&str> = (0..60).flat_map(measured).collect();
        ever.sort_unstable();
        ever.dedup();
        assert_eq!(ever.len(), 40, "each within the hour");
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
        fn a_namespace_with_its_share_of_pairs_has_them_all_measured(
            others in proptest::collection::vec((0usize..3, 0usize..9, 0usize..9), 0..200),
            own in proptest::collection::vec((0usize..9, 0usize..9), 0..20),
            room in 4usize..13,
            minute in any::<u64>(),
        ) {
            let node = |i: usize| format!("n{i}");
            let mut demand = Demand::default();
            for (namespace, a, b) in &others {
                let namespace = format!("tenant-{namespace}");
                let asker = Asker { namespace: &namespace, trusted: false };
                demand.ask(asker, &node(*a), &node(*b), SECOND);
            }
            // The last namespace keeps to its share at each node.
            let (mut count, mut kept) = ([0; 9], Vec::new());
            for (a, b) in own {
                let (a, b) = (a.min(b), a.max(b));
                let full = [a, b].iter().any(|n| count[*n] >= room / 4);
                if a == b || full || kept.contains(&(a, b)) {
                    continue;
                }
                demand.ask(TENANT, &node(a), &node(b), SECOND);
                kept.push((a, b));
                count[a] += 1;
                count[b] += 1;
            }
            let shares = share(demand.pairs(minute), room, |_| true);
            for (a, b) in kept {
                let (a, b) = (node(a), node(b));
                let measured = |a: &str, b: &str| shares.of.get(a).is_some_and(|to| to.contains(&b));
                prop_assert!(measured(&a, &b) || measured(&b, &a), "{} {}", a, b);
            }
        }

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
