use tautline_core::{
    Index,
    index::Object,
    model::{Node, NodeConstraints, Policy, Target, TargetKind},
    selector::Selector,
};
use tautline_gpu_placement::SharingMode;
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::RuleProvider;

use super::*;
use crate::{
    Fit, GpuSlice,
    report::{Fragmentation, Uses},
};

fn node(name: &str, cards: &str) -> Object {
    Object::Node(Node {
        name: name.into(),
        annotations: [("tautline.io/gpu-cards", cards)].into_iter().collect(),
        ..Node::default()
    })
}

fn pod(name: &str, node: Option<&str>, devices: Option<&str>) -> Object {
    Object::Pod(Pod {
        namespace: "ml".into(),
        name: name.into(),
        labels: [("app", "infer")].into_iter().collect(),
        annotations: devices
            .map(|d| ("tautline.io/gpu-devices", d))
            .into_iter()
            .collect(),
        node: node.map(Into::into),
        placement: node.is_none().then(|| Box::new(NodeConstraints::default())),
        ..Pod::default()
    })
}

fn objects(request: &str) -> Vec<Object> {
    let offer = Offer {
        namespace: "ml".into(),
        name: "infer".into(),
        targets: vec![Target {
            name: "source".into(),
            kind: TargetKind::Pod,
            api_version: "v1".into(),
            selector: Selector::default(),
        }],
        policies: vec!["gone".into(), "quarter".into()],
        ..Offer::default()
    };
    let policy = Policy {
        namespace: "ml".into(),
        name: "quarter".into(),
        rules: vec![model::Rule {
            name: RULE.into(),
            request: request.into(),
            ..model::Rule::default()
        }],
    };
    vec![
        node("a", "2"),
        node("b", "2"),
        pod("holds", Some("a"), Some("1:250")),
        pod("waits-0", None, None),
        pod("waits-1", None, None),
        Object::Policy(policy),
        Object::Offer(offer),
    ]
}

fn inspect(objects: Vec<Object>) -> Inspection {
    let mut index = Index::default();
    for object in objects {
        index.apply(object);
    }
    Inspection::new(
        Arc::new(index.snapshot()),
        Config::default(),
        DeviceStore::default(),
    )
}

#[test]
fn requests_count_holders_and_rules_once() {
    let inspection = inspect(objects("500m"));
    let counted: Vec<(String, u16, bool)> = inspection
        .requests()
        .into_iter()
        .map(|r| (r.pod, r.shape.share, r.by_rule))
        .collect();
    assert_eq!(
        counted,
        [
            ("ml/holds".into(), 250, false),
            ("ml/waits-0".into(), 500, true),
            ("ml/waits-1".into(), 500, true),
        ]
    );
    let classes = inspection.classes();
    assert_eq!(classes.len(), 2, "{classes:?}");
    assert_eq!(
        (classes[0].0.milli, classes[0].0.mode),
        (500, SharingMode::Milli)
    );
    assert!((classes[0].1 - 2.0 / 3.0).abs() < 0.01, "{classes:?}");
}

#[tokio::test]
async fn fits_equal_the_provider_answers() {
    let store = ClusterStore::default();
    for object in objects("500m") {
        store.apply(object);
    }
    let provider = GpuSlice::new(store, Config::default());
    let mut inspection = inspect(objects("500m"));
    let snapshot = Arc::clone(inspection.snapshot());
    let pod = snapshot.pod("ml", "waits-0").unwrap();
    let questions = inspection.questions(pod);
    assert_eq!(
        questions.missing_policies,
        [("infer".into(), "gone".into())]
    );
    let request = &questions.rules[0].ask;
    assert_eq!(request.eligible_nodes, ["a", "b"]);
    assert_eq!(
        inspection.request_summary(request).unwrap().gpu.unwrap(),
        "500m of one card"
    );
    let answer = provider.endpoint_cost(request.clone()).await.unwrap();
    for ((node, fit), cost) in inspection.fits(request).unwrap().iter().zip(answer.nodes()) {
        assert_eq!(node, cost.node);
        match fit {
            Fit::Usable {
                detail, location, ..
            } => {
                assert_eq!(*detail, cost.detail);
                assert!(location.as_ref().unwrap().card.is_some());
            }
            Fit::Unusable(unfit) => panic!("{unfit:?}"),
        }
    }
}

