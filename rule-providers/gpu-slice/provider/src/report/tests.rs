use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_core::{
    Index,
    index::Object,
    model::{Node, Pod},
};

use tautline_gpu_placement::{Shape, dra::DeviceStore};

use super::*;
use crate::{Config, Inspection};

fn node(name: &str, annotations: &[(&str, &str)], units: &[(&str, i64)]) -> Node {
    Node {
        name: name.into(),
        annotations: annotations.iter().copied().collect(),
        allocatable: units.iter().map(|(r, n)| (*r, n * 1000)).collect(),
        ..Node::default()
    }
}

fn inspection(nodes: Vec<Node>) -> Inspection {
    let mut index = Index::default();
    for node in nodes {
        index.apply(Object::Node(node));
    }
    Inspection::new(
        Arc::new(index.snapshot()),
        Config::default(),
        DeviceStore::default(),
    )
}

fn what_if(inspection: &Inspection, requests: &[&str]) -> WhatIf {
    let requests: Vec<String> = requests.iter().map(|r| (*r).to_owned()).collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    let host = Shape::default();
    inspection.what_if(&requests, &host, deadline).unwrap()
}

/// The number of pods with a place, and of all.
fn fit(answer: &WhatIf) -> (usize, usize) {
    let placed = answer.pods.iter().filter(|p| p.placed.is_some());
    (placed.count(), answer.pods.len())
}

#[test]
fn what_if_fills_cards_and_then_refuses() {
    let cards = |n| [("tautline.io/gpu-cards", n)];
    let nodes = vec![node("a", &cards("1"), &[]), node("b", &cards("1"), &[])];
    let inspection = inspection(nodes);
    let answer = what_if(&inspection, &["500m", "500m", "1", "250m"]);
    assert_eq!((fit(&answer), answer.complete), ((3, 4), true));
    let places: Vec<&Placed> = answer
        .pods
        .iter()
        .filter_map(|p| p.placed.as_ref())
        .collect();
    // Shares go to one card, so that a whole one stays free.
    assert_eq!(places[0], places[1]);
    assert_ne!(places[0].node, places[2].node);
    assert_eq!(answer.pods[3].refused.get("GpuBusy"), Some(&2));
    // A second question begins again.
    assert_eq!(fit(&what_if(&inspection, &["1", "1", "1"])), (2, 3));
}

#[test]
fn what_if_counts_units_and_leaves_out_cordoned_nodes() {
    let mig = |name| node(name, &[], &[("nvidia.com/mig-1g.5gb", 2)]);
    let cordoned = Node {
        unschedulable: true,
        ..mig("b")
    };
    let inspection = inspection(vec![mig("a"), cordoned]);
    let answer = what_if(&inspection, &["mig-1g.5gb"; 3]);
    assert_eq!(fit(&answer), (2, 3));
    assert!(answer.pods[0].placed.as_ref().unwrap().cards.is_empty());
    assert_eq!(answer.pods[2].refused.values().sum::<usize>(), 1);
}

