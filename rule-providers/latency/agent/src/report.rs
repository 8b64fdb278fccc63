//! Reports the scheduled pairs that have changed to a replica. A probe's answer contains the
//! probe's own pairs.

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tautline_proto::latency;

use crate::{
    pair::Pair,
    pairs::{self, Pairs},
    targets::Key,
};

/// The change of any window, in percent, above which a pair is reported: evaluations use all three
/// windows.
const CHANGE_THRESHOLD_PERCENT: u64 = 5;
/// The time after which an unchanged pair is reported again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);
/// The greatest number of pairs in one message. With the longest names, the message stays below the
/// provider's limit of 256 KiB.
const MAX_MESSAGE_PAIRS: usize = 500;

/// The last reports of one stream, with their times. A new stream reports all pairs.
#[derive(Debug, Default)]
pub struct DeltaReporter {
    reported: HashMap<Key, (latency::Pair, Instant)>,
}

impl DeltaReporter {
    /// Returns the messages to send. The last message may be empty; it confirms the last reports.
    pub fn messages(&mut self, pairs: &Pairs, now: Instant) -> Vec<Vec<latency::Pair>> {
        let (mut changes, mut messages) = (self.changes(pairs, now), Vec::new());
        while let Some(message) = split_message(&mut changes) {
            messages.push(message);
        }
        messages.push(changes);
        messages
    }

    fn changes(&mut self, pairs: &Pairs, now: Instant) -> Vec<latency::Pair> {
        let in_turn = |pair: &Pair| pair.refresh.is_some();
        self.reported
            .retain(|key, _| pairs.get(key).is_some_and(in_turn));
        let mut changes = Vec::new();
        for (key, pair) in pairs.iter().filter(|(_, pair)| in_turn(pair)) {
            let pair = pairs::to_report(key, pair, now);
            let same = self.reported.get(key).is_some_and(|(reported, at)| {
                reported.state == pair.state
                    && reported.refresh_millis == pair.refresh_millis
                    && reported.connect == pair.connect
                    && !moved(&reported.window_nanos, &pair.window_nanos)
                    && now.saturating_duration_since(*at) <= REPEAT_INTERVAL
            });
            if !same {
                self.reported.insert(key.clone(), (pair.clone(), now));
                changes.push(pair);
            }
        }
        changes
    }
}

pub fn split_message(pairs: &mut Vec<latency::Pair>) -> Option<Vec<latency::Pair>> {
    (pairs.len() > MAX_MESSAGE_PAIRS).then(|| pairs.split_off(pairs.len() - MAX_MESSAGE_PAIRS))
}

