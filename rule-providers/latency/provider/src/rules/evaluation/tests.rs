use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tautline_core::{index::Object, model};
use tautline_sdk::{Reference, Rule, RuleProvider};

use super::*;
use crate::{
    Latency, Network, Table,
    network::tests::{AnsweringAgent, network_of},
};

pub(crate) fn pod(name: &str, node: &str) -> Object {
    Object::Pod(model::Pod {
        namespace: "shop".into(),
        name: name.into(),
        node: Some(node.into()),
        ..model::Pod::default()
    })
}

fn provider() -> (Arc<Network>, Latency) {
    let network = network_of(&["a", "b", "c"]);
    for (name, node) in [("x", "a"), ("y", "b"), ("z", "c"), ("beside", "a")] {
        network.store.apply(pod(name, node));
    }
    let provider = Latency::with_network(Arc::clone(&network));
    (network, provider)
}

fn fresh(micros: [u64; 3]) -> Measurement {
    let windows = micros.map(Duration::from_micros);
    Measurement::Fresh(RttStats {
        windows: windows.into_iter().collect(),
        ..RttStats::of(windows[0])
    })
}

async fn check(provider: &Latency, rule: &str, targets: &[&str]) -> (Compliance, String) {
    let targets = targets
        .iter()
        .map(|t| ((*t).to_owned(), Reference::pod("shop", t)));
    let request = EvaluationRequest {
        targets: targets.collect::<BTreeMap<_, _>>(),
        rule: Rule {
            name: rule.into(),
            request: "1ms".into(),
            limit: "4ms".into(),
        },
        ..EvaluationRequest::default()
    };
    let evaluation = provider.evaluate(request).await.unwrap();
    (evaluation.compliance, evaluation.reason)
}

fn result(compliance: Compliance, reason: &str) -> (Compliance, String) {
    (compliance, reason.to_owned())
}

const NOT: &str = "not measured; do both nodes run an agent (tautline agent latency)?";

#[tokio::test]
async fn worst_pair_decides_and_missing_data_is_an_error() {
    let (network, provider) = provider();
    let all = ["x", "y", "z"];
    let got = check(&provider, "latency", &all).await;
    assert_eq!(got.0, Compliance::Error);
    assert!(
        got.1.starts_with("between ") && got.1.ends_with(NOT),
        "{got:?}"
    );
    network.set("a", "b", fresh([900; 3]));
    network.set("a", "c", fresh([2_000; 3]));
    assert_eq!(
        check(&provider, "latency", &all).await,
        result(Compliance::Error, &format!("between b and c: {NOT}"))
    );
    network.set("b", "c", fresh([1_500; 3]));
    assert_eq!(
        check(&provider, "latency", &all).await,
        result(
            Compliance::Limit,
            "2ms of 4ms (request 1ms) between a and c, measured"
        )
    );
    let since = Duration::from_secs(9);
    network.set(
        "b",
        "c",
        Measurement::Unreachable {
            since,
            rarely_probed: false,
        },
    );
    assert_eq!(
        check(&provider, "latency", &all).await,
        result(
            Compliance::Violation,
            "no way between b and c: echoes are lost"
        )
    );
    assert_eq!(
        check(&provider, "latency", &["x", "beside"]).await,
        result(Compliance::Compliant, "all on the same node")
    );
}

#[tokio::test]
async fn pod_of_another_cluster_is_not_taken_for_a_local_one() {
    let (network, provider) = provider();
    network.set("a", "b", fresh([9_000; 3]));
    let in_east = "east:shop:v1:Pod:y".parse().unwrap();
    let request = EvaluationRequest {
        targets: [
            ("x".to_owned(), Reference::pod("shop", "x")),
            ("y".to_owned(), in_east),
        ]
        .into(),
        rule: Rule {
            name: "latency".into(),
            limit: "4ms".into(),
            ..Rule::default()
        },
        ..EvaluationRequest::default()
    };
    let evaluation = provider.evaluate(request).await.unwrap();
    assert_eq!(evaluation.compliance, Compliance::Pending);
}

#[tokio::test]
async fn estimates_do_not_count_and_probes_do() {
    let (network, provider) = provider();
    network.set_estimate("a", "b", 500.0);
    let Measurement::Fresh(figure) = fresh([900; 3]) else {
        unreachable!()
    };
    network.set("a", "b", Measurement::Stale(figure));
    assert_eq!(
        check(&provider, "latency", &["x", "y"]).await,
        result(
            Compliance::Error,
            "between a and b: the last measurement is too old"
        )
    );
    let _b = AnsweringAgent::connect(&network, "b");
    let a = AnsweringAgent::connect(&network, "a");
    a.finds("b", fresh([5_000; 3]));
    assert_eq!(
        check(&provider, "latency", &["x", "y"]).await,
        result(Compliance::Violation, "5ms > 4ms between a and b, measured")
    );
}

