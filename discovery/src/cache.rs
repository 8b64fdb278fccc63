//! Answers that their provider calls valid for a while, used again for the same
//! question from another pod.

use std::{sync::Arc, time::Duration};

use dashmap::DashMap;
use tautline_core::{
    nodes::NodeSet,
    planning::{Costs, fnv1a_64},
};
use tokio::time::Instant;

/// However long a provider says; relabeling must act within a second, and does
/// because the key holds the provider.
const LONGEST: Duration = Duration::from_secs(60);
/// Questions of so many shapes are kept: some 300 KB each at 5,000 nodes.
const MOST: usize = 128;

/// What makes two questions the same: the provider and all of the question but
/// its nodes and the asking pod's name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub provider: Arc<str>,
    pub question: Vec<u8>,
}

/// What the provider said of nodes, in one answer or several.
#[derive(Debug, Default)]
struct Kept {
    nodes: NodeSet,
    costs: Costs,
    /// By position.
    until: Vec<Instant>,
}

/// What is known of the nodes of a question.
#[derive(Debug)]
pub(crate) struct Known {
    pub costs: Costs,
    /// Of these nothing is.
    pub missing: NodeSet,
}

impl Known {
    /// The costs of all nodes of the question, `said` being about those missing.
    pub(crate) fn with(mut self, said: &Costs, nodes: &NodeSet) -> Costs {
        for (at, name) in self.missing.iter().enumerate() {
            copy(said, at, nodes, name, &mut self.costs);
        }
        self.costs
    }
}

#[derive(Debug, Default)]
pub(crate) struct Cache(DashMap<u64, (Key, Arc<Kept>)>);

impl Cache {
    /// What valid answers say of `nodes`; `None`: nothing. kube-scheduler looks at
    /// other nodes of a large cluster for each pod, so often it is a part.
    pub(crate) fn get(&self, key: &Key, nodes: &NodeSet) -> Option<Known> {
        let kept = {
            let entry = self.0.get(&hash(key))?;
            let (stored, kept) = entry.value();
            (stored == key).then(|| Arc::clone(kept))?
        };
        let now = Instant::now();
        let mut known = Known {
            costs: Costs::new(nodes.len()),
            missing: NodeSet::default(),
        };
        let mut next = 0;
        for name in nodes.iter() {
            let at = kept.nodes.position_from(next, name);
            next = at.map_or(next, |at| at + 1);
            match at.filter(|at| kept.until[*at] > now) {
                Some(at) => copy(&kept.costs, at, nodes, name, &mut known.costs),
                None => _ = known.missing.insert(name),
            }
        }
        (known.missing.len() < nodes.len()).then_some(known)
    }

    /// Keeps an answer for as long as its provider says, beside those about other
    /// nodes.
    pub(crate) fn put(&self, key: Key, nodes: &NodeSet, costs: &Costs, valid_for_millis: i64) {
        let Ok(millis @ 1..) = u64::try_from(valid_for_millis) else {
            return;
        };
        let now = Instant::now();
        if self.0.len() >= MOST {
            self.0
                .retain(|_, (_, kept)| kept.until.iter().any(|u| *u > now));
            if self.0.len() >= MOST {
                self.0.clear();
            }
        }
        let until = now + Duration::from_millis(millis).min(LONGEST);
        let mut entry = self.0.entry(hash(&key)).or_default();
        let (stored, before) = entry.value_mut();
        if *stored != key {
            *before = Arc::default();
            *stored = key;
        }
        let still =
            |at: usize| before.until[at] > now && nodes.position(before.nodes.name(at)).is_none();
        let others: Vec<usize> = (0..before.nodes.len()).filter(|at| still(*at)).collect();
        let mut kept = Kept::default();
        for name in nodes.iter() {
            kept.nodes.insert(name);
        }
        kept.until = vec![until; nodes.len()];
        for at in &others {
            kept.nodes.insert(before.nodes.name(*at));
            kept.until.push(before.until[*at]);
        }
        kept.costs = Costs::new(kept.nodes.len());
        for (at, name) in nodes.iter().enumerate() {
            copy(costs, at, &kept.nodes, name, &mut kept.costs);
        }
        for at in others {
            copy(
                &before.costs,
                at,
                &kept.nodes,
                before.nodes.name(at),
                &mut kept.costs,
            );
        }
        *before = Arc::new(kept);
    }
}

/// Takes what is said of the node at `at` over into the costs of other nodes; that
/// it was not named, too.
fn copy(from: &Costs, at: usize, nodes: &NodeSet, name: &str, to: &mut Costs) {
    if let Some(cost) = from.get(at) {
        to.add(nodes, name, cost, from.note(at).unwrap_or_default());
    }
}

fn hash(key: &Key) -> u64 {
    // The stored key is compared as well, so a collision is a miss, not a lie.
    let question: u64 = key.question.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    });
    question ^ fnv1a_64(&[&key.provider])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_core::planning::Note;

    fn key(provider: &str) -> Key {
        Key {
            provider: provider.into(),
            question: vec![1],
        }
    }

    fn set(names: &[&str]) -> NodeSet {
        names.iter().copied().collect()
    }

    /// What is known of `names`: costs, and who is missing.
    fn known(cache: &Cache, names: &[&str]) -> Option<(Vec<Option<i64>>, Vec<String>)> {
        let nodes = set(names);
        let known = cache.get(&key("ns/p"), &nodes)?;
        let costs = (0..nodes.len()).map(|at| known.costs.get(at)).collect();
        let missing = known.missing.iter().map(str::to_owned).collect();
        Some((costs, missing))
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
        cache.put(key("ns/p"), &nodes, &costs, millis);
    }

    #[tokio::test(start_paused = true)]
    async fn valid_answers_serve_other_nodes_too_until_they_end() {
        let cache = Cache::default();
        put(&cache, &[("a", 5), ("b", -1)], &["gone"], 100);
        assert_eq!(
            known(&cache, &["b", "a", "gone"]).unwrap(),
            (vec![Some(-1), Some(5), None], vec![])
        );
        let known_b = cache.get(&key("ns/p"), &set(&["b"])).unwrap();
        assert_eq!(known_b.costs.note(0).unwrap().code, "Full");
        assert_eq!(known(&cache, &["d"]), None);
        assert!(cache.get(&key("ns/q"), &set(&["a"])).is_none());

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

    #[tokio::test(start_paused = true)]
    async fn an_answer_for_this_call_only_is_not_kept() {
        let cache = Cache::default();
        put(&cache, &[("a", 5)], &[], 0);
        put(&cache, &[("a", 5)], &[], -3);
        assert_eq!(known(&cache, &["a"]), None);
    }
}
