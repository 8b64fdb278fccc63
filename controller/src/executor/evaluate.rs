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

/// Evaluates a binding. All providers are called concurrently, each with its own deadline; none is
/// called while the pods of another cluster that the binding's offer names are not known.
pub(crate) async fn evaluate(
    (providers, metrics): (&ProviderClient, &Metrics),
    snapshot: &Snapshot,
    binding: &BindingSpec,
    question: &Question,
) -> Evaluation {
    let offer = snapshot.offer(&binding.namespace, &binding.offer);
    let fault = offer.and_then(|entry| snapshot.remote_fault(&entry.offer));
    let fault = fault.map(|(cluster, fault)| fault.text(cluster));
    let policies = question.policies.iter().map(async |policy| {
        let Some(rules) = &policy.rules else {
            return missing_policy(&binding.namespace, &policy.policy);
        };
        let rules = rules.iter().map(async |(rule, service)| {
            if let Some(why) = &fault {
                metrics.evaluated(&rule.name, "", code::CLUSTER_UNAVAILABLE, Duration::ZERO);
                let reason = format!("{}: {why}", code::CLUSTER_UNAVAILABLE);
                return rule_detail(&rule.name, "", Compliance::Error, &reason);
            }
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
    let offer = snapshot.offer(&binding.namespace, &binding.offer);
    // A binding that someone wrote must not show pods that its namespace does not select.
    let is_named = |of: &Reference| {
        let mut targets = offer.into_iter().flat_map(|e| &e.offer.remote_targets);
        *of.namespace == *binding.namespace && targets.any(|t| *t.cluster == *of.cluster)
    };
    let node = |of: &Reference| {
        let of_local = || snapshot.pod_of(of)?.node.as_deref();
        let of_remote = || snapshot.remote_pod(of)?.place.as_deref();
        let of_remote = || of_remote().filter(|_| is_named(of));
        let node = of_local().or_else(of_remote);
        node.unwrap_or_default().to_owned()
    };
    let places = |endpoints: &Reference| {
        let places = snapshot.endpoint_places(&endpoints.namespace, &endpoints.name);
        wire::Places {
            places: places.iter().map(|p| p.to_string()).collect(),
        }
    };
    let targets = binding.targets.iter();
    let pods = targets.clone().filter(|(_, r)| r.kind == "Pod");
    let is_local_endpoint = |r: &Reference| r.kind == "Endpoints" && r.cluster.is_empty();
    let endpoints = targets.clone().filter(|(_, r)| is_local_endpoint(r));
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
        Index, TrustedNamespaces,
        index::Object,
        model::{EndpointSlice, Offer, Pod, Policy},
        remote::{Fault, RemotePod, RemotePods, RemoteState, RemoteTarget, Scope},
        selector::Selector,
    };
    use tautline_provider_client::ClientConfig;

    use super::*;

    /// The pods of the namespace `shop` of the cluster `east`: `web-1`.
    fn east(state: RemoteState) -> Object {
        let pod = RemotePod {
            cluster: "east".into(),
            namespace: "shop".into(),
            name: "web-1".into(),
            place: Some("198.51.100.7:10250".into()),
            ..RemotePod::default()
        };
        Object::RemotePods(RemotePods {
            scope: Scope {
                cluster: "east".into(),
                namespace: "shop".into(),
            },
            state,
            pods: [("web-1".into(), pod.into())].into(),
        })
    }

    #[tokio::test]
    async fn evaluation_is_an_error_without_a_call_while_a_cluster_of_the_offer_is_unavailable() {
        let mut index = Index::default();
        let rule = |name: &str| Rule {
            name: name.into(),
            ..Rule::default()
        };
        index.apply(Object::Policy(Policy {
            namespace: "shop".into(),
            name: "near".into(),
            rules: vec![rule("latency"), rule("jitter")],
        }));
        for (name, clusters) in [("far", &["east"][..]), ("here", &[])] {
            let target = |cluster: &&str| RemoteTarget {
                name: "db".into(),
                cluster: (*cluster).into(),
                selector: Selector::default(),
            };
            index.apply(Object::Offer(Offer {
                namespace: "shop".into(),
                name: name.into(),
                policies: vec!["near".into()],
                remote_targets: clusters.iter().map(target).collect(),
                ..Offer::default()
            }));
        }
        let calls = tautline_provider_client::Metrics::default();
        let providers = ProviderClient::new(ClientConfig::default(), calls).unwrap();
        let reasons = async |index: &Index, offer: &str| {
            let (snapshot, trusted) = (index.snapshot(), TrustedNamespaces::default());
            let entry = snapshot.offer("shop", offer).unwrap();
            let question = Question::new(&snapshot, &trusted, &entry.offer);
            let binding = BindingSpec {
                namespace: "shop".into(),
                offer: offer.into(),
                ..BindingSpec::default()
            };
            let calls = (&providers, &Metrics::default());
            let evaluation = evaluate(calls, &snapshot, &binding, &question).await;
            assert_eq!(evaluation.compliance, Compliance::Error);
            let rules = evaluation.details[0].rule_details.iter();
            rules.map(|r| r.reason.clone()).collect::<Vec<_>>()
        };
        let is_called = |reasons: Vec<String>| reasons[0].starts_with("NoProvider: ");
        let away = |fault: Fault| vec![format!("ClusterUnavailable: {}", fault.text("east")); 2];
        assert_eq!(reasons(&index, "far").await, away(Fault::Off));
        index.apply(east(RemoteState::Unavailable(Fault::Forbidden)));
        assert_eq!(reasons(&index, "far").await, away(Fault::Forbidden));
        assert!(is_called(reasons(&index, "here").await));
        index.apply(east(RemoteState::LastKnown(Fault::Forbidden)));
        assert!(is_called(reasons(&index, "far").await));
    }

    #[test]
    fn request_names_targets_the_nodes_of_pods_and_the_places_of_endpoints() {
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
        index.apply(east(RemoteState::Current));
        let target = RemoteTarget {
            name: "c".into(),
            cluster: "east".into(),
            selector: Selector::default(),
        };
        for (namespace, name, targets) in [
            ("shop", "far", vec![target.clone()]),
            ("shop", "here", Vec::new()),
            ("bank", "far", vec![target]),
        ] {
            index.apply(Object::Offer(Offer {
                namespace: namespace.into(),
                name: name.into(),
                remote_targets: targets,
                ..Offer::default()
            }));
        }
        let in_east = |name: &str| Reference {
            cluster: "east".to_owned(),
            ..Reference::pod("shop", name)
        };
        let binding = BindingSpec {
            namespace: "shop".into(),
            offer: "far".into(),
            targets: [
                ("a".into(), Reference::pod("shop", "web-0")),
                ("b".into(), Reference::pod("shop", "gone")),
                ("c".into(), in_east("web-1")),
                ("d".into(), database),
                ("e".into(), in_east("web-0")),
            ]
            .into(),
            ..BindingSpec::default()
        };
        let request = request(&index.snapshot(), &binding, &Rule::default());
        assert_eq!(request.targets.len(), 5);
        assert_eq!(
            request.target_places["d"].places,
            ["203.0.113.9:5432", "n2"]
        );
        let nodes = request.target_nodes;
        let node = |target: &str| nodes[target].as_str();
        assert_eq!(
            (nodes.len(), node("a"), node("b"), node("c")),
            (4, "n1", "", "198.51.100.7:10250")
        );
        assert_eq!(node("e"), "", "the local pod of that name is another");
        for (namespace, offer) in [("shop", "here"), ("shop", "gone"), ("bank", "far")] {
            let foreign = BindingSpec {
                namespace: namespace.into(),
                offer: offer.into(),
                ..binding.clone()
            };
            let request = super::request(&index.snapshot(), &foreign, &Rule::default());
            assert_eq!(request.target_nodes["c"], "", "{namespace}/{offer}");
        }
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
