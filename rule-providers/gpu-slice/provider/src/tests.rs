#[path = "planning_tests.rs"]
mod planning;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tautline_core::{index::Object, model};
use tautline_runtime::history::Series;
use tautline_sdk::{Compliance, NodeCost, Reference, Rule, Workload};

use super::*;
use crate::{
    Inspection,
    cluster_inventory::NodeOrder,
    report::{CardSums, Order, Top, Uses},
};

const WHOLE: &str = "nvidia.com/gpu";
const SHARED: [&str; 2] = ["nvidia.com/gpu-shared", "nvidia.com/gpu.shared"];
const REPLICAS: &str = "nvidia.com/gpu.replicas";
const PRODUCT: &str = "nvidia.com/gpu.product";
const MEMORY: &str = "nvidia.com/gpu.memory";

fn node(name: &str, resource: &str, count: i64, labels: &[(&str, &str)]) -> Object {
    Object::Node(model::Node {
        name: name.into(),
        labels: labels.iter().copied().collect(),
        allocatable: [(resource, count * 1000)].into_iter().collect(),
        ..model::Node::default()
    })
}

fn pod(name: &str, node: &str, resource: &str, count: i64) -> Object {
    Object::Pod(model::Pod {
        namespace: "ml".into(),
        name: name.into(),
        node: Some(node.into()),
        requests: [(resource, count * 1000)].into_iter().collect(),
        ..model::Pod::default()
    })
}

fn provider() -> GpuSlice {
    let store = ClusterStore::default();
    let shared = [
        (REPLICAS, "4"),
        (PRODUCT, "NVIDIA-A100-SXM4-40GB"),
        (MEMORY, "40960"),
    ];
    store.apply(node(
        "whole",
        WHOLE,
        8,
        &[(PRODUCT, "NVIDIA-H100-80GB-HBM3")],
    ));
    store.apply(node("part", WHOLE, 8, &[]));
    store.apply(node("shared", SHARED[0], 8, &shared));
    store.apply(node("mig", "nvidia.com/mig-1g.10gb", 7, &[]));
    store.apply(node("plain", "cpu", 8, &[]));
    store.apply(pod("there", "part", WHOLE, 6));
    store.apply(pod("quarter", "shared", SHARED[0], 3));
    GpuSlice::new(store, Config::default())
}

#[tokio::test]
async fn history_has_the_percentage_of_cards_that_pods_have() {
    let provider = provider();
    let samples = || {
        let page = provider.admin_page("/history").unwrap();
        let all: Vec<Series> = serde_json::from_str(&page.body).unwrap();
        assert_eq!((&*all[0].name, &*all[0].unit), ("givenCards", "percent"));
        all[0].samples.clone()
    };
    assert_eq!(samples(), []);
    let sampling = provider.clone().sample_given_cards();
    _ = tokio::time::timeout(Duration::ZERO, sampling).await;
    let inspection = Inspection::new(
        provider.store.snapshot(),
        Config::default(),
        DeviceStore::default(),
    );
    let totals = Top::new(&inspection, &Uses::default(), None, Order::Name).totals;
    let sums = CardSums::of_all(&totals);
    let percent = sums.held_milli / 10 / i64::try_from(sums.cards).unwrap();
    assert!((1..100).contains(&percent), "{sums:?}");
    let found: Vec<i64> = samples().iter().map(|s| s.1.try_into().unwrap()).collect();
    assert_eq!(found, [percent]);

    let empty = GpuSlice::new(ClusterStore::default(), Config::default());
    assert_eq!(empty.state.lock().inventory.given_percent(), None);
}

async fn node_costs(request: &str, requests: &[(&str, &str)]) -> Vec<(String, i64, String, bool)> {
    let question = CostRequest {
        source: Reference::pod("ml", "new"),
        rule: Rule {
            name: "gpu-slice".into(),
            request: request.into(),
            ..Rule::default()
        },
        eligible_nodes: ["whole", "part", "shared", "mig", "plain"]
            .map(str::to_owned)
            .to_vec(),
        workload: Some(Workload {
            requests: requests
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect(),
            ..Workload::default()
        }),
        ..CostRequest::default()
    };
    let answer = provider().endpoint_cost(question).await.unwrap();
    let nodes = answer.nodes().into_iter();
    nodes
        .map(|n| (n.node.into(), n.cost, n.code.into(), n.freeable))
        .collect()
}

