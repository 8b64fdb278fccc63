//! Which pod is evicted, and why a pod is not.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use proptest::prelude::*;
use serde_json::{Value, json};
use tautline_core::{
    Index,
    index::Object,
    planning::{NodeVerdict, Plan},
};

use super::{
    workload::{check_ready, checked_name},
    *,
};
use crate::binding_status::to_api_time;

const COOL_DOWN: Duration = Duration::from_secs(120);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn plan(verdicts: [NodeVerdict; 3]) -> NodePlan {
    NodePlan {
        nodes: Arc::new(["a", "b", "c"].into_iter().collect()),
        plan: Plan {
            verdicts: verdicts.to_vec(),
        },
        unplanned: None,
        allocates: false,
    }
}

fn usable(normalized_cost: u64, tie_break: u64) -> NodeVerdict {
    NodeVerdict::Usable {
        normalized_cost,
        tie_break,
        score: 9,
    }
}

fn over_limit() -> NodeVerdict {
    NodeVerdict::Unusable {
        reason: "latency/OverLimit".into(),
        freeable: false,
    }
}

#[test]
fn better_node_is_not_one_that_only_breaks_a_tie() {
    let tied = plan([usable(5, 9), usable(5, 2), usable(5, 1)]);
    assert_eq!(better_node(&tied, "a").unwrap_err().code, "NoBetterNode");
}

#[test]
fn better_node_is_the_one_of_lowest_cost() {
    let lower = plan([usable(5, 1), usable(4, 9), usable(4, 8)]);
    let found = better_node(&lower, "a").unwrap();
    assert_eq!((found.node.as_str(), found.gain), ("c", (false, 1)));
    assert_eq!(found.why, "its node costs more");
}

#[test]
fn better_node_is_any_usable_one_if_the_present_one_breaks_a_rule() {
    let broken = plan([over_limit(), usable(5, 2), usable(5, 1)]);
    let found = better_node(&broken, "a").unwrap();
    assert_eq!(found.node, "c", "as the extender would place it");
    assert_eq!(found.why, "latency/OverLimit");
    assert!(found.gain.0);
}

#[test]
fn better_node_counts_the_other_nodes_by_rule_where_there_is_none() {
    let no_shares = NodeVerdict::Unusable {
        reason: "gpu-slice/NoSharedGpu".into(),
        freeable: false,
    };
    let text = |verdicts, node| better_node(&plan(verdicts), node).unwrap_err().text;
    assert_eq!(
        text([over_limit(), over_limit(), no_shares.clone()], "a"),
        "none of the 2 other nodes that fit the pod is within the rules: \
         1 gpu-slice/NoSharedGpu, 1 latency/OverLimit"
    );
    assert_eq!(
        text([usable(5, 1), over_limit(), over_limit()], "a"),
        "none of the 2 other nodes that fit the pod is within the rules: 2 latency/OverLimit"
    );
    // The pod would not fit its own node any more.
    assert_eq!(
        text([over_limit(), over_limit(), no_shares], "cordoned"),
        "none of the 3 other nodes that fit the pod is within the rules: \
         1 gpu-slice/NoSharedGpu, 2 latency/OverLimit"
    );
}

#[test]
fn better_node_says_that_no_other_node_fits() {
    let only = |verdict| NodePlan {
        nodes: Arc::new(["a"].into_iter().collect()),
        plan: Plan {
            verdicts: vec![verdict],
        },
        ..NodePlan::default()
    };
    for verdict in [usable(5, 1), over_limit()] {
        assert_eq!(
            better_node(&only(verdict), "a").unwrap_err().text,
            "no other node fits the pod by Kubernetes' own rules: requests, taints, affinity, \
             topology spread, host ports, volumes, cordon"
        );
    }
}

