//! Nodes whose cards an agent gives out.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use tautline_core::{index::Object, model};
use tautline_gpu_placement::node_inventory::{
    INVENTORY_ANNOTATION, InventoryCard, MEMORY_RESOURCE, MILLI_RESOURCE, NodeInventory,
};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{
    Compliance, Container, ContainerKind, CostRequest, EvaluationRequest, Reference, Rule,
    RuleProvider, Workload,
};

use super::*;
use crate::cluster_inventory::Config;

const HOLD: Duration = Duration::from_secs(10);
const GIB: u64 = 1 << 30;

fn card(uuid: &str, index: u32) -> InventoryCard {
    InventoryCard {
        uuid: uuid.into(),
        index,
        product: "NVIDIA-H100-80GB-HBM3".into(),
        memory_bytes: 80 * GIB,
        ..InventoryCard::default()
    }
}

fn node(name: &str, cards: &[InventoryCard]) -> Object {
    let inventory = NodeInventory {
        cards: cards.to_vec(),
        limits: "none".into(),
    };
    let inventory = serde_json::to_string(&inventory).unwrap();
    Object::Node(model::Node {
        name: name.into(),
        annotations: [(INVENTORY_ANNOTATION, inventory.as_str())]
            .into_iter()
            .collect(),
        allocatable: [(MILLI_RESOURCE, cards.len() as i64 * 1_000_000)]
            .into_iter()
            .collect(),
        ..model::Node::default()
    })
}

fn pod(name: &str, requests: &[(&str, i64)], record: Option<&str>) -> Object {
    Object::Pod(model::Pod {
        namespace: "ml".into(),
        name: name.into(),
        uid: name.into(),
        node: Some("n".into()),
        requests: requests.iter().map(|(r, n)| (*r, n * 1000)).collect(),
        annotations: record
            .map(|r| (DEVICES_ANNOTATION, r))
            .into_iter()
            .collect(),
        ..model::Pod::default()
    })
}

fn workload(requests: &[(&str, i64)]) -> Workload {
    Workload {
        requests: requests
            .iter()
            .map(|(r, n)| ((*r).to_owned(), n.to_string()))
            .collect(),
        ..Workload::default()
    }
}

fn rule(request: &str) -> Rule {
    Rule {
        name: "gpu-slice".into(),
        request: request.into(),
        ..Rule::default()
    }
}

fn reserve(
    provider: &GpuSlice,
    pod: &str,
    request: &str,
    own: &[(&str, i64)],
) -> Result<String, String> {
    let request = ReservationRequest {
        workload: Reference::pod("ml", pod),
        uid: pod.into(),
        node: "n".into(),
        rule: rule(request),
        hold: HOLD,
        details: Some(workload(own)),
        ..ReservationRequest::default()
    };
    let reserved = provider.reserve_at(Instant::now(), request);
    let reserved = reserved.map_err(|e| e.to_string())?;
    let record = reserved.annotations.get(DEVICES_ANNOTATION);
    Ok(record.cloned().unwrap_or_default())
}

fn with(cards: &[InventoryCard]) -> (ClusterStore, GpuSlice) {
    let store = ClusterStore::default();
    store.apply(node("n", cards));
    let provider = GpuSlice::new(store.clone(), Config::default());
    (store, provider)
}

#[test]
fn pods_get_what_they_request_of_cards_by_uuid() {
    let (_, provider) = with(&[card("GPU-a", 0)]);
    for pod in ["a", "b", "c", "d"] {
        let record = reserve(&provider, pod, "true", &[(MILLI_RESOURCE, 250)]);
        assert_eq!(record.unwrap(), "GPU-a:250");
    }
    let refused = reserve(&provider, "e", "", &[(MILLI_RESOURCE, 250)]).unwrap_err();
    assert!(refused.contains("GpuBusy"), "{refused}");

    let (_, provider) = with(&[card("GPU-a", 0), card("GPU-b", 1)]);
    let record = reserve(&provider, "a", "", &[(MILLI_RESOURCE, 1500)]).unwrap();
    assert_eq!(record, "GPU-a:500,GPU-b:1000");
}

