use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use tautline_core::{
    index::{Kind, Object},
    model,
};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{CostRequest, Reference, Rule, RuleProvider};

use super::*;
use crate::cluster_inventory::Config;

const HOLD: Duration = Duration::from_secs(10);

fn node(name: &str, cards: i64) -> Object {
    Object::Node(model::Node {
        name: name.into(),
        allocatable: [("tautline.io/gpu-cards", cards * 1000)]
            .into_iter()
            .collect(),
        ..model::Node::default()
    })
}

fn pod(name: &str, node: Option<&str>, record: Option<&str>) -> Object {
    Object::Pod(model::Pod {
        namespace: "ml".into(),
        name: name.into(),
        uid: name.into(),
        node: node.map(Into::into),
        annotations: record
            .map(|r| (DEVICES_ANNOTATION, r))
            .into_iter()
            .collect(),
        ..model::Pod::default()
    })
}

fn reservation_request(name: &str, node: &str, request: &str) -> ReservationRequest {
    ReservationRequest {
        workload: Reference::pod("ml", name),
        uid: name.into(),
        node: node.into(),
        rule: Rule {
            name: "gpu-slice".into(),
            request: request.into(),
            ..Rule::default()
        },
        hold: HOLD,
        ..ReservationRequest::default()
    }
}

fn provider(store: &ClusterStore) -> GpuSlice {
    GpuSlice::new(store.clone(), Config::default())
}

#[test]
fn reserve_holds_a_card_until_the_pod_has_it() {
    let store = ClusterStore::default();
    store.apply(node("n", 1));
    store.apply(pod("a", None, None));
    let provider = provider(&store);
    let now = Instant::now();
    let reserved = provider
        .reserve_at(now, reservation_request("a", "n", "600m"))
        .unwrap();
    assert_eq!(reserved.annotations[DEVICES_ANNOTATION], "0:600");
    let again = provider
        .reserve_at(now, reservation_request("a", "n", "600m"))
        .unwrap();
    assert_eq!(
        (again.id, again.annotations),
        (reserved.id.clone(), reserved.annotations)
    );
    let refused = provider
        .reserve_at(now, reservation_request("b", "n", "500m"))
        .unwrap_err();
    assert!(
        refused.to_string().starts_with("node n: GpuBusy"),
        "{refused}"
    );
    let second = provider
        .reserve_at(now, reservation_request("c", "n", "400m"))
        .unwrap();
    provider.release_at(now, &second.id);
    provider.confirm_at(now, &reserved.id).unwrap();
    // Confirmed, it outlasts its hold, until the watch shows the pod.
    let later = now + 3 * HOLD;
    assert!(
        provider
            .reserve_at(later, reservation_request("b", "n", "500m"))
            .is_err()
    );
    store.apply(pod("a", Some("n"), Some("0:600")));
    assert!(
        provider
            .reserve_at(later, reservation_request("b", "n", "500m"))
            .is_err()
    );
    assert_eq!(
        provider.state.lock().reservations.counts(later).confirmed,
        0
    );
    store.delete(Kind::Pod, "ml/a");
    provider
        .reserve_at(later, reservation_request("b", "n", "500m"))
        .unwrap();
}

#[test]
fn reserve_without_confirm_expires() {
    let store = ClusterStore::default();
    store.apply(node("n", 1));
    let provider = provider(&store);
    let now = Instant::now();
    let old = provider
        .reserve_at(now, reservation_request("a", "n", "1"))
        .unwrap();
    let later = now + HOLD;
    let new = provider
        .reserve_at(later, reservation_request("b", "n", "1"))
        .unwrap();
    let late = provider.confirm_at(later, &old.id).unwrap_err();
    assert!(matches!(late, AllocatorError::Expired(_)), "{late}");
    provider.release_at(later, &old.id);
    provider.confirm_at(later, &new.id).unwrap();
}

