//! Peers that are pods of other clusters, at places such as `203.0.113.7:10250`.

use std::{collections::BTreeMap, time::Duration};

use tautline_sdk::Peer;

use super::{outside::outside, *};
use crate::{
    BandwidthTable,
    measurement::{Measurement, RttStats},
    network::outside::NoFigure,
};

const PLACE: &str = "203.0.113.7:10250";

fn db_of(cluster: &str) -> Reference {
    Reference {
        cluster: cluster.to_owned(),
        ..Reference::pod("shop", "db-0")
    }
}

fn set_table(provider: &Latency, rows: &str) {
    let mut table = Table::default();
    table.add(rows).unwrap();
    provider.set_table(table);
}

fn set_bandwidth_table(provider: &Latency, rows: &str) {
    let mut table = BandwidthTable::default();
    table.add(rows).unwrap();
    provider.set_bandwidth_table(table);
}

fn bandwidth() -> Rule {
    Rule {
        name: BANDWIDTH.into(),
        ..rule("600M", "600M")
    }
}

/// The details of the nodes a1 and c1, for pods of `east` at these places.
async fn details(provider: &Latency, rule: Rule, places: &[&str]) -> Vec<String> {
    let peer = |(i, place): (usize, &&str)| Peer {
        role: "db".to_owned(),
        reference: Reference {
            name: format!("db-{i}"),
            ..db_of("east")
        },
        node: Some((*place).to_owned()),
    };
    let cost_request = CostRequest {
        source: Reference::pod("shop", "new"),
        rule,
        peer_nodes: places.iter().map(|p| (*p).to_owned()).collect(),
        peers: places.iter().enumerate().map(peer).collect(),
        eligible_nodes: ["a1", "c1"].map(str::to_owned).to_vec(),
        ..CostRequest::default()
    };
    let answer = provider.endpoint_cost(cost_request).await.unwrap();
    let nodes = answer.nodes().into_iter();
    nodes.map(|n| n.detail.to_owned()).collect()
}

/// Evaluates a binding of the pod `client`, which is on b1, with the pods `db-0` of these clusters.
async fn evaluate(
    provider: &Latency,
    rule: Rule,
    places: &[(&str, Option<&str>)],
) -> (Compliance, String) {
    let place = |(cluster, place): &(&str, Option<&str>)| {
        let place = place.map(str::to_owned);
        ((*cluster).to_owned(), place)
    };
    let targets = places.iter();
    let mut targets: BTreeMap<String, Reference> = targets
        .map(|(cluster, _)| ((*cluster).to_owned(), db_of(cluster)))
        .collect();
    targets.insert("app".to_owned(), Reference::pod("shop", "client"));
    let request = EvaluationRequest {
        targets,
        target_nodes: places.iter().map(place).collect(),
        rule,
        ..EvaluationRequest::default()
    };
    let evaluation = provider.evaluate(request).await.unwrap();
    (evaluation.compliance, evaluation.reason)
}

fn connect(millis: u64) -> Measurement {
    Measurement::Fresh(RttStats {
        connect: true,
        ..RttStats::of(Duration::from_millis(millis))
    })
}

#[tokio::test]
async fn costs_of_a_pod_are_from_rows_of_its_cluster_or_measured() {
    let provider = provider();
    let costs = async || details(&provider, rule("5ms", "20ms"), &[PLACE]).await;
    let none = |reason: NoFigure| format!("no figure to {PLACE}: {reason}");
    assert_eq!(
        costs().await,
        [none(NoFigure::Off), none(NoFigure::Off)],
        "agents connect to no address by default"
    );
    let configured = format!("4ms to {PLACE}, configured");
    for rows in ["a1,east,4ms", "a,east,4ms", "east,a,4ms"] {
        set_table(&provider, rows);
        let expected = [configured.clone(), none(NoFigure::Off)];
        assert_eq!(costs().await, expected, "{rows}");
    }
    outside(&provider);
    assert_eq!(costs().await[1], none(NoFigure::NotYet));
    provider.network.set_outside("c1", PLACE, connect(3));
    let measured = format!("3ms to {PLACE}, measured by TCP connect");
    assert_eq!(costs().await, [configured, measured]);
}

