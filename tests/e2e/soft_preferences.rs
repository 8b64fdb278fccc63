//! Kubernetes' own preferences under each answer of filter: a Deployment's pods, governed by a rule
//! that calls all nodes equal, beside the same pods ungoverned, as kube-scheduler alone places them.

use std::{collections::BTreeMap, fmt::Write};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tautline_sdk::testkit;
use tautline_tests::{eventually, objects};

use crate::{World, fixed_costs::FixedCosts, placement::wait_for_provider};

const REPLICAS: usize = 50;
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
/// Nine nodes in three zones; `anchor` runs on the first.
const NODES: [(&str, &str); 9] = [
    ("n1", "a"),
    ("n2", "a"),
    ("n3", "a"),
    ("n4", "b"),
    ("n5", "b"),
    ("n6", "b"),
    ("n7", "c"),
    ("n8", "c"),
    ("n9", "c"),
];

#[derive(Clone, Copy)]
enum Measure {
    /// The most crowded zone's pods less the emptiest's.
    ZoneSkew,
    /// The same for nodes.
    NodeSkew,
    /// Pods in the zone of `anchor`.
    WithAnchor,
    /// Pods on the node of `anchor`.
    OnAnchor,
}

struct Preference {
    name: &'static str,
    measure: Measure,
    /// The bound of a hard rule.
    most: Option<usize>,
    least: Option<usize>,
}

const fn soft(name: &'static str, measure: Measure) -> Preference {
    Preference {
        name,
        measure,
        most: None,
        least: None,
    }
}

const PREFERENCES: [Preference; 6] = [
    Preference {
        most: Some(1),
        ..soft("spread-hard", Measure::ZoneSkew)
    },
    soft("spread-soft", Measure::ZoneSkew),
    Preference {
        least: Some(REPLICAS),
        ..soft("affinity-hard", Measure::WithAnchor)
    },
    soft("affinity-soft", Measure::WithAnchor),
    Preference {
        most: Some(0),
        ..soft("anti-hard", Measure::OnAnchor)
    },
    soft("anti-soft", Measure::NodeSkew),
];

/// The part of a pod's spec that states the preference, for pods labelled `app`.
fn spec(name: &str, app: &str) -> Value {
    let selects = |app: &str| json!({"matchLabels": {"app": app}});
    let spread = |when: &str| {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE,
               "whenUnsatisfiable": when, "labelSelector": selects(app)}]})
    };
    let term = |app: &str, key: &str| json!({"labelSelector": selects(app), "topologyKey": key});
    let required = |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    let preferred = |term: Value| {
        json!({"preferredDuringSchedulingIgnoredDuringExecution":
               [{"weight": 100, "podAffinityTerm": term}]})
    };
    match name {
        "spread-hard" => spread("DoNotSchedule"),
        "spread-soft" => spread("ScheduleAnyway"),
        "affinity-hard" => json!({"affinity": {"podAffinity": required(term("anchor", ZONE))}}),
        "affinity-soft" => json!({"affinity": {"podAffinity": preferred(term("anchor", ZONE))}}),
        "anti-hard" => json!({"affinity": {"podAntiAffinity": required(term("anchor", HOST))}}),
        _ => json!({"affinity": {"podAntiAffinity": preferred(term(app, HOST))}}),
    }
}

async fn create(client: &Client, name: &str, app: &str, more: &Value) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"automountServiceAccountToken": false, "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}]},
    });
    for (field, value) in more.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

/// The number of pods on each node, once all are bound.
async fn placed(world: &World, app: &str, all: usize) -> BTreeMap<&'static str, usize> {
    let pods: Api<Pod> = Api::default_namespaced(world.plane.client.clone());
    let labelled = ListParams::default().labels(&format!("app={app}"));
    let check = async || {
        let list = pods.list(&labelled).await.ok()?.items;
        let nodes = list
            .iter()
            .filter_map(|p| p.spec.as_ref()?.node_name.as_deref());
        let mut counts: BTreeMap<&str, usize> = NODES.iter().map(|(name, _)| (*name, 0)).collect();
        let mut bound = 0;
        for node in nodes {
            *counts.get_mut(node)? += 1;
            bound += 1;
        }
        (bound == all).then_some(counts)
    };
    let what = format!("{all} pods of {app} are bound");
    let patience = 3 * tautline_tests::PATIENCE;
    eventually(&what, patience, check, async || world.state()).await
}

fn measured(measure: Measure, counts: &BTreeMap<&'static str, usize>) -> usize {
    let in_zone = |zone: &str| {
        let nodes = NODES.iter().filter(|(_, z)| *z == zone);
        nodes.map(|(name, _)| counts[name]).sum::<usize>()
    };
    let skew = |of: Vec<usize>| of.iter().max().unwrap() - of.iter().min().unwrap();
    match measure {
        Measure::ZoneSkew => skew(["a", "b", "c"].map(in_zone).to_vec()),
        Measure::NodeSkew => skew(counts.values().copied().collect()),
        Measure::WithAnchor => in_zone("a"),
        Measure::OnAnchor => counts["n1"],
    }
}

