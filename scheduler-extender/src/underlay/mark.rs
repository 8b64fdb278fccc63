//! The finalizers on a pod that say what the underlay holds for it. Strategic
//! merge patches add to and take from the set of finalizers on the server, so no
//! other writer's is lost.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tautline_api::convert::{UNDERLAY_ANNOTATION as ANNOTATION, UNDERLAY_FINALIZER};

use crate::wire::BindArgs;

/// Ids that are being released, while their finalizers are still there: the bind
/// that allocated them must not go on.
const RELEASING: &str = "constraint.ciena.com/underlay-releasing";

/// The pod to bind, at the API server.
#[derive(Clone, Copy)]
pub(super) struct Marked<'a> {
    pub pods: &'a Api<Pod>,
    pub args: &'a BindArgs,
    pub limit: Duration,
}

/// Why a pod was not patched.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Someone else has changed it in the meantime.
    Conflict,
    /// It is gone.
    Gone,
    Other(String),
}

/// What a pod that was read allows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Unbound,
    Bound,
    /// Deleted, or another of the same name.
    Over(&'static str),
}

impl Marked<'_> {
    /// The pod as the API server has it.
    pub(super) async fn get(&self) -> Result<Pod, String> {
        crate::bind::get(self.pods, self.args, self.limit).await
    }

    /// Adds the finalizer of `id`, unless the pod has changed since `pod` was read.
    pub(super) async fn add(&self, pod: &Pod, id: &str, service: &str) -> Result<Pod, Refusal> {
        let version = pod.metadata.resource_version.as_deref();
        self.patch(adding(&self.args.uid, version, id, service))
            .await
    }

    /// Says that ids are about to be released, unless the pod has changed since it
    /// was read: no bind that read it before can succeed after this.
    pub(super) async fn claim(&self, pod: &Pod, ids: &[String]) -> Result<Pod, Refusal> {
        let version = pod.metadata.resource_version.as_deref();
        self.patch(claiming(&self.args.uid, version, ids)).await
    }

    /// Takes finalizers away. With `whole` they are all that the pod has, as it was
    /// read; without, others may have been added.
    pub(super) async fn remove(&self, ids: &[String], whole: Option<&Pod>) -> Result<Pod, Refusal> {
        let version = whole.and_then(|p| p.metadata.resource_version.as_deref());
        self.patch(removing(&self.args.uid, version, ids)).await
    }

    async fn patch(&self, patch: Value) -> Result<Pod, Refusal> {
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        let patched = self.pods.patch(&self.args.pod, &params, &patch);
        match tokio::time::timeout(self.limit, patched).await {
            Ok(Ok(pod)) => Ok(pod),
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(Refusal::Conflict),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(Refusal::Gone),
            Ok(Err(kube::Error::Api(status))) => Err(Refusal::Other(status.message)),
            Ok(Err(error)) => Err(Refusal::Other(error.to_string())),
            Err(_) => Err(Refusal::Other(format!(
                "the API server did not answer within {:?}",
                self.limit
            ))),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Conflict => f.write_str("others change it all the time"),
            Self::Gone => f.write_str("it is gone"),
            Self::Other(error) => f.write_str(error),
        }
    }
}

/// Where the pod of this UID stands.
pub(super) fn stage(pod: &Pod, uid: &str) -> Stage {
    let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref());
    if pod.metadata.uid.as_deref() != Some(uid) {
        Stage::Over("is another by now: its UID has changed")
    } else if node.is_some_and(|n| !n.is_empty()) {
        Stage::Bound
    } else if pod.metadata.deletion_timestamp.is_some() {
        Stage::Over("is being deleted")
    } else {
        Stage::Unbound
    }
}

/// The ids of the pod's finalizers.
pub(super) fn ids(pod: &Pod) -> Vec<String> {
    let finalizers = pod.metadata.finalizers.iter().flatten();
    finalizers
        .filter_map(|f| f.strip_prefix(UNDERLAY_FINALIZER))
        .map(str::to_owned)
        .collect()
}

/// The Service that the pod's annotation names.
pub(super) fn service(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(ANNOTATION).map(String::as_str)
}

/// Whether another bind is releasing this id.
pub(super) fn is_releasing(pod: &Pod, id: &str) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let ids = annotations.and_then(|a| a.get(RELEASING));
    ids.is_some_and(|ids| ids.split(',').any(|i| i == id))
}

fn finalizer(id: &str) -> String {
    [UNDERLAY_FINALIZER, id].concat()
}

fn adding(uid: &str, version: Option<&str>, id: &str, service: &str) -> Value {
    json!({ "metadata": {
        // A pod of the same name that is another by now stays as it is.
        "uid": uid,
        "resourceVersion": version,
        "finalizers": [finalizer(id)],
        "annotations": { ANNOTATION: service, RELEASING: null },
    }})
}

fn claiming(uid: &str, version: Option<&str>, ids: &[String]) -> Value {
    json!({ "metadata": {
        "uid": uid,
        "resourceVersion": version,
        "annotations": { RELEASING: ids.join(",") },
    }})
}

fn removing(uid: &str, version: Option<&str>, ids: &[String]) -> Value {
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
    fn what_a_pod_carries_and_where_it_stands() {
        let marked = pod(json!({
            "metadata": {"uid": "u", "annotations": {"constraint.ciena.com/underlay": "net/u"},
                "finalizers": ["x.y/z", "constraint.ciena.com/remove-underlay_p-1"]},
            "spec": {"containers": []},
        }));
        assert_eq!(ids(&marked), ["p-1"]);
        assert_eq!(service(&marked), Some("net/u"));
        assert_eq!(stage(&marked, "u"), Stage::Unbound);
        assert!(matches!(stage(&marked, "v"), Stage::Over(_)));
        let bound =
            pod(json!({"metadata": {"uid": "u"}, "spec": {"containers": [], "nodeName": "n"}}));
        assert_eq!(stage(&bound, "u"), Stage::Bound);
        assert!(ids(&bound).is_empty() && service(&bound).is_none());
        let going =
            pod(json!({"metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        assert_eq!(stage(&going, "u"), Stage::Over("is being deleted"));
    }

    #[test]
    fn a_claim_names_the_ids_and_needs_the_pod_as_it_was_read() {
        let patch = claiming("u", Some("7"), &["p".to_owned(), "q".to_owned()]);
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let claimed = pod(patch);
        let ids = ["p", "q", "r"].map(|id| is_releasing(&claimed, id));
        assert_eq!(ids, [true, true, false]);
    }

    #[test]
    fn patches_touch_no_other_finalizer() {
        assert_eq!(
            adding("u", Some("7"), "p", "net/u"),
            json!({"metadata": {"uid": "u", "resourceVersion": "7",
                "finalizers": ["constraint.ciena.com/remove-underlay_p"],
                "annotations": {"constraint.ciena.com/underlay": "net/u",
                    "constraint.ciena.com/underlay-releasing": null}}})
        );
        let finalizers = json!(["constraint.ciena.com/remove-underlay_p"]);
        assert_eq!(
            removing("u", None, &["p".to_owned()]),
            json!({"metadata": {"uid": "u", "$deleteFromPrimitiveList/finalizers": finalizers,
                "annotations": {"constraint.ciena.com/underlay-releasing": null}}})
        );
        assert_eq!(
            removing("u", Some("7"), &["p".to_owned()]),
            json!({"metadata": {"uid": "u", "resourceVersion": "7",
                "$deleteFromPrimitiveList/finalizers": finalizers,
                "annotations": {"constraint.ciena.com/underlay": null,
                    "constraint.ciena.com/underlay-releasing": null}}})
        );
    }
}
