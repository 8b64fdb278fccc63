//! Nodes whose agent offers its cards as devices of DRA.

use std::{sync::Arc, time::Instant};

use serde_json::{Value, json};
use tautline_core::{Index, index::Object, model};
use tautline_gpu_placement::{node_inventory::MILLI_RESOURCE, shape::SharingMode};
use tautline_proto::gpu::{ContainerUse, Use};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{
    Compliance, CostRequest, EvaluationRequest, Reference, Rule, RuleProvider, Workload,
};

use crate::{
    Config, GpuSlice, Inspection, dra,
    report::{Fragmentation, Order, Top, Uses},
};

const GIB: u64 = 1 << 30;

fn device(index: u32, fault: Option<&str>) -> Value {
    let mut device = json!({
        "name": format!("gpu-{index}"),
        "allowMultipleAllocations": true,
        "attributes": {
            "uuid": {"string": format!("GPU-{index}")},
            "productName": {"string": "NVIDIA A100"},
            "index": {"int": index},
            "numaNode": {"int": 0},
        },
        "capacity": {
            "milli": {"value": "1000", "requestPolicy": {
                "default": "1000", "validRange": {"min": "1", "max": "1000", "step": "1"}}},
            "memory": {"value": "40Gi", "requestPolicy": {"default": "0", "validValues": ["0"]}},
        },
    });
    if let Some(reason) = fault {
        let taint =
            json!({"key": "gpu.tautline.io/fault", "value": reason, "effect": "NoSchedule"});
        device["taints"] = json!([taint]);
    }
    device
}

fn slice(devices: &[Value]) -> k8s_openapi::api::resource::v1::ResourceSlice {
    let slice = json!({
        "metadata": {"name": "n7-gpu.tautline.io-0"},
        "spec": {
            "driver": "gpu.tautline.io", "nodeName": "n7", "devices": devices,
            "pool": {"name": "n7", "generation": 1, "resourceSliceCount": 1},
        },
    });
    serde_json::from_value(slice).unwrap()
}

/// A claim of the pod with the same name.
fn claim(name: &str, device: &str, milli: u32) -> k8s_openapi::api::resource::v1::ResourceClaim {
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.tautline.io"}});
    let claim = json!({
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"devices": {"requests": [request]}},
        "status": {
            "reservedFor": [{"resource": "pods", "name": name, "uid": format!("uid-{name}")}],
            "allocation": {"devices": {"results": [{
                "request": "gpu", "driver": "gpu.tautline.io", "pool": "n7", "device": device,
                "shareID": "a", "consumedCapacity": {"milli": milli.to_string(), "memory": "0"},
            }]}},
        },
    });
    serde_json::from_value(claim).unwrap()
}

fn pod(name: &str) -> Object {
    Object::Pod(model::Pod {
        namespace: "ml".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
        node: Some("n7".into()),
        ..model::Pod::default()
    })
}

fn node() -> Object {
    Object::Node(model::Node {
        name: "n7".into(),
        ..model::Node::default()
    })
}

/// Node `n7` with two cards of 40 GiB, and pods with claims on it.
fn provider(devices: &[Value], claims: &[(&str, &str, u32)]) -> GpuSlice {
    let store = ClusterStore::default();
    store.apply(node());
    claims.iter().for_each(|(name, ..)| store.apply(pod(name)));
    let provider = GpuSlice::new(store, Config::default());
    provider.set_slices(vec![dra::resource_slice(&slice(devices)).unwrap()]);
    set_claims(&provider, claims);
    provider
}

fn set_claims(provider: &GpuSlice, claims: &[(&str, &str, u32)]) {
    let claims = claims
        .iter()
        .map(|(name, device, milli)| claim(name, device, *milli));
    let claims = claims.map(|claim| dra::resource_claim(&claim).unwrap());
    provider.set_claims(claims.collect());
}

async fn check(provider: &GpuSlice, pod: &str, rule: &str) -> (Compliance, String) {
    let request = EvaluationRequest {
        targets: [("default".to_owned(), Reference::pod("ml", pod))].into(),
        rule: Rule {
            name: "gpu-slice".into(),
            request: rule.into(),
            ..Rule::default()
        },
        ..EvaluationRequest::default()
    };
    let evaluation = provider.evaluate(request).await.unwrap();
    (evaluation.compliance, evaluation.reason)
}

/// The node's agent reports this, twice.
fn report(provider: &GpuSlice, pod: &str, card: &str, memory_bytes: u64) {
    let mut state = provider.state.lock();
    state.sync(&provider.store, Instant::now());
    let session = state.uses.open("n7");
    for _ in 0..2 {
        let container = ContainerUse {
            pod_uid: format!("uid-{pod}"),
            namespace: "ml".into(),
            pod: pod.into(),
            container: "main".into(),
            card: card.into(),
            memory_bytes,
            ..ContainerUse::default()
        };
        let used = Use {
            containers: vec![container],
            ..Use::default()
        };
        let now = Instant::now();
        state.report_use("n7", session, used, now).unwrap();
    }
}

