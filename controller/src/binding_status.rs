//! Converts evaluations to binding statuses, and statuses back to compliance states: after a
//! restart the conditions restore the start of the grace time.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use tautline_api::constraint::{COMPLIANT, WAS_WITHIN_LIMIT};
use tautline_core::{
    Compliance,
    compliance_state::{ComplianceState, UnixTime},
};

use crate::{binding_spec::BindingStatus, evaluation::Evaluation};

/// The condition for working evaluations. It is True if the binding's rules could be evaluated, and
/// False if they could not be since the last transition.
pub(crate) const READY: &str = "Ready";

/// The difference between two statuses of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// The statuses differ only in the texts of reasons, which may contain figures.
    Reasons,
    State,
}

/// Converts a time to whole seconds, rounded up: a grace time that counts from it after a restart
/// must not end early.
pub(crate) fn to_api_time(time: UnixTime) -> Time {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or_default())
}

pub(crate) fn from_api_time(time: &Time) -> UnixTime {
    UnixTime::from_secs(u64::try_from(time.0.as_second()).unwrap_or(0))
}

pub(crate) fn compliance_state(status: &BindingStatus) -> ComplianceState {
    let since = |type_: &str| {
        let condition = status.conditions.iter().find(|c| c.type_ == type_)?;
        (condition.status == "False").then(|| from_api_time(&condition.last_transition_time))
    };
    ComplianceState {
        compliance: status.compliance,
        out_of_range_since: since(COMPLIANT),
        error_since: since(READY),
    }
}

/// Returns whether the condition `Compliant` is True.
pub(crate) fn is_in_range(status: &BindingStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|c| c.type_ == COMPLIANT && c.status == "True")
}

pub(crate) fn next_status(
    before: &BindingStatus,
    evaluation: Evaluation,
    state: &ComplianceState,
    now: UnixTime,
) -> BindingStatus {
    let compliance = state.compliance;
    let changed =
        before.last_compliance_change_timestamp.is_none() || before.compliance != compliance;
    let out_of_range = state.out_of_range_since;
    let (status, reason) = match (out_of_range, state.compliance) {
        (Some(_), Compliance::Violation) => ("False", "Violation"),
        (Some(_), Compliance::Error) => ("False", "Paused"),
        (Some(_), _) => ("False", "Grace"),
        (None, Compliance::Compliant) => ("True", "InRange"),
        (None, Compliance::Limit) => ("True", "WithinLimit"),
        (None, Compliance::Error) => ("Unknown", reason_in_error(&before.conditions)),
        (None, other) => ("Unknown", other.name()),
    };
    let (conditions, none) = (&before.conditions, String::new());
    let compliant = condition(
        conditions,
        COMPLIANT,
        status,
        reason,
        none,
        out_of_range,
        now,
    );
    let (status, reason) = match state.error_since {
        Some(_) => ("False", "Error"),
        None => ("True", "Evaluated"),
    };
    let (since, none) = (state.error_since, String::new());
    let ready = condition(conditions, READY, status, reason, none, since, now);
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

/// Returns the reason of the condition `Compliant` during an error, which tells what was before.
fn reason_in_error(before: &[Condition]) -> &'static str {
    let before = before.iter().find(|c| c.type_ == COMPLIANT);
    match before.map_or("", |c| &c.reason) {
        "InRange" | "WasInRange" => "WasInRange",
        "WithinLimit" | WAS_WITHIN_LIMIT => WAS_WITHIN_LIMIT,
        _ => Compliance::Error.name(),
    }
}

