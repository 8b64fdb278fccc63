use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tautline_proto::latency;

use crate::{pair::Pair, targets::Key};

/// The number of pairs from which the least recently used pair that is not scheduled makes room for
/// a new one. Probes have more targets than the schedule.
const MAX_PAIRS: usize = 4_096;
/// The time without use after which a pair that is not scheduled is dropped.
const PAIR_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Pairs {
    by_key: HashMap<Key, StoredPair>,
}

#[derive(Debug)]
struct StoredPair {
    pair: Pair,
    used: Instant,
}

impl Pairs {
    pub fn of(&mut self, key: &Key, now: Instant) -> &mut Pair {
        if self.by_key.len() >= MAX_PAIRS && !self.by_key.contains_key(key) {
            let unvisited = self.by_key.iter().filter(|(_, k)| k.pair.refresh.is_none());
            let oldest = unvisited
                .min_by_key(|(_, k)| k.used)
                .map(|(k, _)| k.clone());
            if let Some(oldest) = oldest {
                self.by_key.remove(&oldest);
            }
        }
        let entry = self
            .by_key
            .entry(key.clone())
            .or_insert_with(|| StoredPair {
                pair: Pair::default(),
                used: now,
            });
        entry.used = now;
        &mut entry.pair
    }

    pub fn get(&self, key: &Key) -> Option<&Pair> {
        self.by_key.get(key).map(|entry| &entry.pair)
    }

    /// Sets the visit intervals, and drops pairs that are neither scheduled nor recently used.
    pub fn visited<'a>(
        &mut self,
        targets: impl Iterator<Item = (&'a Key, Option<Duration>)>,
        now: Instant,
    ) {
        for entry in self.by_key.values_mut() {
            entry.pair.refresh = None;
        }
        for (key, refresh) in targets {
            self.of(key, now).refresh = refresh;
        }
        self.by_key.retain(|_, entry| {
            let idle = now.saturating_duration_since(entry.used);
            entry.pair.refresh.is_some() || idle < PAIR_IDLE_TIMEOUT
        });
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Pair)> {
        self.by_key.iter().map(|(key, entry)| (key, &entry.pair))
    }
}

pub fn to_report(key: &Key, pair: &Pair, now: Instant) -> latency::Pair {
    latency::Pair {
        node: key.node.to_string(),
        instance: key.instance.to_string(),
        ..pair.figures(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Key {
        Key {
            node: format!("n{n}").into(),
            instance: "".into(),
        }
    }

    #[test]
    fn pairs_have_a_bound_and_visited_ones_stay() {
        let (mut pairs, now) = (Pairs::default(), Instant::now());
        let second = Some(Duration::from_secs(1));
        pairs.visited([(&key(0), second)].into_iter(), now);
        for n in 1..MAX_PAIRS + 100 {
            pairs.of(&key(n), now + Duration::from_millis(n as u64));
        }
        assert_eq!(pairs.by_key.len(), MAX_PAIRS);
        assert!(pairs.get(&key(0)).is_some() && pairs.get(&key(1)).is_none());
        pairs.visited([(&key(0), second)].into_iter(), now + 2 * PAIR_IDLE_TIMEOUT);
        assert_eq!(pairs.by_key.len(), 1);
        pairs.visited(std::iter::empty(), now + 2 * PAIR_IDLE_TIMEOUT);
        assert_eq!(pairs.by_key.len(), 1);
        pairs.visited(std::iter::empty(), now + 4 * PAIR_IDLE_TIMEOUT);
        assert_eq!(pairs.by_key.len(), 0);
    }
}