#[tokio::test]
async fn rows_of_a_cluster_need_no_place_among_those_of_a_namespace() {
    let provider = provider();
    outside(&provider);
    let places: Vec<String> = (1..=9).map(|n| format!("203.0.113.{n}:10250")).collect();
    let cost = async |place: &str| {
        let all = details(&provider, rule("5ms", "20ms"), &[place]).await;
        all[0].clone()
    };
    for (n, place) in places.iter().enumerate() {
        let reason = match n {
            8 => NoFigure::NamespaceFull,
            _ => NoFigure::NotYet,
        };
        let expected = format!("no figure to {place}: {reason}");
        assert_eq!(cost(place).await, expected);
    }
    set_table(&provider, "a1,east,4ms");
    let expected = format!("4ms to {}, configured", places[8]);
    assert_eq!(cost(&places[8]).await, expected);
}

#[tokio::test]
async fn bindings_are_evaluated_between_the_node_here_and_the_place() {
    let provider = provider();
    let check = async |places: &[(&str, Option<&str>)]| {
        evaluate(&provider, rule("15ms", "20ms"), places).await
    };
    let pending = (Compliance::Pending, "not every target is placed".to_owned());
    assert_eq!(check(&[("east", None)]).await, pending);
    let taken = check(&[("east", Some("a1"))]).await;
    assert_eq!(taken, pending, "a1 may be a node of east, too");
    let east = [("east", Some(PLACE))];
    for (is_allowed, reason) in [(false, NoFigure::Off), (true, NoFigure::NotYet)] {
        if is_allowed {
            outside(&provider);
        }
        let reason = format!("between {PLACE} and b1: not measured; {reason}");
        assert_eq!(check(&east).await, (Compliance::Error, reason));
    }
    provider.network.set_outside("b1", PLACE, connect(3));
    let (compliance, reason) = check(&east).await;
    assert_eq!(compliance, Compliance::Compliant, "{reason}");
    assert!(reason.ends_with("measured by TCP connect"), "{reason}");
    set_table(&provider, "b,east,30ms");
    let (compliance, reason) = check(&east).await;
    assert_eq!(compliance, Compliance::Violation);
    let expected = format!("between {PLACE} and b1, configured");
    assert!(reason.ends_with(&expected), "{reason}");
}

#[tokio::test]
async fn offer_may_name_two_other_clusters() {
    let provider = provider();
    set_table(&provider, "b1,east,3ms\nb1,west,4ms\n");
    set_bandwidth_table(&provider, "b1,east,1G\nb1,west,2G\n");
    let places = [("east", Some(PLACE)), ("west", Some("203.0.113.8:10250"))];
    for rule in [rule("15ms", "20ms"), bandwidth()] {
        let (compliance, reason) = evaluate(&provider, rule, &places).await;
        assert_eq!(compliance, Compliance::Compliant, "{reason}");
    }
}

#[tokio::test]
async fn bandwidth_goes_by_the_name_of_the_cluster() {
    let provider = provider();
    let none = "no speed to east is known, of NICs or by a table";
    let costs = async |places: &[&str]| details(&provider, bandwidth(), places).await;
    assert_eq!(costs(&[PLACE]).await, [none; 2]);
    let (compliance, reason) = evaluate(&provider, bandwidth(), &[("east", Some(PLACE))]).await;
    assert_eq!(compliance, Compliance::Error);
    let expected = "no speed between b1 and east is known";
    assert!(reason.starts_with(expected), "{reason}");
    set_bandwidth_table(&provider, "a1,east,1G\nb1,east,1G\n");
    let left = "1 Gbit/s left to east, by the table";
    assert_eq!(costs(&[PLACE]).await, [left, none]);
    // Two pods need it twice.
    let left = "400 Mbit/s left to east, by the table; the least is 600 Mbit/s";
    assert_eq!(costs(&[PLACE, "203.0.113.8:10250"]).await[0], left);
    let (compliance, reason) = evaluate(&provider, bandwidth(), &[("east", Some(PLACE))]).await;
    assert_eq!(compliance, Compliance::Compliant);
    assert_eq!(
        reason,
        "1 Gbit/s >= 600 Mbit/s for it between b1 and east, by the table"
    );
    let unplaced = evaluate(&provider, bandwidth(), &[("east", None)]).await;
    assert_eq!(unplaced.0, Compliance::Pending);
}
