//! A binding's status from an evaluation, and back: after a restart the conditions
//! restore the grace.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use tautline_core::{
    Compliance,
    compliance_state::{ComplianceState, UnixTime},
};

use crate::{
    binding_spec::BindingStatus,
    evaluation::{Evaluation, from_api, to_api},
};

/// True: in range, or worse than requested and within the limit. False: out of
/// range since its last transition, during the grace or after it. Unknown otherwise.
const COMPLIANT: &str = "Compliant";
/// True: its rules could be evaluated. False: they could not since its last transition.
const READY: &str = "Ready";

/// The difference of two statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// Only the texts of reasons, which may contain figures.
    Reasons,
    State,
}

/// The time in whole seconds, rounded up: a grace that counts from it after a
/// restart must not end early.
pub(crate) fn to_api_time(time: UnixTime) -> Time {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or_default())
}

pub(crate) fn from_api_time(time: &Time) -> UnixTime {
    UnixTime::from_secs(u64::try_from(time.0.as_second()).unwrap_or(0))
}

/// The compliance state that a status shows.
pub(crate) fn compliance_state(status: &BindingStatus) -> ComplianceState {
    let since = |type_: &str| {
        let condition = status.conditions.iter().find(|c| c.type_ == type_)?;
        (condition.status == "False").then(|| from_api_time(&condition.last_transition_time))
    };
    ComplianceState {
        compliance: from_api(status.compliance),
        out_since: since(COMPLIANT),
        error_since: since(READY),
    }
}

/// The status after an evaluation.
pub(crate) fn next_status(
    before: &BindingStatus,
    evaluation: Evaluation,
    state: &ComplianceState,
    now: UnixTime,
) -> BindingStatus {
    let compliance = to_api(state.compliance);
    let changed =
        before.last_compliance_change_timestamp.is_none() || before.compliance != compliance;
    let compliant = match (state.out_since, state.compliance) {
        (Some(since), worse) => {
            let reason = match worse {
                Compliance::Violation => "Violation",
                Compliance::Error => "Paused",
                _ => "Grace",
            };
            condition(before, COMPLIANT, "False", reason, Some(since), now)
        }
        (None, Compliance::Compliant) => condition(before, COMPLIANT, "True", "InRange", None, now),
        (None, Compliance::Limit) => condition(before, COMPLIANT, "True", "WithinLimit", None, now),
        (None, other) => condition(before, COMPLIANT, "Unknown", other.as_str(), None, now),
    };
    let ready = match state.error_since {
        Some(since) => condition(before, READY, "False", "Error", Some(since), now),
        None => condition(before, READY, "True", "Evaluated", None, now),
    };
    BindingStatus {
        compliance,
        first_reason: evaluation.first_reason,
        details: evaluation.details,
        last_compliance_change_timestamp: if changed {
            Some(to_api_time(now))
        } else {
            before.last_compliance_change_timestamp.clone()
        },
        last_mitigated_timestamp: before.last_mitigated_timestamp.clone(),
        conditions: vec![ready, compliant],
    }
}

fn condition(
    before: &BindingStatus,
    type_: &str,
    status: &str,
    reason: &str,
    since: Option<UnixTime>,
    now: UnixTime,
) -> Condition {
    let before = before.conditions.iter().find(|c| c.type_ == type_);
    let kept = before.filter(|c| c.status == status);
    let transition = match (since, kept) {
        (Some(since), _) => to_api_time(since),
        (None, Some(kept)) => kept.last_transition_time.clone(),
        (None, None) => to_api_time(now),
    };
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        last_transition_time: transition,
        observed_generation: None,
    }
}

pub(crate) fn compare(before: &BindingStatus, after: &BindingStatus) -> Change {
    if before == after {
        return Change::None;
    }
    let bare = |status: &BindingStatus| {
        let mut status = status.clone();
        status.first_reason.clear();
        for policy in &mut status.details {
            policy.reason = code_of(&policy.reason);
            for rule in &mut policy.rule_details {
                rule.reason = code_of(&rule.reason);
            }
        }
        status
    };
    if bare(before) == bare(after) {
        Change::Reasons
    } else {
        Change::State
    }
}

/// The code at the start of Tautline's own reasons; "" for a provider's text.
fn code_of(reason: &str) -> String {
    let (code, _) = reason.split_once(": ").unwrap_or_default();
    let is_code = code.chars().all(|c| c.is_ascii_alphabetic());
    if is_code {
        code.to_owned()
    } else {
        String::new()
    }
}