fn usable(answer: &[(String, i64, String, bool)]) -> Vec<&str> {
    let mut list: Vec<_> = answer.iter().filter(|n| n.1 >= 0).collect();
    list.sort_by_key(|n| n.1);
    list.iter().map(|n| n.0.as_str()).collect()
}

#[tokio::test]
async fn endpoint_cost_prefers_nodes_with_few_cards_left() {
    let answer = node_costs("true", &[(WHOLE, "2")]).await;
    assert_eq!(usable(&answer), ["part", "whole"]);
    let answer = node_costs("", &[(WHOLE, "4")]).await;
    assert_eq!(usable(&answer), ["whole"]);
    let busy = answer.iter().find(|n| n.0 == "part").unwrap();
    assert_eq!((busy.2.as_str(), busy.3), ("GpuBusy", true));
    let none = answer.iter().find(|n| n.0 == "plain").unwrap();
    assert_eq!((none.2.as_str(), none.3), ("NoSuchGpu", false));
}

#[tokio::test]
async fn endpoint_cost_accepts_shares_by_resource_rule_and_memory() {
    assert_eq!(
        usable(&node_costs("true", &[(SHARED[0], "5")]).await),
        ["shared"]
    );
    assert!(usable(&node_costs("true", &[(SHARED[0], "6")]).await).is_empty());
    let two = [(SHARED[0], "2")];
    assert_eq!(usable(&node_costs("250m", &two).await), ["shared"]);
    assert_eq!(
        usable(&node_costs("500m,model=A100|H100", &two).await),
        ["shared"]
    );
    assert!(usable(&node_costs("500m,model=T4", &two).await).is_empty());
    assert!(
        usable(&node_costs("500m,model=A10", &two).await).is_empty(),
        "A10 is no A100"
    );
    assert_eq!(usable(&node_costs("20Gi", &two).await), ["shared"]);
    assert_eq!(usable(&node_costs("20G", &two).await), ["shared"]);
    assert!(usable(&node_costs("41Gi", &two).await).is_empty());
    assert_eq!(
        usable(&node_costs("mig-1g.10gb", &[("nvidia.com/mig-1g.10gb", "1")]).await),
        ["mig"]
    );
    // The device plugin does not count a request of the rule alone.
    let uncounted = node_costs("750m", &two).await;
    let shared = uncounted.iter().find(|n| n.0 == "shared").unwrap();
    assert_eq!((shared.1, shared.2.as_str()), (-1, "NotRequested"));
    assert_eq!(
        usable(&node_costs("true", &[("nvidia.com/mig-1g.10gb", "7")]).await),
        ["mig"]
    );
}

/// GPU feature discovery's labels with the MIG strategies, and without MIG.
#[tokio::test]
async fn mig_instances_under_the_name_of_cards_are_no_cards() {
    let labels = |product| [(PRODUCT, product), ("nvidia.com/mig.strategy", "single")];
    let store = ClusterStore::default();
    for (name, resource, product) in [
        ("single", WHOLE, "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"),
        (
            "shared",
            SHARED[1],
            "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED",
        ),
        ("off", WHOLE, "NVIDIA-A100-SXM4-80GB"),
    ] {
        let labels = labels(product);
        let labels = [labels[0], labels[1], (REPLICAS, "4"), (MEMORY, "9728")];
        store.apply(node(name, resource, 8, &labels));
    }
    store.apply(pod("there", "single", WHOLE, 1));
    let provider = GpuSlice::new(store, Config::default());
    let answer = async |request: &str, resource: &str, units: &str| {
        let question = CostRequest {
            rule: Rule {
                name: "gpu-slice".into(),
                request: request.into(),
                ..Rule::default()
            },
            eligible_nodes: ["single", "shared", "off"].map(str::to_owned).to_vec(),
            workload: Some(Workload {
                requests: [(resource.to_owned(), units.to_owned())].into(),
                ..Workload::default()
            }),
            ..CostRequest::default()
        };
        let answer = provider.endpoint_cost(question).await.unwrap();
        let usable = |n: NodeCost<'_>| match n.cost >= 0 {
            true => "usable".to_owned(),
            false => n.code.to_owned(),
        };
        answer.nodes().into_iter().map(usable).collect::<Vec<_>>()
    };
    let cards = ["NoSuchGpu", "NoSuchGpu", "usable"];
    assert_eq!(answer("1,model=A100", WHOLE, "1").await, cards);
    assert_eq!(answer("1", WHOLE, "1").await, cards);
    // What the pod itself asks for is what the plugin gives.
    let units = ["usable", "NoSuchGpu", "usable"];
    assert_eq!(answer("true", WHOLE, "1").await, units);
    let shares = ["NoSuchGpu", "usable", "NoSuchGpu"];
    assert_eq!(answer("true", SHARED[1], "1").await, shares);
    let parts = answer("250m", SHARED[1], "1").await;
    assert!(
        parts[..2].iter().all(|code| code == "NoSuchGpu"),
        "{parts:?}"
    );

    let check = async |request: &str| {
        let targets = [("default".to_owned(), Reference::pod("ml", "there"))].into();
        let request = EvaluationRequest {
            targets,
            rule: Rule {
                name: "gpu-slice".into(),
                request: request.into(),
                ..Rule::default()
            },
            ..EvaluationRequest::default()
        };
        provider.evaluate(request).await.unwrap()
    };
    assert_eq!(check("true").await.compliance, Compliance::Compliant);
    let found = check("1").await;
    assert_eq!(found.compliance, Compliance::Violation);
    assert_eq!(
        found.reason,
        "node single: its nvidia.com/gpu are MIG instances, cards are wanted"
    );
}

