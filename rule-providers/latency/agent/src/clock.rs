//! Durations are monotonic. The kernel stamps packets by the real-time clock, which NTP sets; it
//! only gives a packet's wait in the socket, and only if both clocks advanced by the same time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// NTP slews by 500 parts in a million at the most; twice that is a step.
const SLEW: u32 = 1_000;
const SLACK: Duration = Duration::from_micros(20);
/// A driver's stamp may be older than the packet's place in the socket's queue.
const DRIVER: Duration = Duration::from_millis(10);

/// Both clocks at one moment, to within `apart`.
#[derive(Clone, Copy, Debug)]
pub struct ClockSample {
    pub mono: Instant,
    /// Since the epoch.
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
        if first.apart > SLACK { once() } else { first }
    }

    /// The wait of a packet with the kernel's stamp `stamp` (since the epoch), unless the real-time
    /// clock was set since `before`, a time at which the socket was empty.
    pub fn waited(&self, stamp: Duration, before: &Self) -> Result<Duration, Stepped> {
        let mono = self.mono.saturating_duration_since(before.mono);
        let slack = SLACK + self.apart + before.apart + mono / SLEW;
        let expected = before.real + mono;
        if expected.abs_diff(self.real) > slack || stamp > self.real + slack {
            return Err(Stepped);
        }
        let waited = self.real.saturating_sub(stamp);
        if waited > mono + slack + DRIVER {
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
