//! Offers of one namespace do not take bandwidth or measurements from others.

use std::collections::BTreeMap;

use tautline_core::{
    TrustedNamespaces,
    index::Kind,
    model::{EndpointSlice, Offer, Pod, Policy, Target, TargetKind},
    selector::Selector,
};

use super::*;
use crate::{
    BandwidthTable, Network, network::demanded_pairs::NODE_SLOTS,
    rules::bandwidth::reservations::tests as cluster,
};

const G: u64 = 1_000_000_000;
const NODES: [&str; 4] = ["n0", "n1", "n2", "n3"];

/// Four nodes with NICs of 10G, a table of 10G between their zones, and a binding of
/// `shop` over 1G between n0 and n1.
fn provider(trusted: &[&str]) -> Latency {
    let store = ClusterStore::default();
    let network = Network::new(store.clone(), false);
    for (node, zone) in NODES.iter().zip(["za", "zb", "za", "zb"]) {
        store.apply(cluster::node(node, zone));
        network.set_nic(node, 10 * G);
    }
    store.apply(cluster::policy("fast", "1G"));
    store.apply(cluster::offer("fast", ["web", "db"]));
    store.apply(cluster::pod("web", "web", Some("n0")));
    store.apply(cluster::pod("db", "db", Some("n1")));
    let trusted: TrustedNamespaces = trusted.iter().copied().collect();
    let provider = Latency::with_network(network).with_trusted(trusted);
    let mut table = BandwidthTable::default();
    table.add("za,zb,10G").unwrap();
    provider.set_bandwidth_table(table);
    provider
}

/// Puts Services of these names, by their EndpointSlices, without any pod, and an offer
/// over each two of them.
fn put_services(provider: &Latency, names: &[impl AsRef<str>], request: &str) {
    for name in names {
        provider
            .network
            .store
            .apply(Object::EndpointSlice(EndpointSlice {
                namespace: "evil".into(),
                name: name.as_ref().into(),
                service: name.as_ref().into(),
                labels: [("app", "evil")].into_iter().collect(),
                ..EndpointSlice::default()
            }));
    }
    put_offer(provider, TargetKind::Endpoint, request);
}

fn put_offer(provider: &Latency, kind: TargetKind, request: &str) {
    let target = |name: &str| Target {
        name: name.into(),
        kind,
        api_version: String::new(),
        selector: Selector {
            match_labels: vec![("app".into(), "evil".to_owned())],
            ..Selector::default()
        },
    };
    provider.network.store.apply(Object::Policy(Policy {
        namespace: "evil".into(),
        name: "much".into(),
        rules: vec![model::Rule {
            name: BANDWIDTH.into(),
            request: request.into(),
            ..model::Rule::default()
        }],
    }));
    provider.network.store.apply(Object::Offer(Offer {
        namespace: "evil".into(),
        name: "much".into(),
        targets: ["x", "y"].map(target).to_vec(),
        policies: vec!["much".into()],
        ..Offer::default()
    }));
}

fn put_pod(provider: &Latency, name: &str, node: &str) {
    provider.network.store.apply(Object::Pod(Pod {
        namespace: "evil".into(),
        name: name.into(),
        labels: [("app", "evil")].into_iter().collect(),
        node: Some(node.into()),
        ..Pod::default()
    }));
}

/// What the pods of `shop` and `bank` are answered about bandwidth.
async fn answers_for_others(provider: &Latency) -> Vec<String> {
    let rule = Rule {
        name: BANDWIDTH.into(),
        request: "2G".into(),
        limit: "1G".into(),
    };
    let mut all = Vec::new();
    for namespace in ["shop", "bank"] {
        let cost_request = CostRequest {
            source: Reference::pod(namespace, "new"),
            rule: rule.clone(),
            peer_nodes: vec!["n1".to_owned()],
            eligible_nodes: NODES.map(str::to_owned).to_vec(),
            ..CostRequest::default()
        };
        let answer = provider.endpoint_cost(cost_request).await.unwrap();
        let nodes = answer.nodes();
        all.extend(
            nodes
                .iter()
                .map(|n| format!("{} {} {}", n.cost, n.code, n.detail)),
        );
    }
    let targets = ["web", "db"].map(|t| (t.to_owned(), Reference::pod("shop", t)));
    let evaluation_request = EvaluationRequest {
        targets: targets.into_iter().collect(),
        rule,
        ..EvaluationRequest::default()
    };
    let evaluation = provider.evaluate(evaluation_request).await.unwrap();
    all.push(format!("{:?} {}", evaluation.compliance, evaluation.reason));
    all
}