/// The watch may tell of a pod's binding and deletion at once, when the machine is busy.
#[test]
fn confirmed_reservation_ends_if_the_pod_came_and_went_between_two_calls() {
    let store = ClusterStore::default();
    store.apply(node("n", 1));
    let provider = provider(&store);
    let now = Instant::now();
    let reserve = |pod: &str| provider.reserve_at(now, reservation_request(pod, "n", "1"));
    let reserved = reserve("a").unwrap();
    provider.confirm_at(now, &reserved.id).unwrap();
    assert!(reserve("b").is_err());
    store.apply(pod("a", None, None));
    store.apply(pod("a", Some("n"), Some("0:1000")));
    store.delete(Kind::Pod, "ml/a");
    reserve("b").unwrap();
}

#[test]
fn confirmed_reservation_of_an_unseen_pod_ends() {
    let store = ClusterStore::default();
    store.apply(node("n", 1));
    let provider = provider(&store);
    let now = Instant::now();
    let reserved = provider
        .reserve_at(now, reservation_request("a", "n", "1"))
        .unwrap();
    provider.confirm_at(now, &reserved.id).unwrap();
    let soon = now + Duration::from_secs(359);
    assert!(
        provider
            .reserve_at(soon, reservation_request("b", "n", "1"))
            .is_err()
    );
    // Until the watch has caught up, the pod may have been bound.
    let mut later = now + Duration::from_secs(3600);
    assert!(
        provider
            .reserve_at(later, reservation_request("b", "n", "1"))
            .is_err()
    );
    store.watch_pods(Some(later));
    later += Duration::from_secs(9);
    assert!(
        provider
            .reserve_at(later, reservation_request("b", "n", "1"))
            .is_err()
    );
    store.watch_pods(None);
    later += Duration::from_secs(9);
    assert!(
        provider
            .reserve_at(later, reservation_request("b", "n", "1"))
            .is_err()
    );
    store.watch_pods(Some(later));
    later += Duration::from_secs(10);
    provider
        .reserve_at(later, reservation_request("b", "n", "1"))
        .unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Reserve {
        pod: u8,
        node: u8,
        milli: u16,
    },
    Bind(u8),
    Confirm(u8),
    Release(u8),
    Watch(u8),
    Delete(u8),
    Wait,
    /// The provider restarts after the longest hold.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..12_u8, 0..2_u8, prop_oneof![Just(250), Just(460), Just(500), Just(810), Just(1000), Just(2000)])
            .prop_map(|(pod, node, milli)| Step::Reserve { pod, node, milli }),
        4 => (0..12_u8).prop_map(Step::Bind),
        3 => (0..12_u8).prop_map(Step::Confirm),
        1 => (0..12_u8).prop_map(Step::Release),
        3 => (0..12_u8).prop_map(Step::Watch),
        1 => (0..12_u8).prop_map(Step::Delete),
        1 => Just(Step::Wait),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    /// In any order of calls, watch events and restarts, the bound pods never exceed a card.
    #[test]
    fn reserve_never_over_commits_a_card(steps in steps()) {
        let store = ClusterStore::default();
        for name in ["n0", "n1"] {
            store.apply(node(name, 2));
        }
        let mut provider = provider(&store);
        let mut now = Instant::now();
        store.watch_pods(Some(now));
        // A pod's attempts: id, node, record, until when a Binding may be written.
        let mut attempts: BTreeMap<u8, (String, String, String, Instant)> = BTreeMap::new();
        // The API server's truth: node and record.
        let mut bound: BTreeMap<u8, (String, String)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Reserve { pod, node, milli } => {
                    if bound.contains_key(&pod) || attempts.contains_key(&pod) {
                        continue;
                    }
                    let request = match milli {
                        1000.. => (milli / 1000).to_string(),
                        share => format!("{share}m"),
                    };
                    let node = format!("n{node}");
                    if let Ok(r) = provider.reserve_at(now, reservation_request(&pod.to_string(), &node, &request)) {
                        attempts.insert(pod, (r.id, node, r.annotations[DEVICES_ANNOTATION].clone(), now + HOLD));
                    }
                }
                Step::Bind(pod) => {
                    // The extender writes only while the reservation holds.
                    if let Some((_, node, record, until)) = attempts.get(&pod) && now < *until {
                        bound.entry(pod).or_insert((node.clone(), record.clone()));
                    }
                }
                Step::Confirm(pod) => {
                    if bound.contains_key(&pod) && let Some((id, ..)) = attempts.get(&pod) {
                        _ = provider.confirm_at(now, id);
                    }
                }
                Step::Release(pod) => {
                    if !bound.contains_key(&pod) && let Some((id, ..)) = attempts.remove(&pod) {
                        provider.release_at(now, &id);
                    }
                }
                Step::Watch(p) => {
                    if let Some((node, record)) = bound.get(&p) {
                        store.apply(pod(&p.to_string(), Some(node), Some(record)));
                    }
                }
                Step::Delete(p) => {
                    if bound.remove(&p).is_some() {
                        attempts.remove(&p);
                        store.apply(pod(&p.to_string(), None, None));
                        store.delete(Kind::Pod, &format!("ml/{p}"));
                    }
                }
                Step::Wait => {
                    // An unconfirmed bind is seen by the watch before its hold ends.
                    for (p, (node, record)) in &bound {
                        store.apply(pod(&p.to_string(), Some(node), Some(record)));
                    }
                    now += HOLD;
                    attempts.retain(|_, (.., until)| now < *until);
                }
                Step::Restart => {
                    for (p, (node, record)) in &bound {
                        store.apply(pod(&p.to_string(), Some(node), Some(record)));
                    }
                    now += HOLD;
                    attempts.clear();
                    provider = self::provider(&store);
                }
            }
            let mut cards: BTreeMap<(String, String), u32> = BTreeMap::new();
            for (node, record) in bound.values() {
                for part in device_annotation::parse(record, 1000).unwrap() {
                    *cards.entry((node.clone(), part.card.to_string())).or_default() += u32::from(part.milli);
                }
            }
            for (card, milli) in &cards {
                prop_assert!(*milli <= 1000, "{card:?} holds {milli}m: {bound:?}");
            }
        }
        for (p, (node, record)) in &bound {
            store.apply(pod(&p.to_string(), Some(node), Some(record)));
        }
        now += Duration::from_secs(361);
        let mut state = provider.state.lock();
        state.sync(&store, now);
        prop_assert_eq!(state.reservations.counts(now), Default::default());
    }
}