#[test]
fn better_node_may_be_the_same_one_with_another_allocation() {
    let allocates = |verdicts| NodePlan {
        allocates: true,
        ..plan(verdicts)
    };
    let same = better_node(&allocates([usable(5, 1), usable(9, 1), over_limit()]), "a").unwrap();
    assert_eq!(same.node, "a");
    assert_eq!(same.why, "its node would give it another allocation");
    let cheaper = better_node(&allocates([usable(5, 1), usable(4, 1), over_limit()]), "a");
    assert_eq!(cheaper.unwrap().node, "b");
    let alone = better_node(&allocates([usable(5, 1), over_limit(), over_limit()]), "a");
    assert_eq!(alone.unwrap().node, "a");
    let full = better_node(&allocates([over_limit(), over_limit(), over_limit()]), "a");
    assert_eq!(full.unwrap_err().code, "NoBetterNode");
}

#[test]
fn better_node_may_be_found_for_a_pod_on_a_node_that_would_not_take_it() {
    let round = plan([usable(5, 1), usable(4, 1), usable(3, 1)]);
    let found = better_node(&round, "cordoned").unwrap();
    assert_eq!(found.node, "c");
    assert_eq!(found.why, "its node would not take it any more");
}

#[test]
fn better_node_is_unknown_while_a_rule_has_no_answer() {
    let unplanned = NodePlan {
        unplanned: Some("rule latency could not be planned".to_owned()),
        ..plan([usable(5, 1), usable(4, 1), usable(3, 1)])
    };
    let refusal = better_node(&unplanned, "a").unwrap_err();
    assert_eq!(refusal.code, "PlanIncomplete");
}

fn pod_object(meta: Value) -> Pod {
    serde_json::from_value(json!({"metadata": meta})).unwrap()
}

fn owner(kind: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "rs", "controller": true}])
}

fn known() -> model::Pod {
    model::Pod {
        namespace: "shop".into(),
        name: "web-0".into(),
        uid: "u".into(),
        ..model::Pod::default()
    }
}

fn terms(row: Option<EvictionRow>, now: u64) -> Terms<'static> {
    Terms {
        groups: false,
        protecting: &[],
        row,
        cool_down: COOL_DOWN,
        now: secs(now),
    }
}

fn refusal_of(meta: Value) -> Option<&'static str> {
    let result = check_pod(&pod_object(meta), &known(), &terms(None, 1000));
    result.err().map(|refusal| refusal.code)
}

#[test]
fn check_pod_accepts_a_pod_of_a_replica_set() {
    let meta = json!({"uid": "u", "ownerReferences": owner("ReplicaSet")});
    assert_eq!(refusal_of(meta), None);
}

#[test]
fn check_pod_refuses_a_member_of_a_group_unless_the_offer_evicts_groups() {
    for (kind, code) in [("Job", "GroupMember"), ("Widget", "UnknownOwner")] {
        let mut owners = owner(kind);
        owners[0]["apiVersion"] = json!("batch/v1");
        let meta = json!({"uid": "u", "ownerReferences": owners});
        assert_eq!(refusal_of(meta.clone()), Some(code));
        let groups = Terms {
            groups: true,
            ..terms(None, 1000)
        };
        let group = check_pod(&pod_object(meta), &known(), &groups).unwrap();
        assert!(group.unwrap().name.starts_with(kind));
    }
}

#[test]
fn check_pod_refuses_a_protected_pod() {
    let meta = json!({"uid": "u", "ownerReferences": owner("ReplicaSet"),
                      "annotations": {"karpenter.sh/do-not-disrupt": "true"}});
    assert_eq!(refusal_of(meta), Some("Protected"));
}

#[test]
fn check_pod_refuses_another_pod_of_the_name() {
    let meta = json!({"uid": "second", "ownerReferences": owner("ReplicaSet")});
    assert_eq!(refusal_of(meta), Some("Stale"));
}

#[test]
fn check_pod_refuses_a_pod_without_an_owner() {
    assert_eq!(refusal_of(json!({"uid": "u"})), Some("Unmanaged"));
}

#[test]
fn check_pod_refuses_a_pod_whose_owner_is_not_its_controller() {
    let mut owners = owner("ReplicaSet");
    owners[0]["controller"] = false.into();
    let meta = json!({"uid": "u", "ownerReferences": owners});
    assert_eq!(refusal_of(meta), Some("Unmanaged"));
}

#[test]
fn check_pod_refuses_a_pod_of_a_daemon_set() {
    let meta = json!({"uid": "u", "ownerReferences": owner("DaemonSet")});
    assert_eq!(refusal_of(meta), Some("DaemonSet"));
}