async fn start(mode: &str) -> World {
    let world = World::start(&[], &[&format!("--answer={mode}")])
        .await
        .unwrap();
    for (name, zone) in NODES {
        let labels = json!({ZONE: zone, HOST: name});
        objects::node(&world.plane.client, name, labels)
            .await
            .unwrap();
    }
    world
}

/// For each preference the measure of governed and of ungoverned pods.
async fn run(mode: &str) -> Vec<(usize, usize)> {
    let world = start(mode).await;
    let client = &world.plane.client;
    let costs = FixedCosts::new(&NODES.map(|(name, _)| (name, 5)));
    let running = testkit::start(costs).await.unwrap();
    let port = running.address.port();
    objects::provider(client, "default", "p", port, &["equal"])
        .await
        .unwrap();
    create(client, "anchor", "anchor", &json!({"nodeName": "n1"})).await;
    let mut all = Vec::new();
    for preference in &PREFERENCES {
        let [governed, alone] = ["governed", "alone"].map(|by| format!("{}-{by}", preference.name));
        let rule = json!({"name": "equal"});
        objects::policy(client, "default", &governed, rule, json!({}))
            .await
            .unwrap();
        wait_for_provider(&world, &governed).await;
        let mut both = [0; 2];
        for (app, measure) in [&governed, &alone].into_iter().zip(&mut both) {
            let spec = spec(preference.name, app);
            for at in 0..REPLICAS {
                create(client, &format!("{app}-{at}"), app, &spec).await;
            }
            let counts = placed(&world, app, REPLICAS).await;
            *measure = measured(preference.measure, &counts);
            let holds = preference.most.is_none_or(|most| *measure <= most)
                && preference.least.is_none_or(|least| *measure >= least);
            assert!(holds, "{mode}, {app}: {counts:?}\n{}", world.state());
        }
        all.push(both.into());
    }
    all
}

#[tokio::test]
async fn hard_rules_hold_and_soft_ones_are_compared_in_each_mode() {
    let modes = ["ties", "decisive", "shortlist"];
    let mut columns = Vec::new();
    for mode in modes {
        columns.push(run(mode).await);
    }
    let mut table =
        String::from("| | alone | ties | decisive | shortlist |\n|---|---|---|---|---|\n");
    for (at, preference) in PREFERENCES.iter().enumerate() {
        let alone = columns.iter().map(|c| c[at].1);
        let alone: Vec<String> = alone.map(|v| v.to_string()).collect();
        let governed: Vec<String> = columns.iter().map(|c| c[at].0.to_string()).collect();
        let (alone, governed) = (alone.join(", "), governed.join(" | "));
        writeln!(table, "| {} | {alone} | {governed} |", preference.name).unwrap();
    }
    println!("{table}");
    // With ties the preferences of kube-scheduler choose: it is never far from them.
    let soft = |column: usize, at: usize| columns[column][at].0;
    assert!(soft(0, 1) <= 3, "{table}");
    assert!(soft(0, 3) >= REPLICAS * 9 / 10, "{table}");
}

/// Six replicas with a soft spread over nodes of 0, 300, 600 ... us, under a request of 1 ms: the four
/// nodes within it share them, and with `prefer: Nearest` all are on the nearest.
#[tokio::test]
async fn nodes_within_the_request_share_the_pods() {
    const PODS: usize = 6;
    let world = start("ties").await;
    let client = &world.plane.client;
    let micros: Vec<(&str, i64)> = NODES
        .iter()
        .map(|(name, _)| *name)
        .zip((0..).step_by(300))
        .collect();
    let costs = FixedCosts::new(&micros);
    *costs.request_cost.lock().unwrap() = Some(1_000);
    let running = testkit::start(costs).await.unwrap();
    let port = running.address.port();
    objects::provider(client, "default", "p", port, &["near"])
        .await
        .unwrap();
    let mut all = Vec::new();
    for (app, prefer) in [
        ("default", None),
        ("within", Some("WithinRequest")),
        ("nearest", Some("Nearest")),
    ] {
        let mut rule = json!({"name": "near", "request": "1ms"});
        if let Some(prefer) = prefer {
            rule["prefer"] = prefer.into();
        }
        objects::policy(client, "default", app, rule, json!({}))
            .await
            .unwrap();
        wait_for_provider(&world, app).await;
        let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": HOST,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": app}}}]});
        for at in 0..PODS {
            create(client, &format!("{app}-{at}"), app, &spread).await;
        }
        all.push(placed(&world, app, PODS).await);
    }
    let [default, within, nearest] = all.as_slice() else {
        panic!("{all:?}");
    };
    for counts in [default, within] {
        let near: usize = ["n1", "n2", "n3", "n4"]
            .map(|name| counts[name])
            .iter()
            .sum();
        let used = counts.values().filter(|pods| **pods > 0).count();
        assert_eq!((near, used), (PODS, 4), "{counts:?}\n{}", world.state());
    }
    assert_eq!(nearest["n1"], PODS, "{nearest:?}\n{}", world.state());
}