fn moved(reported: &[u64], now: &[u64]) -> bool {
    reported.len() != now.len()
        || reported.iter().zip(now).any(|(reported, now)| {
            reported.abs_diff(*now) > reported / 100 * CHANGE_THRESHOLD_PERCENT
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn probed_pairs_are_not_reported_and_messages_have_at_most_500() {
        let (mut pairs, mut reporter) = (Pairs::default(), DeltaReporter::default());
        let now = Instant::now();
        let key = |n: usize| Key {
            node: format!("n{n}").into(),
            instance: "i".into(),
        };
        let visited: Vec<Key> = (0..1_056).map(key).collect();
        pairs.visited(visited.iter().map(|k| (k, Some(2_000 * MS))), now);
        for n in 2_000..4_000 {
            pairs.of(&key(n), now).sample(MS, 1, now, now);
        }
        let reported = reporter.messages(&pairs, now);
        let sizes: Vec<_> = reported.iter().map(Vec::len).collect();
        assert_eq!(sizes, [500, 500, 56]);
        assert!(reported.iter().flatten().all(|p| p.refresh_millis == 2_000));
        assert_eq!(reporter.messages(&pairs, now), [vec![]]);
        let seldom = visited.iter().map(|k| (k, Some(9_000 * MS)));
        pairs.visited(seldom, now);
        let reported = reporter.messages(&pairs, now);
        assert!(reported.iter().flatten().all(|p| p.refresh_millis == 9_000));
        assert_eq!(reported.iter().flatten().count(), 1_056, "another refresh");
        pairs.visited(std::iter::empty(), now);
        assert_eq!(reporter.messages(&pairs, now), [vec![]]);
        pairs.visited([(&visited[0], Some(2_000 * MS))].into_iter(), now);
        assert_eq!(reporter.messages(&pairs, now)[0].len(), 1);
    }

    #[test]
    fn change_to_connects_is_reported_with_equal_figures() {
        let (mut pairs, mut reporter) = (Pairs::default(), DeltaReporter::default());
        let now = Instant::now();
        let key = Key {
            node: "n".into(),
            instance: "i".into(),
        };
        pairs.visited([(&key, Some(2_000 * MS))].into_iter(), now);
        let mut reported = |pairs: &Pairs| {
            let reported = reporter.messages(pairs, now).concat();
            reported.iter().map(|p| p.connect).collect::<Vec<_>>()
        };
        pairs.of(&key, now).sample(MS, 1, now, now);
        assert_eq!(reported(&pairs), [false]);
        pairs.of(&key, now).connected(MS, 2, now, now);
        assert_eq!(reported(&pairs), [true]);
        assert!(reported(&pairs).is_empty());
    }

    #[test]
    fn changes_are_reported_and_everything_after_30_s() {
        let (mut pairs, mut reporter) = (Pairs::default(), DeltaReporter::default());
        let start = Instant::now();
        let at = |visit: u64| start + 1_000 * MS * visit as u32;
        let mut now = start;
        let keys = ["a", "b"].map(|node| Key {
            node: node.into(),
            instance: "i".into(),
        });
        let mut names = |pairs: &Pairs, now| {
            let changes = reporter.changes(pairs, now);
            let mut names: Vec<_> = changes.into_iter().map(|p| p.node).collect();
            names.sort();
            names.join(" ")
        };
        pairs.visited(keys.iter().map(|k| (k, Some(2_000 * MS))), now);
        assert_eq!(names(&pairs, now), "a b");
        assert_eq!(names(&pairs, now), "");
        pairs.of(&keys[0], now).sample(100 * MS, 1, at(1), at(1));
        assert_eq!(names(&pairs, now), "a", "its first sample");
        for visit in 2..=3 {
            pairs
                .of(&keys[0], now)
                .sample(100 * MS, visit, at(visit), at(visit));
            assert_eq!(names(&pairs, now), "a", "a window more");
        }
        for visit in 4..=8 {
            pairs
                .of(&keys[0], now)
                .sample(104 * MS, visit, at(visit), at(visit));
        }
        assert_eq!(names(&pairs, now), "", "4 % is no news");
        for visit in 9..=11 {
            pairs
                .of(&keys[0], now)
                .sample(120 * MS, visit, at(visit), at(visit));
        }
        assert_eq!(names(&pairs, now), "a", "15 % is, of the newest window");
        for visit in 12..=13 {
            pairs
                .of(&keys[0], now)
                .sample(120 * MS, visit, at(visit), at(visit));
            assert_eq!(names(&pairs, now), "a", "and of those before it");
        }
        pairs.of(&keys[0], now).sample(120 * MS, 14, at(14), at(14));
        assert_eq!(names(&pairs, now), "");
        now = at(14);
        for visit in 15..=17 {
            pairs.of(&keys[1], now).lost(visit, now);
        }
        assert_eq!(names(&pairs, now), "b", "unreachable");
        assert_eq!(names(&pairs, now + 5_000 * MS), "a", "stale");
        assert_eq!(names(&pairs, now + 31_000 * MS), "b");
        assert_eq!(names(&pairs, now + 36_000 * MS), "a");
        pairs.visited(std::iter::empty(), now + 1_000_000 * MS);
        names(&pairs, now + 1_000_000 * MS);
        assert!(reporter.reported.is_empty());
    }
}
