//! Peers that are endpoints: at the nodes of their pods, and outside the cluster.

use std::{collections::BTreeMap, time::Duration};

use tautline_sdk::Peer;

use super::*;
use crate::{
    AllowedAddresses,
    measurement::{Measurement, RttStats},
    network::outside::NoFigure,
};

const PLACE: &str = "203.0.113.9:5432";

fn endpoints(name: &str) -> Reference {
    Reference {
        kind: "Endpoints".into(),
        ..Reference::pod("shop", name)
    }
}

pub(super) fn outside(provider: &Latency) {
    let range = "203.0.113.0/24".parse().unwrap();
    let allowed = AllowedAddresses::new(vec![range], None);
    provider.network.allow_outside(allowed);
}

async fn details(provider: &Latency, place: &str) -> Vec<String> {
    let cost_request = CostRequest {
        source: Reference::pod("shop", "new"),
        rule: rule("5ms", "20ms"),
        peer_nodes: vec![place.to_owned()],
        peers: vec![Peer {
            role: "db".to_owned(),
            reference: endpoints("db"),
            node: Some(place.to_owned()),
        }],
        eligible_nodes: ["a1", "c1"].map(str::to_owned).to_vec(),
        ..CostRequest::default()
    };
    let answer = provider.endpoint_cost(cost_request).await.unwrap();
    let nodes = answer.nodes().into_iter();
    nodes.map(|n| n.detail.to_owned()).collect()
}

#[tokio::test]
async fn costs_of_an_address_are_measured_or_from_rows_of_its_service() {
    let provider = provider();
    let no_figure = |reason: NoFigure| vec![format!("no figure to {PLACE}: {reason}"); 2];
    assert_eq!(details(&provider, PLACE).await, no_figure(NoFigure::Off));
    outside(&provider);
    assert_eq!(details(&provider, PLACE).await, no_figure(NoFigure::NotYet));
    let connect = RttStats {
        connect: true,
        ..RttStats::of(Duration::from_millis(3))
    };
    let measured = Measurement::Fresh(connect);
    provider.network.set_outside("c1", PLACE, measured);
    let all = details(&provider, PLACE).await;
    assert_eq!(all[1], format!("3ms to {PLACE}, measured by TCP connect"));
    provider.network.set_estimate("a1", PLACE, 5_000.0);
    let all = details(&provider, PLACE).await;
    assert!(
        all[0].starts_with(&format!("5ms to {PLACE}, estimated")),
        "{all:?}"
    );
    let lost = Measurement::Unreachable {
        since: Duration::from_secs(30),
        rarely_probed: true,
    };
    provider.network.set_outside("c1", PLACE, lost);
    provider.network.set_estimate("a1", PLACE, 5_000.0);
    let all = details(&provider, PLACE).await;
    let down = [
        format!("no figure to {PLACE}: {}", NoFigure::NotYet),
        format!("no way to {PLACE} for 30s"),
    ];
    assert_eq!(all, down, "the prediction is of the time before");
    let mut table = Table::default();
    table.add("a1,db,4ms\n").unwrap();
    provider.set_table(table);
    let all = details(&provider, PLACE).await;
    assert_eq!(all[0], format!("4ms to {PLACE}, configured"));
}

async fn evaluate(provider: &Latency, places: &[&str]) -> (Compliance, String) {
    let request = EvaluationRequest {
        targets: BTreeMap::from([
            ("app".to_owned(), Reference::pod("shop", "client")),
            ("db".to_owned(), endpoints("db")),
        ]),
        target_places: BTreeMap::from([(
            "db".to_owned(),
            places.iter().map(|p| (*p).to_owned()).collect(),
        )]),
        rule: rule("15ms", "20ms"),
        ..EvaluationRequest::default()
    };
    let evaluation = provider.evaluate(request).await.unwrap();
    (evaluation.compliance, evaluation.reason)
}

