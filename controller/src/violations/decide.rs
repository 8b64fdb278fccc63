//! Decides the next step for a violation: a mitigation comes before an eviction.

use std::time::Duration;

use tautline_core::{compliance_state::UnixTime, model::ViolationPolicy};

use super::violation::Violation;

/// The shortest wait between two mitigations of one violation.
const MIN_WAIT: Duration = Duration::from_secs(10);
/// The longest wait between two mitigations of one violation, unless the grace time is longer.
const MAX_WAIT: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    Nothing,
    /// The policy is to mediate, and there is no underlay controller.
    NoUnderlay,
    Wait(UnixTime),
    Mitigate,
    Evict,
}

/// Returns the next step for a violation, without regard to cool-downs. `underlay` is true if there
/// is an underlay controller.
pub(crate) fn decide_action(
    policy: ViolationPolicy,
    underlay: bool,
    grace: Duration,
    violation: &Violation,
    now: UnixTime,
) -> NextStep {
    // Times in statuses are whole seconds, rounded up.
    let mitigated = violation
        .mitigated
        .filter(|at| *at + Duration::from_secs(1) >= violation.since);
    match (policy, mitigated) {
        (ViolationPolicy::Ignore, _) => NextStep::Nothing,
        (ViolationPolicy::Mediate, _) if !underlay => NextStep::NoUnderlay,
        (_, None) if underlay => NextStep::Mitigate,
        (ViolationPolicy::Mediate, None) => NextStep::Nothing,
        (ViolationPolicy::Mediate, Some(at)) => {
            let doubled = 2u32.saturating_pow(violation.mitigations.saturating_sub(1).min(16));
            let wait = grace.max(MIN_WAIT).saturating_mul(doubled);
            let until = at + wait.min(MAX_WAIT.max(grace));
            if now < until {
                NextStep::Wait(until)
            } else {
                NextStep::Mitigate
            }
        }
        (ViolationPolicy::Evict, Some(at)) if now < at + grace => NextStep::Wait(at + grace),
        (ViolationPolicy::Evict, _) => NextStep::Evict,
    }
}