#[test]
fn memory_is_that_of_one_card_and_the_larger_request_counts() {
    let (_, provider) = with(&[card("GPU-a", 0), card("GPU-b", 1)]);
    let record = |pod: &str, own: &[(&str, i64)]| reserve(&provider, pod, "true", own);
    assert_eq!(record("a", &[(MEMORY_RESOURCE, 20)]).unwrap(), "GPU-a:250");
    let both = [(MEMORY_RESOURCE, 20), (MILLI_RESOURCE, 300)];
    assert_eq!(record("b", &both).unwrap(), "GPU-a:300");
    let both = [(MEMORY_RESOURCE, 24), (MILLI_RESOURCE, 250)];
    assert_eq!(record("c", &both).unwrap(), "GPU-a:300");
    let refused = record("d", &[(MEMORY_RESOURCE, 81)]).unwrap_err();
    assert!(refused.contains("CardTooSmall"), "{refused}");
}

/// Each container's share must lie on one card, or the agent could not give it.
#[tokio::test]
async fn pods_whose_containers_do_not_fit_the_cards_are_refused_when_planned() {
    let (_, provider) = with(&[card("GPU-a", 0), card("GPU-b", 1)]);
    let unfit = async |containers: &[(ContainerKind, &str, i64)], own: &[(&str, i64)]| {
        let containers = containers.iter().map(|(kind, resource, units)| Container {
            kind: *kind,
            requests: [((*resource).to_owned(), units.to_string())].into(),
        });
        let question = CostRequest {
            rule: rule("true"),
            eligible_nodes: vec!["n".into()],
            workload: Some(Workload {
                containers: containers.collect(),
                ..workload(own)
            }),
            ..CostRequest::default()
        };
        let answer = provider.endpoint_cost(question).await.unwrap();
        let line = answer.nodes().remove(0);
        format!(
            "{}{}",
            line.code,
            if line.cost < 0 { line.detail } else { "" }
        )
    };
    use ContainerKind::{Init, Main, Sidecar};
    let main = |amounts: &[i64]| {
        let all = amounts.iter().map(|milli| (Main, MILLI_RESOURCE, *milli));
        all.collect::<Vec<_>>()
    };
    let two = unfit(&main(&[600, 600]), &[(MILLI_RESOURCE, 1200)]).await;
    assert!(
        two.starts_with("ContainerSplita container needs 600m") && two.contains("400m and 200m"),
        "{two}"
    );
    for fits in [
        &[600, 400][..],
        &[500, 500, 200],
        &[200, 500, 500],
        &[1000, 200],
    ] {
        let sum = fits.iter().sum();
        assert_eq!(
            unfit(&main(fits), &[(MILLI_RESOURCE, sum)]).await,
            "",
            "{fits:?}"
        );
    }
    // One container alone: whole cards and a share.
    assert_eq!(unfit(&[], &[(MILLI_RESOURCE, 1200)]).await, "");
    let early = [(Init, MILLI_RESOURCE, 600), (Main, MILLI_RESOURCE, 600)];
    assert_eq!(unfit(&early, &[(MILLI_RESOURCE, 600)]).await, "");
    let beside = [(Sidecar, MILLI_RESOURCE, 600), (Main, MILLI_RESOURCE, 600)];
    let beside = unfit(&beside, &[(MILLI_RESOURCE, 1200)]).await;
    assert!(beside.starts_with("ContainerSplit"), "{beside}");
    // Thousandths and memory: the larger sum is planned, and the containers need both.
    let mixed = [(Main, MILLI_RESOURCE, 600), (Main, MEMORY_RESOURCE, 40)];
    let own = [(MILLI_RESOURCE, 600), (MEMORY_RESOURCE, 40)];
    let mixed = unfit(&mixed, &own).await;
    assert!(
        mixed.starts_with("ContainerSplita container needs 500m"),
        "{mixed}"
    );
    let memory = [(Main, MEMORY_RESOURCE, 79), (Main, MEMORY_RESOURCE, 1)];
    assert_eq!(unfit(&memory, &[(MEMORY_RESOURCE, 80)]).await, "");
}

