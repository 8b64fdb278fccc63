use std::time::{Duration, Instant, SystemTime};

use tautline_core::compliance_state::UnixTime;

/// A point in time on the monotonic clock, for waits, and on the wall clock, for the API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub instant: Instant,
    pub unix: UnixTime,
}

impl Now {
    pub(crate) fn read() -> Self {
        Self {
            instant: Instant::now(),
            unix: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        }
    }
}

/// Returns the wait after the last of `failures` in a row: `first` after one, then twice as long
/// each time, and at most `longest`.
pub(crate) fn backoff(first: Duration, longest: Duration, failures: u32) -> Duration {
    let doubled = 2u32.saturating_pow(failures.saturating_sub(1));
    first.saturating_mul(doubled).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_the_longest_wait() {
        let [first, longest] = [5, 120].map(Duration::from_secs);
        let waits = [1, 2, 3, 100].map(|n| backoff(first, longest, n).as_secs());
        assert_eq!(waits, [5, 10, 20, 120]);
    }
}
