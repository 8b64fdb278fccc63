//! Renders the description of an offer: its evictions, targets, policies, conditions and events.

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use tautline_api::{
    ConstraintPolicy, ConstraintPolicyOffer,
    display::{Enforcement, EventSummary, evicts, group, next_eviction, selector},
};

use super::conditions;
use crate::{
    age,
    bindings::Counts,
    events,
    table::{field, grid, section, titled},
};

pub(super) struct OfferDescription {
    pub offer: ConstraintPolicyOffer,
    pub policies: Vec<ConstraintPolicy>,
    pub counts: Counts,
    pub events: Result<Vec<EventSummary>, String>,
}

impl OfferDescription {
    pub(super) fn text(&self, now: Timestamp) -> String {
        let offer = &self.offer;
        let status = offer.status.clone().unwrap_or_default();
        let terms = Enforcement::of(offer);
        let unavailable = match offer.spec.provider_unavailable {
            Some(choice) => format!("{choice:?}"),
            None => "as the extender is configured (default: Reject for rules with a limit)".into(),
        };
        let eviction = match &status.last_eviction {
            None => "never".into(),
            Some(e) => format!(
                "{}: pod {} from node {}{}, for binding {}",
                age::ago(e.time.0, now),
                e.pod,
                e.node,
                e.group
                    .as_ref()
                    .map_or_else(String::new, |group| format!(", with all {group}")),
                e.binding
            ),
        };
        let next = next_eviction(offer, now)
            .map(|t| format!("in {} ({})", age::since(now, t), age::second(t)));
        let mut out = String::new();
        for (name, value) in [
            ("Name", offer.name_any()),
            ("Namespace", offer.namespace().unwrap_or_default()),
            ("Bindings", self.counts.to_string()),
            ("Violation policy", terms.violation_policy),
            ("Period", terms.period),
            ("Grace", terms.grace),
            ("No provider", unavailable),
            ("Last eviction", eviction),
        ] {
            out.push_str(&field(name, &value));
        }
        for (name, value) in [
            ("Next eviction", next),
            ("Evicts pods of", evicts(offer)),
            ("Group", group(offer)),
        ] {
            out.push_str(&value.map_or_else(String::new, |value| field(name, &value)));
        }
        out.push_str(&section(
            "Targets",
            &offer.spec.targets,
            &[
                ("NAME", &|t| {
                    t.name.clone().unwrap_or_else(|| "default".into())
                }),
                ("KIND", &|t| format!("{:?}", t.kind)),
                ("SELECTOR", &|t| selector(t)),
            ],
        ));
        out.push_str(&self.policies());
        out.push_str(&conditions(&status.conditions, now));
        out.push_str(&events::history(&self.events, now));
        out
    }

    fn policies(&self) -> String {
        let mut rows = Vec::new();
        for name in &self.offer.spec.policies {
            let Some(policy) = self.policies.iter().find(|p| p.name_any() == *name) else {
                rows.push(vec![name.clone(), "(there is no such policy)".into()]);
                continue;
            };
            rows.extend(policy.spec.rules.iter().map(|rule| {
                vec![
                    name.clone(),
                    rule.name.clone(),
                    rule.request.0.clone(),
                    rule.limit.0.clone(),
                ]
            }));
        }
        match rows.as_slice() {
            [] => field("Policies", "none"),
            _ => titled(
                "Policies",
                &grid(&["POLICY", "RULE", "REQUEST", "LIMIT"], rows),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use tautline_api::constraint::OfferGroup;

    use super::*;
    use crate::tests::fixtures;

    fn described(index: usize) -> OfferDescription {
        let offer = fixtures::offers().remove(index);
        let name = offer.name_any();
        let mut bindings = fixtures::bindings();
        bindings.retain(|b| b.spec.offer == name);
        OfferDescription {
            offer,
            policies: fixtures::policies(),
            counts: Counts::of(&bindings),
            events: Ok(fixtures::events()),
        }
    }

    #[test]
    fn offer_description_shows_all_fields() {
        insta::assert_snapshot!("describe_offer", described(0).text(fixtures::now()));
    }

    #[test]
    fn offer_description_shows_the_group() {
        let mut described = described(1);
        described.offer.spec.group = Some(OfferGroup {
            by: Some("shard".into()),
            minimum: Some(8),
        });
        let text = described.text(fixtures::now());
        let expected = field("Group", "8 pods with one value of label shard");
        assert!(text.contains(&expected), "{text}");
    }

    #[test]
    fn offer_description_shows_defaults() {
        let mut described = described(1);
        described.events = Ok(Vec::new());
        insta::assert_snapshot!("describe_offer_bare", described.text(fixtures::now()));
    }
}
