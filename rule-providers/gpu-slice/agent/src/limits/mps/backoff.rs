//! The wait before a daemon starts again. Pure.

use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(60);

/// A daemon that ran this long started well.
pub(super) const STEADY: Duration = Duration::from_secs(60);

/// Doubles from the first wait up to a minute.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration) -> Self {
        let first = first.min(LONGEST);
        Self { first, next: first }
    }

    /// The wait after a daemon that ran so long.
    pub(super) fn wait(&mut self, ran: Duration) -> Duration {
        if ran >= STEADY {
            self.next = self.first;
        }
        let wait = self.next;
        self.next = (self.next * 2).min(LONGEST);
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
        assert_eq!(backoff.wait(STEADY), Duration::from_secs(1));
        assert_eq!(backoff.wait(Duration::ZERO), Duration::from_secs(2));
    }
}
