//! Reads the posted pod: the identity of every pod, and the rest of governed pods only.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::value::RawValue;
use tautline_api::{convert, posted};
use tautline_core::{
    Snapshot, constraints::PodIdentity, group::POD_GROUP_LABEL, model, nodes::NodeSet,
};
use tautline_provider_client::{PlanningQuestion, texts};

use crate::wire::WireError;

/// The maximum number of JSON values; a pod of Kubernetes' maximum size has fewer. A value of a few
/// bytes, such as `{}` among the volumes, may take kilobytes of memory.
const MAX_VALUES: usize = 100_000;
/// The size up to which pods are not checked.
const UNCHECKED_BYTES: usize = 64 << 10;
/// The maximum size in JSON: the API server stores 1.5 MB in protobuf, whose JSON has up to three
/// times as many bytes.
const MAX_BYTES: usize = 8 << 20;

fn check_size(kind: &'static str, pod: &str) -> Result<(), WireError> {
    if pod.len() <= UNCHECKED_BYTES {
        return Ok(());
    }
    if pod.len() > MAX_BYTES {
        let (count, max) = (pod.len(), MAX_BYTES);
        return Err(WireError::PodTooLong { kind, count, max });
    }
    let count = pod.bytes().filter(|b| matches!(b, b',' | b'{')).count();
    if count > MAX_VALUES {
        let max = MAX_VALUES;
        return Err(WireError::PodTooLarge { kind, count, max });
    }
    Ok(())
}

#[derive(Deserialize)]
struct PodHead<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    spec: Option<Spec<'a>>,
}

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow, default, rename = "schedulingGroup")]
    group: Option<SchedulingGroup<'a>>,
}

#[derive(Deserialize)]
struct SchedulingGroup<'a> {
    #[serde(borrow, default, rename = "podGroupName")]
    name: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "resourceVersion")]
    version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(borrow, default, rename = "ownerReferences")]
    owners: Option<Vec<Owner<'a>>>,
}

#[derive(Deserialize)]
struct Owner<'a> {
    #[serde(borrow, default)]
    uid: Option<Cow<'a, str>>,
    #[serde(default)]
    controller: Option<bool>,
}

/// The part of a pod that offers select by, without its spec.
pub(crate) struct Head {
    pub identity: PodIdentity,
    /// The `metadata.resourceVersion`; 0 if unknown.
    version: u64,
}

impl Head {
    /// The pod as the watch shows it, if kube-scheduler has posted the same version.
    pub fn known<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Arc<model::Pod>> {
        let pod = snapshot.pod(&self.identity.namespace, &self.identity.name)?;
        let shown = pod.placement.as_ref()?.observed.resource_version;
        let is_same = shown == self.version && *pod.uid == *self.identity.uid;
        (shown != 0 && is_same && !pod.reduced).then_some(pod)
    }
}

pub(crate) fn identity(kind: &'static str, pod: &RawValue) -> Result<PodIdentity, WireError> {
    Ok(head(kind, pod)?.identity)
}

pub(crate) fn head(kind: &'static str, pod: &RawValue) -> Result<Head, WireError> {
    check_size(kind, pod.get())?;
    let head: PodHead<'_> =
        serde_json::from_str(pod.get()).map_err(|error| WireError::Json { kind, error })?;
    let metadata = head.metadata;
    let text = |t: Option<Cow<'_, str>>| t.map(Cow::into_owned).unwrap_or_default();
    let version = metadata.version.and_then(|version| version.parse().ok());
    let mut owners = metadata.owners.into_iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    let owner = controller.and_then(|owner| owner.uid);
    let group = head.spec.and_then(|spec| spec.group?.name);
    let group = group.map(|name| (POD_GROUP_LABEL.into(), name));
    let identity = PodIdentity {
        name: text(metadata.name),
        namespace: metadata
            .namespace
            .map_or_else(|| "default".to_owned(), Cow::into_owned),
        uid: text(metadata.uid),
        labels: metadata.labels.into_iter().flatten().chain(group).collect(),
        owner: owner.map_or(0, |uid| convert::owner_hash(&uid)),
    };
    Ok(Head {
        identity,
        version: version.unwrap_or_default(),
    })
}