#[test]
fn check_pod_refuses_mirror_pods() {
    let annotated = json!({"uid": "u", "ownerReferences": owner("ReplicaSet"),
                           "annotations": {"kubernetes.io/config.mirror": "x"}});
    let owned = json!({"uid": "u", "ownerReferences": owner("Node")});
    assert_eq!(refusal_of(annotated), Some("MirrorPod"));
    assert_eq!(refusal_of(owned), Some("MirrorPod"));
}

/// The refusal of a pod created at a time, with the last eviction at 1000.
fn came_back_at(created: u64, last: Option<u64>, now: u64) -> Option<&'static str> {
    let mut pod = pod_object(json!({"uid": "u", "ownerReferences": owner("ReplicaSet")}));
    pod.metadata.creation_timestamp = Some(to_api_time(secs(created)));
    let row = last.map(|last| EvictionRow::with(None, secs(last), 1, COOL_DOWN));
    let result = check_pod(&pod, &known(), &terms(row, now));
    result.err().map(|refusal| refusal.code)
}

#[test]
fn check_pod_refuses_a_pod_that_the_last_eviction_brought() {
    assert_eq!(came_back_at(1001, Some(1000), 1130), Some("CameBack"));
    assert_eq!(came_back_at(1001, Some(1000), 2199), Some("CameBack"));
}

#[test]
fn check_pod_accepts_a_pod_that_came_back_after_ten_cool_downs() {
    assert_eq!(came_back_at(1001, Some(1000), 2200), None);
}

#[test]
fn check_pod_accepts_a_pod_from_before_the_last_eviction() {
    assert_eq!(came_back_at(900, Some(1000), 1130), None);
    assert_eq!(came_back_at(1001, None, 1130), None);
}

fn candidate(name: &str, gain: (bool, u64)) -> Result<Candidate, Refusal> {
    Ok(Candidate {
        pod: model::Pod {
            name: name.into(),
            ..model::Pod::default()
        },
        object: Pod::default(),
        node: "a".into(),
        target: Move {
            node: "b".to_owned(),
            gain,
            why: String::new(),
        },
        group: None,
        is_last_resort: false,
    })
}

fn chosen(all: Vec<Result<Candidate, Refusal>>) -> Result<String, Refusal> {
    let named = all.into_iter().enumerate();
    let named = named.map(|(i, c)| (format!("t{i}").into(), c)).collect();
    choose(named).map(|candidate| candidate.pod.name.to_string())
}

#[test]
fn choose_takes_the_pod_with_most_to_gain() {
    let all = vec![candidate("a", (false, 3)), candidate("b", (false, 7))];
    assert_eq!(chosen(all).unwrap(), "b");
}

#[test]
fn choose_prefers_a_pod_whose_node_breaks_a_rule() {
    let all = vec![candidate("a", (false, 1000)), candidate("b", (true, 1))];
    assert_eq!(chosen(all).unwrap(), "b");
}

#[test]
fn choose_takes_a_pod_of_last_resort_only_without_another() {
    let mut only = candidate("only", (true, 1000));
    only.as_mut().unwrap().is_last_resort = true;
    let all = vec![only.clone(), candidate("b", (false, 1))];
    assert_eq!(chosen(all).unwrap(), "b");
    assert_eq!(chosen(vec![only]).unwrap(), "only");
}

#[test]
fn choose_takes_the_first_target_among_equals() {
    let all = vec![candidate("a", (true, 5)), candidate("b", (true, 5))];
    assert_eq!(chosen(all).unwrap(), "a");
}

#[test]
fn choose_takes_the_one_pod_that_can_be_evicted() {
    let refused = Err(Refusal::new("Unmanaged", "x"));
    assert_eq!(
        chosen(vec![refused, candidate("b", (false, 1))]).unwrap(),
        "b"
    );
}

#[test]
fn choose_reports_the_first_code_and_all_texts() {
    let all = vec![
        Err(Refusal::new("Unmanaged", "x")),
        Err(Refusal::new("Stale", "y")),
    ];
    let refusal = chosen(all).unwrap_err();
    assert_eq!(
        refusal,
        Refusal::new("Unmanaged", "target t0: x; target t1: y")
    );
}

