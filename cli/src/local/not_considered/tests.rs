//! Tests of the fields that plans do not consider.

use serde_json::{Value, json};
use tautline_core::{
    Index,
    index::Object,
    model,
    volumes::{Storage, StorageClass, VolumeClaim},
};

use super::*;

fn found_in(index: &Index, spec: Value, usable: usize) -> Vec<String> {
    let mut pod =
        json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": []}});
    let fields = spec.as_object().unwrap().clone();
    pod["spec"].as_object_mut().unwrap().extend(fields);
    let answer = Answer {
        usable,
        rules: Vec::new(),
    };
    let pod = serde_json::from_value(pod).unwrap();
    fields_of(&pod, index, &answer)
}

fn fields_of(pod: &Pod, index: &Index, answer: &Answer<'_>) -> Vec<String> {
    let unread = UnreadKinds {
        runtime_classes: ["gvisor".to_owned()].into(),
        csi_nodes: false,
        ..UnreadKinds::default()
    };
    fields(pod, &index.snapshot(), &unread, answer)
}

#[test]
fn preferences_matter_between_several_nodes() {
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let spec = || {
        json!({"affinity": {"nodeAffinity": {preferred: [{"weight": 1, "preference": {}}]},
            "podAntiAffinity": {preferred: []}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
            "whenUnsatisfiable": "ScheduleAnyway"}]})
    };
    let index = Index::default();
    let found = found_in(&index, spec(), 2);
    let both = [
        "affinity.nodeAffinity (preferred)",
        "topologySpreadConstraints (ScheduleAnyway)",
    ];
    assert_eq!(found, both);
    assert_eq!(found_in(&index, spec(), 1), [""; 0]);
}

#[test]
fn fields_of_admission_and_of_other_schedulers() {
    let index = Index::default();
    for (spec, want) in [
        (
            json!({"schedulerName": "volcano"}),
            vec!["schedulerName volcano"],
        ),
        (json!({"schedulerName": "default-scheduler"}), vec![]),
        (
            json!({"runtimeClassName": "kata"}),
            vec!["runtimeClassName kata"],
        ),
        (
            json!({"priorityClassName": "high"}),
            vec!["priorityClassName high"],
        ),
        (json!({"priorityClassName": "high", "priority": 5}), vec![]),
        (
            json!({"resourceClaims": [{"name": "g"}]}),
            vec!["resourceClaims"],
        ),
        (json!({"runtimeClassName": "gvisor"}), vec![]),
        (
            json!({"tolerations": [{"operator": "Equals"}]}),
            vec!["tolerations[0] (operator \"Equals\" is unknown)"],
        ),
        (
            json!({"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "a", "operator": "Equals"}]}]}}}}),
            vec!["affinity.nodeAffinity (operator \"Equals\" is unknown)"],
        ),
    ] {
        assert_eq!(found_in(&index, spec.clone(), 1), want, "{spec}");
    }
    let created = json!({"metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c"}], "runtimeClassName": "kata"}});
    let answer = Answer {
        usable: 1,
        rules: Vec::new(),
    };
    let created = serde_json::from_value(created).unwrap();
    assert_eq!(fields_of(&created, &index, &answer), [""; 0]);
}

#[test]
fn priority_matters_to_a_pod_without_a_node() {
    let mut index = Index::default();
    let high = || json!({"priority": 1000});
    assert_eq!(found_in(&index, high(), 0), [""; 0]);
    index.apply(Object::Pod(model::Pod {
        namespace: "shop".into(),
        name: "low".into(),
        node: Some("n".into()),
        ..model::Pod::default()
    }));
    assert_eq!(found_in(&index, high(), 0), ["priority 1000 (preemption)"]);
    assert_eq!(found_in(&index, high(), 1), [""; 0]);
    assert_eq!(found_in(&index, json!({}), 0), [""; 0]);
}

#[test]
fn claims_whose_volume_is_not_known() {
    let mut index = Index::default();
    let claim = |name: &str, volume: Option<&str>, class: &str| VolumeClaim {
        namespace: "shop".into(),
        name: name.into(),
        volume: volume.map(Into::into),
        class: Some(class.into()),
        ..VolumeClaim::default()
    };
    let mut storage = Storage::default();
    storage.add_claim(claim("bound", Some("pv"), "fast"));
    storage.add_claim(claim("new", None, "slow"));
    storage.add_claim(claim("waits", None, "fast"));
    storage.add_class(StorageClass {
        name: "fast".into(),
        waits_for_pod: true,
        ..StorageClass::default()
    });
    index.apply(Object::Storage(Box::new(storage)));
    let uses = |name: &str| json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]});
    for (name, want) in [
        (
            "bound",
            vec!["claim bound (PersistentVolume pv is not known)"],
        ),
        ("new", vec!["claim new (StorageClass slow is not known)"]),
        ("waits", vec![]),
        ("absent", vec![]),
    ] {
        assert_eq!(found_in(&index, uses(name), 1), want, "{name}");
    }
}

#[test]
fn claims_are_named_as_far_as_they_are_not_read() {
    let of = |claims: Value, items: &str| {
        let pod = json!({"metadata": {"name": "p", "namespace": "shop"},
            "spec": {"containers": [], "resourceClaims": claims}});
        let answer = Answer {
            usable: 1,
            rules: vec!["gpu-slice"],
        };
        let items = tautline_api::manifest::parse(items).unwrap();
        let snapshot = Index::default().snapshot();
        let pod = serde_json::from_value(pod).unwrap();
        fields(&pod, &snapshot, &UnreadKinds::new(&items), &answer)
    };
    let claim = |devices: &str| {
        format!(
            "{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, \
             metadata: {{name: c, namespace: shop}}, spec: {{devices: {devices}}}}}"
        )
    };
    let request = |selector: &str| {
        format!(
            "{{requests: [{{name: r, exactly: {{deviceClassName: gpu, \
             selectors: [{{cel: {{expression: '{selector}'}}}}]}}}}]}}"
        )
    };
    let named = json!([{"name": "c", "resourceClaimName": "c"}]);
    let constraints = "{constraints: [{matchAttribute: d/numa}], requests: []}";
    for (devices, expected) in [
        ("{}", vec![]),
        (&request("device.driver == \"d\""), vec![]),
        (
            &request("device.driver != \"d\""),
            vec!["ResourceClaim c (a selector that CEL decides)"],
        ),
        (
            constraints,
            vec!["ResourceClaim c (its constraints between devices)"],
        ),
    ] {
        assert_eq!(of(named.clone(), &claim(devices)), expected, "{devices}");
    }
    assert_eq!(of(named, ""), ["ResourceClaim c (it is not known)"]);
    let template = json!([{"name": "t", "resourceClaimTemplateName": "t"}]);
    assert_eq!(
        of(template, ""),
        ["ResourceClaimTemplate t (it is not known)"]
    );
}
