//! Delays the evaluations of flapping bindings: the more often the state has changed, the longer
//! the next evaluation waits. Each change costs a write and an event, and providers must not be
//! able to cause these at will.

use std::time::{Duration, Instant};

/// The number of changes without a wait. Two short outages make four changes.
const FREE_CHANGES: u32 = 4;
/// The wait after the first change beyond [`FREE_CHANGES`]. It doubles with each further change.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// The time without a change after which earlier ones are forgotten.
const CALM_AFTER: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evaluated {
    /// The evaluation changed the state that is written.
    Changed,
    Unchanged,
}

/// The recent changes of one binding.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flapping {
    changes: u32,
    changed_at: Option<Instant>,
}

impl Flapping {
    pub(crate) fn apply(&mut self, evaluated: Evaluated, now: Instant) {
        let calm = |at| now.saturating_duration_since(at) >= CALM_AFTER;
        if self.changed_at.is_some_and(calm) {
            *self = Self::default();
        }
        if evaluated == Evaluated::Changed {
            self.changes = self.changes.saturating_add(1);
            self.changed_at = Some(now);
        }
    }

    pub(crate) fn backs_off(&self) -> bool {
        self.changes > FREE_CHANGES
    }

    /// Returns the time until which no evaluation begins; `None` if one may begin now.
    pub(crate) fn waits_until(&self, now: Instant) -> Option<Instant> {
        let doublings = self.changes.checked_sub(FREE_CHANGES + 1)?;
        let wait = FIRST_WAIT.saturating_mul(2u32.saturating_pow(doublings));
        let until = self.changed_at? + wait.min(LONGEST_WAIT);
        (until > now).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(flapping: &Flapping, now: Instant) -> u64 {
        let until = flapping.waits_until(now);
        until.map_or(0, |until| (until - now).as_secs())
    }

    #[test]
    fn waits_double_from_the_fifth_change_to_two_minutes() {
        let (mut flapping, mut now) = (Flapping::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..14 {
            flapping.apply(Evaluated::Changed, now);
            waits.push(wait(&flapping, now));
            now = flapping.waits_until(now).unwrap_or(now);
        }
        assert_eq!(waits, [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 120, 120, 120]);
    }

    #[test]
    fn a_wait_ends_and_the_changes_count_until_ten_calm_minutes() {
        let (mut flapping, start) = (Flapping::default(), Instant::now());
        for _ in 0..8 {
            flapping.apply(Evaluated::Changed, start);
        }
        assert_eq!(wait(&flapping, start), 8);
        let later = start + Duration::from_secs(8);
        assert_eq!(flapping.waits_until(later), None);
        flapping.apply(Evaluated::Unchanged, later);
        assert_eq!(flapping.waits_until(later), None, "nothing has changed");
        assert!(flapping.backs_off());
        let later = start + CALM_AFTER - Duration::from_secs(1);
        flapping.apply(Evaluated::Changed, later);
        assert_eq!(wait(&flapping, later), 16);
        let calm = later + CALM_AFTER;
        flapping.apply(Evaluated::Unchanged, calm);
        assert!(!flapping.backs_off());
        flapping.apply(Evaluated::Changed, calm);
        assert_eq!(flapping.waits_until(calm), None);
    }

    #[test]
    fn slow_changes_never_wait() {
        let (mut flapping, mut now) = (Flapping::default(), Instant::now());
        for _ in 0..100 {
            flapping.apply(Evaluated::Changed, now);
            assert_eq!(flapping.waits_until(now), None);
            now += CALM_AFTER;
        }
    }
}