#[test]
fn a_rule_needs_the_pod_to_request_as_much() {
    let (_, provider) = with(&[card("GPU-a", 0), card("GPU-b", 1)]);
    let refused = reserve(&provider, "a", "250m", &[]).unwrap_err();
    assert!(
        refused.contains("NotRequested: the pod must request 250 tautline.io/gpu-milli"),
        "{refused}"
    );
    let refused = reserve(&provider, "a", "20G", &[(MEMORY_RESOURCE, 18)]).unwrap_err();
    assert!(
        refused.contains("the pod must request 19 tautline.io/gpu-memory"),
        "{refused}"
    );
    let own = |pod: &str, request: &str, milli| {
        reserve(&provider, pod, request, &[(MILLI_RESOURCE, milli)])
    };
    assert_eq!(own("a", "250m", 250).unwrap(), "GPU-a:250");
    // The agent gives its container what the container requests.
    assert_eq!(own("b", "20Gi", 500).unwrap(), "GPU-a:500");
    assert!(own("c", "1", 999).is_err());
    assert_eq!(own("c", "1", 1000).unwrap(), "GPU-b:1000");
}

#[tokio::test]
async fn only_nodes_with_an_agent_serve_its_resources() {
    let (store, provider) = with(&[card("GPU-a", 0)]);
    store.apply(Object::Node(model::Node {
        name: "label".into(),
        allocatable: [("tautline.io/gpu-cards", 1000)].into_iter().collect(),
        ..model::Node::default()
    }));
    store.apply(Object::Node(model::Node {
        name: "plugin".into(),
        allocatable: [("nvidia.com/gpu", 1000)].into_iter().collect(),
        ..model::Node::default()
    }));
    let question = CostRequest {
        rule: rule("true"),
        eligible_nodes: ["n", "label", "plugin"].map(str::to_owned).to_vec(),
        workload: Some(workload(&[(MILLI_RESOURCE, 250)])),
        ..CostRequest::default()
    };
    let answer = provider.endpoint_cost(question).await.unwrap();
    let codes: Vec<&str> = answer.nodes().iter().map(|n| n.code).collect();
    assert_eq!(codes, ["", "NoSuchGpu", "NoSuchGpu"]);
}

#[test]
fn other_runtimes_get_indexes() {
    let store = ClusterStore::default();
    store.apply(node("n", &[card("GPU-a", 3)]));
    let config = Config {
        index_annotation: Some("tautline.io/gpu-index".into()),
        ..Config::default()
    };
    let provider = GpuSlice::new(store, config);
    let request = ReservationRequest {
        workload: Reference::pod("ml", "a"),
        uid: "a".into(),
        node: "n".into(),
        rule: rule("1"),
        hold: HOLD,
        ..ReservationRequest::default()
    };
    let reserved = provider.reserve_at(Instant::now(), request).unwrap();
    assert_eq!(reserved.annotations[DEVICES_ANNOTATION], "GPU-a:1000");
    assert_eq!(reserved.annotations["tautline.io/gpu-index"], "3");
}

#[tokio::test]
async fn evaluate_names_faults_and_missing_records() {
    let (store, provider) = with(&[card("GPU-a", 0), card("GPU-b", 1)]);
    store.apply(pod("a", &[(MILLI_RESOURCE, 250)], Some("GPU-a:250")));
    store.apply(pod("bare", &[(MILLI_RESOURCE, 250)], None));
    let evaluate = async |pod: &str| {
        let request = EvaluationRequest {
            targets: [("pod".to_owned(), Reference::pod("ml", pod))].into(),
            rule: rule("true"),
            ..EvaluationRequest::default()
        };
        let evaluation = provider.evaluate(request).await.unwrap();
        (evaluation.compliance, evaluation.reason)
    };
    assert_eq!(evaluate("a").await.0, Compliance::Compliant);
    let (compliance, reason) = evaluate("bare").await;
    assert_eq!(compliance, Compliance::Error);
    assert!(
        reason.contains("cards that it requests on node n"),
        "{reason}"
    );
    let broken = InventoryCard {
        fault: Some("Xid79".into()),
        ..card("GPU-a", 0)
    };
    store.apply(node("n", &[broken, card("GPU-b", 1)]));
    let (compliance, reason) = evaluate("a").await;
    assert_eq!(compliance, Compliance::Violation);
    assert_eq!(reason, "node n: card GPU-a is unhealthy: Xid79");
    // The pod without a record is assumed on the other card.
    let record = reserve(&provider, "b", "true", &[(MILLI_RESOURCE, 750)]);
    assert_eq!(record.unwrap(), "GPU-b:750");
    assert!(reserve(&provider, "c", "true", &[(MILLI_RESOURCE, 1)]).is_err());
}

