use fastrand::Rng;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{ResourceExt, core::WatchEvent};
use serde_json::{Value, json};
use tautline_merge::{Schemas, generate};

use super::*;
use crate::convert;

fn watched<K: Watchable + DeserializeOwned>(object: &Value) -> K {
    let event = format!(r#"{{"type":"ADDED","object":{object}}}"#);
    match serde_json::from_str::<WatchEvent<Watched<K>>>(&event) {
        Ok(WatchEvent::Added(Watched::Usable(object))) => object,
        Ok(_) => panic!("not usable: {object}"),
        Err(error) => panic!("{error}: {object}"),
    }
}

/// Random objects of a kind that its type takes, every field there sooner or later.
fn random(kind: &str) -> Vec<Value> {
    let schema = Schemas::bundled().kind("", "v1", kind).expect("bundled");
    (0..2_000)
        .map(|seed| {
            let mut object = generate::live(&schema, &mut Rng::with_seed(seed));
            // Pending or bound, each half of the time.
            if seed % 2 == 0 && object["spec"].is_object() {
                object["spec"]["nodeName"] = Value::Null;
            }
            object
        })
        .collect()
}

#[test]
fn nothing_that_is_kept_of_a_pod_gets_lost() {
    let mut compared = 0;
    for object in random("Pod") {
        let Ok(whole) = serde_json::from_value::<Pod>(object.clone()) else {
            continue;
        };
        let decoded = watched::<Pod>(&object);
        assert_eq!(convert::pod(&decoded), convert::pod(&whole), "{object:#}");
        compared += 1;
    }
    assert!(compared > 1_000, "{compared}");
}

#[test]
fn nothing_that_is_kept_of_a_pod_gets_lost_told_field_by_field() {
    let pod = json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "b"},
            "annotations": {"tautline.io/x": "y", "other": "z"},
            "finalizers": ["constraint.ciena.com/remove-underlay_7"],
            "deletionTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"manager": "m"}],
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "ou", "controller": true}],
        },
        "spec": {
            "schedulerName": "s", "priority": 7, "schedulingGates": [{"name": "g"}],
            "nodeSelector": {"disk": "ssd"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}}},
            "tolerations": [{"key": "t", "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"x/y": "2"}}}],
            "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "3"}}}],
            "overhead": {"memory": "1Gi"},
            "resourceClaims": [{"name": "a", "resourceClaimName": "one"}, {"name": "b", "resourceClaimTemplateName": "t"}],
        },
        "status": {
            "phase": "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "2 gpu-slice/NoCard"},
                {"type": "Ready", "status": "True"}],
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "two"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "three", "requestMappings": []},
        },
    });
    let whole: Pod = serde_json::from_value(pod.clone()).unwrap();
    let kept = convert::pod(&watched::<Pod>(&pod));
    assert_eq!(kept, convert::pod(&whole));
    let placement = kept.placement.unwrap();
    assert_eq!(placement.claims.len(), 3);
    assert_eq!(placement.rejected_by.len(), 1);
    assert!(kept.ready && kept.terminating && kept.owner != 0 && !kept.underlay.is_empty());
}

#[test]
fn nothing_that_is_kept_of_a_node_gets_lost() {
    let node = json!({
        "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"unschedulable": true, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7"}, "images": [{"names": ["i"]}]},
    });
    for node in [
        node.clone(),
        json!({"metadata": node["metadata"], "status": {"capacity": {"cpu": "8"}}}),
    ] {
        let whole: Node = serde_json::from_value(node.clone()).unwrap();
        assert_eq!(convert::node(&watched(&node)), convert::node(&whole));
    }
}

#[test]
fn a_malformed_object_is_named_and_ends_nothing() {
    let text = r#"{"items": [
        {"metadata": {"name": "bad", "namespace": "ns", "managedFields": 7}, "spec": {"priority": "high"}},
        {"metadata": {"name": "good"}, "spec": {"containers": null}}],
        "metadata": {"resourceVersion": "1"}, "apiVersion": "v1", "kind": "PodList"}"#;
    let list: kube::core::ObjectList<Watched<Pod>> = serde_json::from_str(text).unwrap();
    let names: Vec<String> = list.items.iter().map(|o| o.name_any()).collect();
    assert_eq!(names, ["bad", "good"]);
    let Watched::Malformed { error, metadata } = &list.items[0] else {
        panic!("priority is no number");
    };
    assert_eq!(metadata.namespace.as_deref(), Some("ns"));
    assert!(
        error.starts_with("invalid type: string \"high\"") && !error.contains("line"),
        "{error}"
    );
}
