//! The result of an evaluation: the results of rules are combined into those of policies, and these
//! into the result of the binding.

use tautline_api::constraint::{PolicyDetail, RuleDetail};
use tautline_core::{Compliance, planning::code, text};

/// The limit for reasons, which providers choose and which go into every status.
const MAX_REASON_CHARS: usize = 512;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Evaluation {
    pub compliance: Compliance,
    /// The reason of the first policy with the same compliance as the binding.
    pub first_reason: String,
    pub details: Vec<PolicyDetail>,
}

impl Evaluation {
    pub(crate) fn new(details: Vec<PolicyDetail>) -> Self {
        let compliance = Compliance::aggregate(details.iter().map(|d| d.compliance));
        let worst = details.iter().find(|d| d.compliance == compliance);
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

/// Returns a rule's part of a status. `provider` is `namespace/name`, or empty without a provider.
pub(crate) fn rule_detail(
    rule: &str,
    provider: &str,
    compliance: Compliance,
    reason: &str,
) -> RuleDetail {
    RuleDetail {
        rule: rule.to_owned(),
        compliance,
        reason: text::sanitize(reason, MAX_REASON_CHARS).into_owned(),
        provider: provider.to_owned(),
    }
}

pub(crate) fn policy_detail(policy: &str, rules: Vec<RuleDetail>) -> PolicyDetail {
    let compliance = Compliance::aggregate(rules.iter().map(|r| r.compliance));
    let worst = rules.iter().find(|r| r.compliance == compliance);
    PolicyDetail {
        policy: policy.to_owned(),
        compliance,
        reason: worst.map(|r| r.reason.clone()).unwrap_or_default(),
        rule_details: rules,
    }
}

pub(crate) fn missing_policy(namespace: &str, policy: &str) -> PolicyDetail {
    PolicyDetail {
        policy: policy.to_owned(),
        compliance: Compliance::Error,
        reason: format!(
            "{}: ConstraintPolicy {namespace}/{policy} does not exist",
            code::POLICY_MISSING
        ),
        rule_details: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use Compliance::{Compliant, Error, Limit, Pending, Violation};

    use super::*;

    fn evaluation(policies: &[&[(Compliance, &str)]]) -> Evaluation {
        let rule = |(c, reason): &(Compliance, &str)| rule_detail("latency", "a/b", *c, reason);
        let policies = policies.iter().map(|rules| {
            let rules = rules.iter().map(rule).collect();
            policy_detail("fast", rules)
        });
        Evaluation::new(policies.collect())
    }

    #[test]
    fn evaluation_is_as_bad_as_its_worst_rule() {
        let result = evaluation(&[&[(Compliant, "ok"), (Violation, "31ms")], &[(Limit, "x")]]);
        assert_eq!(result.compliance, Violation);
        assert_eq!(result.first_reason, "31ms");
        assert_eq!(result.details[0].compliance, Compliance::Violation);
        assert_eq!(result.details[1].compliance, Compliance::Limit);
    }

    #[test]
    fn evaluation_has_the_reason_of_the_first_of_equals() {
        let result = evaluation(&[&[(Violation, "first"), (Violation, "second")]]);
        assert_eq!(result.first_reason, "first");
    }

    #[test]
    fn evaluation_without_policies_is_pending() {
        let result = evaluation(&[]);
        assert_eq!(result.compliance, Pending);
        assert_eq!(result.first_reason, "NoPolicies: the offer names no policy");
    }

    #[test]
    fn evaluation_with_a_missing_policy_is_an_error() {
        let result = Evaluation::new(vec![missing_policy("shop", "fast")]);
        assert_eq!(result.compliance, Error);
        let reason = "PolicyMissing: ConstraintPolicy shop/fast does not exist";
        assert_eq!(result.first_reason, reason);
    }

    #[test]
    fn rule_detail_cleans_and_cuts_the_providers_reason() {
        let detail = rule_detail("latency", "a/b", Compliant, "a\u{1b}[2Jb\nc");
        assert_eq!(detail.reason, "a\u{fffd}[2Jb c");
        let detail = rule_detail("latency", "a/b", Compliant, &"x".repeat(5000));
        assert!(detail.reason.chars().count() <= MAX_REASON_CHARS);
    }
}