#[test]
fn pods_of_skips_other_kinds_namespaces_and_targets() {
    use tautline_core::Reference;
    let mut cluster = Reference::pod("shop", "east");
    cluster.kind = "Cluster".to_owned();
    // A pod of this cluster has the same name.
    let in_east = "east:shop:v1:Pod:web-3".parse().unwrap();
    let binding = BindingSpec {
        targets: [
            ("a".into(), Reference::pod("shop", "web-0")),
            ("b".into(), Reference::pod("other", "web-1")),
            ("c".into(), cluster),
            ("e".into(), in_east),
            ("d".into(), Reference::pod("shop", "web-2")),
        ]
        .into(),
        ..BindingSpec::default()
    };
    let offer = Offer {
        namespace: "shop".into(),
        evict: ["a", "b", "c", "e"].map(Into::into).into(),
        ..Offer::default()
    };
    let pods: Vec<&str> = pods_of(&binding, &offer).map(|(_, name)| name).collect();
    assert_eq!(pods, ["web-0"]);
}

fn running(pod: model::Pod) -> Result<Arc<str>, &'static str> {
    let mut index = Index::default();
    index.apply(Object::Pod(pod));
    let exempt = BTreeSet::from(["kube-system".to_owned()]);
    let snapshot = index.snapshot();
    let found = running_pod(&snapshot, &exempt, "shop", "web-0");
    found.map(|(_, node)| node).map_err(|refusal| refusal.code)
}

#[test]
fn running_pod_is_one_on_a_node() {
    let placed = model::Pod {
        node: Some("n1".into()),
        ..known()
    };
    assert_eq!(running(placed.clone()).as_deref(), Ok("n1"));
    assert_eq!(running(known()), Err("ReplicaDown"));
    let terminating = model::Pod {
        terminating: true,
        ..placed.clone()
    };
    assert_eq!(running(terminating), Err("ReplicaDown"));
    let finished = model::Pod {
        finished: true,
        ..placed
    };
    assert_eq!(running(finished), Err("ReplicaDown"));
}

#[test]
fn running_pod_of_an_exempt_namespace_is_refused() {
    let exempt = BTreeSet::from(["shop".to_owned()]);
    let refusal = running_pod(&Snapshot::default(), &exempt, "shop", "x").unwrap_err();
    assert_eq!(refusal.code, "Exempt");
}

#[test]
fn only_replica_is_one_without_running_siblings() {
    let pod = |name: &str, owner| model::Pod {
        namespace: "shop".into(),
        name: name.into(),
        uid: name.into(),
        owner,
        ..model::Pod::default()
    };
    let mut finished = pod("done", 7);
    finished.finished = true;
    let mut terminating = pod("going", 7);
    terminating.terminating = true;
    let mut elsewhere = pod("far", 7);
    elsewhere.namespace = "other".into();
    let only = pod("web-0", 7);
    let mut index = Index::default();
    for pod in [&only, &finished, &terminating, &elsewhere, &pod("db-0", 8)] {
        index.apply(Object::Pod(pod.clone()));
    }
    assert!(is_only_replica(&index.snapshot(), &only));
    index.apply(Object::Pod(pod("web-1", 7)));
    assert!(!is_only_replica(&index.snapshot(), &only));
}

fn replica(name: &str, ready: bool) -> Pod {
    let status = if ready { "True" } else { "False" };
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": name, "uid": name,
                     "ownerReferences": owner("ReplicaSet")},
        "status": {"conditions": [{"type": "Ready", "status": status}]},
    }))
    .unwrap()
}

fn ready_with(desired: Option<i32>, pods: &[Pod]) -> Result<(), String> {
    let pod = replica("web-0", false);
    let owner = controller_of(&pod.metadata).unwrap();
    check_ready(&pod, owner, desired, pods).map_err(|refusal| refusal.to_string())
}

#[test]
fn workload_is_ready_when_every_other_pod_is() {
    let pods = [replica("web-0", false), replica("web-1", true)];
    assert_eq!(ready_with(Some(2), &pods), Ok(()));
}