#[tokio::test]
async fn more_than_the_claimed_memory_is_a_violation() {
    let provider = provider(
        &[device(0, None)],
        &[("web", "gpu-0", 250), ("b", "gpu-0", 500)],
    );
    assert_eq!(check(&provider, "web", "").await.0, Compliance::Compliant);
    for (gib, want) in [(9, Compliance::Compliant), (11, Compliance::Violation)] {
        report(&provider, "web", "GPU-0", gib * GIB);
        let (got, reason) = check(&provider, "web", "250m").await;
        assert_eq!(got, want, "{reason}");
        assert_eq!(check(&provider, "b", "").await.0, Compliance::Compliant);
    }
    let (_, reason) = check(&provider, "web", "").await;
    assert_eq!(
        reason,
        "pod web uses 11.0 GiB of its 10.0 GiB on card GPU-0 of node n7"
    );
    // The claim has more now, and the pod of no claim uses a card.
    set_claims(&provider, &[("web", "gpu-0", 500)]);
    assert_eq!(check(&provider, "web", "").await.0, Compliance::Compliant);
    report(&provider, "b", "GPU-0", GIB);
    let (got, reason) = check(&provider, "b", "").await;
    assert_eq!(got, Compliance::Violation);
    assert!(reason.contains("without having it"), "{reason}");
}

#[tokio::test]
async fn a_faulty_card_or_a_lost_one_is_a_violation() {
    let claims = [("web", "gpu-0", 250), ("whole", "gpu-1", 1000)];
    let provider = provider(&[device(0, Some("Xid79")), device(1, None)], &claims);
    let (got, reason) = check(&provider, "web", "").await;
    assert_eq!(got, Compliance::Violation);
    assert_eq!(reason, "node n7: card 0 is unhealthy: Xid79");
    let (got, reason) = check(&provider, "whole", "1,model=H100").await;
    assert_eq!(got, Compliance::Violation);
    assert!(reason.contains("is not one of H100"), "{reason}");
    assert_eq!(
        check(&provider, "whole", "1").await.0,
        Compliance::Compliant
    );
    let left = slice(&[device(0, None)]);
    provider.set_slices(vec![dra::resource_slice(&left).unwrap()]);
    assert_eq!(check(&provider, "web", "").await.0, Compliance::Compliant);
    assert_eq!(check(&provider, "whole", "").await.0, Compliance::Violation);
}

#[tokio::test]
async fn claimed_cards_serve_no_request_for_an_agents_resource() {
    let provider = provider(&[device(0, None)], &[("web", "gpu-0", 250)]);
    let ask = |requests: &[(&str, &str)], rule: &str| CostRequest {
        source: Reference::pod("ml", "new"),
        rule: Rule {
            name: "gpu-slice".into(),
            request: rule.into(),
            ..Rule::default()
        },
        eligible_nodes: vec!["n7".into()],
        workload: Some(Workload {
            uid: "u".into(),
            requests: requests
                .iter()
                .map(|(r, n)| ((*r).to_owned(), (*n).to_owned()))
                .collect(),
            ..Workload::default()
        }),
        ..CostRequest::default()
    };
    for ask in [
        ask(&[(MILLI_RESOURCE, "250")], ""),
        ask(&[], "250m"),
        ask(&[], "1"),
    ] {
        let answer = provider.endpoint_cost(ask).await.unwrap();
        let node = answer.nodes()[0];
        assert_eq!((node.cost, node.code), (-1, "GpuNotOffered"));
    }
    // A pod without GPUs costs what it costs on a node without cards.
    let answer = provider.endpoint_cost(ask(&[], "")).await.unwrap();
    assert_eq!(answer.nodes()[0].cost, 0);
    let state = provider.state.lock();
    assert_eq!(state.inventory.given_percent(), Some(25));
    assert_eq!(state.silent_agents(Instant::now()).total, 1);
}

#[test]
fn reports_count_claims_and_the_requests_of_their_pods() {
    let mut index = Index::default();
    index.apply(node());
    for name in ["a", "b"] {
        index.apply(pod(name));
    }
    let claims = [
        claim("a", "gpu-0", 250),
        claim("b", "gpu-1", 1000),
        claim("idle", "gpu-0", 100),
    ];
    let slices = [slice(&[device(0, None), device(1, None)])];
    let devices = dra::device_store(&slices, &claims);
    let snapshot = Arc::new(index.snapshot());
    let inspection = Inspection::new(snapshot, Config::default(), devices);
    let top = Top::new(&inspection, &Uses::default(), None, Order::Name);
    let pool = &top.nodes[0].pools[0];
    assert_eq!((pool.lane, pool.sharing_mode), ("dra", SharingMode::Claim));
    let held: Vec<i64> = pool.cards.iter().map(|card| card.held_milli).collect();
    assert_eq!(held, [350, 1000]);
    assert!(top.warnings.is_empty(), "{:?}", top.warnings);
    let report = Fragmentation::new(&inspection, &Uses::default());
    assert_eq!((report.idle_milli, report.counted.pods), (650, 2));
    let classes: Vec<_> = report
        .classes
        .iter()
        .map(|c| (c.card_milli, c.still_fit))
        .collect();
    assert_eq!(classes, [(1000, 0), (250, 2)]);
}
