use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use tautline_api::{
    ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer,
    display::{Enforcement, EventSummary, RuleRow, eviction_wait, reference, rule_rows},
};

use super::conditions;
use crate::{
    age, events,
    table::{field, section},
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
        let mut standing = binding.compliance().name().to_owned();
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
        let mitigated = status
            .last_mitigated_timestamp
            .as_ref()
            .map_or_else(|| "never".into(), |t| age::ago(t.0, now));
        out.push_str(&field("Last mitigation", &mitigated));
        let offer = self.offer.as_ref();
        if let Some(wait) = offer.and_then(|offer| eviction_wait(binding, offer, now)) {
            out.push_str(&field("Next eviction", &wait));
        }
        let policies: Vec<&ConstraintPolicy> = self.policies.iter().collect();
        let targets = binding
            .spec
            .targets
            .iter()
            .map(|(name, t)| vec![name.clone(), reference(t, &namespace)]);
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
            rule_rows(&status.details, self.offer.as_ref(), &policies)
                .into_iter()
                .map(row)
                .collect(),
        ));
        out.push_str(&events::history(&self.events, now));
        out
    }
}

fn row(row: RuleRow) -> Vec<String> {
    vec![
        row.policy,
        row.rule,
        row.compliance.name().to_owned(),
        row.provider,
        row.reason,
        row.request,
        row.limit,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixtures;

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
