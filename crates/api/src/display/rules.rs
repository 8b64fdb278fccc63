use std::borrow::Borrow;

use kube::ResourceExt;

use crate::constraint::{
    Compliance, ConstraintPolicy, ConstraintPolicyOffer, PolicyDetail, PolicyRule, RuleDetail,
};

/// A rule of a binding, with its evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleRow {
    /// The name of the rule's policy.
    pub policy: String,
    /// The rule's name; empty for a policy that has no rules or does not exist.
    pub rule: String,
    /// The provider's evaluation.
    pub compliance: Compliance,
    /// The provider's Service, as namespace/name.
    pub provider: String,
    /// The provider's reason.
    pub reason: String,
    /// The requested value.
    pub request: String,
    /// The limit.
    pub limit: String,
}

/// Returns a row for each rule of a binding, including rules without a result. `policies` are the
/// policies in the binding's namespace.
pub fn rule_rows(
    details: &[PolicyDetail],
    offer: Option<&ConstraintPolicyOffer>,
    policies: &[impl Borrow<ConstraintPolicy>],
) -> Vec<RuleRow> {
    let policy_of = |name: &str| {
        let mut all = policies.iter().map(Borrow::borrow);
        all.find(|policy: &&ConstraintPolicy| policy.name_any() == name)
    };
    let mut rows = Vec::new();
    for detail in details {
        let policy = policy_of(&detail.policy);
        if detail.rule_details.is_empty() {
            let whole = RuleDetail {
                compliance: detail.compliance,
                reason: detail.reason.clone(),
                ..RuleDetail::default()
            };
            rows.push(row(&detail.policy, &whole, None));
        }
        for evaluated in &detail.rule_details {
            let rule = policy.and_then(|p| rule(p, &evaluated.rule));
            rows.push(row(&detail.policy, evaluated, rule));
        }
        let known = |name: &str| detail.rule_details.iter().any(|d| d.rule == name);
        if !detail.rule_details.is_empty() {
            rows.extend(policy.into_iter().flat_map(|p| unevaluated(p, known)));
        }
    }
    let named = offer.into_iter().flat_map(|o| &o.spec.policies);
    for name in named.filter(|name| details.iter().all(|d| d.policy != **name)) {
        match policy_of(name) {
            Some(policy) => rows.extend(unevaluated(policy, |_| false)),
            None => {
                let gone = RuleDetail {
                    compliance: Compliance::Error,
                    reason: "there is no such policy".into(),
                    ..RuleDetail::default()
                };
                rows.push(row(name, &gone, None));
            }
        }
    }
    rows
}

/// Returns the rule with this name. If several rules have it, the first counts.
fn rule<'a>(policy: &'a ConstraintPolicy, name: &str) -> Option<&'a PolicyRule> {
    policy.spec.rules.iter().find(|r| r.name == name)
}

fn unevaluated(policy: &ConstraintPolicy, known: impl Fn(&str) -> bool) -> Vec<RuleRow> {
    let rules = policy.spec.rules.iter().filter(|r| !known(&r.name));
    let rows = rules.map(|rule| {
        let detail = RuleDetail {
            rule: rule.name.clone(),
            reason: "not evaluated yet".into(),
            ..RuleDetail::default()
        };
        row(&policy.name_any(), &detail, Some(rule))
    });
    rows.collect()
}

fn row(policy: &str, detail: &RuleDetail, rule: Option<&PolicyRule>) -> RuleRow {
    let value = |get: fn(&PolicyRule) -> &str| rule.map(get).unwrap_or_default().to_owned();
    RuleRow {
        policy: policy.to_owned(),
        rule: detail.rule.clone(),
        compliance: detail.compliance,
        provider: detail.provider.clone(),
        reason: detail.reason.clone(),
        request: value(|r| &r.request.0),
        limit: value(|r| &r.limit.0),
    }
}