pub(crate) fn parse_question(
    kind: &'static str,
    pod: &RawValue,
    identity: PodIdentity,
    nodes: NodeSet,
) -> Result<PlanningQuestion, WireError> {
    Ok(question(&parse(kind, pod)?, identity, nodes))
}

pub(crate) fn parse(kind: &'static str, pod: &RawValue) -> Result<Pod, WireError> {
    posted::pod(pod.get()).map_err(|error| WireError::Json { kind, error })
}

/// The pod as the index stores it while it is in flight: without its constraints on a node.
pub(crate) fn in_flight(mut pod: model::Pod) -> model::Pod {
    if let Some(placement) = &mut pod.placement {
        **placement = model::NodeConstraints {
            observed: placement.observed,
            ..model::NodeConstraints::default()
        };
    }
    pod
}

/// Makes the [`question`] about a pod that the watch shows.
pub(crate) fn known_question(
    pod: &model::Pod,
    subject: PodIdentity,
    nodes: NodeSet,
) -> PlanningQuestion {
    PlanningQuestion {
        subject,
        scheduler_waits: true,
        ..PlanningQuestion::for_pod(pod, nodes)
    }
}

pub(crate) fn question(pod: &Pod, subject: PodIdentity, nodes: NodeSet) -> PlanningQuestion {
    let requests = convert::requests(pod);
    let annotations = convert::relevant_annotations(pod.metadata.annotations.as_ref());
    PlanningQuestion {
        subject,
        annotations: annotations.map(|(k, v)| (k.clone(), v.clone())).collect(),
        requests: texts(&requests),
        resource_claims: convert::pod_claims(pod).names,
        containers: pod
            .spec
            .as_ref()
            .map(convert::container_requests_of)
            .unwrap_or_default(),
        nodes: Arc::new(nodes),
        placed: Vec::new(),
        scheduler_waits: true,
    }
}

#[cfg(test)]
mod tests {
    use tautline_core::index::{Index, Object};

    use super::*;

    /// A pod that the watch shows is asked about as the posted one, without parsing it.
    #[test]
    fn known_pods_are_those_that_the_watch_shows_in_the_same_version() {
        let posted = |uid: &str, version: &str| {
            let text = format!(
                r#"{{"metadata": {{"name": "web-0", "namespace": "shop", "uid": "{uid}",
                "resourceVersion": "{version}", "labels": {{"app": "web"}},
                "annotations": {{"team": "shop"}}}},
                "spec": {{"containers": [
                {{"name": "a", "resources": {{"requests": {{"cpu": "100m", "x.io/gpu": "1"}}}}}},
                {{"name": "b", "resources": {{"requests": {{"x.io/gpu": "2"}}}}}}],
                "resourceClaims": [{{"name": "c", "resourceClaimName": "claim-of-it"}}],
                "nodeSelector": {{"zone": "a"}}}}}}"#
            );
            RawValue::from_string(text).unwrap()
        };
        let text = posted("u", "7");
        let pod = parse("Args", &text).unwrap();
        let mut index = Index::default();
        index.apply(Object::Pod(convert::pod(&pod)));
        let snapshot = index.snapshot();
        for (uid, version) in [("u", "8"), ("v", "7"), ("u", ""), ("u", "x")] {
            let head = head("Args", &posted(uid, version)).unwrap();
            assert!(head.known(&snapshot).is_none(), "{uid} {version}");
        }
        let head = head("Args", &text).unwrap();
        let known = head.known(&snapshot).unwrap();
        let of_known = known_question(known, head.identity.clone(), NodeSet::default());
        let of_posted = question(&pod, head.identity.clone(), NodeSet::default());
        assert_eq!(format!("{of_known:?}"), format!("{of_posted:?}"));
        assert!(of_known.requests.len() > 1 && !of_known.resource_claims.is_empty());
        assert_eq!(
            (of_known.annotations.len(), of_known.containers.len()),
            (1, 2)
        );
    }

    #[test]
    fn identity_refuses_a_pod_of_too_many_values() {
        let pod = |volumes: usize| {
            let volumes = vec!["{}"; volumes].join(",");
            let text = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"volumes":[{volumes}]}}}}"#);
            RawValue::from_string(text).unwrap()
        };
        assert_eq!(identity("Args", &pod(40_000)).unwrap().name, "p");
        let error = identity("Args", &pod(60_000)).unwrap_err().to_string();
        assert!(error.contains("JSON values"), "{error}");
    }
}
