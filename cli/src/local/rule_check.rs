//! Finds rules without a provider, and rules whose provider refuses their request or limit.

use tautline_api::{
    ConstraintPolicy,
    constraint::{PolicyRule, Prefer},
    manifest::{FieldPath, Finding, Item},
};
use tautline_core::{model::Service, providers::choose_provider};
use tautline_sdk::{CostAnswer, CostRequest, ProviderError, Reference, Rule};

use super::LocalScheduler;

impl LocalScheduler {
    /// Returns the faults of each policy's rules, each with the policy's index in `items`.
    pub(crate) async fn rule_faults(&self, items: &[Item]) -> Vec<(usize, Finding)> {
        let mut faults = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let Item::Policy(policy) = item else { continue };
            for (i, rule) in policy.spec.rules.iter().enumerate() {
                let found = self.rule_fault(policy, rule).await;
                faults.extend(found.map(|(field, message)| {
                    let path = FieldPath::from_keys(["spec", "rules"]).index(i).key(field);
                    (at, finding(policy, path, message))
                }));
            }
        }
        faults
    }

    async fn rule_fault(
        &self,
        policy: &ConstraintPolicy,
        rule: &PolicyRule,
    ) -> Option<(&'static str, String)> {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or("default");
        let snapshot = self.store().snapshot();
        let chosen = choose_provider(&snapshot, &rule.name, namespace, &self.trusted);
        let Some(service) = chosen else {
            return Some(("name", self.no_provider(namespace, &rule.name)));
        };
        let request = Rule {
            name: rule.name.clone(),
            request: rule.request.0.clone(),
            limit: String::new(),
        };
        if let Err(message) = self.ask(service, namespace, &request).await {
            return Some(("request", message));
        }
        let limit = Rule {
            limit: rule.limit.0.clone(),
            ..request
        };
        match self.ask(service, namespace, &limit).await {
            Err(message) => Some(("limit", message)),
            Ok(Some(answer)) if prefers_in_vain(rule, &answer) => {
                let why = if rule.request.0.is_empty() {
                    "the rule has no request"
                } else {
                    "the provider does not say which nodes are within the request"
                };
                Some(("prefer", format!("has no effect: {why}; remove the field")))
            }
            Ok(_) => None,
        }
    }

    /// Returns the provider's answer without nodes, if it is known. The error is the provider's
    /// text about an invalid value.
    async fn ask(
        &self,
        service: &Service,
        namespace: &str,
        rule: &Rule,
    ) -> Result<Option<CostAnswer>, String> {
        let request = CostRequest {
            source: Reference::pod(namespace, ""),
            rule: rule.clone(),
            ..CostRequest::default()
        };
        match self.builtins.ask(service, request).await {
            Err(ProviderError::BadRule(message)) => Err(without_field(rule, &message).to_owned()),
            answer => Ok(answer.unwrap_or_default()),
        }
    }

    fn no_provider(&self, namespace: &str, rule: &str) -> String {
        format!(
            "no Service provides {rule:?}; correct the name, or add a Service of {namespace}, or of \
             a trusted namespace ({}), with the label constraint.ciena.com/constraint-{rule}: enabled",
            self.trusted
        )
    }
}

fn prefers_in_vain(rule: &PolicyRule, answer: &CostAnswer) -> bool {
    rule.prefer == Some(Prefer::WithinRequest) && answer.request_cost.is_none()
}

/// Removes the field from a message, since a finding names it already.
fn without_field<'a>(rule: &Rule, message: &'a str) -> &'a str {
    let named = message.strip_prefix(&format!("rule {:?}, ", rule.name));
    let fields = ["request", "limit"];
    let rest = named.and_then(|m| fields.iter().find_map(|field| m.strip_prefix(field)));
    rest.map_or(message, |rest| rest.trim_start_matches([':', ' ']))
}

fn finding(policy: &ConstraintPolicy, field: FieldPath, message: String) -> Finding {
    let name = policy.metadata.name.as_deref().unwrap_or_default();
    Finding {
        object: match policy.metadata.namespace.as_deref() {
            Some(namespace) => format!("ConstraintPolicy {namespace}/{name}"),
            None => format!("ConstraintPolicy {name}"),
        },
        field,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_api::manifest;
    use tautline_core::trust::TrustedNamespaces;

    async fn faults(rules: &str) -> Vec<String> {
        let service = |rule: &str| {
            format!(
                "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {rule}, namespace: shop, \
                 labels: {{constraint.ciena.com/constraint-{rule}: enabled}}}}\nspec: {{}}\n"
            )
        };
        let text = format!(
            "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicy\n\
             metadata: {{name: p, namespace: shop}}\nspec: {{rules: [{rules}]}}\n{}{}{}{}",
            service("latency"),
            service("bandwidth"),
            service("gpu-slice"),
            service("own")
        );
        let items = manifest::parse(&text).unwrap();
        let local = LocalScheduler::start(&items, TrustedNamespaces::default())
            .await
            .unwrap();
        let found = local.rule_faults(&items).await;
        local.stop().await;
        found.into_iter().map(|(_, f)| f.to_string()).collect()
    }

    #[tokio::test]
    async fn providers_refuse_malformed_values() {
        let good = "{name: latency, request: 5ms, limit: 20ms}, {name: gpu-slice, request: true}, \
                    {name: own, limit: anything}, {name: bandwidth, request: 1G, limit: 100M}, \
                    {name: latency, request: 5ms, prefer: WithinRequest}, \
                    {name: latency, prefer: Nearest}, \
                    {name: own, request: 1, prefer: WithinRequest}";
        assert_eq!(faults(good).await, [""; 0]);
        insta::assert_snapshot!(
            faults(
                "{name: latency, limit: 20}, {name: latency, request: soon, limit: 20ms}, \
                 {name: gpu-slice, request: 250x}, {name: bandwidth, request: 1M, limit: 2M}, \
                 {name: colour, limit: red}, {name: latency, prefer: WithinRequest}, \
                 {name: gpu-slice, request: 250m, prefer: WithinRequest}"
            )
            .await
            .join("\n"),
            @r#"
            ConstraintPolicy shop/p: spec.rules[0].limit: duration "20": a unit is missing; write it as 10m, 1h30m or 500us
            ConstraintPolicy shop/p: spec.rules[1].request: duration "soon": a number is missing; write it as 10m, 1h30m or 500us
            ConstraintPolicy shop/p: spec.rules[2].request: "250x": quantity "250x" is not understood; write it as 2, 500m, 1.5 or 20Gi; write 250m, 2, 20Gi or mig-1g.10gb, with ,model=A100|H100 if only some cards will do, or true for the pod's own requests
            ConstraintPolicy shop/p: spec.rules[3].limit: it is the least that is accepted, so write one up to the request, 1M
            ConstraintPolicy shop/p: spec.rules[4].name: no Service provides "colour"; correct the name, or add a Service of shop, or of a trusted namespace (tautline-system), with the label constraint.ciena.com/constraint-colour: enabled
            ConstraintPolicy shop/p: spec.rules[5].prefer: has no effect: the rule has no request; remove the field
            ConstraintPolicy shop/p: spec.rules[6].prefer: has no effect: the provider does not say which nodes are within the request; remove the field
            "#
        );
    }
}
