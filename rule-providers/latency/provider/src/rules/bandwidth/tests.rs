use std::time::Duration;

use proptest::prelude::*;
use tautline_core::index::Object;
use tautline_sdk::{Compliance, CostRequest, EvaluationRequest, Peer, Reference, Rule};

use super::{
    RULE,
    capacity::{Link, RequestedRates, left, push_bits, requested_rates},
    reservations::tests::{node, offer, pod, policy},
};
use crate::{
    BandwidthTable, Latency,
    network::tests::{AnsweringAgent, network_of},
};

const G: u64 = 1_000_000_000;

fn provider() -> Latency {
    let network = network_of(&[]);
    for (name, zone, nic) in [
        ("a1", "za", 10 * G),
        ("a2", "za", G),
        ("b1", "zb", 10 * G),
        ("b2", "zb", 0),
    ] {
        network.store.apply(node(name, zone));
        if nic > 0 {
            network.set_nic(name, nic);
        }
    }
    Latency::with_network(network)
}

fn rule(request: &str, limit: &str) -> Rule {
    Rule {
        name: RULE.into(),
        request: request.into(),
        limit: limit.into(),
    }
}

fn costs(provider: &Latency, source: &str, peers: &[&str], rule: Rule) -> Vec<String> {
    let peer = |node: &&str| Peer {
        node: Some((*node).to_owned()),
        ..Peer::default()
    };
    let cost_request = CostRequest {
        source: Reference::pod("shop", source),
        rule,
        peer_nodes: peers.iter().map(|p| (*p).to_owned()).collect(),
        peers: peers.iter().map(peer).collect(),
        eligible_nodes: ["a1", "a2", "b1", "b2"].map(str::to_owned).to_vec(),
        ..CostRequest::default()
    };
    let answer = provider
        .bandwidth
        .cost(provider.context(), cost_request)
        .unwrap();
    // It depends on who asks, so it holds for no other question.
    assert!(answer.per_pod, "reservations change with each pod");
    let text = |n: tautline_sdk::NodeCost<'_>| format!("{} {}: {}", n.cost, n.code, n.detail);
    answer.nodes().into_iter().map(text).collect()
}

fn check(provider: &Latency, targets: &[&str], rule: Rule) -> (Compliance, String) {
    let targets = targets
        .iter()
        .map(|t| ((*t).to_owned(), Reference::pod("shop", t)));
    let evaluation_request = EvaluationRequest {
        targets: targets.collect(),
        rule,
        ..EvaluationRequest::default()
    };
    let evaluation = provider
        .bandwidth
        .evaluate(provider.context(), evaluation_request)
        .unwrap();
    (evaluation.compliance, evaluation.reason)
}

fn apply(provider: &Latency, objects: impl IntoIterator<Item = Object>) {
    for object in objects {
        provider.network.store.apply(object);
    }
}

#[test]
fn lesser_nic_counts() {
    let provider = provider();
    assert_eq!(
        costs(&provider, "new", &["b1"], rule("2G", "500M")),
        [
            "0 : 10 Gbit/s left to b1, by the node's NIC",
            "1000000 : 1 Gbit/s left to b1, by the node's NIC",
            "0 : the same node",
            "-1 NoData: no speed to b1 is known, of NICs or by a table",
        ]
    );
    let few = costs(&provider, "new", &["b1"], rule("2G", "1.5G"));
    assert_eq!(
        few[1],
        "-1 TooLittle: 1 Gbit/s left to b1, by the node's NIC; the least is 1.5 Gbit/s"
    );
    assert_eq!(
        costs(&provider, "new", &[], rule("2G", ""))[0],
        "0 : no peer is placed yet"
    );
}

#[test]
fn table_bounds_nics_and_replaces_unknown_ones() {
    let provider = provider();
    let mut table = BandwidthTable::default();
    table.add("za,zb,3G\nb2,b2,1G\nzb,zb,40G").unwrap();
    provider.set_bandwidth_table(table);
    let got = costs(&provider, "new", &["b1"], rule("2G", ""));
    assert_eq!(got[0], "0 : 3 Gbit/s left to b1, by the table");
    assert_eq!(got[1], "1000000 : 1 Gbit/s left to b1, by the node's NIC");
    assert_eq!(got[3], "0 : 10 Gbit/s left to b1, by the peer's NIC");
}