/// A pod that comes later, by `spec.nodeName`, does not end what others have.
#[tokio::test]
async fn who_comes_later_violates_itself_and_not_the_holders() {
    let milli = "tautline.io/gpu-milli";
    let devices = "tautline.io/gpu-devices";
    let aged = |name: &str, created_unix: i64, resource: &str, units: i64, annotation| {
        let annotations: Option<(&str, &str)> = annotation;
        Object::Pod(model::Pod {
            namespace: if name == "holder" { "ml" } else { "attack" }.into(),
            name: name.into(),
            uid: name.into(),
            node: Some("n".into()),
            created_unix,
            requests: [(resource, units * 1000)].into_iter().collect(),
            annotations: annotations.into_iter().collect(),
            ..model::Pod::default()
        })
    };
    let inventory = r#"{"cards": [{"uuid": "GPU-a", "index": 0}]}"#;
    let agent = ("tautline.io/gpu-inventory", inventory);
    let label = ("tautline.io/gpu-cards", "1");
    let index = Some(("alibabacloud.com/gpu-index", "0"));
    let recorded = |card| Some((devices, card));
    for (annotation, allocatable, holder, intruder, reason) in [
        // A younger record is before an older pod without one.
        (
            label,
            ("cpu", 8),
            aged("holder", 9, "cpu", 1, recorded("0:1000")),
            aged("intruder", 5, "cpu", 1, index),
            "node n: card 0 is over-committed: 2000m of 1000m held; before it came ml/holder",
        ),
        (
            agent,
            (milli, 1000),
            aged("holder", 9, milli, 1000, recorded("GPU-a:1000")),
            aged("intruder", 5, milli, 500, None),
            "node n: card GPU-a is over-committed: 1500m of 1000m held; before it came ml/holder; \
             pod intruder has no device annotation",
        ),
        // Without records the older is first: cards, shares and instances of device plugins.
        (
            ("x", "y"),
            (WHOLE, 1),
            aged("holder", 5, WHOLE, 1, None),
            aged("intruder", 9, WHOLE, 1, None),
            "node n offers nvidia.com/gpu 1 and its pods hold 2; before it came ml/holder",
        ),
        (
            ("x", "y"),
            ("nvidia.com/mig-1g.10gb", 2),
            aged("holder", 5, "nvidia.com/mig-1g.10gb", 2, None),
            aged("intruder", 9, "nvidia.com/mig-1g.10gb", 1, None),
            "node n offers nvidia.com/mig-1g.10gb 2 and its pods hold 3; before it came ml/holder",
        ),
    ] {
        let store = ClusterStore::default();
        store.apply(Object::Node(model::Node {
            name: "n".into(),
            annotations: [annotation].into_iter().collect(),
            allocatable: [(allocatable.0, allocatable.1 * 1000)]
                .into_iter()
                .collect(),
            ..model::Node::default()
        }));
        store.apply(intruder);
        store.apply(holder);
        let provider = GpuSlice::new(store, Config::default());
        let check = async |namespace: &str, name: &str| {
            let targets = [("default".to_owned(), Reference::pod(namespace, name))].into();
            let request = EvaluationRequest {
                targets,
                rule: Rule {
                    name: "gpu-slice".into(),
                    ..Rule::default()
                },
                ..EvaluationRequest::default()
            };
            provider.evaluate(request).await.unwrap()
        };
        let holder = check("ml", "holder").await;
        assert_eq!(holder.compliance, Compliance::Compliant, "{holder:?}");
        let intruder = check("attack", "intruder").await;
        assert_eq!(intruder.compliance, Compliance::Violation, "{intruder:?}");
        assert_eq!(intruder.reason, reason);
    }
}

