//! The times of work to come, in one heap instead of a timer per binding, and the waits of flapping
//! bindings: the more often the state has changed, the longer the next evaluation waits. Each change
//! costs a write and an event, and providers must not be able to cause these at will.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

use tautline_core::planning::fnv1a_64;

use crate::{binding_spec::Key, clock::backoff};

/// The number of changes without a wait. Two short outages make four changes.
const FREE_CHANGES: u32 = 4;
/// The wait after the first change beyond [`FREE_CHANGES`]. It doubles with each further change.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// The time without a change after which earlier ones are forgotten.
const CALM_AFTER: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// The periodic evaluation of a binding with this turn number. A changed period starts a new
    /// turn, which makes earlier ones void.
    Period(u64),
    /// A single evaluation in addition to the periodic ones.
    Once,
    /// Another attempt to write the status of a binding.
    WriteStatus,
    /// Another comparison of an offer with its bindings.
    Compare,
}

/// The work to come, by its time and the key of its binding or offer.
#[derive(Debug, Default)]
pub(crate) struct Schedule(BinaryHeap<Reverse<(Instant, Work, Key)>>);

impl Schedule {
    pub(crate) fn add(&mut self, key: Key, at: Instant, work: Work) {
        self.0.push(Reverse((at, work, key)));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Key, Instant, Work)> {
        if self.next()? > now {
            return None;
        }
        let Reverse((at, work, key)) = self.0.pop()?;
        Some((key, at, work))
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

/// The recent changes of one binding.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flapping {
    changes: u32,
    changed_at: Option<Instant>,
}

impl Flapping {
    /// Counts an evaluation, which may have changed the state that is written.
    pub(crate) fn evaluated(&mut self, changed: bool, now: Instant) {
        let calm = |at| now.saturating_duration_since(at) >= CALM_AFTER;
        if self.changed_at.is_some_and(calm) {
            *self = Self::default();
        }
        if changed {
            self.changes = self.changes.saturating_add(1);
            self.changed_at = Some(now);
        }
    }

    pub(crate) fn backs_off(&self) -> bool {
        self.changes > FREE_CHANGES
    }

    /// Returns the time until which no evaluation begins; `None` if one may begin now.
    pub(crate) fn waits_until(&self, now: Instant) -> Option<Instant> {
        let beyond = self.changes.checked_sub(FREE_CHANGES).filter(|n| *n > 0)?;
        let until = self.changed_at? + backoff(FIRST_WAIT, LONGEST_WAIT, beyond);
        (until > now).then_some(until)
    }
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
            schedule.add(key.into(), at(start, secs), Work::Once);
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
        schedule.add("a".into(), at(start, 1), Work::Once);
        assert_eq!(schedule.pop(start), None);
        assert!(schedule.pop(at(start, 1)).is_some(), "due to the instant");
        assert_eq!(schedule.pop(at(start, 9)), None);
    }

    #[test]
    fn schedule_keeps_one_key_at_several_times() {
        let mut schedule = Schedule::default();
        let start = Instant::now();
        schedule.add("a".into(), at(start, 2), Work::Period(1));
        schedule.add("a".into(), at(start, 1), Work::Once);
        let (_, _, first) = schedule.pop(at(start, 5)).unwrap();
        let (_, due, second) = schedule.pop(at(start, 5)).unwrap();
        assert_eq!((first, second), (Work::Once, Work::Period(1)));
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

    fn wait(flapping: &Flapping, now: Instant) -> u64 {
        let until = flapping.waits_until(now);
        until.map_or(0, |until| (until - now).as_secs())
    }

    #[test]
    fn waits_double_from_the_fifth_change_to_two_minutes() {
        let (mut flapping, mut now) = (Flapping::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..14 {
            flapping.evaluated(true, now);
            waits.push(wait(&flapping, now));
            now = flapping.waits_until(now).unwrap_or(now);
        }
        assert_eq!(waits, [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 120, 120, 120]);
    }

    #[test]
    fn a_wait_ends_and_the_changes_count_until_ten_calm_minutes() {
        let (mut flapping, start) = (Flapping::default(), Instant::now());
        for _ in 0..8 {
            flapping.evaluated(true, start);
        }
        assert_eq!(wait(&flapping, start), 8);
        let later = start + Duration::from_secs(8);
        assert_eq!(flapping.waits_until(later), None);
        flapping.evaluated(false, later);
        assert_eq!(flapping.waits_until(later), None, "nothing has changed");
        assert!(flapping.backs_off());
        let later = start + CALM_AFTER - Duration::from_secs(1);
        flapping.evaluated(true, later);
        assert_eq!(wait(&flapping, later), 16);
        let calm = later + CALM_AFTER;
        flapping.evaluated(false, calm);
        assert!(!flapping.backs_off());
        flapping.evaluated(true, calm);
        assert_eq!(flapping.waits_until(calm), None);
    }

    #[test]
    fn slow_changes_never_wait() {
        let (mut flapping, mut now) = (Flapping::default(), Instant::now());
        for _ in 0..100 {
            flapping.evaluated(true, now);
            assert_eq!(flapping.waits_until(now), None);
            now += CALM_AFTER;
        }
    }
}
