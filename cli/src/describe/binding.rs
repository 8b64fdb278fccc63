use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use tautline_api::{
    ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer,
    constraint::{Compliance, PolicyDetail, PolicyRule, RuleDetail},
};

use super::conditions;
use crate::{
    age,
    bindings::{compliance, compliance_name},
    events::{self, EventSummary},
    table::{field, section},
    tables::{Enforcement, reference},
};

pub(super) struct BindingDescription {
    pub binding: ConstraintPolicyBinding,
    pub offer: Option<ConstraintPolicyOffer>,
    pub policies: Vec<ConstraintPolicy>,
    pub events: Result<Vec<EventSummary>, String>,
}

impl BindingDescription {
    pub(super) fn text(&self, now: Timestamp) -> String {
        let binding = &self.binding;
        let namespace = binding.namespace().unwrap_or_default();
        let status = binding.status.clone().unwrap_or_default();
        let mut out = field("Name", &binding.name_any());
        out.push_str(&field("Namespace", &namespace));
        out.push_str(&match &self.offer {
            Some(_) => field("Offer", &binding.spec.offer),
            None => field(
                "Offer",
                &format!("{}, which was deleted", binding.spec.offer),
            ),
        });
        let mut standing = compliance_name(compliance(binding)).to_owned();
        if let Some(changed) = &status.last_compliance_change_timestamp {
            let (age, time) = (age::since(changed.0, now), age::second(changed.0));
            standing.push_str(&format!(" for {age}, since {time}"));
        }
        out.push_str(&field("Compliance", &standing));
        out.push_str(&field("Reason", &status.first_reason));
        if let Some(terms) = self.offer.as_ref().map(Enforcement::of) {
            out.push_str(&field("Violation policy", &terms.violation_policy));
            out.push_str(&field("Period", &terms.period));
            out.push_str(&field("Grace", &terms.grace));
        }
        let mitigated = status.last_mitigated_timestamp.as_ref();
        let mitigated = mitigated.map_or_else(|| "never".into(), |t| age::ago(t.0, now));
        out.push_str(&field("Last mitigation", &mitigated));
        let targets = binding.spec.targets.iter();
        let targets = targets.map(|(name, t)| vec![name.clone(), reference(t, &namespace)]);
        out.push_str(&section("Targets", &["NAME", "OBJECT"], targets.collect()));
        out.push_str(&conditions(&status.conditions, now));
        out.push_str(&section(
            "Rules",
            &[
                "POLICY",
                "RULE",
                "COMPLIANCE",
                "PROVIDER",
                "REASON",
                "REQUEST",
                "LIMIT",
            ],
            self.rules(&status.details),
        ));
        out.push_str(&events::history(&self.events, now));
        out
    }

    /// A row for each evaluated rule, then for those without a result.
    fn rules(&self, details: &[PolicyDetail]) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for detail in details {
            let policy = self.policy(&detail.policy);
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
        let named = self.offer.iter().flat_map(|o| &o.spec.policies);
        for name in named.filter(|name| details.iter().all(|d| d.policy != **name)) {
            match self.policy(name) {
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

    fn policy(&self, name: &str) -> Option<&ConstraintPolicy> {
        self.policies.iter().find(|p| p.name_any() == name)
    }
}

/// The first rule of a name counts.
fn rule<'a>(policy: &'a ConstraintPolicy, name: &str) -> Option<&'a PolicyRule> {
    policy.spec.rules.iter().find(|r| r.name == name)
}

fn unevaluated(policy: &ConstraintPolicy, known: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
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

fn row(policy: &str, detail: &RuleDetail, rule: Option<&PolicyRule>) -> Vec<String> {
    let value = |get: fn(&PolicyRule) -> &str| rule.map(get).unwrap_or_default().to_owned();
    vec![
        policy.to_owned(),
        detail.rule.clone(),
        compliance_name(detail.compliance).to_owned(),
        detail.provider.clone(),
        detail.reason.clone(),
        value(|r| &r.request.0),
        value(|r| &r.limit.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn described(name: &str) -> BindingDescription {
        let all = fixtures::bindings();
        let binding = all.into_iter().find(|b| b.name_any() == name).unwrap();
        let offers = fixtures::offers();
        let offer = offers
            .into_iter()
            .find(|o| o.name_any() == binding.spec.offer);
        BindingDescription {
            binding,
            offer,
            policies: fixtures::policies(),
            events: Ok(fixtures::events()),
        }
    }

    #[test]
    fn binding_description_shows_rules_and_history() {
        let text = described("detectors-violation").text(fixtures::now());
        insta::assert_snapshot!("describe_violation", text);
    }

    #[test]
    fn binding_description_before_the_first_evaluation() {
        let mut described = described("trackers-new");
        described.events = Ok(Vec::new());
        insta::assert_snapshot!("describe_new", described.text(fixtures::now()));
    }

    #[test]
    fn binding_description_names_missing_objects() {
        let mut described = described("trackers-error");
        described.offer = None;
        described.events = Err("events is forbidden".into());
        insta::assert_snapshot!("describe_error", described.text(fixtures::now()));
    }
}
