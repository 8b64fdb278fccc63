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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub provider: Arc<str>,
    pub question: Vec<u8>,
}

#[derive(Debug)]
struct Kept {
    until: Instant,
    nodes: Arc<NodeSet>,
    costs: Arc<Costs>,
}

#[derive(Debug, Default)]
pub(crate) struct Cache(DashMap<u64, (Key, Kept)>);

impl Cache {
    /// The costs of `nodes`, if a valid answer has all of them.
    pub(crate) fn get(&self, key: &Key, nodes: &NodeSet) -> Option<Costs> {
        let (known, costs) = {
            let entry = self.0.get(&hash(key))?;
            let (stored, kept) = entry.value();
            if stored != key || kept.until <= Instant::now() {
                return None;
            }
            (Arc::clone(&kept.nodes), Arc::clone(&kept.costs))
        };
        let mut out = Costs::new(nodes.len());
        for name in nodes.iter() {
            let at = known.position(name)?;
            if let Some(cost) = costs.get(at) {
                out.add(nodes, name, cost, costs.note(at).unwrap_or_default());
            }
        }
        Some(out)
    }

    /// Keeps an answer for as long as its provider says.
    pub(crate) fn put(&self, key: Key, nodes: &Arc<NodeSet>, costs: &Costs, valid_for_millis: i64) {
        let Ok(millis @ 1..) = u64::try_from(valid_for_millis) else {
            return;
        };
        let now = Instant::now();
        if self.0.len() >= MOST {
            self.0.retain(|_, (_, kept)| kept.until > now);
            if self.0.len() >= MOST {
                self.0.clear();
            }
        }
        let until = now + Duration::from_millis(millis).min(LONGEST);
        let kept = Kept {
            until,
            nodes: Arc::clone(nodes),
            costs: Arc::new(costs.clone()),
        };
        self.0.insert(hash(&key), (key, kept));
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

    #[tokio::test(start_paused = true)]
    async fn valid_answers_serve_subsets_until_they_end() {
        let nodes: Arc<NodeSet> = Arc::new(["a", "b", "c"].into_iter().collect());
        let mut costs = Costs::new(3);
        costs.add(&nodes, "a", 5, Note::default());
        costs.add(
            &nodes,
            "b",
            -1,
            Note {
                code: "Full",
                ..Note::default()
            },
        );
        let cache = Cache::default();
        let key = Key {
            provider: "ns/p".into(),
            question: vec![1],
        };
        cache.put(key.clone(), &nodes, &costs, 100);

        let fewer: NodeSet = ["b", "a"].into_iter().collect();
        let got = cache.get(&key, &fewer).unwrap();
        assert_eq!((got.get(0), got.get(1)), (Some(-1), Some(5)));
        assert_eq!(got.note(0).unwrap().code, "Full");
        let other: NodeSet = ["d"].into_iter().collect();
        assert!(cache.get(&key, &other).is_none());
        assert!(
            cache
                .get(
                    &Key {
                        provider: "ns/q".into(),
                        ..key.clone()
                    },
                    &fewer
                )
                .is_none()
        );
        tokio::time::advance(Duration::from_millis(101)).await;
        assert!(cache.get(&key, &fewer).is_none());
    }
}
