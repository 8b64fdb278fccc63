//! What providers said, used again for the same question from another pod: for as long
//! as it is valid, or after only the changes were asked for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;
use tautline_core::{
    nodes::NodeSet,
    planning::{Costs, fnv1a_64},
    providers::Address,
};
use tautline_proto::endpoint_cost::{Malformed, Validity};
use tokio::time::Instant;

use crate::codec::{Answer, RawAnswer};

/// However long a provider says, and however well it tells of changes: then all is asked
/// anew. Relabeling must act within a second, and does because the key holds the provider.
const LONGEST: Duration = Duration::from_secs(60);
/// Questions of so many shapes are kept: some 300 KB to 1 MB each at 5,000 nodes.
const MOST: usize = 128;

/// What makes two questions the same: the provider and all of the question but
/// its nodes and the asking pod's name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    hash: u64,
    provider: Arc<str>,
    question: Vec<u8>,
}

impl Key {
    pub(crate) fn new(provider: Arc<str>, question: Vec<u8>) -> Self {
        // The key itself is compared as well, so a collision is a miss, not a lie.
        let hash = question.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
            (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
        });
        Self {
            hash: hash ^ fnv1a_64(&[&provider]),
            provider,
            question,
        }
    }
}

/// What the provider said of nodes, in one answer or several.
#[derive(Clone, Debug)]
struct Kept {
    nodes: NodeSet,
    costs: Costs,
    holds: Holds,
}

/// What lines hold by.
#[derive(Clone, Debug)]
enum Holds {
    /// Until then, by position.
    Until(Vec<Instant>),
    /// As of a version of who answers at this address.
    AsOf {
        version: u64,
        by: Arc<Address>,
        /// Until then there is no later version.
        fresh: Instant,
        /// Then all is asked anew.
        until: Instant,
        /// Which answer's nodes these are: another's have other positions.
        serial: u64,
    },
}

/// What is known of the nodes of a question.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    All(Costs),
    /// Of some nodes valid lines.
    Part(Part),
    /// Lines that hold but for what has changed since.
    AsOf(AsOf),
}

#[derive(Debug)]
pub(crate) struct Part {
    costs: Costs,
    pub missing: NodeSet,
}

#[derive(Debug)]
pub(crate) struct AsOf {
    pub version: u64,
    pub by: Arc<Address>,
    /// Of these there is no line.
    pub missing: NodeSet,
    /// Where the lines of the question's nodes are.
    at: Vec<Option<usize>>,
    serial: u64,
}

impl Part {
    /// The costs of all nodes of the question, `said` being about those missing.
    pub(crate) fn with(mut self, said: &Costs, nodes: &NodeSet) -> Costs {
        for (from, name) in self.missing.iter().enumerate() {
            if let Some(to) = nodes.position(name) {
                self.costs.copy(to, said, from);
            }
        }
        self.costs
    }
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    kept: DashMap<u64, (Key, Arc<Kept>)>,
    serial: AtomicU64,
}

impl Cache {
    /// What is known of `nodes`. kube-scheduler looks at other nodes of a large cluster
    /// for each pod, so often it is a part.
    pub(crate) fn find(&self, key: &Key, nodes: &NodeSet) -> Found {
        let kept = match self.kept.get(&key.hash) {
            Some(entry) if entry.value().0 == *key => Arc::clone(&entry.value().1),
            _ => return Found::Nothing,
        };
        let now = Instant::now();
        let holds = |at: &usize| match &kept.holds {
            Holds::Until(until) => until[*at] > now,
            Holds::AsOf { until, .. } => *until > now,
        };
        let (mut next, mut missing) = (0, NodeSet::default());
        let line = |name| {
            let at = kept.nodes.position_from(next, name);
            next = at.map_or(next, |at| at + 1);
            let at = at.filter(holds);
            if at.is_none() {
                missing.insert(name);
            }
            at
        };
        let at: Vec<Option<usize>> = nodes.iter().map(line).collect();
        match &kept.holds {
            Holds::AsOf {
                version,
                by,
                fresh,
                until,
                serial,
            } if *until > now && (*fresh <= now || !missing.is_empty()) => Found::AsOf(AsOf {
                version: *version,
                by: Arc::clone(by),
                missing,
                at,
                serial: *serial,
            }),
            _ if missing.len() == nodes.len() => Found::Nothing,
            _ => {
                let costs = kept.costs.pick(at.into_iter());
                match missing.is_empty() {
                    true => Found::All(costs),
                    false => Found::Part(Part { costs, missing }),
                }
            }
        }
    }

