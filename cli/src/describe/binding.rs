//! Renders the description of a binding: its compliance, targets, conditions, rules and events.

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use tautline_api::{
    ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer,
    display::{Enforcement, EventSummary, eviction_wait, reference, rule_rows},
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
        let offer = self.offer.as_ref();
        let mut offer_name = binding.spec.offer.clone();
        if offer.is_none() {
            offer_name.push_str(", which was deleted");
        }
        let mut standing = binding.compliance().name().to_owned();
        if let Some(changed) = &status.last_compliance_change_timestamp {
            let (age, time) = (age::since(changed.0, now), age::second(changed.0));
            standing.push_str(&format!(" for {age}, since {time}"));
        }
        let mut fields = vec![
            ("Name", binding.name_any()),
            ("Namespace", namespace.clone()),
            ("Offer", offer_name),
            ("Compliance", standing),
            ("Reason", status.first_reason),
        ];
        if let Some(terms) = offer.map(Enforcement::of) {
            fields.push(("Violation policy", terms.violation_policy));
            fields.push(("Period", terms.period));
            fields.push(("Grace", terms.grace));
        }
        let mitigated = status.last_mitigated_timestamp;
        let mitigated = mitigated.map_or_else(|| "never".into(), |t| age::ago(t.0, now));
        fields.push(("Last mitigation", mitigated));
        let wait = offer.and_then(|offer| eviction_wait(binding, offer, now));
        fields.extend(wait.map(|wait| ("Next eviction", wait)));
        let fields = fields.iter().map(|(name, value)| field(name, value));
        let mut out: String = fields.collect();
        let policies: Vec<&ConstraintPolicy> = self.policies.iter().collect();
        let targets: Vec<_> = binding.spec.targets.iter().collect();
        out.push_str(&section(
            "Targets",
            &targets,
            &[
                ("NAME", &|(name, _)| (*name).clone()),
                ("OBJECT", &|(_, target)| reference(target, &namespace)),
            ],
        ));
        out.push_str(&conditions(&status.conditions, now));
        out.push_str(&section(
            "Rules",
            &rule_rows(&status.details, offer, &policies),
            &[
                ("POLICY", &|row| row.policy.clone()),
                ("RULE", &|row| row.rule.clone()),
                ("COMPLIANCE", &|row| row.compliance.name().to_owned()),
                ("PROVIDER", &|row| row.provider.clone()),
                ("REASON", &|row| row.reason.clone()),
                ("REQUEST", &|row| row.request.clone()),
                ("LIMIT", &|row| row.limit.clone()),
            ],
        ));
        out.push_str(&events::history(&self.events, now));
        out
    }
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
