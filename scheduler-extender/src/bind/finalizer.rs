//! Reads and writes the finalizers of a pod that name its underlay allocations. Strategic merge
//! patches add and remove single finalizers on the server, so those of other writers stay.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tautline_api::convert::{UNDERLAY_ANNOTATION as ANNOTATION, UNDERLAY_FINALIZER};

use super::context::{PatchError, PodClient};

/// The annotation with the ids that are being released while their finalizers still exist. It stops
/// the bind that allocated them.
const RELEASING: &str = "constraint.ciena.com/underlay-releasing";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum PodState {
    Unbound,
    Bound,
    /// The pod is being deleted, or another pod has its name.
    Unbindable(&'static str),
}

impl PodClient<'_> {
    /// Adds the finalizer of `id`, unless the pod has changed since `pod` was read.
    pub async fn add_finalizer(
        &self,
        pod: &Pod,
        id: &str,
        service: &str,
    ) -> Result<Pod, PatchError> {
        let version = pod.metadata.resource_version.as_deref();
        self.patch(add_patch(&self.args.uid, version, id, service))
            .await
    }

    /// Announces by an annotation that `ids` are about to be released, unless the pod has changed
    /// since `pod` was read. A bind that read the pod before cannot succeed afterwards.
    pub async fn announce_release(&self, pod: &Pod, ids: &[String]) -> Result<Pod, PatchError> {
        let version = pod.metadata.resource_version.as_deref();
        self.patch(release_patch(&self.args.uid, version, ids))
            .await
    }

    /// Removes the finalizers of `ids` from `pod`. If the pod has no others, this also removes the
    /// annotation that names the underlay, unless finalizers were added since `pod` was read.
    pub async fn remove_finalizers(&self, pod: &Pod, ids: &[String]) -> Result<Pod, PatchError> {
        let uid = &self.args.uid;
        if allocation_ids(pod).len() == ids.len() {
            let version = pod.metadata.resource_version.as_deref();
            let removed = self.patch(remove_patch(uid, version, ids)).await;
            if !matches!(removed, Err(PatchError::Conflict)) {
                return removed;
            }
        }
        self.patch(remove_patch(uid, None, ids)).await
    }
}

pub(super) fn pod_state(pod: &Pod, uid: &str) -> PodState {
    let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref());
    if pod.metadata.uid.as_deref() != Some(uid) {
        PodState::Unbindable("is another pod now: its UID has changed")
    } else if node.is_some_and(|n| !n.is_empty()) {
        PodState::Bound
    } else if pod.metadata.deletion_timestamp.is_some() {
        PodState::Unbindable("is being deleted")
    } else {
        PodState::Unbound
    }
}

pub(super) fn allocation_ids(pod: &Pod) -> Vec<String> {
    let finalizers = pod.metadata.finalizers.iter().flatten();
    finalizers
        .filter_map(|f| f.strip_prefix(UNDERLAY_FINALIZER))
        .map(str::to_owned)
        .collect()
}

pub(super) fn underlay_name(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(ANNOTATION).map(String::as_str)
}

/// Returns whether another bind is releasing this id.
pub(super) fn is_releasing(pod: &Pod, id: &str) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let ids = annotations.and_then(|a| a.get(RELEASING));
    ids.is_some_and(|ids| ids.split(',').any(|i| i == id))
}

fn finalizer(id: &str) -> String {
    [UNDERLAY_FINALIZER, id].concat()
}

fn add_patch(uid: &str, version: Option<&str>, id: &str, service: &str) -> Value {
    json!({ "metadata": {
        // A new pod of the same name must stay unchanged.
        "uid": uid,
        "resourceVersion": version,
        "finalizers": [finalizer(id)],
        "annotations": { ANNOTATION: service, RELEASING: null },
    }})
}

fn release_patch(uid: &str, version: Option<&str>, ids: &[String]) -> Value {
    json!({ "metadata": {
        "uid": uid,
        "resourceVersion": version,
        "annotations": { RELEASING: ids.join(",") },
    }})
}

fn remove_patch(uid: &str, version: Option<&str>, ids: &[String]) -> Value {
    let finalizers: Vec<String> = ids.iter().map(|id| finalizer(id)).collect();
    let mut metadata = json!({
        "uid": uid,
        "$deleteFromPrimitiveList/finalizers": finalizers,
        "annotations": { RELEASING: null },
    });
    if let Some(version) = version {
        metadata["resourceVersion"] = version.into();
        metadata["annotations"][ANNOTATION] = Value::Null;
    }
    json!({ "metadata": metadata })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: Value) -> Pod {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn allocations_and_state_are_read_from_the_pod() {
        let pod_with_id = pod(json!({
            "metadata": {"uid": "u", "annotations": {"constraint.ciena.com/underlay": "net/u"},
                "finalizers": ["x.y/z", "constraint.ciena.com/remove-underlay_p-1"]},
            "spec": {"containers": []},
        }));
        assert_eq!(allocation_ids(&pod_with_id), ["p-1"]);
        assert_eq!(underlay_name(&pod_with_id), Some("net/u"));
        assert_eq!(pod_state(&pod_with_id, "u"), PodState::Unbound);
        assert!(matches!(
            pod_state(&pod_with_id, "v"),
            PodState::Unbindable(_)
        ));
        let bound =
            pod(json!({"metadata": {"uid": "u"}, "spec": {"containers": [], "nodeName": "n"}}));
        assert_eq!(pod_state(&bound, "u"), PodState::Bound);
        assert!(allocation_ids(&bound).is_empty() && underlay_name(&bound).is_none());
        let deleted =
            pod(json!({"metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        assert_eq!(
            pod_state(&deleted, "u"),
            PodState::Unbindable("is being deleted")
        );
    }

    #[test]
    fn release_patch_names_the_ids_and_the_version() {
        let patch = release_patch("u", Some("7"), &["p".to_owned(), "q".to_owned()]);
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let annotated = pod(patch);
        let ids = ["p", "q", "r"].map(|id| is_releasing(&annotated, id));
        assert_eq!(ids, [true, true, false]);
    }

    #[test]
    fn patches_leave_other_finalizers() {
        assert_eq!(
            add_patch("u", Some("7"), "p", "net/u"),
            json!({"metadata": {"uid": "u", "resourceVersion": "7",
                "finalizers": ["constraint.ciena.com/remove-underlay_p"],
                "annotations": {"constraint.ciena.com/underlay": "net/u",
                    "constraint.ciena.com/underlay-releasing": null}}})
        );
        let finalizers = json!(["constraint.ciena.com/remove-underlay_p"]);
        assert_eq!(
            remove_patch("u", None, &["p".to_owned()]),
            json!({"metadata": {"uid": "u", "$deleteFromPrimitiveList/finalizers": finalizers,
                "annotations": {"constraint.ciena.com/underlay-releasing": null}}})
        );
        assert_eq!(
            remove_patch("u", Some("7"), &["p".to_owned()]),
            json!({"metadata": {"uid": "u", "resourceVersion": "7",
                "$deleteFromPrimitiveList/finalizers": finalizers,
                "annotations": {"constraint.ciena.com/underlay": null,
                    "constraint.ciena.com/underlay-releasing": null}}})
        );
    }
}
