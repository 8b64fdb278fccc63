//! The times of the next evaluations, in one heap instead of a timer per binding.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

use tautline_core::planning::fnv1a_64;

use crate::binding_spec::Key;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The periodic evaluation with this turn number. A changed period starts a new turn, which
    /// makes earlier ones void.
    Period(u64),
    /// A single evaluation in addition to the periodic ones.
    Once,
}

#[derive(Debug, Default)]
pub(crate) struct Schedule(BinaryHeap<Reverse<(Instant, Reason, Key)>>);

impl Schedule {
    pub(crate) fn add(&mut self, key: Key, at: Instant, reason: Reason) {
        self.0.push(Reverse((at, reason, key)));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Key, Instant, Reason)> {
        if self.next()? > now {
            return None;
        }
        let Reverse((at, reason, key)) = self.0.pop()?;
        Some((key, at, reason))
    }
}

/// Returns the binding's own offset in the period, so that the evaluations of many bindings spread.
pub(crate) fn phase(key: &str, period: Duration) -> Duration {
    period.mul_f64(fraction(fnv1a_64(&[key])))
}

/// Returns one period ± 5 %, so that the evaluations of bindings that were due together spread.
pub(crate) fn jittered(key: &str, turn: u64, period: Duration) -> Duration {
    let roll = fnv1a_64(&[key, &turn.to_string()]);
    period.mul_f64(0.95 + 0.1 * fraction(roll))
}

/// Returns a number from 0 to below 1.
fn fraction(hash: u64) -> f64 {
    // FNV's low bits mix better than its high ones.
    (hash % (1 << 20)) as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, secs: u64) -> Instant {
        start + Duration::from_secs(secs)
    }

    #[test]
    fn schedule_pops_in_order_of_time() {
        let mut schedule = Schedule::default();
        let start = Instant::now();
        for (key, secs) in [("b", 2), ("a", 1), ("c", 3)] {
            schedule.add(key.into(), at(start, secs), Reason::Once);
        }
        let pop = || schedule.pop(at(start, 2)).map(|(key, ..)| key);
        let keys: Vec<Key> = std::iter::from_fn(pop).collect();
        assert_eq!(keys, ["a", "b"].map(Key::from));
        assert_eq!(schedule.next(), Some(at(start, 3)));
    }

    #[test]
    fn schedule_pops_nothing_before_its_time() {
        let mut schedule = Schedule::default();
        let start = Instant::now();
        schedule.add("a".into(), at(start, 1), Reason::Once);
        assert_eq!(schedule.pop(start), None);
        assert!(schedule.pop(at(start, 1)).is_some(), "due to the instant");
        assert_eq!(schedule.pop(at(start, 9)), None);
    }

    #[test]
    fn schedule_keeps_one_key_at_several_times() {
        let mut schedule = Schedule::default();
        let start = Instant::now();
        schedule.add("a".into(), at(start, 2), Reason::Period(1));
        schedule.add("a".into(), at(start, 1), Reason::Once);
        let (_, _, first) = schedule.pop(at(start, 5)).unwrap();
        let (_, due, second) = schedule.pop(at(start, 5)).unwrap();
        assert_eq!((first, second), (Reason::Once, Reason::Period(1)));
        assert_eq!(
            due,
            at(start, 2),
            "the time it was due, not that of the pop"
        );
    }

    #[test]
    fn phase_spreads_bindings_over_their_period() {
        let period = Duration::from_secs(10);
        let mut by_second = [0usize; 10];
        for i in 0..10_000 {
            let at = phase(&format!("ns/offer-{i}"), period);
            by_second[at.as_secs() as usize] += 1;
        }
        assert!(
            by_second.iter().all(|n| (800..1200).contains(n)),
            "{by_second:?}"
        );
    }

    #[test]
    fn phase_of_a_binding_is_always_the_same() {
        let period = Duration::from_secs(10);
        assert_eq!(phase("ns/a", period), phase("ns/a", period));
        assert_ne!(phase("ns/a", period), phase("ns/b", period));
    }

    #[test]
    fn jitter_stays_within_5_percent_and_differs_by_turn() {
        let period = Duration::from_secs(10);
        for turn in 0..1000 {
            let next = jittered("ns/a", turn, period);
            assert!(next >= period.mul_f64(0.95) && next <= period.mul_f64(1.05));
        }
        assert_ne!(jittered("ns/a", 1, period), jittered("ns/a", 2, period));
    }
}