#[tokio::test]
async fn services_named_like_nodes_reserve_nothing() {
    let provider = provider(&["system"]);
    let before = answers_for_others(&provider).await;
    assert!(before[8].starts_with("Compliant"), "{before:?}");
    put_services(&provider, &NODES, "100G");
    assert_eq!(answers_for_others(&provider).await, before);
    put_services(&provider, &["za", "zb"], "100G");
    assert_eq!(answers_for_others(&provider).await, before);
}

/// Whoever creates a pod may write the name of its node.
#[tokio::test]
async fn pods_on_nodes_that_are_not_there_reserve_nothing() {
    let provider = provider(&["system"]);
    let before = answers_for_others(&provider).await;
    put_offer(&provider, TargetKind::Pod, "100G");
    put_pod(&provider, "p0", "za");
    put_pod(&provider, "p1", "zb");
    put_pod(&provider, "p2", "n2");
    assert_eq!(answers_for_others(&provider).await, before);
    // A node that comes later counts from then on, and no more once it is gone.
    put_pod(&provider, "p1", "n9");
    provider.network.store.apply(cluster::node("n9", "zb"));
    let with_node = answers_for_others(&provider).await;
    assert!(with_node[0].contains("TooLittle 0 bit/s"), "{with_node:?}");
    provider.network.store.delete(Kind::Node, "n9");
    assert_eq!(answers_for_others(&provider).await, before);
}

#[tokio::test]
async fn bound_pods_and_services_of_trusted_namespaces_reserve() {
    let bound = provider(&["system"]);
    put_offer(&bound, TargetKind::Pod, "4G");
    put_pod(&bound, "p0", "n2");
    put_pod(&bound, "p1", "n3");
    let answers = answers_for_others(&bound).await;
    // Both targets have one selector: the pair reserves once, not in each order.
    assert!(answers[2].contains(" 5 Gbit/s left to n1"), "{answers:?}");

    let trusting = provider(&["evil"]);
    put_services(&trusting, &["n2", "n3"], "4G");
    assert_eq!(answers_for_others(&trusting).await, answers);
}

/// Evaluates a binding of two objects of `namespace`.
async fn evaluate(provider: &Latency, namespace: &str, kind: &str, objects: [(&str, &str); 2]) {
    let target = |(name, _): (&str, &str)| {
        let reference = Reference {
            kind: kind.into(),
            ..Reference::pod(namespace, name)
        };
        (name.to_owned(), reference)
    };
    let node = |(name, node): (&str, &str)| (name.to_owned(), Some(node.to_owned()));
    let evaluation_request = EvaluationRequest {
        targets: objects.into_iter().map(target).collect(),
        target_nodes: objects.into_iter().map(node).collect::<BTreeMap<_, _>>(),
        rule: Rule {
            name: "jitter".into(),
            request: "5ms".into(),
            limit: "20ms".into(),
        },
        ..EvaluationRequest::default()
    };
    provider.evaluate(evaluation_request).await.unwrap();
}

fn demanded(provider: &Latency) -> usize {
    provider.network.demand.lock().pairs(0).count()
}