#[tokio::test]
async fn losses_of_rarely_visited_pairs_are_probed() {
    let (network, provider) = provider();
    let a = AnsweringAgent::connect(&network, "a");
    a.finds("b", fresh([500; 3]));
    let since = Duration::from_secs(30);
    for rarely_probed in [false, true] {
        network.set(
            "a",
            "b",
            Measurement::Unreachable {
                since,
                rarely_probed,
            },
        );
        let got = check(&provider, "latency", &["x", "y"]).await.0;
        let expected = match rarely_probed {
            true => Compliance::Compliant,
            false => Compliance::Violation,
        };
        assert_eq!(got, expected);
    }
}

#[tokio::test]
async fn level_is_stable_and_a_moved_pod_starts_without_one() {
    let (network, provider) = provider();
    let level = async |micros| {
        network.set("a", "b", fresh(micros));
        check(&provider, "latency", &["x", "y"]).await.0
    };
    assert_eq!(level([950; 3]).await, Compliance::Compliant);
    assert_eq!(level([1_100, 1_100, 950]).await, Compliance::Compliant);
    assert_eq!(level([1_100; 3]).await, Compliance::Limit);
    assert_eq!(level([950; 3]).await, Compliance::Limit);
    // On another node with the same figures it is judged for the first time.
    network.set("a", "c", fresh([950; 3]));
    network.store.apply(pod("y", "c"));
    assert_eq!(
        check(&provider, "latency", &["x", "y"]).await,
        result(
            Compliance::Compliant,
            "950us of 4ms between a and c, measured"
        )
    );
    network.store.apply(pod("y", "b"));
    assert_eq!(level([900; 3]).await, Compliance::Compliant);
    // An unreachable pair loses its level.
    assert_eq!(level([1_100; 3]).await, Compliance::Limit);
    let since = Duration::ZERO;
    network.set(
        "a",
        "b",
        Measurement::Unreachable {
            since,
            rarely_probed: false,
        },
    );
    let got = check(&provider, "latency", &["x", "y"]).await;
    assert_eq!(got.0, Compliance::Violation);
    assert_eq!(level([950; 3]).await, Compliance::Compliant);
}

#[tokio::test]
async fn reason_names_tcp_connects() {
    let (network, provider) = provider();
    let figure = RttStats {
        connect: true,
        ..RttStats::of(Duration::from_micros(900))
    };
    network.set("a", "b", Measurement::Fresh(figure));
    assert_eq!(
        check(&provider, "latency", &["x", "y"]).await,
        result(
            Compliance::Compliant,
            "900us of 4ms between a and b, measured by TCP connect"
        )
    );
}

#[tokio::test]
async fn one_window_gives_no_violation() {
    let (network, provider) = provider();
    let far = Duration::from_micros(5_000);
    let figure = RttStats {
        windows: [far].into_iter().collect(),
        ..RttStats::of(far)
    };
    network.set("a", "b", Measurement::Fresh(figure));
    assert_eq!(
        check(&provider, "latency", &["x", "y"]).await,
        result(
            Compliance::Limit,
            "5ms > 4ms between a and b, measured, one window so far"
        )
    );
    network.set("a", "b", fresh([5_000; 3]));
    assert_eq!(
        check(&provider, "latency", &["x", "y"]).await,
        result(Compliance::Violation, "5ms > 4ms between a and b, measured")
    );
}

#[tokio::test]
async fn table_comes_before_measurements() {
    let (network, provider) = provider();
    network.set("a", "b", fresh([900; 3]));
    let mut table = Table::default();
    table.add("a,b,3ms").unwrap();
    provider.set_table(table);
    assert_eq!(
        check(&provider, "latency", &["x", "y"]).await,
        result(
            Compliance::Limit,
            "3ms of 4ms (request 1ms) between a and b, configured"
        )
    );
}

#[tokio::test]
async fn jitter_needs_samples() {
    let (network, provider) = provider();
    let figure = |samples| RttStats {
        samples,
        asymmetric: true,
        p95: Duration::from_micros(2_800),
        ..RttStats::of(Duration::from_micros(1_300))
    };
    network.set("a", "b", Measurement::Fresh(figure(19)));
    assert_eq!(
        check(&provider, "jitter", &["x", "y"]).await,
        result(
            Compliance::Error,
            "between a and b: jitter needs 20 samples, there are 19"
        )
    );
    network.set("a", "b", Measurement::Fresh(figure(20)));
    assert_eq!(
        check(&provider, "jitter", &["x", "y"]).await,
        result(
            Compliance::Limit,
            "1.5ms of 4ms (request 1ms) between a and b, measured, the directions differ by over 20 %"
        )
    );
}

#[tokio::test]
async fn binding_with_too_many_nodes_is_an_error() {
    let (network, provider) = provider();
    let names: Vec<String> = (0..33).map(|i| format!("p{i}")).collect();
    for name in &names {
        network.store.apply(pod(name, name));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(
        check(&provider, "latency", &names).await,
        result(
            Compliance::Error,
            "more than 496 pairs of nodes in one binding; give the offer fewer targets or endpoints"
        )
    );
}
