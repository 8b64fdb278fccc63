//! Tests of topology spread.

use super::*;
use crate::index::{Index, Object};

fn constraint(key: &str) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        topology_key: key.into(),
        selector: Some(Selector {
            match_labels: vec![("app".into(), "w".into())],
            match_expressions: Vec::new(),
        }),
        min_domains: 1,
        honors_affinity: true,
        honors_taints: false,
    }
}

fn pod(name: &str, app: &str, node: Option<&str>) -> Pod {
    Pod {
        namespace: "ns".into(),
        name: name.into(),
        labels: [("app", app)].into_iter().collect(),
        node: node.map(Into::into),
        ..Pod::default()
    }
}

/// Returns the nodes a1 and a2 of zone a, b1 of zone b, and c without a zone.
fn nodes() -> [Node; 4] {
    let zones = [
        ("a1", Some("a")),
        ("a2", Some("a")),
        ("b1", Some("b")),
        ("c", None),
    ];
    zones.map(|(name, zone)| {
        let zone = zone.map(|z| ("zone", z));
        Node {
            name: name.into(),
            labels: [("host", name)].into_iter().chain(zone).collect(),
            ..Node::default()
        }
    })
}

/// Returns which of the nodes a new pod `w` may use; those of `shut` do not admit it.
fn usable(spread: Vec<SpreadConstraint>, there: &[Pod], shut: &[&str]) -> Vec<&'static str> {
    let mut index = Index::default();
    for node in nodes() {
        index.apply(Object::Node(node));
    }
    for pod in there {
        index.apply(Object::Pod(pod.clone()));
    }
    let snapshot = index.snapshot();
    let rules = PodRules {
        spread,
        host_ports: Vec::new(),
    };
    let new = pod("new", "w", None);
    let admits = |node: &Node| !shut.contains(&&*node.name);
    let spread = TopologySpread::new(&snapshot, &new, &rules, admits, admits);
    let all = ["a1", "a2", "b1", "c"].into_iter().zip(nodes());
    all.filter(|(_, node)| spread.conflict(node).is_none())
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn conflict_keeps_the_skew() {
    let zone = || vec![constraint("zone")];
    assert_eq!(usable(zone(), &[], &[]), ["a1", "a2", "b1"]);
    let there = [pod("1", "w", Some("a1"))];
    assert_eq!(usable(zone(), &there, &[]), ["b1"]);
    let host = vec![constraint("host")];
    assert_eq!(usable(host, &there, &[]), ["a2", "b1", "c"]);
    let mut wide = zone();
    wide[0].max_skew = 2;
    assert_eq!(usable(wide, &there, &[]), ["a1", "a2", "b1"]);
    let both = vec![constraint("zone"), constraint("host")];
    assert_eq!(usable(both, &[], &[]), ["a1", "a2", "b1"]);
}

#[test]
fn conflict_counts_selected_pods_of_the_namespace_that_run() {
    let zone = || vec![constraint("zone")];
    let all = ["a1", "a2", "b1"];
    let mut ended = pod("1", "w", Some("a1"));
    ended.finished = true;
    let mut terminating = pod("1", "w", Some("a1"));
    terminating.terminating = true;
    let mut foreign = pod("1", "w", Some("a1"));
    foreign.namespace = "other".into();
    let itself = pod("new", "w", Some("a1"));
    let other = pod("1", "x", Some("a1"));
    let waiting = pod("1", "w", None);
    for there in [ended, terminating, foreign, itself, other, waiting] {
        assert_eq!(
            usable(zone(), std::slice::from_ref(&there), &[]),
            all,
            "{there:?}"
        );
    }
}

#[test]
fn conflict_uses_domains_that_count() {
    let there = [pod("1", "w", Some("a1"))];
    let mut zone = vec![constraint("zone")];
    // Zone b is shut, so zone a is the emptiest.
    assert_eq!(usable(zone.clone(), &there, &["b1"]), ["a1", "a2", "b1"]);
    zone[0].honors_affinity = false;
    assert_eq!(usable(zone.clone(), &there, &["b1"]), ["b1"]);
    zone[0].honors_taints = true;
    assert_eq!(usable(zone.clone(), &there, &["b1"]), ["a1", "a2", "b1"]);
    // With fewer domains than demanded, the emptiest counts as empty.
    zone[0].min_domains = 3;
    let spread = [pod("1", "w", Some("a1")), pod("2", "w", Some("b1"))];
    assert_eq!(usable(zone.clone(), &spread, &[]), [""; 0]);
    zone[0].min_domains = 2;
    assert_eq!(usable(zone, &spread, &[]), ["a1", "a2", "b1"]);
}

#[test]
fn conflict_of_selectors_that_do_not_count() {
    let there = [pod("1", "w", Some("a1")), pod("2", "w", Some("a1"))];
    let mut none = vec![constraint("zone")];
    none[0].selector = None;
    assert_eq!(usable(none.clone(), &there, &[]), ["a1", "a2", "b1"]);
    none[0].selector = Some(Selector::default());
    assert_eq!(usable(none, &there, &[]), ["a1", "a2", "b1"]);
}