    /// Takes over what has changed since, and of the nodes that were missing all. Gives
    /// the costs of `nodes`; `None`: it is not about the lines that are kept (any more).
    ///
    /// # Errors
    /// An answer that is none.
    pub(crate) fn advance(
        &self,
        key: &Key,
        known: &AsOf,
        answer: &RawAnswer,
        nodes: &NodeSet,
    ) -> Result<Option<Costs>, Malformed> {
        let valid = answer.validity()?;
        if valid.changed_since != known.version || valid.version == 0 {
            return Ok(None);
        }
        let Some(mut entry) = self.kept.get_mut(&key.hash) else {
            return Ok(None);
        };
        let (_, kept) = entry.value_mut();
        let Kept {
            nodes: all,
            costs,
            holds,
        } = Arc::make_mut(kept);
        let (version, fresh) = match holds {
            Holds::AsOf {
                version,
                fresh,
                serial,
                ..
            } if *serial == known.serial => (version, fresh),
            _ => return Ok(None),
        };
        if valid.version >= *version {
            *version = valid.version;
            *fresh = holds_until(valid);
            for name in known.missing.iter() {
                all.insert(name);
            }
            answer.lines(|name, cost, note| costs.replace(all, name, cost, note))?;
        } else if !known.missing.is_empty() {
            // Another answer, of a later version, was here first, and did not say what
            // is missing.
            return Ok(None);
        }
        let at = known.at.iter().zip(nodes.iter());
        Ok(Some(costs.pick(
            at.map(|(at, name)| at.or_else(|| all.position(name))),
        )))
    }

    /// Keeps an answer for as long as its provider says, beside those about other
    /// nodes, or until the provider tells of changes.
    pub(crate) fn put(&self, key: Key, nodes: &NodeSet, answer: &Answer, by: &Address) {
        let (now, Answer { costs, valid }) = (Instant::now(), answer);
        let holds = match *valid {
            Validity {
                version: 0,
                millis: 1..,
                ..
            } => {
                let until = holds_until(*valid);
                if self.add(&key, nodes, costs, until) {
                    return;
                }
                Holds::Until(vec![until; nodes.len()])
            }
            Validity { version: 0, .. } => {
                // Who numbered its answers does so no longer.
                let held = |(_, kept): &(Key, Arc<Kept>)| matches!(kept.holds, Holds::AsOf { .. });
                self.kept.remove_if(&key.hash, |_, value| held(value));
                return;
            }
            Validity { version, .. } => Holds::AsOf {
                version,
                by: Arc::new(by.clone()),
                fresh: holds_until(*valid),
                until: now + LONGEST,
                serial: self.serial.fetch_add(1, Ordering::Relaxed),
            },
        };
        if self.kept.len() >= MOST {
            self.kept.retain(|_, (_, kept)| match &kept.holds {
                Holds::Until(until) => until.iter().any(|u| *u > now),
                Holds::AsOf { until, .. } => *until > now,
            });
            if self.kept.len() >= MOST {
                self.kept.clear();
            }
        }
        let mut kept = Kept {
            nodes: nodes.clone(),
            costs: costs.clone(),
            holds,
        };
        match self.kept.entry(key.hash) {
            dashmap::Entry::Occupied(mut entry) => {
                let (stored, before) = entry.get();
                if *stored == key {
                    kept.add_valid(before, now);
                }
                entry.insert((key, Arc::new(kept)));
            }
            dashmap::Entry::Vacant(entry) => _ = entry.insert((key, Arc::new(kept))),
        }
    }

    /// Writes an answer among the lines that are kept, unless most of them are over:
    /// so nodes that have gone do not pile up.
    fn add(&self, key: &Key, nodes: &NodeSet, said: &Costs, until: Instant) -> bool {
        let Some(mut entry) = self.kept.get_mut(&key.hash) else {
            return false;
        };
        let (stored, kept) = entry.value_mut();
        let fit = stored == key && kept.mostly_valid();
        if fit {
            Arc::make_mut(kept).add(nodes, said, until);
        }
        fit
    }
}

/// Until when an answer that comes now is valid, by its provider.
fn holds_until(valid: Validity) -> Instant {
    let millis = u64::try_from(valid.millis).unwrap_or(0);
    Instant::now() + Duration::from_millis(millis).min(LONGEST)
}