#[test]
fn workload_is_not_ready_while_another_pod_is_not() {
    let pods = [replica("web-0", true), replica("web-1", false)];
    let text = "ReplicaDown: pod shop/web-1 of the same workload is not ready";
    assert_eq!(ready_with(Some(2), &pods), Err(text.to_owned()));
}

#[test]
fn workload_is_not_ready_while_a_replacement_is_missing() {
    let pods = [replica("web-0", true), replica("web-1", true)];
    let text = "ReplicaDown: 2 of the 3 pods of ReplicaSet web are up";
    assert_eq!(ready_with(Some(3), &pods), Err(text.to_owned()));
}

#[test]
fn workload_is_not_ready_while_another_pod_terminates() {
    let mut gone = replica("web-1", true);
    gone.metadata.deletion_timestamp = Some(to_api_time(secs(1)));
    assert!(ready_with(Some(2), &[replica("web-0", true), gone]).is_err());
}

#[test]
fn workload_readiness_ignores_pods_of_other_owners_and_finished_ones() {
    let mut other = replica("db-0", false);
    other.metadata.owner_references = None;
    let mut finished = replica("web-9", false);
    finished.status.as_mut().unwrap().phase = Some("Failed".to_owned());
    let pods = [replica("web-0", true), other, finished];
    assert_eq!(ready_with(Some(1), &pods), Ok(()));
}

#[test]
fn workload_without_a_number_of_replicas_needs_its_other_pods_ready() {
    assert_eq!(ready_with(None, &[replica("web-0", true)]), Ok(()));
    let pods = [replica("web-0", true), replica("web-1", false)];
    assert!(ready_with(None, &pods).is_err());
}

fn owner_named(api_version: &str, kind: &str, name: &str) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        ..OwnerReference::default()
    }
}

#[test]
fn owner_whose_name_is_a_path_is_refused() {
    for name in ["", "../../secrets/x", "web?watch=true", "web/scale", ".."] {
        let owner = owner_named("apps/v1", "ReplicaSet", name);
        assert!(checked_name(&owner).is_err(), "{name:?}");
    }
}

#[test]
fn evict_answer_by_status() {
    let code = |status| match EvictAnswer::from_status("pod shop/web-0", status, "why") {
        EvictAnswer::Done => "Done",
        EvictAnswer::Refused(refusal) => refusal.code,
        EvictAnswer::Lost(_) => "Lost",
    };
    assert_eq!(code(429), "DisruptionBudget");
    assert_eq!(code(404), "Stale");
    assert_eq!(code(409), "Stale");
    assert_eq!(code(403), "Failed");
    assert_eq!(code(500), "Lost");
    assert_eq!(code(504), "Lost");
}

#[test]
fn refusal_waits_by_its_code() {
    let wait = |code| Refusal::new(code, "").retry_after().as_secs();
    assert_eq!(["ReplicaDown", "Stale"].map(wait), [2, 2]);
    assert_eq!(wait("DisruptionBudget"), 5);
    assert_eq!(
        ["NoBetterNode", "CameBack", "Failed"].map(wait),
        [10, 10, 10]
    );
}

proptest! {
    /// A pod is only moved to a usable node that is strictly better than its own.
    #[test]
    fn better_node_is_strictly_better(costs in proptest::collection::vec(proptest::option::of(0u64..4), 3..=3), here in 0usize..3) {
        let verdict = |cost: &Option<u64>| cost.map_or_else(over_limit, |c| usable(c, 0));
        let verdicts: Vec<NodeVerdict> = costs.iter().map(verdict).collect();
        let plan = plan(verdicts.try_into().unwrap());
        match better_node(&plan, ["a", "b", "c"][here]) {
            Ok(found) => {
                let there = plan.nodes.position(&found.node).unwrap();
                prop_assert!(costs[there].is_some() && there != here);
                prop_assert!(costs[here].is_none_or(|c| costs[there] < Some(c)));
            }
            Err(_) => {
                let others = (0..3).filter(|at| *at != here).filter_map(|at| costs[at]);
                let best = others.min();
                prop_assert!(best.is_none() || costs[here].is_some_and(|c| Some(c) <= best));
            }
        }
    }
}
