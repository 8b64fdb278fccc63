use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use serde_json::{Value, json};

use super::{envelope::opened, *};
use crate::convert;

/// Samples with every field of Kubernetes: see testdata/README.md.
fn sample<K: Watchable + serde::de::DeserializeOwned>(
    json: &str,
    protobuf: &'static [u8],
) -> (K, K) {
    let raw = opened(Bytes::from_static(protobuf)).unwrap();
    let whole: K = serde_json::from_str(json).unwrap();
    (object(raw).unwrap(), whole)
}

fn assert_same_metadata(ours: &ObjectMeta, whole: &ObjectMeta) {
    assert_eq!(ours.name, whole.name);
    assert_eq!(ours.namespace, whole.namespace);
    assert_eq!(ours.uid, whole.uid);
    assert_eq!(ours.resource_version, whole.resource_version);
    assert_eq!(ours.creation_timestamp, whole.creation_timestamp);
    assert_eq!(ours.deletion_timestamp, whole.deletion_timestamp);
    assert_eq!(ours.labels, whole.labels);
    assert_eq!(ours.annotations, whole.annotations);
    assert_eq!(ours.finalizers, whole.finalizers);
    let owners = |of: &ObjectMeta| {
        let owners = of.owner_references.clone().unwrap_or_default();
        let owner = |o: OwnerReference| (o.api_version, o.kind, o.name, o.uid, o.controller);
        owners.into_iter().map(owner).collect::<Vec<_>>()
    };
    assert_eq!(owners(ours), owners(whole));
}

/// What planning reads of a pod. As a text, since versions of a pod compare as equal.
fn read(mut pod: Pod, is_bound: bool) -> String {
    if let Some(spec) = pod.spec.as_mut().filter(|_| !is_bound) {
        spec.node_name = None;
    }
    format!("{:#?} {:?}", convert::pod(&pod), convert::pod_claims(&pod))
}

/// The JSON pointers of all values without parts.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut part = |key: &str, value| leaves(value, &format!("{at}/{}", escaped(key)), found);
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, v)| part(key, v)),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(i, v)| part(&i.to_string(), v));
        }
        _ => found.push(at.to_owned()),
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The pod with another value in this place, or without one where no other is valid.
fn changed(whole: &Value, place: &str) -> Option<Pod> {
    let mut other = whole.clone();
    let value = other.pointer_mut(place)?;
    *value = match value.take() {
        Value::String(text) => Value::String(text + "1"),
        Value::Bool(is) => Value::Bool(!is),
        Value::Number(n) => json!(n.as_i64()? + 1),
        value => value,
    };
    serde_json::from_value(other.clone()).ok().or_else(|| {
        *other.pointer_mut(place)? = Value::Null;
        serde_json::from_value(other).ok()
    })
}

#[test]
fn pod_has_every_field_that_planning_reads() {
    let json = include_str!("../../testdata/core.v1.Pod.json");
    let (ours, whole) = sample::<Pod>(json, include_bytes!("../../testdata/core.v1.Pod.pb"));
    assert_same_metadata(&ours.metadata, &whole.metadata);
    let spread = |pod: &Pod| pod.spec.clone().unwrap().topology_spread_constraints;
    assert_eq!(spread(&ours), spread(&whole));
    let as_read = |pod: &Pod| [true, false].map(|is_bound| read(pod.clone(), is_bound));
    let unchanged = as_read(&whole);
    assert_eq!(as_read(&ours), unchanged);
    let (ours, whole) = (
        serde_json::to_value(ours).unwrap(),
        serde_json::from_str::<Value>(json).unwrap(),
    );
    let mut all = Vec::new();
    leaves(&whole, "", &mut all);
    let is_read = |place: &String| {
        let changed = changed(&whole, place);
        changed.is_some_and(|changed| as_read(&changed) != unchanged)
    };
    let (read, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_read);
    for place in &read {
        assert_eq!(ours.pointer(place), whole.pointer(place), "{place}");
    }
    // The sample shows what planning reads; all else is left out, for the memory of the watch.
    let spec = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0";
    for place in [
        &format!("{spec}/namespaceSelector/matchLabels/matchLabelsKey"),
        &format!("{spec}/labelSelector/matchExpressions/0/values/0"),
        "/spec/tolerations/0/operator",
        "/spec/resources/requests/cpu",
        "/spec/resources/limits/hugepages-2Mi",
        "/spec/containers/1/resources/requests/memory",
        "/spec/containers/0/ports/0/hostIP",
        "/spec/resourceClaims/1/name",
        "/status/initContainerStatuses/0/allocatedResources/example.com~1allocated",
        "/status/conditions/2/reason",
        "/status/resources/requests/cpu",
    ] {
        assert!(read.iter().any(|read| read == place), "{place}: {read:#?}");
    }
    let unread = ["/spec/containers/0/image", "/metadata/generateName"];
    assert!(unread.iter().all(|place| others.iter().any(|o| o == place)));
    assert_eq!(ours.pointer("/spec/containers/0/image"), None);
}

#[test]
fn node_fields_agree_with_kubernetes() {
    let (ours, whole) = sample::<Node>(
        include_str!("../../testdata/core.v1.Node.json"),
        include_bytes!("../../testdata/core.v1.Node.pb"),
    );
    assert_same_metadata(&ours.metadata, &whole.metadata);
    let (a, b) = (ours.status.clone().unwrap(), whole.status.clone().unwrap());
    assert_eq!((a.capacity, a.allocatable), (b.capacity, b.allocatable));
    assert_eq!(convert::node(&ours), convert::node(&whole));
    let reduced = convert::node(&ours);
    assert!(
        reduced.unschedulable
            && reduced.taints.len() == 1
            && reduced.allocatable.iter().count() == 1
    );
}

#[test]
fn findings_ignore_empty_values() {
    let toleration = [0x0a, 0, 0x12, 0, 0x1a, 0, 0x22, 0];
    // A container, nodeName, schedulerName, a toleration.
    let spec = [&[0x12, 0, 0x52, 0, 0x9a, 1, 0, 0xb2, 1, 8][..], &toleration].concat();
    let (metadata, status) = ([0x0a, 0], [0x1a, 2, 0x0a, 0]);
    let pod = [&metadata[..], &[0x12, 18], &spec, &status].concat();
    let ours: Pod = object(pod.into()).unwrap();
    let whole = json!({
        "metadata": {}, "status": {},
        "spec": {"containers": [{"name": ""}], "tolerations": [{}]},
    });
    let whole: Pod = serde_json::from_value(whole).unwrap();
    assert_eq!(convert::pod(&ours), convert::pod(&whole));
    let node: Node = object(vec![0x1a, 0].into()).unwrap();
    // Else no capacity would be looked for.
    assert_eq!(node.status.unwrap().allocatable, None);
}
