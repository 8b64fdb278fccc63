//! Computes how long packets waited in the socket. All other durations come from the monotonic
//! clock, but the kernel stamps packets with the real-time clock, which NTP sets. A stamp therefore
//! counts only if both clocks advanced by the same time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The elapsed time divided by this number is the greatest drift between the clocks that does not
/// count as a step: twice the 500 parts per million by which NTP slews at most.
const MAX_DRIFT_DIVISOR: u32 = 1_000;
/// The tolerance when the clocks are compared, and the time above which a reading of both clocks is
/// repeated.
const CLOCK_SLACK: Duration = Duration::from_micros(20);
/// The longest time by which a driver's stamp may be older than the packet's place in the socket's
/// queue.
const MAX_STAMP_LEAD: Duration = Duration::from_millis(10);

/// A reading of both clocks within the time `apart`.
#[derive(Clone, Copy, Debug)]
pub struct ClockSample {
    pub mono: Instant,
    /// The time since the Unix epoch.
    pub real: Duration,
    pub apart: Duration,
}

/// The real-time clock was set, or the stamp is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stepped;

impl ClockSample {
    pub fn now() -> Self {
        let once = || {
            let mono = Instant::now();
            let real = SystemTime::now().duration_since(UNIX_EPOCH);
            let apart = mono.elapsed();
            Self {
                mono,
                real: real.unwrap_or_default(),
                apart,
            }
        };
        let first = once();
        // The thread was preempted between the clocks: try once more.
        if first.apart > CLOCK_SLACK {
            once()
        } else {
            first
        }
    }

    /// Returns how long a packet with the kernel's stamp `stamp` (time since the Unix epoch) waited
    /// in the socket. Fails if the real-time clock was set since `before`, a time at which the
    /// socket was empty.
    pub fn waited(&self, stamp: Duration, before: &Self) -> Result<Duration, Stepped> {
        let mono = self.mono.saturating_duration_since(before.mono);
        let slack = CLOCK_SLACK + self.apart + before.apart + mono / MAX_DRIFT_DIVISOR;
        let expected = before.real + mono;
        if expected.abs_diff(self.real) > slack || stamp > self.real + slack {
            return Err(Stepped);
        }
        let waited = self.real.saturating_sub(stamp);
        if waited > mono + slack + MAX_STAMP_LEAD {
            return Err(Stepped);
        }
        Ok(waited)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EPOCH: Duration = Duration::from_secs(1_700_000_000);

    fn pair(later: Duration, stepped_micros: i64) -> (ClockSample, ClockSample) {
        let before = ClockSample {
            mono: Instant::now(),
            real: EPOCH,
            apart: Duration::ZERO,
        };
        let step = Duration::from_micros(stepped_micros.unsigned_abs());
        let real = match stepped_micros {
            0.. => EPOCH + later + step,
            _ => EPOCH + later - step,
        };
        let now = ClockSample {
            mono: before.mono + later,
            real,
            apart: Duration::ZERO,
        };
        (before, now)
    }

    #[test]
    fn wait_is_exact_while_the_clocks_agree() {
        proptest!(|(later in 1_u64..200_000_000, share in 0.0..1.0)| {
            let later = Duration::from_nanos(later);
            let wait = later.mul_f64(share);
            let (before, now) = pair(later, 0);
            prop_assert_eq!(now.waited(EPOCH + later - wait, &before), Ok(wait));
        });
    }

    #[test]
    fn a_set_clock_gives_no_wait() {
        let later = Duration::from_millis(50);
        for step in [-3_600_000_000, -1_000, -100, 100, 1_000, 3_600_000_000] {
            let (before, now) = pair(later, step);
            let stamp = EPOCH + Duration::from_millis(49);
            assert_eq!(now.waited(stamp, &before), Err(Stepped), "{step} us");
        }
        let (before, now) = pair(later, 25);
        assert!(now.waited(EPOCH + later, &before).is_ok());
    }

    #[test]
    fn stamps_of_another_time_are_refused() {
        let later = Duration::from_millis(50);
        let (before, now) = pair(later, 0);
        let second = Duration::from_secs(1);
        assert_eq!(now.waited(now.real + second, &before), Err(Stepped));
        assert_eq!(now.waited(EPOCH - second, &before), Err(Stepped));
    }

    #[test]
    fn readings_of_this_machine_agree() {
        let before = ClockSample::now();
        let now = ClockSample::now();
        assert!(now.waited(now.real, &before).is_ok());
    }
}