#[test]
fn what_if_counts_free_cpu_and_memory() {
    let mut index = Index::default();
    let cards = [("tautline.io/gpu-cards", "4")];
    let host = |name, cpu, gib: i64| node(name, &cards, &[("cpu", cpu), ("memory", gib << 30)]);
    let mig = ("nvidia.com/mig-1g.5gb", 4);
    let units = node("units", &[], &[mig, ("cpu", 3), ("memory", 8 << 30)]);
    let plain = node("plain", &[], &[("cpu", 1), ("memory", 8 << 30)]);
    for node in [
        host("busy", 4, 8),
        host("free", 4, 8),
        host("low", 4, 1),
        units,
        plain,
    ] {
        index.apply(Object::Node(node));
    }
    index.apply(Object::Pod(Pod {
        name: "web".into(),
        node: Some("busy".into()),
        requests: [("cpu", 3_500)].into_iter().collect(),
        ..Pod::default()
    }));
    let inspection = Inspection::new(
        Arc::new(index.snapshot()),
        Config::default(),
        DeviceStore::default(),
    );
    let host = Shape {
        cpu_milli: 2_000,
        memory_bytes: 2 << 30,
        ..Shape::default()
    };
    let requests = ["1", "1", "1", "mig-1g.5gb", "mig-1g.5gb"].map(str::to_owned);
    let deadline = Instant::now() + Duration::from_secs(60);
    let answer = inspection.what_if(&requests, &host, deadline).unwrap();
    let short = answer.short.iter();
    let short: Vec<_> = short.map(|(node, reason)| (&**node, &**reason)).collect();
    let expected = [
        ("busy", "free cpu 500m, asked 2"),
        ("low", "free memory 1Gi, asked 2Gi"),
    ];
    assert_eq!((answer.short_total, &*short), (2, &expected[..]));
    let places = answer.pods.iter().map(|p| Some(&*p.placed.as_ref()?.node));
    let places: Vec<Option<&str>> = places.collect();
    // Two pods fill the four cores of `free`, and one takes two of the three cores of `units`.
    let free = Some("free");
    assert_eq!(places, [free, free, None, Some("units"), None]);
    let refused = |pod: usize, code| answer.pods[pod].refused.get(code).copied();
    assert_eq!(refused(2, "CpuShort"), Some(2));
    assert_eq!(refused(2, "MemoryShort"), Some(1));
    assert_eq!(refused(4, "CpuShort"), Some(1));
}

#[test]
fn what_if_names_what_it_cannot_read() {
    let inspection = inspection(vec![node("a", &[("tautline.io/gpu-cards", "1")], &[])]);
    let error = |requests: &[String]| {
        let deadline = Instant::now();
        inspection
            .what_if(requests, &Shape::default(), deadline)
            .unwrap_err()
            .to_string()
    };
    assert!(error(&["1500m".to_owned()]).contains("whole cards only"));
    assert!(error(&["0".to_owned()]).contains("no GPU"));
    let many = vec!["1".to_owned(); MAX_PODS + 1];
    assert!(error(&many).contains("at most 256"));
    // A deadline that has passed is no error.
    let late = inspection
        .what_if(&["1".to_owned()], &Shape::default(), Instant::now())
        .unwrap();
    assert!(late.pods.is_empty() && !late.complete);
}

#[test]
fn a_node_with_two_pools_of_a_product_counts_once() {
    let cards = r#"{"limits": "mps", "cards": [
        {"uuid": "GPU-a", "index": 0, "product": "A100", "memoryBytes": 42949672960},
        {"uuid": "GPU-b", "index": 1, "product": "A100", "memoryBytes": 85899345920}]}"#;
    let agent = |name| {
        let annotations = [("tautline.io/gpu-inventory", cards)];
        node(name, &annotations, &[("tautline.io/gpu-milli", 2000)])
    };
    let inspection = inspection(vec![agent("a"), agent("b")]);
    assert!(inspection.nodes().iter().all(|n| n.capacities.len() == 2));
    let top = Top::new(&inspection, &Uses::default(), None, Order::Name);
    let totals: Vec<usize> = top.totals.iter().map(|total| total.nodes).collect();
    assert_eq!(totals, [2]);
    let products = Fragmentation::new(&inspection, &Uses::default()).products;
    let products: Vec<_> = products.iter().map(|p| (p.nodes, p.cards)).collect();
    assert_eq!(products, [(2, 4)]);
}

#[test]
fn sums_of_all_products_are_rounded_once() {
    let total = |fragmented| Total {
        product: "L4".into(),
        lane: "milli".into(),
        nodes: 1,
        amounts: Amounts::Cards(CardSums {
            cards: 1,
            fragmented_milli: Some(0),
            fragmented: Some(fragmented),
            ..CardSums::default()
        }),
    };
    let sums = CardSums::of_all(&[total(0.4), total(0.4)]);
    assert_eq!((sums.cards, sums.fragmented_milli), (2, Some(1)));
}