#[tokio::test]
async fn services_named_like_nodes_have_no_pairs_measured() {
    let services = [("n0", "n0"), ("n1", "n1")];
    let other = provider(&["system"]);
    evaluate(&other, "evil", "Endpoints", services).await;
    assert_eq!(demanded(&other), 0);
    evaluate(&other, "evil", "Pod", [("p", "n0"), ("q", "n1")]).await;
    assert_eq!(demanded(&other), 1);
    let trusting = provider(&["evil"]);
    evaluate(&trusting, "evil", "Endpoints", services).await;
    assert_eq!(demanded(&trusting), 1);
}

/// A pod that is not placed needs no room anywhere to ask.
#[tokio::test]
async fn peers_named_like_nodes_have_no_candidates_measured() {
    let peer = |kind: &str| tautline_sdk::Peer {
        reference: Reference {
            kind: kind.into(),
            ..Reference::pod("evil", "n0")
        },
        node: Some("n0".to_owned()),
        ..tautline_sdk::Peer::default()
    };
    for (kind, pairs) in [("Endpoints", 0), ("Pod", 3)] {
        let provider = provider(&["system"]);
        let cost_request = CostRequest {
            source: Reference::pod("evil", "new"),
            rule: Rule {
                name: "jitter".into(),
                request: "5ms".into(),
                ..Rule::default()
            },
            peer_nodes: vec!["n0".to_owned()],
            peers: vec![peer(kind)],
            eligible_nodes: NODES.map(str::to_owned).to_vec(),
            ..CostRequest::default()
        };
        provider.endpoint_cost(cost_request).await.unwrap();
        assert_eq!(demanded(&provider), pairs, "{kind}");
    }
}

/// A tenant whose pods run on every node has pairs between all of them.
#[tokio::test]
async fn a_pair_is_measured_beside_all_those_of_another_namespace() {
    let provider = provider(&["system"]);
    let names: Vec<String> = (0..40).map(|i| format!("m{i:02}")).collect();
    for name in &names {
        provider.network.store.apply(cluster::node(name, "za"));
    }
    for (i, a) in names.iter().enumerate() {
        for b in &names[i + 1..] {
            evaluate(&provider, "evil", "Pod", [("p", a), ("q", b)]).await;
        }
    }
    evaluate(&provider, "bank", "Pod", [("web", "m07"), ("db", "m31")]).await;
    let demand = provider.network.demand.lock();
    for minute in 0..30 {
        let shares =
            crate::network::demanded_pairs::assign(demand.pairs(minute), NODE_SLOTS, |_| true);
        let measured = |a, b| {
            shares
                .targets
                .get(a)
                .is_some_and(|to: &Vec<&str>| to.contains(&b))
        };
        assert!(
            measured("m07", "m31") || measured("m31", "m07"),
            "minute {minute}"
        );
    }
}

/// What a tenant may do without a pod.
#[derive(Clone, Debug)]
enum Event {
    Services(Vec<String>, String),
    Pods(Vec<String>, String),
}

fn any_event() -> impl Strategy<Value = Event> {
    let name = prop_oneof!["n[0-3]", "z[ab]", "[a-z]{1,3}"];
    let names = prop::collection::vec(name, 0..5);
    let foreign = prop::collection::vec("z[ab]|[a-m]{1,3}", 0..5);
    let request = "[0-9]{1,3}G";
    prop_oneof![
        (names, request).prop_map(|(n, r)| Event::Services(n, r)),
        (foreign, request).prop_map(|(n, r)| Event::Pods(n, r)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_that_a_tenant_writes_without_a_pod_on_a_node_changes_answers_for_others(
        events in prop::collection::vec(any_event(), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let provider = provider(&["system"]);
            let before = answers_for_others(&provider).await;
            for event in events {
                match &event {
                    Event::Services(names, request) => put_services(&provider, names, request),
                    Event::Pods(nodes, request) => {
                        for node in nodes {
                            put_pod(&provider, &format!("p-{node}"), node);
                        }
                        put_offer(&provider, TargetKind::Pod, request);
                    }
                }
                prop_assert_eq!(answers_for_others(&provider).await, before.clone());
            }
            Ok(())
        })?;
    }
}
