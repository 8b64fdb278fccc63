//! A binding's status from what an evaluation found, and back: the conditions
//! are enough to go on after a restart.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use tautline_core::{
    Compliance,
    compliance_state::{ComplianceState, UnixTime},
};

use crate::{
    evaluate::{Found, of_api, to_api},
    known::Status,
};

/// True: in range, or worse than requested and within the limit. False: out of
/// range since its last transition, in its grace or beyond. Unknown otherwise.
const COMPLIANT: &str = "Compliant";
/// True: its rules could be evaluated. False: not since its last transition.
const READY: &str = "Ready";

/// How two statuses differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// In the words of reasons alone, which may carry figures.
    Words,
    State,
}

pub(crate) fn now() -> UnixTime {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
}

/// The moment in whole seconds, rounded up: a grace that is counted from it after
/// a restart must not end early.
pub(crate) fn time_of(moment: UnixTime) -> Time {
    let seconds = moment.as_secs() + u64::from(moment.subsec_nanos() > 0);
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or_default())
}

pub(crate) fn moment_of(time: &Time) -> UnixTime {
    UnixTime::from_secs(u64::try_from(time.0.as_second()).unwrap_or(0))
}

/// The standing that a status shows.
pub(crate) fn standing(status: &Status) -> ComplianceState {
    let since = |type_: &str| {
        let condition = status.conditions.iter().find(|c| c.type_ == type_)?;
        (condition.status == "False").then(|| moment_of(&condition.last_transition_time))
    };
    ComplianceState {
        compliance: of_api(status.compliance),
        out_of_range_since: since(COMPLIANT),
        error_since: since(READY),
    }
}

/// The status after an evaluation.
pub(crate) fn next(
    before: &Status,
    found: Found,
    standing: &ComplianceState,
    now: UnixTime,
) -> Status {
    let compliance = to_api(standing.compliance);
    let changed =
        before.last_compliance_change_timestamp.is_none() || before.compliance != compliance;
    let compliant = match (standing.out_of_range_since, standing.compliance) {
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
    let ready = match standing.error_since {
        Some(since) => condition(before, READY, "False", "Error", Some(since), now),
        None => condition(before, READY, "True", "Evaluated", None, now),
    };
    Status {
        compliance,
        first_reason: found.first_reason,
        details: found.details,
        last_compliance_change_timestamp: if changed {
            Some(time_of(now))
        } else {
            before.last_compliance_change_timestamp.clone()
        },
        last_mitigated_timestamp: before.last_mitigated_timestamp.clone(),
        conditions: vec![ready, compliant],
    }
}

fn condition(
    before: &Status,
    type_: &str,
    status: &str,
    reason: &str,
    since: Option<UnixTime>,
    now: UnixTime,
) -> Condition {
    let before = before.conditions.iter().find(|c| c.type_ == type_);
    let kept = before.filter(|c| c.status == status);
    let transition = match (since, kept) {
        (Some(since), _) => time_of(since),
        (None, Some(kept)) => kept.last_transition_time.clone(),
        (None, None) => time_of(now),
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

/// How `after` differs from `before`.
pub(crate) fn change(before: &Status, after: &Status) -> Change {
    if before == after {
        return Change::None;
    }
    let bare = |status: &Status| {
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
        Change::Words
    } else {
        Change::State
    }
}

/// The code that one of our own reasons begins with; "" for a provider's words.
fn code_of(reason: &str) -> String {
    let (code, _) = reason.split_once(": ").unwrap_or_default();
    let is_code = code.chars().all(|c| c.is_ascii_alphabetic());
    if is_code {
        code.to_owned()
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tautline_api::constraint::{PolicyDetail, RuleDetail};

    use super::*;

    fn found(compliance: Compliance, reason: &str) -> Found {
        let rule = RuleDetail {
            rule: "latency".into(),
            compliance: to_api(compliance),
            reason: reason.into(),
            provider: "net/prober".into(),
        };
        Found {
            compliance,
            first_reason: reason.into(),
            details: vec![PolicyDetail {
                policy: "fast".into(),
                compliance: to_api(compliance),
                reason: reason.into(),
                rule_details: vec![rule],
            }],
        }
    }

    /// Steps of an evaluation each, restarting between them or not.
    fn play(steps: &[(f64, Compliance)], restart: bool) -> Vec<Compliance> {
        let (mut status, mut standing) = (Status::default(), ComplianceState::default());
        steps
            .iter()
            .map(|(at, compliance)| {
                let now = Duration::from_secs_f64(1000.0 + at);
                standing = standing.next(*compliance, Duration::from_secs(30), now);
                status = next(&status, found(*compliance, "r"), &standing, now);
                if restart {
                    let json = serde_json::to_string(&status).unwrap();
                    status = serde_json::from_str(&json).unwrap();
                    standing = super::standing(&status);
                }
                of_api(status.compliance)
            })
            .collect()
    }

    #[test]
    fn grace_survives_restarts() {
        use Compliance::*;
        let steps = [
            (0.0, Compliant),
            (10.4, Violation),
            (20.0, Error),
            (40.0, Violation),
            (60.3, Violation),
            (62.0, Violation),
        ];
        let expected = [Compliant, Limit, Error, Limit, Limit, Violation];
        assert_eq!(play(&steps, false), expected);
        assert_eq!(play(&steps, true), expected);
    }

    #[test]
    fn nothing_new_is_no_change_and_words_are_told_from_state() {
        let now = Duration::from_secs(1000);
        let later = Duration::from_secs(2000);
        let standing = ComplianceState::default().next(Compliance::Compliant, Duration::ZERO, now);
        let status = next(
            &Status::default(),
            found(Compliance::Compliant, "7ms"),
            &standing,
            now,
        );
        let again = next(
            &status,
            found(Compliance::Compliant, "7ms"),
            &standing,
            later,
        );
        assert_eq!(change(&status, &again), Change::None);
        let words = next(
            &status,
            found(Compliance::Compliant, "8ms"),
            &standing,
            later,
        );
        assert_eq!(change(&status, &words), Change::Words);
        let standing = standing.next(Compliance::Error, Duration::ZERO, later);
        let error = next(
            &status,
            found(Compliance::Error, "NoProvider: x"),
            &standing,
            later,
        );
        assert_eq!(change(&status, &error), Change::State);
        let other = next(
            &error,
            found(Compliance::Error, "ProviderTimeout: x"),
            &standing,
            later,
        );
        assert_eq!(change(&error, &other), Change::State);
    }
}
