//! The compliance of a binding over time. Its grace time continues across errors and restarts.

use std::time::Duration;

use crate::compliance::Compliance;

/// A point in time as a duration since the Unix epoch.
pub type UnixTime = Duration;

/// The compliance of a binding, as its status stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComplianceState {
    /// The reported state.
    pub compliance: Compliance,
    /// The start of the current time out of range; time in error moves it later.
    pub out_of_range_since: Option<UnixTime>,
    /// The start of the current error.
    pub error_since: Option<UnixTime>,
}

impl ComplianceState {
    /// Returns the state after an evaluation with the result `found`. A binding out of range is in
    /// Limit for `grace`, then in Violation. An Error pauses that time, every other result ends it.
    pub fn next(self, found: Compliance, grace: Duration, now: UnixTime) -> Self {
        match found {
            Compliance::Error => Self {
                compliance: found,
                out_of_range_since: self.out_of_range_since,
                error_since: self.error_since.or(Some(now)),
            },
            Compliance::Violation => {
                let since = match (self.out_of_range_since, self.error_since) {
                    (None, _) => now,
                    (Some(since), None) => since,
                    // The time in error does not count.
                    (Some(since), Some(paused)) => since + now.saturating_sub(paused.max(since)),
                };
                let long = now.saturating_sub(since) >= grace;
                Self {
                    compliance: if long { found } else { Compliance::Limit },
                    out_of_range_since: Some(since),
                    error_since: None,
                }
            }
            Compliance::Pending | Compliance::Compliant | Compliance::Limit => Self {
                compliance: found,
                ..Self::default()
            },
        }
    }

    /// Returns the end of the grace time, if it is running.
    pub fn grace_ends(&self, grace: Duration) -> Option<UnixTime> {
        let runs = self.compliance == Compliance::Limit;
        self.out_of_range_since
            .filter(|_| runs)
            .map(|since| since + grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Compliance::*;
    use proptest::prelude::*;

    fn play(grace: u64, steps: &[(u64, Compliance)]) -> Vec<Compliance> {
        let mut state = ComplianceState::default();
        steps
            .iter()
            .map(|(at, found)| {
                state = state.next(*found, Duration::from_secs(grace), Duration::from_secs(*at));
                state.compliance
            })
            .collect()
    }

    #[test]
    fn next_reports_a_violation_after_the_grace() {
        let steps = [
            (0, Compliant),
            (10, Violation),
            (39, Violation),
            (40, Violation),
        ];
        assert_eq!(play(30, &steps), [Compliant, Limit, Limit, Violation]);
        assert_eq!(play(0, &steps[..2]), [Compliant, Violation]);
    }

    #[test]
    fn next_never_violates_for_a_flapping_rule() {
        let steps: Vec<_> = (0..50)
            .map(|i| (i * 10, if i % 2 == 0 { Violation } else { Compliant }))
            .collect();
        assert!(!play(15, &steps).contains(&Violation));
        let steps = [
            (0, Violation),
            (10, Limit),
            (20, Violation),
            (49, Violation),
        ];
        assert_eq!(play(30, &steps)[3], Limit);
    }

    #[test]
    fn next_pauses_the_grace_during_an_error() {
        let steps = [
            (0, Violation),
            (20, Error),
            (60, Error),
            (100, Violation), // 20 s have counted
            (109, Violation),
            (110, Violation),
        ];
        assert_eq!(
            play(30, &steps),
            [Limit, Error, Error, Limit, Limit, Violation]
        );
    }

    proptest! {
        /// Every evaluation of the last `grace`, errors left out, found the violation.
        #[test]
        fn next_reports_no_violation_without_grace(grace in 0u64..40, found in proptest::collection::vec(0usize..5, 1..40)) {
            let (mut state, mut broken_for, mut last) = (ComplianceState::default(), None::<u64>, None::<Compliance>);
            for (i, found) in found.iter().enumerate() {
                let found = Compliance::ALL[*found];
                // Ten seconds between two evaluations.
                match found {
                    Error => {}
                    Violation => {
                        let step = if last == Some(Error) { 0 } else { 10 };
                        broken_for = Some(broken_for.map_or(0, |b| b + step));
                    }
                    _ => broken_for = None,
                }
                if found == Error && last == Some(Violation) {
                    broken_for = broken_for.map(|b| b + 10);
                }
                state = state.next(found, Duration::from_secs(grace), Duration::from_secs(i as u64 * 10));
                let reported = state.compliance == Violation;
                prop_assert_eq!(reported, found == Violation && broken_for.is_some_and(|b| b >= grace));
                last = Some(found);
            }
        }
    }
}