#[test]
fn peers_share_links() {
    let provider = provider();
    let mut table = BandwidthTable::default();
    table.add("za,zb,3G").unwrap();
    provider.set_bandwidth_table(table);
    // Two peers on b1 and one on a2: three flows out of a1, two of them over 3G.
    let got = costs(&provider, "new", &["a2", "b1", "b1"], rule("2G", ""));
    assert_eq!(got[0], "1000000 : 1 Gbit/s left to a2, by the peer's NIC");
    // From b1 one flow goes to a2.
    assert_eq!(got[2], "1000000 : 1 Gbit/s left to a2, by the peer's NIC");
    let got = costs(&provider, "new", &["b1", "b1"], rule("2G", ""));
    assert_eq!(got[0], "1000000 : 1 Gbit/s left to b1, by the table");
}

#[test]
fn reservations_of_others_count_and_its_own_do_not() {
    let provider = provider();
    apply(
        &provider,
        [
            policy("fast", "4G"),
            offer("fast", ["web", "db"]),
            pod("web-0", "web", Some("a1")),
            pod("db-0", "db", Some("b1")),
        ],
    );
    let rates = || rule("8G", "5G");
    let got = costs(&provider, "new", &["b1"], rates());
    assert_eq!(got[0], "2000000 : 6 Gbit/s left to b1, by the node's NIC");
    let got = costs(&provider, "web-0", &["b1"], rates());
    assert_eq!(got[0], "0 : 10 Gbit/s left to b1, by the node's NIC");

    let own = || rule("4G", "3G");
    let pair = ["web-0", "db-0"];
    assert_eq!(
        check(&provider, &pair, own()),
        (
            Compliance::Compliant,
            "10 Gbit/s >= 3 Gbit/s for it between a1 and b1, by the NIC of a1".to_owned()
        )
    );
    // A second server of the same offer, then one that asks for more than there is.
    apply(&provider, [pod("web-1", "web", Some("a1"))]);
    let two = check(&provider, &["web-1", "db-0"], own());
    assert_eq!(two.0, Compliance::Compliant);
    assert!(two.1.starts_with("6 Gbit/s >= 3 Gbit/s for it"), "{two:?}");
    apply(&provider, [pod("web-2", "web", Some("a1"))]);
    let third = ["web-2", "db-0"];
    let violation = check(&provider, &third, own());
    assert_eq!(violation.0, Compliance::Violation);
    assert_eq!(
        violation.1,
        "2 Gbit/s < 3 Gbit/s for it between a1 and b1, by the NIC of a1; before it came offer shop/fast"
    );
    for (limit, expected) in [
        ("1G", "2 Gbit/s >= 1 Gbit/s (request 4 Gbit/s) for it"),
        ("", "2 Gbit/s < the request 4 Gbit/s for it"),
    ] {
        let limit = check(&provider, &third, rule("4G", limit));
        assert_eq!(limit.0, Compliance::Limit);
        assert!(limit.1.starts_with(expected), "{limit:?}");
    }
    assert_eq!(check(&provider, &pair, own()).0, Compliance::Compliant);
}

/// Whatever others reserve later on the same nodes.
#[test]
fn later_reservations_of_others_take_nothing_from_a_holder() {
    let provider = provider();
    let of = |namespace: &str, created_unix: i64, object: Object| match object {
        Object::Pod(pod) => Object::Pod(tautline_core::model::Pod {
            namespace: namespace.into(),
            created_unix,
            ..pod
        }),
        Object::Offer(offer) => Object::Offer(tautline_core::model::Offer {
            namespace: namespace.into(),
            created_unix,
            ..offer
        }),
        Object::Policy(policy) => Object::Policy(tautline_core::model::Policy {
            namespace: namespace.into(),
            ..policy
        }),
        other => other,
    };
    // Created in the wrong order, as after a restart of the provider.
    for (namespace, created_unix, rate) in [("attack", 100, "9G"), ("shop", 10, "4G")] {
        let objects = [
            policy("fast", rate),
            offer("fast", ["web", "db"]),
            pod("web-0", "web", Some("a1")),
            pod("db-0", "db", Some("b1")),
        ];
        let objects = objects.map(|object| of(namespace, created_unix, object));
        apply(&provider, objects);
    }
    let holder = check(&provider, &["web-0", "db-0"], rule("4G", "4G"));
    assert_eq!(
        holder,
        (
            Compliance::Compliant,
            "10 Gbit/s >= 4 Gbit/s for it between a1 and b1, by the NIC of a1".to_owned()
        )
    );
    let targets = ["web-0", "db-0"].map(|t| (t.to_owned(), Reference::pod("attack", t)));
    let request = EvaluationRequest {
        targets: targets.into(),
        rule: rule("9G", "9G"),
        ..EvaluationRequest::default()
    };
    let bandwidth = &provider.bandwidth;
    let intruder = bandwidth.evaluate(provider.context(), request).unwrap();
    assert_eq!(intruder.compliance, Compliance::Violation);
    assert_eq!(
        intruder.reason,
        "6 Gbit/s < 9 Gbit/s for it between a1 and b1, by the NIC of a1; before it came offer shop/fast"
    );
}

