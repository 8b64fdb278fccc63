//! Computes the wait before a daemon is started again.

use std::time::Duration;

/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The run time at which a daemon counts as having started well, so that the waits begin again.
pub(super) const STEADY_RUN_TIME: Duration = Duration::from_secs(60);

/// A wait that doubles from its first length up to a minute.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration) -> Self {
        let first = first.min(MAX_WAIT);
        Self { first, next: first }
    }

    /// Returns the wait after a daemon that ran for the duration `ran`.
    pub(super) fn wait(&mut self, ran: Duration) -> Duration {
        if ran >= STEADY_RUN_TIME {
            self.next = self.first;
        }
        let wait = self.next;
        self.next = (self.next * 2).min(MAX_WAIT);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_doubles_to_a_minute_until_a_steady_run() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        let mut waits = || backoff.wait(Duration::ZERO).as_secs();
        let first: Vec<u64> = (0..8).map(|_| waits()).collect();
        assert_eq!(first, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.wait(STEADY_RUN_TIME), Duration::from_secs(1));
        assert_eq!(backoff.wait(Duration::ZERO), Duration::from_secs(2));
    }
}