fn quarter(name: &str, node: Option<&str>) -> model::Pod {
    let Object::Pod(pod) = pod(name, node, None) else {
        unreachable!()
    };
    model::Pod {
        annotations: [
            ("alibabacloud.com/gpu-milli", "250"),
            ("alibabacloud.com/gpu-count", "1"),
        ]
        .into_iter()
        .collect(),
        ..pod
    }
}

fn sent(pod: &model::Pod, node: &str) -> tautline_sdk::InFlightPod {
    tautline_sdk::InFlightPod {
        pod: Reference::pod("ml", &pod.name),
        node: node.into(),
        workload: tautline_sdk::Workload {
            uid: pod.uid.to_string(),
            annotations: pod
                .annotations
                .iter()
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect(),
            ..tautline_sdk::Workload::default()
        },
    }
}

/// Pods are placed one after the other without a bind, and the watch shows them late: no card gets
/// more than it has, and no place stays empty, whether questions name the pods or a stream does.
#[tokio::test]
async fn pods_in_flight_fill_cards_exactly() {
    for is_streamed in [false, true] {
        fill_cards(is_streamed).await;
    }
}

async fn fill_cards(is_streamed: bool) {
    let store = ClusterStore::default();
    let nodes = ["n1", "n2", "n3"];
    for name in nodes {
        store.apply(node(name, 1));
    }
    let provider = provider(&store);
    let mut in_flight: Vec<(model::Pod, String)> = Vec::new();
    let mut placed: BTreeMap<String, usize> = BTreeMap::new();
    for at in 0..13 {
        let name = format!("p{at}");
        let request = CostRequest {
            source: Reference::pod("ml", &name),
            rule: Rule {
                name: "gpu-slice".into(),
                request: "250m".into(),
                ..Rule::default()
            },
            eligible_nodes: nodes.map(str::to_owned).to_vec(),
            in_flight: match is_streamed {
                true => Vec::new(),
                false => in_flight.iter().map(|(p, n)| sent(p, n)).collect(),
            },
            ..CostRequest::default()
        };
        let answer = provider.endpoint_cost(request).await.unwrap();
        let lines = answer.nodes().into_iter();
        let costs: BTreeMap<&str, i64> = lines.map(|line| (line.node, line.cost)).collect();
        let usable = costs.iter().filter(|(_, cost)| **cost >= 0);
        let best = usable.min_by_key(|(_, cost)| **cost).map(|(node, _)| *node);
        let Some(best) = best else {
            assert_eq!(at, 12, "{costs:?}");
            break;
        };
        let pod = quarter(&name, None);
        *placed.entry(best.to_owned()).or_default() += 1;
        if is_streamed {
            provider.placed(sent(&pod, best));
        }
        in_flight.push((pod, best.to_owned()));
        // The watch is five pods behind.
        if let Some((pod, node)) = in_flight.len().checked_sub(5).map(|i| in_flight[i].clone()) {
            store.apply(Object::Pod(quarter(&pod.name, Some(&node))));
        }
    }
    assert_eq!(placed.into_values().collect::<Vec<_>>(), [4, 4, 4]);
}

