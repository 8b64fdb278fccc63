//! The time to refresh an answer in use before it ends, so that no pod waits.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// Minimum time before the end: a call, and the wait for a processor. Normally it is an eighth of
/// the validity.
const MIN_BEFORE: Duration = Duration::from_millis(8);
/// Maximum time before the end.
const MAX_BEFORE: Duration = Duration::from_millis(100);
/// Answers valid for longer are not refreshed in advance: one pod may wait for the next, and the
/// provider's address, resolved at the last use, may be outdated.
const MAX_VALIDITY: Duration = Duration::from_secs(2);

/// The time of the refresh: once, and only if the answer is used again.
#[derive(Debug)]
pub(super) struct RefreshAt {
    at: Option<Instant>,
    taken: AtomicBool,
}

impl RefreshAt {
    /// For an answer requested at `asked` and valid until `until`.
    pub(super) fn new(asked: Instant, until: Instant) -> Self {
        let holds = until - asked;
        let before = (holds / 8).clamp(MIN_BEFORE, MAX_BEFORE);
        Self {
            at: (before < holds && holds <= MAX_VALIDITY).then(|| until - before),
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

    /// Another answer was merged: the first of both times that is still ahead counts.
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
        /// Never before most of the answer's time is over, never too late to ask, and
        /// for one only.
        #[test]
        fn refresh_at_is_in_time_and_once(micros in 0..3_000_000_u64) {
            let (asked, holds) = (Instant::now(), Duration::from_micros(micros));
            let due = RefreshAt::new(asked, asked + holds);
            match due.take() {
                None => prop_assert!(holds <= MIN_BEFORE || holds > MAX_VALIDITY),
                Some(at) => {
                    let left = asked + holds - at;
                    prop_assert!(at > asked && left >= MIN_BEFORE && left <= MAX_BEFORE);
                    prop_assert!(left == MIN_BEFORE || left <= holds / 8);
                }
            }
            prop_assert_eq!(due.take(), None);
        }
    }
}