/// The pod `client` is on b1.
#[tokio::test]
async fn bindings_are_evaluated_at_all_places_of_an_endpoint() {
    let provider = provider();
    outside(&provider);
    let same = (Compliance::Compliant, "all on the same node".to_owned());
    assert_eq!(evaluate(&provider, &["b1"]).await, same);
    // The 31 ms between a2 and b1 count, and no time between the endpoint's own pods.
    let (compliance, reason) = evaluate(&provider, &["a1", "a2", "c1"]).await;
    assert!(compliance == Compliance::Error, "nothing to c1: {reason}");
    let (compliance, reason) = evaluate(&provider, &["a1", "a2"]).await;
    assert_eq!(compliance, Compliance::Violation);
    assert!(reason.contains("between a2 and b1"), "{reason}");

    let many: Vec<String> = (0..600).map(|n| format!("n{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (compliance, reason) = evaluate(&provider, &many).await;
    assert_eq!(compliance, Compliance::Error);
    assert!(reason.starts_with("more than 496 pairs"), "{reason}");

    let (compliance, reason) = evaluate(&provider, &[PLACE]).await;
    let not_yet = format!("between {PLACE} and b1: not measured; {}", NoFigure::NotYet);
    assert_eq!((compliance, reason), (Compliance::Error, not_yet));
    let lost = Measurement::Unreachable {
        since: Duration::from_secs(30),
        rarely_probed: true,
    };
    provider.network.set_outside("b1", PLACE, lost);
    let (compliance, reason) = evaluate(&provider, &[PLACE]).await;
    assert_eq!(compliance, Compliance::Violation);
    assert_eq!(
        reason,
        format!("no way between {PLACE} and b1: TCP connects fail")
    );
}

/// Two addresses outside have no way that agents could measure.
#[tokio::test]
async fn offer_may_have_two_targets_outside() {
    let provider = provider();
    let mut table = Table::default();
    table.add("b1,db,3ms\nb1,queue,4ms\n").unwrap();
    provider.set_table(table);
    let (db, queue) = ("203.0.113.9:5432", "203.0.113.10:5672");
    let request = EvaluationRequest {
        targets: BTreeMap::from([
            ("app".to_owned(), Reference::pod("shop", "client")),
            ("db".to_owned(), endpoints("db")),
            ("queue".to_owned(), endpoints("queue")),
        ]),
        target_places: BTreeMap::from([
            ("db".to_owned(), vec![db.to_owned()]),
            ("queue".to_owned(), vec![queue.to_owned()]),
        ]),
        rule: rule("15ms", "20ms"),
        ..EvaluationRequest::default()
    };
    let evaluation = provider.evaluate(request).await.unwrap();
    assert_eq!(
        evaluation.compliance,
        Compliance::Compliant,
        "{evaluation:?}"
    );
}

/// Tables of bandwidth, and reservations, go by the name of a Service.
#[tokio::test]
async fn bandwidth_of_endpoints_goes_by_their_service() {
    let provider = provider();
    let mut table = crate::BandwidthTable::default();
    table.add("a1,db,1G\n").unwrap();
    provider.set_bandwidth_table(table);
    let peer = |place: &str| Peer {
        role: "db".to_owned(),
        reference: endpoints("db"),
        node: Some(place.to_owned()),
    };
    let cost_request = CostRequest {
        source: Reference::pod("shop", "new"),
        rule: Rule {
            name: "bandwidth".into(),
            request: "600M".into(),
            limit: "600M".into(),
        },
        peer_nodes: vec!["c1".to_owned(), PLACE.to_owned()],
        peers: vec![peer("c1"), peer(PLACE)],
        eligible_nodes: vec!["a1".to_owned()],
        ..CostRequest::default()
    };
    let answer = provider.endpoint_cost(cost_request).await.unwrap();
    assert_eq!(answer.nodes()[0].cost, 0, "{:?}", answer.nodes());
}
