//! The time to refresh an answer in use before it ends, so that no pod waits.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// Minimum time before the end, normally an eighth of the validity: a call and a wait for a CPU.
const MIN_BEFORE: Duration = Duration::from_millis(8);
const MAX_BEFORE: Duration = Duration::from_millis(100);
/// Answers valid for longer are not refreshed: one pod may wait for the next, and the address
/// resolved at the last use may be outdated.
const MAX_VALIDITY: Duration = Duration::from_secs(2);

/// The time of the refresh: once, and only if the answer is used again.
#[derive(Debug)]
pub(super) struct RefreshAt {
    at: Option<Instant>,
    taken: AtomicBool,
}

impl RefreshAt {
    pub(super) fn new(requested_at: Instant, until: Instant) -> Self {
        let validity = until - requested_at;
        let before = (validity / 8).clamp(MIN_BEFORE, MAX_BEFORE);
        Self {
            at: (before < validity && validity <= MAX_VALIDITY).then(|| until - before),
            taken: AtomicBool::new(false),
        }
    }

    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// The time, for the first caller only.
    pub(super) fn take(&self) -> Option<Instant> {
        let at = self.at?;
        (!self.taken.swap(true, Ordering::Relaxed)).then_some(at)
    }

    /// Another answer was merged: the earlier time that is still ahead counts.
    pub(super) fn or_else(&mut self, other: Self) {
        if self.at.is_none_or(|at| at <= Instant::now()) {
            *self = other;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// After most of the validity, early enough for a call, and only once.
        #[test]
        fn refresh_at_is_in_time_and_once(micros in 0..3_000_000_u64) {
            let (requested_at, validity) = (Instant::now(), Duration::from_micros(micros));
            let due = RefreshAt::new(requested_at, requested_at + validity);
            match due.take() {
                None => prop_assert!(validity <= MIN_BEFORE || validity > MAX_VALIDITY),
                Some(at) => {
                    let left = requested_at + validity - at;
                    prop_assert!(at > requested_at && left >= MIN_BEFORE && left <= MAX_BEFORE);
                    prop_assert!(left == MIN_BEFORE || left <= validity / 8);
                }
            }
            prop_assert_eq!(due.take(), None);
        }
    }
}
