//! The result of an evaluation: rules combine to policies, policies to the binding.

use tautline_api::constraint::{self as api, PolicyDetail, RuleDetail};
use tautline_core::{Compliance, planning::code, text};

/// Providers choose the reasons, which go into every status.
const MAX_REASON_CHARS: usize = 512;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Evaluation {
    pub compliance: Compliance,
    /// The reason of the first rule that is as bad as the whole.
    pub first_reason: String,
    pub details: Vec<PolicyDetail>,
}

impl Evaluation {
    pub(crate) fn new(details: Vec<PolicyDetail>) -> Self {
        let compliance = Compliance::of_parts(details.iter().map(|d| from_api(d.compliance)));
        let worst = details
            .iter()
            .find(|d| from_api(d.compliance) == compliance);
        let first_reason = match worst {
            Some(worst) => worst.reason.clone(),
            None => "NoPolicies: the offer names no policy".to_owned(),
        };
        Self {
            compliance,
            first_reason,
            details,
        }
    }
}

/// A rule's part of a status. `provider`: `namespace/name`, empty without one.
pub(crate) fn rule_detail(
    rule: &str,
    provider: &str,
    compliance: Compliance,
    reason: &str,
) -> RuleDetail {
    RuleDetail {
        rule: rule.to_owned(),
        compliance: to_api(compliance),
        reason: text::clean(reason, MAX_REASON_CHARS).into_owned(),
        provider: provider.to_owned(),
    }
}

pub(crate) fn policy_detail(policy: &str, rules: Vec<RuleDetail>) -> PolicyDetail {
    let compliance = Compliance::of_parts(rules.iter().map(|r| from_api(r.compliance)));
    let worst = rules.iter().find(|r| from_api(r.compliance) == compliance);
    PolicyDetail {
        policy: policy.to_owned(),
        compliance: to_api(compliance),
        reason: worst.map(|r| r.reason.clone()).unwrap_or_default(),
        rule_details: rules,
    }
}

pub(crate) fn missing_policy(namespace: &str, policy: &str) -> PolicyDetail {
    PolicyDetail {
        policy: policy.to_owned(),
        compliance: api::Compliance::Error,
        reason: format!(
            "{}: ConstraintPolicy {namespace}/{policy} does not exist",
            code::POLICY_MISSING
        ),
        rule_details: Vec::new(),
    }
}

pub(crate) fn to_api(compliance: Compliance) -> api::Compliance {
    match compliance {
        Compliance::Pending => api::Compliance::Pending,
        Compliance::Compliant => api::Compliance::Compliant,
        Compliance::Limit => api::Compliance::Limit,
        Compliance::Violation => api::Compliance::Violation,
        Compliance::Error => api::Compliance::Error,
    }
}

pub(crate) fn from_api(compliance: api::Compliance) -> Compliance {
    match compliance {
        api::Compliance::Pending => Compliance::Pending,
        api::Compliance::Compliant => Compliance::Compliant,
        api::Compliance::Limit => Compliance::Limit,
        api::Compliance::Violation => Compliance::Violation,
        api::Compliance::Error => Compliance::Error,
    }
}