impl Kept {
    fn mostly_valid(&self) -> bool {
        let now = Instant::now();
        match &self.holds {
            Holds::Until(until) => {
                2 * until.iter().filter(|then| **then > now).count() > until.len()
            }
            Holds::AsOf { .. } => false,
        }
    }

    fn add(&mut self, nodes: &NodeSet, said: &Costs, then: Instant) {
        let Holds::Until(until) = &mut self.holds else {
            return;
        };
        let mut next = 0;
        for (from, name) in nodes.iter().enumerate() {
            let at = self.nodes.position_from(next, name);
            let to = at.unwrap_or_else(|| self.nodes.insert(name));
            next = to + 1;
            self.costs.copy(to, said, from);
            until.resize(self.nodes.len(), then);
            until[to] = then;
        }
        self.costs.repack();
    }

    /// Takes over lines about other nodes that are valid still.
    fn add_valid(&mut self, before: &Self, now: Instant) {
        let (Holds::Until(until), Holds::Until(then)) = (&mut self.holds, &before.holds) else {
            return;
        };
        for (from, name) in before.nodes.iter().enumerate() {
            if then[from] > now && self.nodes.position(name).is_none() {
                let to = self.nodes.insert(name);
                self.costs.copy(to, &before.costs, from);
                until.push(then[from]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_core::planning::Note;
    use tautline_proto::endpoint_cost::{NodeCost, put_validity};

    fn key(provider: &str) -> Key {
        Key::new(provider.into(), vec![1])
    }

    fn there() -> Address {
        Address {
            host: "10.0.0.1".into(),
            port: 5309,
        }
    }

    fn set(names: &[&str]) -> NodeSet {
        names.iter().copied().collect()
    }

    /// What is known of `names`: costs, and who is missing.
    fn known(cache: &Cache, names: &[&str]) -> Option<(Vec<Option<i64>>, Vec<String>)> {
        let nodes = set(names);
        let (costs, missing) = match cache.find(&key("ns/p"), &nodes) {
            Found::All(costs) => (costs, NodeSet::default()),
            Found::Part(Part { costs, missing }) => (costs, missing),
            _ => return None,
        };
        let costs = (0..nodes.len()).map(|at| costs.get(at)).collect();
        Some((costs, missing.iter().map(str::to_owned).collect()))
    }

    fn put(cache: &Cache, lines: &[(&str, i64)], unnamed: &[&str], millis: i64) {
        let mut nodes = set(unnamed);
        for (name, _) in lines {
            nodes.insert(name);
        }
        let mut costs = Costs::new(nodes.len());
        for (name, cost) in lines {
            let code = if *cost < 0 { "Full" } else { "" };
            let note = Note {
                code,
                ..Note::default()
            };
            costs.add(&nodes, name, *cost, note);
        }
        let valid = Validity {
            millis,
            ..Validity::default()
        };
        cache.put(key("ns/p"), &nodes, &Answer { costs, valid }, &there());
    }

    #[tokio::test(start_paused = true)]
    async fn valid_answers_serve_other_nodes_too_until_they_end() {
        let cache = Cache::default();
        put(&cache, &[("a", 5), ("b", -1)], &["gone"], 100);
        assert_eq!(
            known(&cache, &["b", "a", "gone"]).unwrap(),
            (vec![Some(-1), Some(5), None], vec![])
        );
        let Found::All(of_b) = cache.find(&key("ns/p"), &set(&["b"])) else {
            panic!("b is not known");
        };
        assert_eq!(of_b.note(0).unwrap().code, "Full");
        assert_eq!(known(&cache, &["d"]), None);
        let other = cache.find(&key("ns/q"), &set(&["a"]));
        assert!(matches!(other, Found::Nothing), "{other:?}");

        tokio::time::advance(Duration::from_millis(60)).await;
        let missing = vec!["d".to_owned()];
        assert_eq!(
            known(&cache, &["a", "d"]).unwrap(),
            (vec![Some(5), None], missing)
        );
        put(&cache, &[("d", 7), ("b", 3)], &[], 100);
        let all = ["a", "b", "d", "gone"];
        assert_eq!(
            known(&cache, &all).unwrap(),
            (vec![Some(5), Some(3), Some(7), None], vec![])
        );
        tokio::time::advance(Duration::from_millis(41)).await;
        let missing = vec!["a".to_owned(), "gone".to_owned()];
        assert_eq!(
            known(&cache, &all).unwrap(),
            (vec![None, Some(3), Some(7), None], missing)
        );
        tokio::time::advance(Duration::from_millis(60)).await;
        assert_eq!(known(&cache, &all), None);
    }

    /// Other nodes are asked about again and again, in another order, and nodes go.
    #[tokio::test(start_paused = true)]
    async fn what_is_over_and_what_was_said_anew_does_not_pile_up() {
        let cache = Cache::default();
        for round in 0..400_i64 {
            let name = |n: i64| format!("node-{}", (3 * round + n) % (20 + round));
            let mut nodes: Vec<String> = (0..10).map(name).collect();
            if round % 2 == 0 {
                nodes.reverse();
            }
            let lines: Vec<(&str, i64)> = nodes.iter().map(|n| (&**n, round % 5 - 1)).collect();
            put(&cache, &lines, &["gone"], 50);
            let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
            let (costs, missing) = known(&cache, &names).unwrap();
            assert_eq!(costs, vec![Some(round % 5 - 1); names.len()]);
            assert!(missing.is_empty());
            tokio::time::advance(Duration::from_millis(5)).await;
            let entry = cache.kept.get(&key("ns/p").hash).unwrap();
            // Ten rounds' lines are valid, and some more may be over.
            let (lines, bytes) = (entry.1.nodes.len(), entry.1.costs.weight());
            assert!(
                lines <= 2 * 10 * 11 + 11 && bytes < 20_000,
                "{lines} lines, {bytes} bytes"
            );
        }
    }

    /// An answer as it comes.
    fn told(lines: &[(&str, i64)], version: u64, changed_since: u64) -> RawAnswer {
        fresh(lines, version, changed_since, 0)
    }

    type Said = Option<Vec<Option<i64>>>;

    /// The costs of nodes after the answer to a question that was begun with `known`.
    fn advance(cache: &Cache, known: &AsOf, names: &[&str], answer: &RawAnswer) -> Said {
        let costs = cache.advance(&key("ns/p"), known, answer, &set(names));
        let costs = costs.unwrap()?;
        Some((0..names.len()).map(|at| costs.get(at)).collect())
    }

    /// The same answer; for so long its provider will know no later version.
    fn fresh(lines: &[(&str, i64)], version: u64, changed_since: u64, millis: i64) -> RawAnswer {
        let mut bytes = Vec::new();
        for (node, cost) in lines {
            let line = NodeCost {
                node,
                cost: *cost,
                ..NodeCost::default()
            };
            line.put(&mut bytes);
        }
        let valid = Validity {
            millis,
            version,
            changed_since,
        };
        put_validity(valid, &mut bytes);
        RawAnswer::new(bytes.into())
    }

    fn as_of(cache: &Cache, names: &[&str]) -> Option<AsOf> {
        match cache.find(&key("ns/p"), &set(names)) {
            Found::AsOf(known) => Some(known),
            _ => None,
        }
    }

    /// A whole answer about these nodes.
    fn put_told(cache: &Cache, names: &[&str], answer: &RawAnswer) {
        let nodes = set(names);
        let answer = answer.read(&nodes).unwrap();
        cache.put(key("ns/p"), &nodes, &answer, &there());
    }

    #[tokio::test(start_paused = true)]
    async fn lines_hold_but_for_what_has_changed_since_their_version() {
        let cache = Cache::default();
        put_told(&cache, &["a", "gone"], &told(&[("a", 5)], 10, 0));
        let one = as_of(&cache, &["b", "a"]).unwrap();
        assert_eq!((one.version, &*one.by), (10, &there()));
        assert_eq!(one.missing.iter().collect::<Vec<_>>(), ["b"]);
        // Whole, or since another version, or without one: not about these lines.
        for not in [told(&[], 11, 0), told(&[], 11, 9), told(&[], 0, 10)] {
            assert_eq!(advance(&cache, &one, &["b", "a"], &not), None);
        }
        let changes = told(&[("b", 2), ("gone", 8), ("not asked", 1)], 12, 10);
        let costs = advance(&cache, &one, &["b", "a"], &changes);
        assert_eq!(costs, Some(vec![Some(2), Some(5)]));
        let all = as_of(&cache, &["gone", "a", "b"]).unwrap();
        assert_eq!((all.version, all.missing.len()), (12, 0));
        let costs = advance(&cache, &all, &["gone", "a", "b"], &told(&[], 12, 12));
        assert_eq!(costs, Some(vec![Some(8), Some(5), Some(2)]));
        tokio::time::advance(LONGEST).await;
        assert!(as_of(&cache, &["a"]).is_none(), "all is asked anew");
    }

    #[tokio::test(start_paused = true)]
    async fn while_no_later_version_can_be_known_nobody_is_asked() {
        let cache = Cache::default();
        let both = ["a", "b"];
        let lines = [("a", 5), ("b", 6)];
        put_told(&cache, &both, &fresh(&lines, 10, 0, 20));
        let said = known(&cache, &["b", "a"]).unwrap();
        assert_eq!(said, (vec![Some(6), Some(5)], vec![]));
        // Of a node that is not known it is asked all the same.
        let more = as_of(&cache, &["a", "c"]).unwrap();
        let answer = fresh(&[("c", 7)], 10, 10, 15);
        let costs = advance(&cache, &more, &["a", "c"], &answer);
        assert_eq!(costs, Some(vec![Some(5), Some(7)]));
        tokio::time::advance(Duration::from_millis(14)).await;
        assert!(known(&cache, &["c", "a"]).is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        let begun = as_of(&cache, &both).unwrap();
        assert_eq!(begun.version, 10);
        let costs = advance(&cache, &begun, &both, &fresh(&[("a", 1)], 11, 10, 20));
        assert_eq!(costs, Some(vec![Some(1), Some(6)]));
        assert!(known(&cache, &both).is_some());
        // An answer that does not say for how long.
        tokio::time::advance(Duration::from_millis(20)).await;
        let begun = as_of(&cache, &both).unwrap();
        advance(&cache, &begun, &both, &told(&[], 11, 11)).unwrap();
        assert_eq!(as_of(&cache, &both).unwrap().version, 11);
    }

    #[tokio::test(start_paused = true)]
    async fn of_answers_that_cross_the_later_version_holds() {
        let cache = Cache::default();
        put_told(&cache, &["a", "b"], &told(&[("a", 5), ("b", 6)], 10, 0));
        let begun = || as_of(&cache, &["a", "b"]).unwrap();
        let (early, late) = (begun(), begun());
        let lacking = as_of(&cache, &["a", "c"]).unwrap();
        let of_late = told(&[("a", 1)], 12, 10);
        let costs = advance(&cache, &late, &["a", "b"], &of_late);
        assert_eq!(costs, Some(vec![Some(1), Some(6)]));
        // Told of an earlier version: what is kept is newer.
        let costs = advance(&cache, &early, &["a", "b"], &told(&[("a", 3)], 11, 10));
        assert_eq!(costs, Some(vec![Some(1), Some(6)]));
        let of_lacking = told(&[("a", 3), ("c", 9)], 11, 10);
        assert_eq!(advance(&cache, &lacking, &["a", "c"], &of_lacking), None);
        assert_eq!(begun().version, 12);
        // Of the same version, and beyond it.
        for (version, cost) in [(12, 1), (13, 4)] {
            let answer = told(&[("a", cost), ("c", 9)], version, 10);
            let costs = advance(&cache, &lacking, &["a", "c"], &answer);
            assert_eq!(costs, Some(vec![Some(cost), Some(9)]), "{version}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn positions_of_an_answer_are_not_those_of_another() {
        let cache = Cache::default();
        let lines = [("a", 1), ("b", 2), ("c", 3)];
        put_told(&cache, &["a", "b", "c"], &told(&lines, 10, 0));
        let begun = as_of(&cache, &["a", "b", "c"]).unwrap();
        // Another asks for all meanwhile: the same version, other nodes and places.
        put_told(&cache, &["c", "b"], &told(&lines[1..], 10, 0));
        assert_eq!(
            advance(&cache, &begun, &["a", "b", "c"], &told(&[], 10, 10)),
            None
        );
        let begun = as_of(&cache, &["b", "c"]).unwrap();
        // Who does not number its answers any longer is not asked for changes.
        put_told(&cache, &["b", "c"], &told(&lines[1..], 0, 0));
        assert_eq!(
            advance(&cache, &begun, &["b", "c"], &told(&[], 10, 10)),
            None
        );
        assert!(as_of(&cache, &["b", "c"]).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_for_this_call_only_is_not_kept() {
        let cache = Cache::default();
        put(&cache, &[("a", 5)], &[], 0);
        put(&cache, &[("a", 5)], &[], -3);
        assert_eq!(known(&cache, &["a"]), None);
    }
}
