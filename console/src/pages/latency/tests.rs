use std::{fmt::Write, sync::Arc};

use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::json;
use tautline_latency::{Latency, Table, report::Pages};

use crate::{
    Console,
    source::{AdminAnswer, Component, Read, Source},
    tests::{self, FakeSource, get, json},
};

/// A real provider on the console's own nodes.
struct Provider(Pages<Latency>);

impl Source for Provider {
    fn admin<'a>(&'a self, component: Component, path: &'a str) -> Read<'a, Vec<AdminAnswer>> {
        Box::pin(async move {
            assert_eq!(component, Component::Latency);
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let page = self
                .0
                .clone()
                .answer(path.to_owned(), query.to_owned())
                .await
                .unwrap();
            Ok(vec![AdminAnswer {
                from: "replica 1".to_owned(),
                status: page.status,
                body: page.body.into(),
            }])
        })
    }

    fn pod<'a>(&'a self, _: &'a str, _: &'a str) -> Read<'a, Option<Pod>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn events<'a>(&'a self, _: &'a str, _: &'a str) -> Read<'a, Vec<Event>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

fn node(name: &str, zone: &str) -> String {
    let labels = json!({"topology.kubernetes.io/zone": zone});
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    format!("---\n{node}\n")
}

fn of_provider(yaml: &str, rows: &[&str]) -> Arc<Console> {
    let mut console = tests::console(yaml, FakeSource::default());
    let mut table = Table::default();
    for row in rows {
        table.add(row).unwrap();
    }
    let provider = Latency::new(console.store.clone());
    provider.set_table(table);
    console.source = Arc::new(Provider(Pages::new(provider)));
    Arc::new(console)
}

fn three_zones() -> Arc<Console> {
    let nodes: String = [
        ("a1", "a"),
        ("a2", "a"),
        ("b1", "b"),
        ("b2", "b"),
        ("c1", "c"),
    ]
    .map(|(name, zone)| node(name, zone))
    .concat();
    of_provider(&nodes, &["a,a,200us", "a,b,12ms", "b,b,300us", "a,c,31ms"])
}

fn of_reports(reports: Vec<(&'static str, serde_json::Value)>) -> Arc<Console> {
    let admin = reports
        .into_iter()
        .map(|(path, report)| (Component::Latency, path, report.to_string()));
    let source = FakeSource {
        admin: admin.collect(),
        ..FakeSource::default()
    };
    let nodes = [node("a1", "a"), node("b1", "b")].concat();
    Arc::new(tests::console(&nodes, source))
}

fn pair_report() -> serde_json::Value {
    json!({
        "from": {"node": "a1", "zone": "a", "uid": "u", "boot": "c0ffee", "agent": true},
        "to": {"node": "b1", "zone": "b", "agent": true},
        "told": {"basis": "measured", "rttMicros": 25_000},
        "directions": [
            {"from": "a1", "to": "b1", "state": "measured", "medianMicros": 12_000, "windowMicros": [12_000, 12_100],
             "p50Micros": 12_000, "p95Micros": 14_500, "samples": 60, "ageMicros": 1_200_000, "refreshMicros": 2_000_000},
            {"from": "b1", "to": "a1", "state": "measured", "medianMicros": 25_000, "p50Micros": 25_000,
             "p95Micros": 26_000, "samples": 5}],
        "combinedMicros": 25_000, "apart": 1.08,
        "estimate": {"rttMicros": 13_000, "lowMicros": 11_000, "highMicros": 16_000},
        "namedBy": [{"rule": "latency", "requestMicros": 5_000, "limitMicros": 20_000},
                    {"rule": "jitter", "limitMicros": 2_000}],
    })
}

#[tokio::test]
async fn zones_lead_to_nodes_and_nodes_to_pairs() {
    let console = three_zones();
    let view = json(&console, "/latency?limit=20ms").await;
    insta::assert_snapshot!(
        "zone_counts",
        serde_json::to_string_pretty(&view["network"]["counts"]).unwrap()
    );
    let (_, page) = get(&console, "/latency?limit=20ms").await;
    assert!(
        page.contains("href=\"/latency?zone=a&amp;limit=20ms\""),
        "{page}"
    );
    assert!(page.contains(" far") && page.contains("too far"), "{page}");
    assert!(page.contains("3 of 6 pairs of zones hold 20ms"), "{page}");
    assert!(
        page.contains("href=\"/latency?zone=a&amp;to=b&amp;limit=20ms\""),
        "{page}"
    );
    let both = json(&console, "/latency?zone=a&to=b").await;
    assert_eq!(both["network"]["pairs"]["total"], 6);
    let (_, page) = get(&console, "/latency?zone=a").await;
    assert!(page.contains("href=\"/latency/pair/a1/a2\""), "{page}");
    assert!(page.contains("tautline latency matrix --zone a"), "{page}");
    let (_, page) = get(&console, "/latency/pair/a1/b1").await;
    assert!(page.contains("12ms, configured"), "{page}");
    let view = json(&console, "/latency?node=a2").await;
    assert_eq!(view["network"]["pairs"]["total"], 1);
    assert_eq!(view["network"]["pairs"]["rows"][0]["rttMicros"], 200);
    for (uri, why) in [
        ("/latency?zone=x", "there is no zone x"),
        ("/latency?zone=a&to=x", "there is no zone x"),
        ("/latency?node=x", "there is no node x"),
        ("/latency/pair/a1/x", "there is no node x"),
    ] {
        let (status, page) = get(&console, uri).await;
        assert_eq!(status, 404, "{uri}");
        assert!(page.contains(why), "{uri}: {page}");
    }
}

#[tokio::test]
async fn a_bad_limit_is_refused() {
    let (status, page) = get(&three_zones(), "/latency?limit=soon").await;
    assert_eq!(status, 400);
    assert!(page.contains("limit=soon: write a time"), "{page}");
}

#[tokio::test]
async fn one_zone_is_shown_by_its_nodes() {
    let nodes = [node("n1", "z"), node("n2", "z")].concat();
    let console = of_provider(&nodes, &["z,z,1ms"]);
    let view = json(&console, "/latency").await;
    assert_eq!(view["level"]["of"], "nodes");
    assert_eq!(view["network"]["pairs"]["total"], 1);
}

#[tokio::test]
async fn measured_and_predicted_are_told_apart() {
    let cell = |basis: &str, micros: u64| json!({"basis": basis, "rttMicros": micros});
    let matrix = json!({"by": "zone", "names": ["a", "b"], "cells": [
        [cell("measured", 200), cell("estimated", 12_000)],
        [cell("estimated", 12_000), {"basis": "unreachable", "unreachablePairs": 4}]]});
    let top = json!({"named": 40, "pairs": [
        {"from": "a1", "to": "b1", "rule": "latency", "requestMicros": 5_000, "limitMicros": 20_000,
         "basis": "measured", "rttMicros": 25_000, "limitShare": 1.25, "compliance": "Violation"}]});
    let console = of_reports(vec![
        ("/latency/matrix?by=zone", matrix),
        ("/latency/top?limit=20", top),
    ]);
    let (status, page) = get(&console, "/latency?limit=15ms").await;
    assert_eq!(status, 200);
    for part in [
        "class=\"t measured\"",
        "class=\"t estimated\"",
        "class=\"t lost far\"",
        "~12ms",
        "1 of them by prediction",
        "href=\"/latency/pair/a1/b1\"",
        "125%",
        "The worst 1 of 40",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(
        !page.contains("style="),
        "the content security policy forbids it"
    );
}

#[tokio::test]
async fn a_pair_has_both_directions_jitter_and_rules() {
    let console = of_reports(vec![("/latency/pair?from=a1&to=b1", pair_report())]);
    let view = json(&console, "/latency/pair/a1/b1").await;
    assert_eq!(view["jitterMicros"], json!([2_500, null]));
    let levels: Vec<&str> = view["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["level"].as_str().unwrap())
        .collect();
    assert_eq!(levels, ["Violation", "Violation"]);
    let (_, page) = get(&console, "/latency/pair/a1/b1").await;
    for part in [
        "25ms, measured",
        "2.5ms",
        "asymmetric",
        "11ms to 16ms in four of five cases",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn a_pair_may_be_a_node_and_an_address_outside() {
    let mut report = pair_report();
    report["to"] = json!({"node": "203.0.113.9:5432", "agent": false, "outside": true});
    let path = "/latency/pair?from=a1&to=203.0.113.9%3A5432";
    let console = of_reports(vec![(path, report)]);
    let (_, page) = get(&console, "/latency/pair/a1/203.0.113.9:5432").await;
    for part in [
        "(outside the cluster)",
        "TCP connects to the address are timed",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("latency?node=203"), "{page}");
}

#[tokio::test]
async fn page_without_a_provider_says_what_to_install() {
    let console = of_reports(Vec::new());
    let (status, page) = get(&console, "/latency").await;
    assert_eq!(status, 200);
    assert!(page.contains("No latency provider answers"), "{page}");
    assert!(page.contains("no pod of Latency runs"), "{page}");
    let (status, page) = get(&console, "/latency/pair/a1/b1").await;
    assert_eq!(status, 502);
    assert!(page.contains("no pod of Latency runs"), "{page}");
    let empty = of_provider(&[node("a1", "a"), node("b1", "b")].concat(), &[]);
    let (_, page) = get(&empty, "/latency").await;
    assert!(page.contains("no measurements and no tables"), "{page}");
}

#[tokio::test]
async fn hostile_names_are_text() {
    const HOSTILE: &str = "<script>alert(1)</script>";
    let nodes = [
        node(HOSTILE, "<b>&\"'\u{202e}"),
        node("b1", "b"),
        node("b2", "b"),
    ]
    .concat();
    let console = of_provider(&nodes, &["b,b,1ms"]);
    // Links have the name as it is shown.
    let (status, _) = get(&console, "/latency?zone=%3Cb%3E%26%22%27%EF%BF%BD").await;
    assert_eq!(status, 200);
    for uri in [
        "/latency",
        &format!("/latency?node={}", crate::links::escaped(HOSTILE)),
        &format!("/latency?zone={}", crate::links::escaped("<b>&\"'\u{202e}")),
        &crate::links::path(&["latency", "pair", HOSTILE, "b1"]),
    ] {
        let (_, page) = get(&console, uri).await;
        assert!(
            !page.contains("<script>alert") && !page.contains("<b>&\""),
            "{uri}: {page}"
        );
        assert!(!page.contains('\u{202e}'), "{uri}: {page}");
    }
}

#[tokio::test]
async fn pages_of_a_large_cluster_are_small() {
    let mut nodes = String::new();
    for n in 0..5_000 {
        let name = format!("ip-10-{}-{}.eu-west-1.compute.internal", n / 250, n % 250);
        nodes += &node(&name, &format!("eu-west-1{}", n % 5));
    }
    let mut rows = Vec::new();
    for a in 0..5 {
        for b in a..5 {
            let mut row = String::new();
            // Writing to a String cannot fail.
            _ = write!(row, "eu-west-1{a},eu-west-1{b},{}us", 200 + 1_000 * (b - a));
            rows.push(row);
        }
    }
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let console = of_provider(&nodes, &rows);
    for uri in [
        "/latency",
        "/latency?zone=eu-west-10",
        "/latency?zone=eu-west-10&to=eu-west-11&limit=1ms",
        "/latency?node=ip-10-0-0.eu-west-1.compute.internal&page=2",
    ] {
        let (status, page) = get(&console, uri).await;
        assert_eq!(status, 200, "{uri}: {page}");
        assert!(page.len() < 200_000, "{uri}: {}", page.len());
        assert!(page.contains("eu-west-1"), "{uri}");
    }
    let view = json(&console, "/latency?zone=eu-west-10").await;
    assert_eq!(view["level"]["nodes"], 1_000);
    let names = view["network"]["matrix"]["names"].as_array().unwrap();
    assert!((8..=32).contains(&names.len()), "{}", names.len());
    assert_eq!(view["level"]["shown"], names.len());
}