/// Returns a condition. Its transition was at `since`, or else at that of the same condition in
/// `before` if the status is the same, or else now.
pub(crate) fn condition(
    before: &[Condition],
    type_: &str,
    status: &str,
    reason: &str,
    message: String,
    since: Option<UnixTime>,
    now: UnixTime,
) -> Condition {
    let before = before.iter().find(|c| c.type_ == type_);
    let unchanged = before.filter(|c| c.status == status);
    let transition = match (since, unchanged) {
        (Some(since), _) => to_api_time(since),
        (None, Some(unchanged)) => unchanged.last_transition_time.clone(),
        (None, None) => to_api_time(now),
    };
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
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

/// Returns the code at the start of Tautline's own reasons, or "" for a provider's text.
fn code_of(reason: &str) -> String {
    let code = reason.split_once(": ").map(|(code, _)| code);
    let code = code.filter(|code| code.chars().all(|c| c.is_ascii_alphabetic()));
    code.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use Compliance::{Compliant, Error, Limit, Pending, Violation};
    use proptest::prelude::*;

    use super::*;
    use crate::evaluation::{policy_detail, rule_detail};

    fn evaluation(compliance: Compliance, reason: &str) -> Evaluation {
        let rule = rule_detail("latency", "net/prober", compliance, reason);
        Evaluation::new(vec![policy_detail("fast", vec![rule])])
    }

    /// The compliances that evaluations at these seconds lead to, with a grace of 30 s,
    /// with a restart after each or without.
    fn play(steps: &[(f64, Compliance)], restart: bool) -> Vec<Compliance> {
        let (mut status, mut state) = (BindingStatus::default(), ComplianceState::default());
        steps
            .iter()
            .map(|(at, compliance)| {
                let now = Duration::from_secs_f64(1000.0 + at);
                state = state.next(*compliance, Duration::from_secs(30), now);
                status = next_status(&status, evaluation(*compliance, "r"), &state, now);
                if restart {
                    let json = serde_json::to_string(&status).unwrap();
                    status = serde_json::from_str(&json).unwrap();
                    state = compliance_state(&status);
                }
                status.compliance
            })
            .collect()
    }

    #[test]
    fn grace_survives_restarts() {
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

    /// The status after one evaluation of this result, for a state at 1000 s.
    fn status_of(compliance: Compliance, out_of_range_since: Option<u64>) -> BindingStatus {
        let state = ComplianceState {
            compliance,
            out_of_range_since: out_of_range_since.map(Duration::from_secs),
            error_since: (compliance == Error).then_some(Duration::from_secs(900)),
        };
        let now = Duration::from_secs(1000);
        let before = BindingStatus::default();
        next_status(&before, evaluation(compliance, "r"), &state, now)
    }

    fn conditions(compliance: Compliance, out_of_range_since: Option<u64>) -> Vec<String> {
        let conditions = status_of(compliance, out_of_range_since)
            .conditions
            .into_iter();
        conditions
            .map(|c| format!("{} {} {}", c.type_, c.status, c.reason))
            .collect()
    }

    #[test]
    fn conditions_by_compliance() {
        let ready = "Ready True Evaluated";
        let compliant = ["Compliant True InRange", "Compliant True WithinLimit"];
        assert_eq!(conditions(Compliant, None), [ready, compliant[0]]);
        assert_eq!(conditions(Limit, None), [ready, compliant[1]]);
        assert_eq!(
            conditions(Limit, Some(990)),
            [ready, "Compliant False Grace"]
        );
        let violation = "Compliant False Violation";
        assert_eq!(conditions(Violation, Some(900)), [ready, violation]);
        assert_eq!(
            conditions(Pending, None),
            [ready, "Compliant Unknown Pending"]
        );
    }

    #[test]
    fn conditions_of_an_error() {
        let error = "Ready False Error";
        assert_eq!(conditions(Error, None), [error, "Compliant Unknown Error"]);
        assert_eq!(
            conditions(Error, Some(900)),
            [error, "Compliant False Paused"]
        );
    }

    #[test]
    fn errors_keep_what_was_before() {
        for (first, reason) in [(Compliant, "WasInRange"), (Limit, "WasWithinLimit")] {
            let mut status = status_of(first, None);
            let state = ComplianceState {
                compliance: Error,
                ..ComplianceState::default()
            };
            for _ in 0..2 {
                let now = Duration::from_secs(2000);
                status = next_status(&status, evaluation(Error, "r"), &state, now);
                let compliant = &status.conditions[1];
                assert_eq!(
                    (&*compliant.status, &*compliant.reason),
                    ("Unknown", reason)
                );
            }
        }
    }

    #[test]
    fn status_keeps_the_mitigation() {
        let before = BindingStatus {
            last_mitigated_timestamp: Some(to_api_time(Duration::from_secs(7))),
            ..BindingStatus::default()
        };
        let state = ComplianceState::default();
        let now = Duration::from_secs(1000);
        let after = next_status(&before, evaluation(Compliant, "r"), &state, now);
        assert_eq!(
            after.last_mitigated_timestamp,
            before.last_mitigated_timestamp
        );
    }

    #[test]
    fn api_times_are_rounded_up() {
        let at = |secs| from_api_time(&to_api_time(Duration::from_secs_f64(secs))).as_secs();
        assert_eq!((at(10.0), at(10.001), at(10.999)), (10, 11, 11));
    }

    fn change(before: (Compliance, &str), after: (Compliance, &str)) -> Change {
        let now = Duration::from_secs(1000);
        let mut state = ComplianceState::default().next(before.0, Duration::ZERO, now);
        let first = evaluation(before.0, before.1);
        let status = next_status(&BindingStatus::default(), first, &state, now);
        let later = now + Duration::from_secs(500);
        state = state.next(after.0, Duration::ZERO, later);
        let second = next_status(&status, evaluation(after.0, after.1), &state, later);
        compare(&status, &second)
    }

    #[test]
    fn compare_finds_no_change() {
        assert_eq!(change((Compliant, "7ms"), (Compliant, "7ms")), Change::None);
    }

    #[test]
    fn compare_separates_figures_from_state() {
        let change = change((Compliant, "7ms"), (Compliant, "8ms"));
        assert_eq!(change, Change::Reasons);
    }

    #[test]
    fn compare_finds_another_compliance() {
        let change = change((Compliant, "7ms"), (Violation, "7ms"));
        assert_eq!(change, Change::State);
    }

    #[test]
    fn compare_finds_another_code() {
        let same = change((Error, "NoProvider: x"), (Error, "NoProvider: y"));
        assert_eq!(same, Change::Reasons);
        let other = change((Error, "NoProvider: x"), (Error, "ProviderTimeout: x"));
        assert_eq!(other, Change::State);
    }

    #[test]
    fn compare_takes_a_providers_text_with_a_colon_for_a_text() {
        let change = change((Compliant, "10.0.0.1: 7ms"), (Compliant, "10.0.0.2: 7ms"));
        assert_eq!(change, Change::Reasons);
    }

    proptest! {
        /// With times of whole seconds a restart after each evaluation changes nothing.
        #[test]
        fn restarts_change_nothing(steps in proptest::collection::vec((1u32..20, 0usize..5), 1..30)) {
            let mut at = 0.0;
            let steps: Vec<(f64, Compliance)> = steps
                .into_iter()
                .map(|(wait, compliance)| {
                    at += f64::from(wait);
                    (at, Compliance::ALL[compliance])
                })
                .collect();
            prop_assert_eq!(play(&steps, true), play(&steps, false));
        }
    }
}
