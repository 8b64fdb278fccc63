//! One evaluation of a binding: the provider of each rule of the binding's policies is called.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use tautline_api::constraint::RuleDetail;
use tautline_core::{
    Compliance, Snapshot,
    model::{Rule, Service, key},
    planning::code,
    reference::Reference,
};
use tautline_proto::ruleprovider as wire;
use tautline_provider_client::ProviderClient;

use crate::{
    binding_spec::BindingSpec,
    evaluation::{Evaluation, missing_policy, policy_detail, rule_detail},
    metrics::Metrics,
    question::Question,
};

/// Evaluates a binding. All providers are called concurrently, each with its own deadline.
pub(crate) async fn evaluate(
    (providers, metrics): (&ProviderClient, &Metrics),
    snapshot: &Snapshot,
    binding: &BindingSpec,
    question: &Question,
) -> Evaluation {
    let policies = question.policies.iter().map(async |policy| {
        let Some(rules) = &policy.rules else {
            return missing_policy(&binding.namespace, &policy.policy);
        };
        let rules = rules.iter().map(async |(rule, service)| {
            let calls = (providers, metrics);
            evaluate_rule(calls, snapshot, binding, rule, service.as_ref()).await
        });
        policy_detail(&policy.policy, join_all(rules).await)
    });
    Evaluation::new(join_all(policies).await)
}

async fn evaluate_rule(
    (providers, metrics): (&ProviderClient, &Metrics),
    snapshot: &Snapshot,
    binding: &BindingSpec,
    rule: &Rule,
    service: Option<&Arc<Service>>,
) -> RuleDetail {
    let Some(service) = service else {
        metrics.evaluated(&rule.name, "", code::NO_PROVIDER, Duration::ZERO);
        let why = providers.missing_provider_message(snapshot, &rule.name, &binding.namespace);
        return RuleDetail {
            reason: format!("{}: {why}", code::NO_PROVIDER),
            ..rule_detail(&rule.name, "", Compliance::Error, "")
        };
    };
    let provider = key(&service.namespace, &service.name);
    let start = Instant::now();
    let answer = providers
        .evaluate(snapshot, service, request(snapshot, binding, rule))
        .await;
    let (compliance, reason) = match answer {
        Ok(answer) => from_wire(answer),
        Err(error) => (Compliance::Error, format!("{}: {error}", error.code())),
    };
    let took = start.elapsed();
    metrics.evaluated(&rule.name, &provider, compliance.name(), took);
    rule_detail(&rule.name, &provider, compliance, &reason)
}

fn request(snapshot: &Snapshot, binding: &BindingSpec, rule: &Rule) -> wire::EvaluateRequest {
    let target = |r: &Reference| wire::Target {
        cluster: r.cluster.clone(),
        namespace: r.namespace.clone(),
        api_version: r.api_version.clone(),
        kind: r.kind.clone(),
        name: r.name.clone(),
    };
    let node = |pod: &Reference| {
        let pod = snapshot.pod(&pod.namespace, &pod.name);
        let node = pod.and_then(|p| p.node.as_deref());
        node.unwrap_or_default().to_owned()
    };
    let places = |endpoints: &Reference| {
        let places = snapshot.endpoint_places(&endpoints.namespace, &endpoints.name);
        wire::Places {
            places: places.iter().map(|p| p.to_string()).collect(),
        }
    };
    let targets = binding.targets.iter();
    let local = |kind| {
        targets
            .clone()
            .filter(move |(_, r)| r.kind == kind && r.cluster.is_empty())
    };
    let (pods, endpoints) = (local("Pod"), local("Endpoints"));
    wire::EvaluateRequest {
        target_places: endpoints
            .map(|(name, r)| (name.to_string(), places(r)))
            .collect(),
        target_nodes: pods.map(|(name, r)| (name.to_string(), node(r))).collect(),
        targets: targets
            .map(|(name, r)| (name.to_string(), target(r)))
            .collect(),
        rule: Some(wire::PolicyRule {
            name: rule.name.to_string(),
            request: rule.request.clone(),
            limit: rule.limit.clone(),
        }),
    }
}

/// Returns the compliance, whose numbers are those of the wire format, and the reason.
fn from_wire(answer: wire::EvaluateResponse) -> (Compliance, String) {
    let number = usize::try_from(answer.compliance).unwrap_or(usize::MAX);
    match Compliance::ALL.get(number) {
        Some(compliance) => (*compliance, answer.reason),
        None => {
            let reason = format!("{}: compliance {}", code::BAD_ANSWER, answer.compliance);
            (Compliance::Error, reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use tautline_core::{
        Index,
        index::Object,
        model::{EndpointSlice, Pod},
    };

    use super::*;

    #[test]
    fn request_names_targets_the_nodes_of_local_pods_and_the_places_of_endpoints() {
        let mut index = Index::default();
        index.apply(Object::Pod(Pod {
            namespace: "shop".into(),
            name: "web-0".into(),
            node: Some("n1".into()),
            ..Pod::default()
        }));
        index.apply(Object::EndpointSlice(EndpointSlice {
            namespace: "shop".into(),
            name: "db-1".into(),
            service: "db".into(),
            places: vec!["203.0.113.9:5432".into(), "n2".into()],
            ..EndpointSlice::default()
        }));
        let database = Reference {
            kind: "Endpoints".to_owned(),
            ..Reference::pod("shop", "db")
        };
        let mut remote = Reference::pod("shop", "web-1");
        remote.cluster = "east".to_owned();
        let binding = BindingSpec {
            targets: [
                ("a".into(), Reference::pod("shop", "web-0")),
                ("b".into(), Reference::pod("shop", "gone")),
                ("c".into(), remote),
                ("d".into(), database),
            ]
            .into(),
            ..BindingSpec::default()
        };
        let request = request(&index.snapshot(), &binding, &Rule::default());
        assert_eq!(request.targets.len(), 4);
        assert_eq!(
            request.target_places["d"].places,
            ["203.0.113.9:5432", "n2"]
        );
        let nodes = request.target_nodes;
        assert_eq!(
            (nodes.len(), nodes["a"].as_str(), nodes["b"].as_str()),
            (2, "n1", "")
        );
    }

    fn answer(compliance: i32) -> (Compliance, String) {
        from_wire(wire::EvaluateResponse {
            compliance,
            reason: "why".to_owned(),
        })
    }

    #[test]
    fn answer_has_the_compliance_of_its_number() {
        for compliance in Compliance::ALL {
            let number = compliance as i32;
            assert_eq!(answer(number), (compliance, "why".to_owned()));
        }
    }

    #[test]
    fn answer_with_an_unknown_compliance_is_an_error() {
        let reason = "ProviderBadAnswer: compliance 77".to_owned();
        assert_eq!(answer(77), (Compliance::Error, reason));
    }
}