#[tokio::test]
async fn endpoint_cost_accepts_all_nodes_without_gpus() {
    assert_eq!(usable(&node_costs("true", &[("cpu", "1")]).await).len(), 5);
}

#[tokio::test]
async fn endpoint_cost_rejects_malformed_requests_with_a_fix() {
    for request in [
        "lots",
        "1500m",
        "250m,colour=red",
        "250m,model=",
        "-1",
        "0m",
        "0Gi",
    ] {
        let rule = Rule {
            name: "gpu-slice".into(),
            request: request.into(),
            ..Rule::default()
        };
        let error = provider()
            .endpoint_cost(CostRequest {
                rule,
                ..CostRequest::default()
            })
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(request) && error.contains("write 250m"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn evaluate_reports_an_over_committed_node() {
    let provider = provider();
    let check = async || {
        let targets = [("default".to_owned(), Reference::pod("ml", "there"))].into();
        let rule = Rule {
            name: "gpu-slice".into(),
            ..Rule::default()
        };
        provider
            .evaluate(EvaluationRequest {
                targets,
                rule,
                ..EvaluationRequest::default()
            })
            .await
            .unwrap()
            .compliance
    };
    assert_eq!(check().await, Compliance::Compliant);
    provider.store.apply(node("part", WHOLE, 4, &[]));
    assert_eq!(check().await, Compliance::Violation);
    let targets = ["there", "quarter"]
        .map(|p| (p.to_owned(), Reference::pod("ml", p)))
        .into();
    let rule = Rule {
        name: "gpu-slice".into(),
        ..Rule::default()
    };
    let all = provider
        .evaluate(EvaluationRequest {
            targets,
            rule,
            ..EvaluationRequest::default()
        })
        .await
        .unwrap();
    assert_eq!(all.compliance, Compliance::Violation, "{all:?}");
}

#[tokio::test]
async fn evaluate_reports_a_missing_device_annotation() {
    let provider = provider();
    provider
        .store
        .apply(node("milli", "tautline.io/gpu-cards", 2, &[]));
    provider.store.apply(pod("bare", "milli", "cpu", 1));
    let targets = [("default".to_owned(), Reference::pod("ml", "bare"))].into();
    let rule = Rule {
        name: "gpu-slice".into(),
        request: "250m".into(),
        ..Rule::default()
    };
    let evaluation = provider
        .evaluate(EvaluationRequest {
            targets,
            rule,
            ..EvaluationRequest::default()
        })
        .await
        .unwrap();
    assert_eq!(evaluation.compliance, Compliance::Error);
    assert!(
        evaluation.reason.contains("run the extender with --bind"),
        "{evaluation:?}"
    );
}

#[tokio::test]
async fn evaluate_reports_unknown_pods_as_pending_or_error() {
    let provider = provider();
    // A pod of this cluster has the same name.
    let in_east = "east:ml:v1:Pod:there".parse().unwrap();
    let new = Reference::pod("ml", "new");
    for (pod, node, compliance) in [
        (&new, None, Compliance::Pending),
        (&new, Some(None), Compliance::Pending),
        (&new, Some(Some("part".to_owned())), Compliance::Error),
        (&in_east, None, Compliance::Error),
    ] {
        let evaluation_request = EvaluationRequest {
            targets: [("default".to_owned(), pod.clone())].into(),
            target_nodes: node
                .map(|n| ("default".to_owned(), n))
                .into_iter()
                .collect(),
            rule: Rule {
                name: "gpu-slice".into(),
                ..Rule::default()
            },
            ..EvaluationRequest::default()
        };
        let evaluation = provider.evaluate(evaluation_request).await.unwrap();
        assert_eq!(evaluation.compliance, compliance, "{evaluation:?}");
    }
}

proptest! {
    #[test]
    fn capacity_is_never_exceeded(asks in proptest::collection::vec(1..5i64, 1..20)) {
        let store = ClusterStore::default();
        for name in ["a", "b", "c"] { store.apply(node(name, WHOLE, 4, &[])); }
        let provider = GpuSlice::new(store.clone(), Config::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (i, cards) in asks.into_iter().enumerate() {
            let question = CostRequest {
                rule: Rule { request: cards.to_string(), ..Rule::default() },
                eligible_nodes: ["a", "b", "c"].map(str::to_owned).to_vec(),
                ..CostRequest::default()
            };
            let answer = runtime.block_on(provider.endpoint_cost(question)).unwrap();
            let best = answer.nodes().into_iter().filter(|n| n.cost >= 0).min_by_key(|n| n.cost);
            if let Some(best) = best {
                store.apply(pod(&i.to_string(), best.node, WHOLE, cards));
            }
        }
        let snapshot = store.snapshot();
        for name in ["a", "b", "c"] {
            let used: i64 = snapshot.pods_on(name).iter().map(|p| p.requests.milli(WHOLE)).sum();
            prop_assert!(used <= 4000);
        }
    }
}

type Line = (i64, String, String, bool);

fn lines_by_node(answer: &CostAnswer) -> BTreeMap<String, Line> {
    let nodes = answer.nodes().into_iter();
    let line = |n: NodeCost<'_>| (n.cost, n.code.into(), n.detail.into(), n.freeable);
    nodes.map(|n| (n.node.into(), line(n))).collect()
}

proptest! {
    /// Whoever asks only about the nodes that changed has the costs of all nodes.
    #[test]
    fn changes_name_every_node_whose_costs_change(
        steps in proptest::collection::vec((0..8_u8, 0..4_usize, 0..6_usize, 1..5_i64), 1..40)
    ) {
        let names = ["a", "b", "c", "unknown"];
        let store = ClusterStore::default();
        for name in &names[..3] { store.apply(node(name, WHOLE, 4, &[])); }
        let provider = GpuSlice::new(store.clone(), Config::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let changes = provider.changes().unwrap().clone();
        let costs_of = |nodes: &[&str], cards: i64| {
            let question = CostRequest {
                rule: Rule { request: cards.to_string(), ..Rule::default() },
                eligible_nodes: nodes.iter().map(|n| (*n).to_owned()).collect(),
                ..CostRequest::default()
            };
            lines_by_node(&runtime.block_on(provider.endpoint_cost(question)).unwrap())
        };
        // By question: a mark of the changes, and each node's line.
        let mut callers: BTreeMap<i64, (u64, BTreeMap<String, Line>)> = BTreeMap::new();
        for (step, at, which, cards) in steps {
            let (name, pod_name) = (names[at], format!("pod-{which}"));
            match step {
                0 => store.apply(pod(&pod_name, name, WHOLE, cards)),
                1 => store.delete(tautline_core::index::Kind::Pod, &format!("ml/{pod_name}")),
                2 if at < 3 => store.apply(node(name, WHOLE, cards, &[(PRODUCT, "NVIDIA-L4")])),
                3 if at < 3 => store.delete(tautline_core::index::Kind::Node, name),
                4 => provider.placed(placed(&pod_name, name, cards)),
                5 => provider.ended(&pod_name),
                _ => {}
            }
            provider.state.lock().sync(&store, Instant::now());
            let (mark, lines) = callers.entry(cards).or_default();
            let first = lines.is_empty();
            match changes.since(mark) {
                Some(nodes) if !first => {
                    let nodes: Vec<&str> = nodes.iter().map(|n| &**n).collect();
                    lines.extend(costs_of(&nodes, cards));
                }
                _ => *lines = costs_of(&names, cards),
            }
            lines.retain(|name, _| names.contains(&name.as_str()));
            prop_assert_eq!(&costs_of(&names, cards), &*lines);
        }
    }
}

fn placed(name: &str, node: &str, cards: i64) -> InFlightPod {
    InFlightPod {
        pod: Reference::pod("ml", name),
        node: node.into(),
        workload: Workload {
            uid: name.into(),
            requests: [(WHOLE.to_owned(), cards.to_string())].into(),
            ..Workload::default()
        },
    }
}