#[tokio::test]
async fn a_pod_in_flight_with_a_reservation_counts_once() {
    let store = ClusterStore::default();
    store.apply(node("n", 1));
    let provider = provider(&store);
    let reserve = reservation_request("a", "n", "600m");
    provider.reserve_at(Instant::now(), reserve).unwrap();
    let flying = model::Pod {
        annotations: [
            ("alibabacloud.com/gpu-milli", "600"),
            ("alibabacloud.com/gpu-count", "1"),
        ]
        .into_iter()
        .collect(),
        ..quarter("a", None)
    };
    let request = CostRequest {
        rule: Rule {
            name: "gpu-slice".into(),
            request: "400m".into(),
            ..Rule::default()
        },
        eligible_nodes: vec!["n".into()],
        in_flight: vec![sent(&flying, "n")],
        ..CostRequest::default()
    };
    let answer = provider.endpoint_cost(request).await.unwrap();
    assert!(answer.nodes()[0].cost >= 0, "{answer:?}");
}

#[tokio::test]
async fn a_placed_pod_reserves_what_it_was_promised() {
    let store = ClusterStore::default();
    store.apply(node("n", 1));
    let provider = provider(&store);
    let pod = quarter("a", None);
    let cost_of_all = async || {
        let request = CostRequest {
            rule: Rule {
                name: "gpu-slice".into(),
                request: "1".into(),
                ..Rule::default()
            },
            eligible_nodes: vec!["n".into()],
            ..CostRequest::default()
        };
        provider.endpoint_cost(request).await.unwrap().nodes()[0].cost
    };
    assert!(cost_of_all().await >= 0);
    let whole = model::Pod {
        annotations: [
            ("alibabacloud.com/gpu-milli", "1000"),
            ("alibabacloud.com/gpu-count", "1"),
        ]
        .into_iter()
        .collect(),
        ..pod
    };
    provider.placed(sent(&whole, "n"));
    assert!(cost_of_all().await < 0);
    let request = ReservationRequest {
        uid: whole.uid.to_string(),
        ..reservation_request("a", "n", "1")
    };
    let id = provider.reserve_at(Instant::now(), request).unwrap().id;
    assert!(cost_of_all().await < 0);
    provider.release_at(Instant::now(), &id);
    assert!(cost_of_all().await < 0, "it is still promised");
    provider.ended(&whole.uid);
    assert!(cost_of_all().await >= 0);
}
