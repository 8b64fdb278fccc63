use std::time::Duration;

use tautline_core::{index::Object, model};
use tautline_gpu_placement::{
    names::DEVICES_ANNOTATION,
    node_inventory::{INVENTORY_ANNOTATION, InventoryCard, MILLI_RESOURCE, NodeInventory},
};
use tautline_proto::gpu::{CardUse, Use};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{EvaluationRequest, Reference, Rule, RuleProvider};

use super::*;
use crate::{
    cluster_inventory::Config,
    provider::GpuSlice,
    use_store::{MAX_REPORT_AGE, is_stray},
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Node `n7` with two cards of 40 GiB, and pods with records.
fn provider(pods: &[(&str, &str)]) -> GpuSlice {
    let card = |index: u32, uuid: &str| InventoryCard {
        uuid: uuid.into(),
        index,
        product: "NVIDIA-A100".into(),
        memory_bytes: 40 * GIB,
        ..InventoryCard::default()
    };
    let cards = NodeInventory {
        cards: vec![card(0, "GPU-a"), card(1, "GPU-b")],
        ..NodeInventory::default()
    };
    let cards = serde_json::to_string(&cards).unwrap();
    let store = ClusterStore::default();
    store.apply(Object::Node(model::Node {
        name: "n7".into(),
        uid: "n7".into(),
        annotations: [(INVENTORY_ANNOTATION, &*cards)].into_iter().collect(),
        allocatable: [(MILLI_RESOURCE, 2_000_000)].into_iter().collect(),
        ..model::Node::default()
    }));
    for (name, record) in pods {
        store.apply(pod(name, record));
    }
    let provider = GpuSlice::new(store, Config::default());
    let mut state = provider.state.lock();
    state.sync(&provider.store, Instant::now());
    drop(state);
    provider
}

fn pod(name: &str, record: &str) -> Object {
    let annotations = [(DEVICES_ANNOTATION, record)].into_iter();
    Object::Pod(model::Pod {
        namespace: "ml".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
        node: Some("n7".into()),
        annotations: annotations
            .filter(|(_, record)| !record.is_empty())
            .collect(),
        requests: [(MILLI_RESOURCE, 250_000)].into_iter().collect(),
        ..model::Pod::default()
    })
}

fn uses(pod: &str, card: &str, memory_bytes: u64) -> ContainerUse {
    ContainerUse {
        pod_uid: format!("uid-{pod}"),
        namespace: "ml".into(),
        pod: pod.into(),
        container: "main".into(),
        card: card.into(),
        memory_bytes,
        ..ContainerUse::default()
    }
}

/// The node's agent reports this, twice.
fn report(provider: &GpuSlice, containers: &[ContainerUse]) {
    let mut state = provider.state.lock();
    let session = state.uses.open("n7");
    for _ in 0..2 {
        let used = Use {
            cards: vec![CardUse {
                card: "GPU-a".into(),
                memory_bytes: 7,
                busy_milli: 1,
            }],
            containers: containers.to_vec(),
        };
        state
            .report_use("n7", session, used, Instant::now())
            .unwrap();
    }
}

async fn check(provider: &GpuSlice, pod: &str) -> (Compliance, String) {
    let request = EvaluationRequest {
        targets: [("default".to_owned(), Reference::pod("ml", pod))].into(),
        rule: Rule {
            name: "gpu-slice".into(),
            ..Rule::default()
        },
        ..EvaluationRequest::default()
    };
    let evaluation = provider.evaluate(request).await.unwrap();
    (evaluation.compliance, evaluation.reason)
}

#[tokio::test]
async fn more_than_the_part_is_a_violation_and_nearly_all_of_it_the_limit() {
    let provider = provider(&[("web", "GPU-a:250")]);
    let (before, reason) = check(&provider, "web").await;
    assert_eq!(before, Compliance::Compliant);
    for (bytes, compliance, text) in [
        (9 * GIB, Compliance::Compliant, reason.as_str()),
        (
            9_856 * MIB,
            Compliance::Limit,
            "pod web uses 9.6 GiB of its 10.0 GiB on card GPU-a of node n7: 96 %",
        ),
        (
            GIB * 142 / 10,
            Compliance::Violation,
            "pod web uses 14.2 GiB of its 10.0 GiB on card GPU-a of node n7",
        ),
        (
            10 * GIB + MIB,
            Compliance::Violation,
            "pod web uses 10241 MiB of its 10240 MiB on card GPU-a of node n7",
        ),
    ] {
        // Two containers of the pod together.
        let mut second = uses("web", "GPU-a", bytes / 2);
        second.container = "side".into();
        report(
            &provider,
            &[uses("web", "GPU-a", bytes - bytes / 2), second],
        );
        let found = check(&provider, "web").await;
        assert_eq!((found.0, found.1.as_str()), (compliance, text));
    }
    // Records may name the index.
    provider.store.apply(pod("web", "0:250"));
    let found = check(&provider, "web").await;
    assert_eq!(found.0, Compliance::Violation, "{found:?}");
}

#[tokio::test]
async fn a_whole_card_may_be_full() {
    let provider = provider(&[("web", "GPU-a:1000")]);
    report(&provider, &[uses("web", "GPU-a", 40 * GIB)]);
    assert_eq!(check(&provider, "web").await.0, Compliance::Compliant);
}

#[tokio::test]
async fn each_card_counts_apart() {
    let provider = provider(&[("web", "GPU-a:500,GPU-b:250")]);
    report(
        &provider,
        &[
            uses("web", "GPU-a", 15 * GIB),
            uses("web", "GPU-b", 11 * GIB),
        ],
    );
    let found = check(&provider, "web").await;
    assert!(
        found.1.contains("11.0 GiB of its 10.0 GiB on card GPU-b"),
        "{found:?}"
    );
}

#[tokio::test]
async fn strays_violate_themselves_and_not_those_who_have_the_card() {
    let provider = provider(&[("web", "GPU-a:250"), ("other", "GPU-b:250"), ("bare", "")]);
    let outside = |bytes| ContainerUse {
        pod_uid: String::new(),
        container: "Xorg".into(),
        pod: String::new(),
        ..uses("", "GPU-a", bytes)
    };
    let unknown = ContainerUse {
        pod_uid: "1-2".into(),
        ..uses("", "GPU-a", GIB)
    };
    for (stray, text) in [
        (
            uses("other", "GPU-a", 3 * GIB),
            "container main of pod ml/other uses 3.0 GiB of card GPU-a of node n7 without having it",
        ),
        (
            uses("bare", "GPU-a", 65 * MIB),
            "container main of pod ml/bare uses 65 MiB of card GPU-a",
        ),
        // Such as monitoring.
        (uses("bare", "GPU-a", 64 * MIB), ""),
        (
            ContainerUse {
                pod_uid: "1-2".into(),
                ..uses("", "GPU-a", 64 * MIB)
            },
            "",
        ),
        (
            unknown,
            "a container of pod 1-2, which is gone or not known, uses 1.0 GiB",
        ),
        (
            outside(65 * MIB),
            "process Xorg outside of pods uses 65 MiB",
        ),
        (outside(64 * MIB), ""),
    ] {
        report(&provider, &[uses("web", "GPU-a", GIB), stray]);
        let found = check(&provider, "web").await;
        let compliance = match text {
            "" => Compliance::Compliant,
            // No pod is at fault, and only another card helps.
            _ if text.contains("outside of pods") => Compliance::Violation,
            _ => Compliance::Limit,
        };
        assert_eq!(found.0, compliance, "{found:?}");
        assert!(found.1.contains(text), "{found:?}");
        let other = check(&provider, "other").await;
        let is_stray = text.contains("ml/other ");
        assert_eq!(other.0 == Compliance::Violation, is_stray, "{other:?}");
        assert!(!is_stray || other.1.contains(text), "{other:?}");
    }
}

#[tokio::test]
async fn records_of_others_count_neither_for_nor_against_a_pod() {
    let provider = provider(&[("web", "GPU-a:250"), ("forger", "")]);
    let Object::Pod(mut forger) = pod("forger", "") else {
        panic!()
    };
    forger.annotations = [("alibabacloud.com/gpu-index", "0")].into_iter().collect();
    forger.requests = model::Resources::default();
    provider.store.apply(Object::Pod(forger.clone()));
    provider.state.lock().sync(&provider.store, Instant::now());
    report(
        &provider,
        &[uses("web", "GPU-a", GIB), uses("forger", "GPU-a", GIB)],
    );
    let found = check(&provider, "web").await;
    let text = "pod ml/forger uses 1.0 GiB of card GPU-a of node n7 without having it";
    assert_eq!(found.0, Compliance::Limit);
    assert!(found.1.contains(text), "{found:?}");
    let state = provider.state.lock();
    let of_forger = of_pod(&state, &forger, Instant::now()).unwrap();
    assert_eq!(of_forger.compliance, Compliance::Violation);
    assert!(of_forger.reason.contains(text), "{of_forger:?}");
}

#[tokio::test]
async fn without_an_offer_of_the_agent_no_use_is_stray() {
    let provider = provider(&[("web", "GPU-a:250"), ("other", "")]);
    let snapshot = provider.store.snapshot();
    let mut node = snapshot.node("n7").unwrap().as_ref().clone();
    node.allocatable = [(MILLI_RESOURCE, 0)].into_iter().collect();
    provider.store.apply(Object::Node(node));
    provider.state.lock().sync(&provider.store, Instant::now());
    report(
        &provider,
        &[uses("web", "GPU-a", GIB), uses("other", "GPU-a", GIB)],
    );
    let found = check(&provider, "web").await;
    assert_eq!(found.0, Compliance::Compliant, "{found:?}");
}

#[test]
fn containers_belong_to_the_nodes_pods_by_uid() {
    let provider = provider(&[("web", "GPU-a:250"), ("other", "GPU-b:250")]);
    let (state, snapshot) = (provider.state.lock(), provider.store.snapshot());
    let inventory = &state.inventory.nodes.get("n7").unwrap().inventory;
    let is_stray = |of: &ContainerUse| is_stray(inventory, snapshot.pods_on("n7"), of);
    assert!(!is_stray(&uses("web", "GPU-a", GIB)));
    // The agent's name of a known pod does not count.
    let named = ContainerUse {
        pod: "web".into(),
        ..uses("other", "GPU-a", GIB)
    };
    assert!(is_stray(&named));
    let unknown = ContainerUse {
        pod_uid: "1-2".into(),
        ..uses("web", "GPU-a", GIB)
    };
    assert!(!is_stray(&unknown));
}

#[tokio::test]
async fn without_news_nothing_changes() {
    let provider = provider(&[("web", "GPU-a:250")]);
    report(&provider, &[uses("web", "GPU-a", 20 * GIB)]);
    let (later, pod) = (Instant::now() + MAX_REPORT_AGE, pod("web", "GPU-a:250"));
    let Object::Pod(pod) = pod else { panic!() };
    {
        let state = provider.state.lock();
        let almost = later - Duration::from_secs(1);
        assert!(of_pod(&state, &pod, almost).is_some());
        assert!(of_pod(&state, &pod, later).is_none());
    }
    assert_eq!(check(&provider, "web").await.0, Compliance::Violation);
}

#[test]
fn the_page_shows_nodes_cards_and_containers() {
    let provider = provider(&[("web", "GPU-a:250")]);
    assert_eq!(provider.admin_page("/other"), None);
    report(&provider, &[uses("web", "GPU-a", GIB)]);
    let page = provider.admin_page("/gpu/use").unwrap();
    let expected = serde_json::json!({"nodes": [{
        "node": "n7",
        "ageSeconds": 0,
        "cards": [{"card": "GPU-a", "memoryBytes": 7, "busyMilli": 1}],
        "containers": [{
            "namespace": "ml", "pod": "web", "container": "main",
            "card": "GPU-a", "memoryBytes": GIB, "smMilli": 0,
        }],
    }]});
    let found: serde_json::Value = serde_json::from_str(&page.body).unwrap();
    assert_eq!(found, expected);
    let of = |nodes: &str| provider.admin_page(&format!("/gpu/use?nodes={nodes}"));
    assert_eq!(of("n8,n7").unwrap().body, page.body);
    assert_eq!(of("n8").unwrap().body, r#"{"nodes":[]}"#);
    assert_eq!(provider.admin_page("/gpu/use?").unwrap().body, page.body);
    let silent = provider.admin_page("/gpu/silent").unwrap();
    assert_eq!(silent.body, r#"{"total":0,"nodes":[]}"#);
}
