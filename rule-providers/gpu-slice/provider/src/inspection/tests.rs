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
use crate::{Fit, GpuSlice};

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
    Inspection::new(Arc::new(index.snapshot()), Config::default())
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