#[tokio::test]
async fn without_an_offer_of_the_agent_pods_keep_their_cards_and_others_get_none() {
    let (store, provider) = with(&[card("GPU-a", 0), card("GPU-b", 1)]);
    let offer = |allocatable: &[(&str, i64)]| {
        let Object::Node(mut of) = node("n", &[card("GPU-a", 0), card("GPU-b", 1)]) else {
            unreachable!()
        };
        of.allocatable = allocatable.iter().map(|(n, v)| (*n, v * 1000)).collect();
        store.apply(Object::Node(of));
    };
    store.apply(pod("a", &[(MILLI_RESOURCE, 250)], Some("GPU-a:250")));
    store.apply(pod("plugin", &[("nvidia.com/gpu", 1)], None));
    let own = |milli| [(MILLI_RESOURCE, milli)];
    offer(&[(MILLI_RESOURCE, 0), ("nvidia.com/gpu", 0)]);
    let refused = reserve(&provider, "b", "true", &own(250)).unwrap_err();
    assert!(refused.contains("GpuNotOffered"), "{refused}");
    assert_eq!(reserve(&provider, "cpu", "true", &[]).unwrap(), "");
    let evaluate = |pod: &str, request: &str| {
        let request = EvaluationRequest {
            targets: [("default".to_owned(), Reference::pod("ml", pod))].into(),
            rule: rule(request),
            ..EvaluationRequest::default()
        };
        provider.evaluate(request)
    };
    let found = evaluate("a", "true").await.unwrap();
    assert_eq!(found.compliance, Compliance::Compliant, "{}", found.reason);
    // As on a node without an annotation of an agent.
    let found = evaluate("plugin", "1").await.unwrap();
    let reason = "node n offers nvidia.com/gpu 0 and its pods hold 1";
    assert_eq!(found.reason, reason);
    offer(&[(MILLI_RESOURCE, 2000)]);
    assert_eq!(
        reserve(&provider, "b", "true", &own(250)).unwrap(),
        "GPU-a:250"
    );
}

#[tokio::test]
async fn cards_that_others_annotate_are_not_a_pods() {
    let (store, provider) = with(&[card("GPU-a", 0)]);
    let Object::Pod(mut forger) = pod("forger", &[], None) else {
        unreachable!()
    };
    forger.annotations = [
        ("alibabacloud.com/gpu-index", "0"),
        ("alibabacloud.com/gpu-count", "1"),
    ]
    .into_iter()
    .collect();
    store.apply(Object::Pod(forger));
    let record = reserve(&provider, "a", "true", &[(MILLI_RESOURCE, 1000)]);
    assert_eq!(record.unwrap(), "GPU-a:1000");
    let request = EvaluationRequest {
        targets: [("default".to_owned(), Reference::pod("ml", "forger"))].into(),
        rule: rule("true"),
        ..EvaluationRequest::default()
    };
    let found = provider.evaluate(request).await.unwrap();
    assert_eq!(found.reason, "pod forger requests no GPU");
}

#[tokio::test]
async fn reason_is_that_of_the_target_with_cards() {
    let (store, provider) = with(&[card("GPU-a", 0)]);
    store.apply(pod("database", &[], None));
    store.apply(pod("user", &[(MILLI_RESOURCE, 500)], Some("GPU-a:500")));
    // The targets are evaluated in the order of their names.
    let targets = [("destination", "database"), ("source", "user")];
    let targets = targets.map(|(name, pod)| (name.to_owned(), Reference::pod("ml", pod)));
    let request = EvaluationRequest {
        targets: targets.into(),
        rule: rule("true"),
        ..EvaluationRequest::default()
    };
    let found = provider.evaluate(request).await.unwrap();
    assert_eq!(found.reason, "node n: card GPU-a has what it holds");
    assert_eq!(found.compliance, Compliance::Compliant);
}

