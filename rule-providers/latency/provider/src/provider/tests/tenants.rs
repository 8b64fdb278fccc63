//! A table of one namespace does not reach the answers for others.

use std::collections::BTreeMap;

use tautline_core::{TrustedNamespaces, index::Kind};

use super::*;
use crate::{
    Bandwidth, Network, RoundTrip, Tables,
    measurement::{Measurement, RttStats},
    report::{Basis, MatrixReport, PairReport, TopReport},
    rules::bandwidth::reservations::tests as cluster,
    tables::{config_maps::ConfigMapTables, table::Unit},
};

const G: u64 = 1_000_000_000;
const NODES: [&str; 4] = ["a1", "a2", "b1", "c1"];

/// Nodes in zones a, b and c, pods of `shop` and `bank` on a1 and b1, a bandwidth
/// that `shop` reserves, and what was measured between a1 and b1.
fn cluster() -> Latency {
    let store = ClusterStore::default();
    let network = Network::new(store.clone(), false);
    for node in NODES {
        store.apply(cluster::node(node, &node[..1]));
        network.set_nic(node, 10 * G);
    }
    let figure = RttStats::of(std::time::Duration::from_millis(7));
    network.set("a1", "b1", Measurement::Fresh(figure));
    store.apply(cluster::policy("fast", "1G"));
    store.apply(cluster::offer("fast", ["web", "db"]));
    store.apply(cluster::pod("web", "web", Some("a1")));
    store.apply(cluster::pod("db", "db", Some("b1")));
    for (name, node) in [("web", "a1"), ("db", "b1")] {
        store.apply(Object::Pod(model::Pod {
            namespace: "bank".into(),
            name: name.into(),
            node: Some(node.into()),
            ..model::Pod::default()
        }));
    }
    Latency::with_network(network)
}

type Csv<'a> = (&'a str, &'a str);

