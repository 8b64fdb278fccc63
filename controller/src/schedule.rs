//! When which binding is evaluated next: a heap, not a timer a binding.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use tautline_core::planning::fnv1a_64;
use tokio::time::Instant;

use crate::known::Key;

/// Why a binding's time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// Its period; of a turn, so that a changed period makes the old one void.
    Period(u64),
    /// Once, besides its period.
    Once,
}

/// Bindings by the time of their next evaluation.
#[derive(Debug, Default)]
pub(crate) struct Schedule(BinaryHeap<Reverse<(Instant, Reason, Key)>>);

impl Schedule {
    pub(crate) fn add(&mut self, key: Key, at: Instant, reason: Reason) {
        self.0.push(Reverse((at, reason, key)));
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next one that is due by `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Key, Instant, Reason)> {
        if self.next()? > now {
            return None;
        }
        let Reverse((at, reason, key)) = self.0.pop()?;
        Some((key, at, reason))
    }
}

/// A point of the period that is the binding's own, so that many spread.
pub(crate) fn phase(key: &str, period: Duration) -> Duration {
    period.mul_f64(fraction(fnv1a_64(&[key])))
}

/// One period, give or take a twentieth: bindings that were due together do not
/// stay together.
pub(crate) fn jittered(key: &str, turn: u64, period: Duration) -> Duration {
    let roll = fnv1a_64(&[key, &turn.to_string()]);
    period.mul_f64(0.95 + 0.1 * fraction(roll))
}

fn fraction(hash: u64) -> f64 {
    // FNV's low bits mix better than its high ones.
    (hash % (1 << 20)) as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn in_the_order_of_time_and_not_before() {
        let mut schedule = Schedule::default();
        let start = Instant::now();
        for (key, secs) in [("b", 2), ("a", 1), ("c", 3)] {
            schedule.add(key.into(), start + Duration::from_secs(secs), Reason::Once);
        }
        assert_eq!(schedule.pop(start), None);
        let late = start + Duration::from_secs(2);
        let keys: Vec<Key> = std::iter::from_fn(|| schedule.pop(late).map(|(k, ..)| k)).collect();
        assert_eq!(keys, ["a", "b"].map(Key::from));
        assert_eq!(schedule.next(), Some(start + Duration::from_secs(3)));
    }

    #[test]
    fn many_spread_over_their_period() {
        let period = Duration::from_secs(10);
        let mut by_second = [0usize; 10];
        for i in 0..10_000 {
            let at = phase(&format!("ns/offer-{i}"), period);
            by_second[at.as_secs() as usize] += 1;
            let next = jittered(&format!("ns/offer-{i}"), i, period);
            assert!(next >= period.mul_f64(0.95) && next <= period.mul_f64(1.05));
        }
        assert!(
            by_second.iter().all(|n| (800..1200).contains(n)),
            "{by_second:?}"
        );
    }
}