#[test]
fn whole_cards_of_one_pod_are_linked() {
    let linked = |uuid: &str, index, nvlink| InventoryCard {
        nvlink: Some(nvlink),
        ..card(uuid, index)
    };
    let cards = [
        linked("GPU-a", 0, 0),
        linked("GPU-b", 1, 1),
        linked("GPU-c", 2, 0),
        linked("GPU-d", 3, 1),
    ];
    let (_, provider) = with(&cards);
    let record = |pod: &str, milli| reserve(&provider, pod, "true", &[(MILLI_RESOURCE, milli)]);
    assert_eq!(record("a", 1000).unwrap(), "GPU-a:1000");
    assert_eq!(record("b", 2000).unwrap(), "GPU-b:1000,GPU-d:1000");
}

#[derive(Clone, Debug)]
enum Step {
    Reserve {
        pod: u8,
        milli: i64,
    },
    /// Bound with its record, by UUIDs or by indexes.
    Bind {
        pod: u8,
        by_index: bool,
    },
    Delete(u8),
    Fault(usize),
    Mend(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let milli = prop_oneof![
        1..1000_i64,
        Just(250),
        Just(1000),
        Just(2000),
        1000..3000_i64
    ];
    let step = prop_oneof![
        5 => (0..12_u8, milli).prop_map(|(pod, milli)| Step::Reserve { pod, milli }),
        4 => (0..12_u8, any::<bool>()).prop_map(|(pod, by_index)| Step::Bind { pod, by_index }),
        2 => (0..12_u8).prop_map(Step::Delete),
        1 => (0..4_usize).prop_map(Step::Fault),
        1 => (0..4_usize).prop_map(Step::Mend),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Cards come with faults and go without, and records name them by UUID or by index: no card
    /// gives more than it has, and one with a fault gives nothing more.
    #[test]
    fn allocation_never_exceeds_a_card(
        steps in steps(), domains in prop::collection::vec(prop::option::of(0..2_u16), 4),
    ) {
        let uuids = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"];
        let mut cards: Vec<InventoryCard> = uuids.iter().zip(domains).zip(0..)
            .map(|((uuid, nvlink), i)| InventoryCard { nvlink, ..card(uuid, i) })
            .collect();
        let (store, provider) = with(&cards);
        let mut records: BTreeMap<u8, (String, bool)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Reserve { pod, .. } if records.contains_key(&pod) => {}
                Step::Reserve { pod, milli } => {
                    let own = [(MILLI_RESOURCE, milli)];
                    let Ok(record) = reserve(&provider, &pod.to_string(), "true", &own) else {
                        continue;
                    };
                    let parts = device_annotation::parse(&record, 1000).unwrap();
                    let sum: i64 = parts.iter().map(|p| i64::from(p.milli)).sum();
                    prop_assert_eq!(sum, milli);
                    for part in &parts {
                        let of = cards.iter().find(|c| *c.uuid == *part.card).unwrap();
                        prop_assert_eq!(&of.fault, &None, "{}", record);
                    }
                    records.insert(pod, (record, false));
                }
                Step::Bind { pod: name, by_index } => {
                    let Some((record, bound)) = records.get_mut(&name) else { continue };
                    let text = match by_index {
                        false => record.clone(),
                        true => uuids.iter().enumerate().fold(record.clone(), |text, (i, uuid)| {
                            text.replace(uuid, &i.to_string())
                        }),
                    };
                    *bound = true;
                    store.apply(pod(&name.to_string(), &[], Some(&text)));
                }
                Step::Delete(pod) => {
                    if let Some((_, true)) = records.get(&pod) {
                        records.remove(&pod);
                        store.delete(tautline_core::index::Kind::Pod, &format!("ml/{pod}"));
                    }
                }
                Step::Fault(at) => {
                    cards[at].fault = Some("Xid79".into());
                    store.apply(node("n", &cards));
                }
                Step::Mend(at) => {
                    cards[at].fault = None;
                    store.apply(node("n", &cards));
                }
            }
            let mut sums: BTreeMap<String, u32> = BTreeMap::new();
            for (record, _) in records.values() {
                for part in device_annotation::parse(record, 1000).unwrap() {
                    *sums.entry(part.card.to_string()).or_default() += u32::from(part.milli);
                }
            }
            prop_assert!(sums.values().all(|milli| *milli <= 1000), "{:?}", records);
        }
    }
}

#[path = "mig_tests.rs"]
mod mig;