/// Sets both tables from ConfigMaps of these namespaces, trusting `trusted`.
fn set(provider: &Latency, trusted: &[&str], latency: &[Csv<'_>], bandwidth: &[Csv<'_>]) {
    fn tables<U: Unit>(trusted: &[&str], maps: &[Csv<'_>]) -> Tables<U> {
        let mut all = ConfigMapTables::new(trusted.iter().copied().collect::<TrustedNamespaces>());
        for (i, (namespace, csv)) in maps.iter().enumerate() {
            all.put(namespace, &format!("m{i}"), [("t", *csv)]);
        }
        all.tables()
    }
    provider.set_table(tables::<RoundTrip>(trusted, latency));
    provider.set_bandwidth_table(tables::<Bandwidth>(trusted, bandwidth));
}

fn rule(name: &str) -> Rule {
    let (request, limit) = match name {
        "bandwidth" => ("2G", "1G"),
        _ => ("5ms", "20ms"),
    };
    Rule {
        name: name.into(),
        request: request.into(),
        limit: limit.into(),
    }
}

async fn costs(provider: &Latency, namespace: &str, name: &str) -> Vec<String> {
    let cost_request = CostRequest {
        source: Reference::pod(namespace, "new"),
        rule: rule(name),
        peer_nodes: vec!["b1".to_owned()],
        eligible_nodes: NODES.map(str::to_owned).to_vec(),
        ..CostRequest::default()
    };
    let answer = provider.endpoint_cost(cost_request).await.unwrap();
    let text = |n: tautline_sdk::NodeCost<'_>| format!("{} {} {}", n.cost, n.code, n.detail);
    answer.nodes().into_iter().map(text).collect()
}

/// Makes an offer `o` in a namespace, whose policy has `rule("latency")`.
fn offer_with_rule(provider: &Latency, namespace: &str) {
    let latency = rule("latency");
    provider.network.store.apply(Object::Policy(model::Policy {
        namespace: namespace.into(),
        name: "near".into(),
        rules: vec![model::Rule {
            name: latency.name.into(),
            request: latency.request,
            limit: latency.limit,
            ..model::Rule::default()
        }],
    }));
    provider.network.store.apply(Object::Offer(model::Offer {
        namespace: namespace.into(),
        name: "o".into(),
        policies: vec!["near".into()],
        ..model::Offer::default()
    }));
}

/// Judges the binding of `web` and `db` in these namespaces.
async fn judged(provider: &Latency, namespaces: [&str; 2], name: &str) -> (Compliance, String) {
    let [web, db] = namespaces;
    let targets = [("web", web), ("db", db)];
    let target = |(name, ns): (&str, &str)| (name.to_owned(), Reference::pod(ns, name));
    let node = |name: &str| Some(if name == "web" { "a1" } else { "b1" }.to_owned());
    let evaluation_request = EvaluationRequest {
        targets: targets.into_iter().map(target).collect(),
        target_nodes: BTreeMap::from(["web", "db"].map(|t| (t.to_owned(), node(t)))),
        rule: rule(name),
        ..EvaluationRequest::default()
    };
    let evaluation = provider.evaluate(evaluation_request).await.unwrap();
    (evaluation.compliance, evaluation.reason)
}

/// Everything that is answered for others than the tenant `evil`.
async fn answers_for_others(provider: &Latency) -> Vec<String> {
    let mut all = Vec::new();
    for name in ["latency", "bandwidth"] {
        for namespace in ["shop", "bank", "system", ""] {
            all.extend(costs(provider, namespace, name).await);
        }
        for namespaces in [["shop"; 2], ["bank"; 2], ["evil", "shop"], ["shop", "evil"]] {
            all.push(format!("{:?}", judged(provider, namespaces, name).await));
        }
    }
    let pair = PairReport::of(provider, "a1", "b1").unwrap();
    all.push(format!("{:?} {:?}", pair.effective, pair.configured_micros));
    all.push(format!("{:?}", MatrixReport::by_node(provider, None, &[])));
    all
}

#[tokio::test]
async fn a_table_counts_for_its_own_namespace_only() {
    let provider = cluster();
    let latency = [("evil", "a,b,1us\na1,b1,1us"), ("evil", "c,b,900ms")];
    let bandwidth = [("evil", "a,b,1M")];
    let before = answers_for_others(&provider).await;
    set(&provider, &["system"], &latency, &bandwidth);
    assert_eq!(answers_for_others(&provider).await, before);

    let own = costs(&provider, "evil", "latency").await;
    assert_eq!(own[0], "1  1us to b1, configured");
    assert_eq!(own[3], "-1 OverLimit 900ms to b1 > 20ms");
    let own = judged(&provider, ["evil"; 2], "latency").await;
    let reason = "1us of 20ms between a1 and b1, configured".to_owned();
    assert_eq!(own, (Compliance::Compliant, reason));
    let own = costs(&provider, "evil", "bandwidth").await;
    assert!(own[0].starts_with("-1 TooLittle 0 bit/s left to b1, by the table"));
    let own = judged(&provider, ["evil"; 2], "bandwidth").await;
    assert_eq!(own.0, Compliance::Violation);
    assert_eq!(
        answers_for_others(&provider).await,
        before,
        "nothing is kept"
    );
}

#[tokio::test]
async fn a_trusted_namespace_counts_for_all_and_star_trusts_all() {
    for (trusted, from) in [("system", "system"), ("*", "evil")] {
        let provider = cluster();
        let (latency, bandwidth) = ([(from, "a,b,4ms\n")], [(from, "a,b,500M")]);
        set(&provider, &[trusted], &latency, &bandwidth);
        for namespace in ["shop", "evil", ""] {
            let got = costs(&provider, namespace, "latency").await;
            assert_eq!(got[0], "4000  4ms to b1, configured");
            let got = costs(&provider, namespace, "bandwidth").await;
            assert!(got[0].contains("by the table"), "{got:?}");
        }
        let got = judged(&provider, ["shop", "evil"], "latency").await;
        assert_eq!(got.1, "4ms of 20ms between a1 and b1, configured");
        let pair = PairReport::of(&provider, "a1", "b1").unwrap();
        assert_eq!(pair.effective.basis, Basis::Configured);
    }
}

#[tokio::test]
async fn a_namespace_sees_its_own_rows_before_the_shared_ones() {
    let provider = cluster();
    let latency = [("system", "a1,b1,4ms\nc,b,9ms"), ("shop", "a,b,2ms")];
    set(&provider, &["system"], &latency, &[]);
    let shop = costs(&provider, "shop", "latency").await;
    assert_eq!(shop[0], "2000  2ms to b1, configured");
    assert_eq!(shop[3], "9000  9ms to b1, configured");
    let bank = costs(&provider, "bank", "latency").await;
    assert_eq!(bank[0], "4000  4ms to b1, configured");
}

/// A tenant that configures a pair for itself neither has it measured, nor keeps
/// others from having it measured, nor gets it into reports.
#[tokio::test]
async fn tenant_table_does_not_stop_measurements_for_others() {
    let provider = cluster();
    set(&provider, &["system"], &[("evil", "a1,b1,1us")], &[]);
    judged(&provider, ["evil"; 2], "latency").await;
    assert_eq!(provider.network.demand.lock().pairs(0).count(), 0);
    assert_eq!(TopReport::of(&provider, 9), TopReport::default());
    offer_with_rule(&provider, "bank");
    let (_, reason) = judged(&provider, ["bank"; 2], "latency").await;
    assert!(
        reason.starts_with("7ms of 20ms (request 5ms) between a1 and b1, measured"),
        "{reason}"
    );
    assert_eq!(provider.network.demand.lock().pairs(0).count(), 1);
    let top = TopReport::of(&provider, 9);
    assert_eq!(top.pairs[0].effective.rtt_micros, Some(7_000));

    // The namespace is deleted, and its objects with it.
    provider.network.store.delete(Kind::Offer, "bank/o");
    assert_eq!(TopReport::of(&provider, 9), TopReport::default());
}

#[tokio::test]
async fn reserved_rows_are_those_of_the_asking_namespace() {
    let provider = cluster();
    let tables = [("system", "a,b,3G"), ("bank", "a,b,5G")];
    set(&provider, &["system"], &[], &tables);
    // The binding of `shop` reserves 1G of the path for all namespaces.
    let shop = costs(&provider, "evil", "bandwidth").await;
    assert_eq!(shop[0], "0  2 Gbit/s left to b1, by the table");
    let bank = costs(&provider, "bank", "bandwidth").await;
    assert_eq!(bank[0], "0  4 Gbit/s left to b1, by the table");
}

/// Rows of any names, some malformed.
fn any_csv(figure: &'static str) -> impl Strategy<Value = String> {
    let name = prop_oneof!["[abc]", "[abc][12]", "[a-z]{0,3}"];
    let row = (name.clone(), name, figure).prop_map(|(a, b, f)| format!("{a},{b},{f}"));
    let line = prop_oneof![8 => row, 1 => "[a,# ]{0,6}"];
    prop::collection::vec(line, 0..8).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_table_of_a_tenant_changes_answers_for_others(
        shared in any_csv("[0-9]{1,2}ms"),
        shared_bandwidth in any_csv("[0-9]{1,2}G"),
        evil in prop::collection::vec((any_csv("[0-9]{1,3}ms"), any_csv("[0-9]{1,2}G")), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let provider = cluster();
            let (mut latency, mut bandwidth) = (vec![("system", shared.as_str())], vec![("system", shared_bandwidth.as_str())]);
            set(&provider, &["system"], &latency, &bandwidth);
            let before = answers_for_others(&provider).await;
            latency.extend(evil.iter().map(|(csv, _)| ("evil", csv.as_str())));
            bandwidth.extend(evil.iter().map(|(_, csv)| ("evil", csv.as_str())));
            set(&provider, &["system"], &latency, &bandwidth);
            for rule in ["latency", "bandwidth"] {
                costs(&provider, "evil", rule).await;
                judged(&provider, ["evil"; 2], rule).await;
            }
            prop_assert_eq!(answers_for_others(&provider).await, before);
            Ok(())
        })?;
    }
}
