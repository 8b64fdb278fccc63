use k8s_openapi::api::core::v1::{Container, Node, Pod, PodSpec, PodStatus};
use serde_json::json;

use super::{envelope::opened, *};
use crate::convert;

/// Kubernetes' own samples, which have every field: see testdata/README.md.
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
        let owner = |o: ApiOwner| (o.api_version, o.kind, o.name, o.uid, o.controller);
        owners.into_iter().map(owner).collect::<Vec<_>>()
    };
    assert_eq!(owners(ours), owners(whole));
}

#[test]
fn pod_fields_agree_with_kubernetes() {
    let (ours, whole) = sample::<Pod>(
        include_str!("../../testdata/core.v1.Pod.json"),
        include_bytes!("../../testdata/core.v1.Pod.pb"),
    );
    assert_same_metadata(&ours.metadata, &whole.metadata);
    let ((ours_spec, ours), (spec, whole)) = (
        (ours.spec.clone().unwrap(), ours),
        (whole.spec.clone().unwrap(), whole),
    );
    let containers = |list: &[Container]| -> Vec<_> {
        let reduced = |c: &Container| {
            let resources = c.resources.clone().unwrap_or_default();
            (
                resources.requests,
                resources.limits,
                c.restart_policy.clone(),
            )
        };
        list.iter().map(reduced).collect()
    };
    assert_eq!(
        containers(&ours_spec.containers),
        containers(&spec.containers)
    );
    let init = |s: &PodSpec| containers(s.init_containers.as_deref().unwrap());
    assert_eq!(init(&ours_spec), init(&spec));
    assert_eq!(ours_spec.node_name, spec.node_name);
    assert_eq!(ours_spec.node_selector, spec.node_selector);
    assert_eq!(ours_spec.scheduler_name, spec.scheduler_name);
    assert_eq!(ours_spec.priority, spec.priority);
    assert_eq!(ours_spec.overhead, spec.overhead);
    assert_eq!(ours_spec.scheduling_gates, spec.scheduling_gates);
    assert_eq!(ours_spec.resource_claims, spec.resource_claims);
    let required = |s: &PodSpec| {
        let affinity = s.affinity.clone().unwrap().node_affinity.unwrap();
        affinity.required_during_scheduling_ignored_during_execution
    };
    assert_eq!(required(&ours_spec), required(&spec));
    let tolerations = |s: &PodSpec| {
        let mut all = s.tolerations.clone().unwrap();
        all.iter_mut().for_each(|t| t.toleration_seconds = None);
        all
    };
    assert_eq!(tolerations(&ours_spec), tolerations(&spec));
    let (status, of_whole) = (ours.status.clone().unwrap(), whole.status.clone().unwrap());
    assert_eq!(status.phase, of_whole.phase);
    assert_eq!(
        status.resource_claim_statuses,
        of_whole.resource_claim_statuses
    );
    let extended = |s: &PodStatus| {
        let claim = s.extended_resource_claim_status.clone().unwrap();
        claim.resource_claim_name
    };
    assert_eq!(extended(&status), extended(&of_whole));
    let condition = |s: &PodStatus| {
        let c = s.conditions.clone().unwrap().remove(0);
        (c.type_, c.status, c.reason, c.message)
    };
    assert_eq!(condition(&status), condition(&of_whole));
    assert_eq!(convert::pod(&ours), convert::pod(&whole));
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