#[tokio::test]
async fn slow_transfer_gives_limit() {
    let provider = provider();
    let slow = 400_000_000;
    for node in ["a1", "b1"] {
        let agent = AnsweringAgent::connect(&provider.network, node);
        agent.rate.store(slow, std::sync::atomic::Ordering::Relaxed);
    }
    apply(
        &provider,
        [pod("x", "x", Some("a1")), pod("y", "y", Some("b1"))],
    );
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let got = check(&provider, &["x", "y"], rule("1G", "1G"));
        if got.0 == Compliance::Limit {
            let reason =
                "a transfer carried 400 Mbit/s < 1 Gbit/s between a1 and b1, next to other traffic";
            assert_eq!(got.1, reason);
            break;
        }
        assert_eq!(got.0, Compliance::Compliant);
        assert!(std::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
}

#[test]
fn unknown_rate_is_an_error_and_unplaced_target_is_pending() {
    let provider = provider();
    apply(
        &provider,
        [
            pod("x", "x", Some("a1")),
            pod("y", "y", Some("b2")),
            pod("new", "y", None),
        ],
    );
    let got = check(&provider, &["x", "y"], rule("1G", ""));
    assert_eq!(got.0, Compliance::Error);
    assert!(got.1.contains("between a1 and b2"), "{got:?}");
    assert_eq!(
        check(&provider, &["x", "new"], rule("1G", "")).0,
        Compliance::Pending
    );
    assert_eq!(
        check(&provider, &["x", "x"], rule("1G", "")).0,
        Compliance::Compliant
    );
}

#[test]
fn a_limit_above_the_request_is_refused_with_the_fix() {
    assert_eq!(
        requested_rates(&rule("500M", "1G"))
            .unwrap_err()
            .to_string(),
        "rule \"bandwidth\", limit: it is the least that is accepted, so write one up to the request, 500M"
    );
    assert!(
        requested_rates(&rule("fast", ""))
            .unwrap_err()
            .to_string()
            .contains("request:")
    );
    let (wanted, least) = (500_000_000, None);
    assert_eq!(
        requested_rates(&rule("500M", "")).unwrap(),
        RequestedRates { wanted, least }
    );
    let least = Some(wanted);
    assert_eq!(
        requested_rates(&rule("", "500M")).unwrap(),
        RequestedRates { wanted, least }
    );
}

#[test]
fn rates_are_written_with_units() {
    let show = |bits| {
        let mut out = String::new();
        push_bits(&mut out, bits);
        out
    };
    for (bits, text) in [
        (0, "0 bit/s"),
        (999, "999 bit/s"),
        (1_500, "1.5 kbit/s"),
        (940_000_000, "940 Mbit/s"),
        (2_050_000_000, "2.05 Gbit/s"),
        (400 * G, "400 Gbit/s"),
    ] {
        assert_eq!(show(bits), text);
    }
}

fn any_part() -> impl Strategy<Value = Option<Link>> {
    let part = |(bits, reserved, own_pairs)| Link {
        bits,
        reserved,
        own_pairs,
    };
    proptest::option::of((0u64..100, 0u64..60, 1u64..4).prop_map(part))
}

proptest! {
    #[test]
    fn more_reservations_or_pairs_never_leave_more(
        node in any_part(), peer in any_part(), row in any_part(), wanted in 0u64..40, more in 0u64..20
    ) {
        let before = left(node, peer, row, wanted);
        let worse = |part: Option<Link>| part.map(|p| Link { reserved: p.reserved + more, own_pairs: p.own_pairs + 1, ..p });
        let after = left(worse(node), worse(peer), worse(row), wanted);
        prop_assert_eq!(before.is_some(), after.is_some());
        prop_assert!(after.map(|a| a.0) <= before.map(|b| b.0));
        prop_assert_eq!(before.is_none(), row.is_none() && (node.is_none() || peer.is_none()));
    }

    #[test]
    fn any_text_is_a_rate_or_an_error(request in ".{0,12}", limit in "[0-9]{0,20}[kMGTE]?") {
        let _ = requested_rates(&rule(&request, &limit));
    }
}
