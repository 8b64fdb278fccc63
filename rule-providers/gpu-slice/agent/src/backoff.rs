//! Computes the wait before a program is started again.

use std::time::Duration;

/// A wait that doubles up to the longest, and begins anew after a run of at least that time.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// Returns the wait after a program that ran for the duration `ran`.
    pub fn wait(&mut self, ran: Duration) -> Duration {
        if ran >= self.longest {
            self.next = self.first;
        }
        let wait = self.next;
        self.next = (self.next * 2).min(self.longest);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_doubles_to_a_minute_until_a_steady_run() {
        let minute = Duration::from_secs(60);
        let mut backoff = Backoff::new(Duration::from_secs(1), minute);
        let mut waits = || backoff.wait(Duration::ZERO).as_secs();
        let first: Vec<u64> = (0..8).map(|_| waits()).collect();
        assert_eq!(first, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.wait(minute), Duration::from_secs(1));
        assert_eq!(backoff.wait(Duration::ZERO), Duration::from_secs(2));
    }
}
