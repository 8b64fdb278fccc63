use proptest::prelude::*;
use tautline_core::{index::Object, model};
use tautline_sdk::{Compliance, Reference, Rule};

use super::*;
use crate::{Table, location::ZONE};

fn provider() -> Latency {
    let store = ClusterStore::default();
    for (node, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")] {
        store.apply(Object::Node(model::Node {
            name: node.into(),
            labels: [(ZONE, zone)].into_iter().collect(),
            ..model::Node::default()
        }));
    }
    for (pod, node) in [
        ("client", Some("b1")),
        ("server", Some("a1")),
        ("new", None),
    ] {
        store.apply(Object::Pod(model::Pod {
            namespace: "shop".into(),
            name: pod.into(),
            node: node.map(Into::into),
            ..model::Pod::default()
        }));
    }
    let provider = Latency::new(store);
    let mut table = Table::default();
    table
        .add("from,to,rtt\n# zones\na,a,200us\na,b,12ms\nb,a,13ms\na2,b1,31ms\n")
        .unwrap();
    provider.set_table(table);
    provider
}

fn rule(request: &str, limit: &str) -> Rule {
    Rule {
        name: "latency".into(),
        request: request.into(),
        limit: limit.into(),
    }
}

async fn cost(peers: &[&str], limit: &str) -> Vec<(i64, String)> {
    let cost_request = CostRequest {
        rule: rule("5ms", limit),
        peer_nodes: peers.iter().map(|p| (*p).to_owned()).collect(),
        eligible_nodes: ["a1", "a2", "b1", "c1"].map(str::to_owned).to_vec(),
        ..CostRequest::default()
    };
    let answer = provider().endpoint_cost(cost_request).await.unwrap();
    let nodes = answer.nodes().into_iter();
    nodes.map(|n| (n.cost, n.code.to_owned())).collect()
}

#[tokio::test]
async fn the_worst_peer_decides_and_nodes_beat_zones() {
    let usable = |c| (c, String::new());
    let not = |code: &str| (-1, code.to_owned());
    let got = cost(&["a1"], "20ms").await;
    assert_eq!(got, [usable(0), usable(200), usable(13_000), not("NoData")]);
    let got = cost(&["a1", "b1"], "20ms").await;
    assert_eq!(
        got,
        [
            usable(12_000),
            not("OverLimit"),
            usable(13_000),
            not("NoData")
        ]
    );
    assert_eq!(cost(&[], "20ms").await, vec![usable(0); 4]);
}

/// Kilobits are those that are missing: 0 of a node with enough.
#[tokio::test]
async fn answers_state_the_cost_of_the_request() {
    for (name, request, expected) in [
        ("latency", "5ms", Some(5_000)),
        ("latency", "", None),
        ("jitter", "1ms", Some(1_000)),
        ("jitter", "", None),
        ("bandwidth", "1G", Some(0)),
        ("bandwidth", "", None),
    ] {
        let cost_request = CostRequest {
            rule: Rule {
                name: name.into(),
                ..rule(request, "")
            },
            ..CostRequest::default()
        };
        let answer = provider().endpoint_cost(cost_request).await.unwrap();
        assert_eq!(answer.request_cost, expected, "{name} {request}");
    }
}

#[tokio::test]
async fn a_rule_that_is_no_duration_is_refused_with_the_fix() {
    let cost_request = CostRequest {
        rule: rule("fast", ""),
        ..CostRequest::default()
    };
    let error = provider()
        .endpoint_cost(cost_request)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("rule \"latency\", request:") && error.contains("10m"),
        "{error}"
    );
}

#[tokio::test]
async fn compliance() {
    let check = async |targets: &[&str], request: &str, limit: &str| {
        let evaluation_request = EvaluationRequest {
            targets: targets
                .iter()
                .map(|t| ((*t).to_owned(), Reference::pod("shop", t)))
                .collect(),
            rule: rule(request, limit),
            ..EvaluationRequest::default()
        };
        provider()
            .evaluate(evaluation_request)
            .await
            .unwrap()
            .compliance
    };
    let pair = &["client", "server"];
    assert_eq!(check(pair, "15ms", "20ms").await, Compliance::Compliant);
    assert_eq!(check(pair, "5ms", "20ms").await, Compliance::Limit);
    assert_eq!(check(pair, "5ms", "10ms").await, Compliance::Violation);
    assert_eq!(
        check(pair, "5ms", "").await,
        Compliance::Limit,
        "no limit, no violation"
    );
    assert_eq!(check(pair, "", "10ms").await, Compliance::Violation);
    assert_eq!(
        check(&["client", "new"], "5ms", "").await,
        Compliance::Pending
    );
    assert_eq!(check(&["client"], "5ms", "").await, Compliance::Compliant);
}

#[test]
fn tables_may_begin_with_a_byte_order_mark() {
    let of = |text: &str| {
        let mut table = Table::default();
        table.add(text).unwrap();
        table
    };
    let text = "from,to,rtt\na,b,1ms\n";
    assert_eq!(of(&format!("\u{feff}{text}")), of(text));
    assert_eq!(of("\u{feff}a,b,1ms\n"), of(text));
}

#[test]
fn a_malformed_table_names_the_line() {
    let error = Table::default()
        .add("a,b,1ms\na,b\n")
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "line 2: 2 fields instead of 3; write it as FROM,TO,RTT with an RTT such as 12ms"
    );
    assert!(
        Table::default()
            .add("a,b,12")
            .unwrap_err()
            .to_string()
            .contains("a unit is missing")
    );
}

mod offers;
mod other_clusters;
mod outside;
mod tenants;

proptest! {
    #[test]
    fn any_text_is_a_table_or_an_error(text in ".{0,80}") { let _ = Table::default().add(&text); }
}
