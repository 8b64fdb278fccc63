//! The circuit breaker of one address: after repeated failures it admits one probe at a time.

use std::time::Duration;

use tokio::time::Instant;

/// The number of consecutive failures that opens the breaker.
const FAILURE_THRESHOLD: u32 = 5;
/// The first pause; each failed probe doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct Breaker {
    failures: u32,
    open_until: Option<Instant>,
    pause: Duration,
    probing: bool,
}

impl Breaker {
    /// Returns whether it admits a call. After a probe it admits no call until the probe's result
    /// is [`record`](Self::record)ed.
    pub fn admit(&mut self, now: Instant) -> bool {
        match self.open_until {
            None => true,
            Some(until) if now >= until && !self.probing => {
                self.probing = true;
                true
            }
            Some(_) => false,
        }
    }

    pub fn record(&mut self, now: Instant, success: bool) {
        let probe = std::mem::take(&mut self.probing);
        if success {
            *self = Self::default();
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.pause = match self.open_until {
            None if self.failures < FAILURE_THRESHOLD => return,
            None => FIRST_PAUSE,
            Some(_) if probe => (self.pause * 2).min(LONGEST_PAUSE),
            // The call was in progress when the breaker opened.
            Some(_) => return,
        };
        self.open_until = Some(now + self.pause);
    }

    /// Records that an admitted call ended without a result, because its caller was dropped.
    pub fn forget(&mut self) {
        self.probing = false;
    }

    pub fn is_open(&self) -> bool {
        self.open_until.is_some()
    }

    pub fn open_until(&self) -> Option<Instant> {
        self.open_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaker_opens_probes_and_closes() {
        let start = Instant::now();
        let mut b = Breaker::default();
        for _ in 0..FAILURE_THRESHOLD {
            assert!(b.admit(start));
            b.record(start, false);
        }
        assert!(!b.admit(start));
        let later = start + FIRST_PAUSE;
        assert!(b.admit(later), "a probe");
        assert!(!b.admit(later), "one probe at a time");
        b.record(later, false);
        assert!(!b.admit(later + FIRST_PAUSE), "the pause has doubled");
        let later = later + FIRST_PAUSE * 2;
        assert!(b.admit(later));
        b.forget();
        assert!(b.admit(later), "a forgotten probe is no failure");
        b.record(later, true);
        assert!(b.admit(later) && b.admit(later) && !b.is_open());
    }

    #[test]
    fn breaker_ignores_failures_of_earlier_calls() {
        let now = Instant::now();
        let mut b = Breaker::default();
        for _ in 0..FAILURE_THRESHOLD * 3 {
            assert!(b.admit(now));
        }
        for _ in 0..FAILURE_THRESHOLD * 3 {
            b.record(now, false);
        }
        assert!(b.admit(now + FIRST_PAUSE));
    }

    #[test]
    fn breaker_stays_closed_with_successes_between() {
        let now = Instant::now();
        let mut b = Breaker::default();
        for i in 0..50 {
            assert!(b.admit(now));
            b.record(now, i % (FAILURE_THRESHOLD - 1) == 0);
        }
    }

    #[test]
    fn breaker_pause_is_bounded() {
        let mut now = Instant::now();
        let mut b = Breaker::default();
        for _ in 0..100 {
            while !b.admit(now) {
                now += FIRST_PAUSE;
            }
            b.record(now, false);
        }
        assert!(b.admit(now + LONGEST_PAUSE));
    }
}