#[test]
fn fits_report_a_malformed_rule() {
    let mut inspection = inspect(objects("lots"));
    let snapshot = Arc::clone(inspection.snapshot());
    let pod = snapshot.pod("ml", "waits-0").unwrap();
    let questions = inspection.questions(pod);
    let error = inspection
        .fits(&questions.rules[0].ask)
        .unwrap_err()
        .to_string();
    assert!(error.contains("write 250m"), "{error}");
}

/// Nodes with two A100 of 40 GiB, by sharing mode; the memory of one is not known.
fn two_cards() -> [Node; 5] {
    let product = ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB");
    let memory = ("nvidia.com/gpu.memory", "40960");
    let replicas = ("nvidia.com/gpu.replicas", "4");
    let node = |resource: &str, units: i64, labels: &[(&str, &str)]| Node {
        name: resource.into(),
        labels: labels.iter().copied().collect(),
        allocatable: [(resource, units * 1000)].into_iter().collect(),
        ..Node::default()
    };
    let agent = r#"{"limits": "mps", "cards": [
        {"uuid": "GPU-a", "index": 0, "product": "A100", "memoryBytes": 42949672960},
        {"uuid": "GPU-b", "index": 1, "product": "A100", "memoryBytes": 42949672960}]}"#;
    [
        node("nvidia.com/gpu", 2, &[product, memory]),
        node("nvidia.com/gpu.shared", 8, &[product, memory, replicas]),
        node("tautline.io/gpu-cards", 2, &[product, memory]),
        node("alibabacloud.com/gpu-count", 2, &[product]),
        Node {
            annotations: [("tautline.io/gpu-inventory", agent)].into_iter().collect(),
            ..node("tautline.io/gpu-milli", 2000, &[])
        },
    ]
}

#[test]
fn fragmentation_and_fits_agree_on_every_rule_form() {
    let requests = [
        "",
        "true",
        "1",
        "2",
        "3",
        "250m",
        "500m",
        "20Gi",
        "50Gi",
        "mig-1g.10gb",
        "0",
        "1500m",
    ];
    let own = [
        ("cpu", 1),
        ("nvidia.com/gpu", 1),
        ("nvidia.com/gpu", 2),
        ("nvidia.com/gpu.shared", 1),
        ("nvidia.com/gpu.shared", 2),
        ("tautline.io/gpu-milli", 250),
        ("tautline.io/gpu-milli", 2000),
        ("tautline.io/gpu-memory", 20),
    ];
    let models = ["", ",model=A100", ",model=H100"];
    let mut usable_cases = 0;
    for node in two_cards() {
        for (request, model) in requests.iter().flat_map(|r| models.map(|m| (r, m))) {
            for (resource, units) in own {
                let rule = format!("{request}{model}");
                let mut all = objects(&rule);
                all.retain(|o| !matches!(o, Object::Node(_) | Object::Pod(_)));
                let Object::Pod(mut waits) = pod("waits", None, None) else {
                    unreachable!()
                };
                waits.requests = [(resource, units * 1000)].into_iter().collect();
                all.extend([Object::Node(node.clone()), Object::Pod(waits)]);
                let mut inspection = inspect(all);
                let report = Fragmentation::new(&inspection, &Uses::default());
                let classes = report.classes;
                let of_pod = classes.iter().filter(|c| !c.pods.is_empty());
                let runs: usize = of_pod.map(|c| c.nodes.runs).sum();

                let snapshot = Arc::clone(inspection.snapshot());
                let questions = inspection.questions(snapshot.pod("ml", "waits").unwrap());
                let ask = &questions.rules[0].ask;
                let asks_nothing = |r: RequestSummary| r.gpu.is_none();
                if inspection.request_summary(ask).is_ok_and(asks_nothing) {
                    assert!(classes.is_empty(), "{classes:?}");
                    continue;
                }
                let fits = inspection.fits(ask).unwrap_or_default();
                let usable = fits
                    .iter()
                    .filter(|(_, fit)| matches!(fit, Fit::Usable { .. }));
                let usable = usable.count();
                let counted = classes.iter().flat_map(|c| &c.pods);
                let listed = counted.chain(&report.counted.pods_not_counted).count();
                let case = format!("{}: {rule:?}, {units} {resource}", node.name);
                assert_eq!(runs, usable, "{case}: {fits:?} {classes:?}");
                assert_eq!(listed, 1, "{case}");
                usable_cases += usable;
            }
        }
    }
    assert!(usable_cases > 100, "{usable_cases}");
}
