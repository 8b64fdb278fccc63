//! Finalizers of pods. Strategic merge patches add to and take from the set on
//! the server, so no other writer's is lost.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::api_call::within;

/// The most that one write may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Why a pod's finalizers were not changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("pod {0} is gone, or another of that name has come")]
    Gone(String),
    #[error("pod {0}: {1}")]
    Failed(String, String),
}

/// Adds a finalizer to the pod with this UID, and an annotation with it.
///
/// # Errors
/// The pod is gone or going, or the API server did not take it.
pub async fn add(
    pods: &Api<Pod>,
    name: &str,
    uid: &str,
    finalizer: &str,
    (key, value): (&str, &str),
) -> Result<(), Error> {
    let metadata = json!({"uid": uid, "finalizers": [finalizer], "annotations": {key: value}});
    patch(pods, name, metadata).await
}

/// Takes a finalizer from the pod with this UID.
///
/// # Errors
/// The pod is gone, or the API server did not take it.
pub async fn remove(pods: &Api<Pod>, name: &str, uid: &str, finalizer: &str) -> Result<(), Error> {
    let metadata = json!({"uid": uid, "$deleteFromPrimitiveList/finalizers": [finalizer]});
    patch(pods, name, metadata).await
}

async fn patch(pods: &Api<Pod>, name: &str, metadata: Value) -> Result<(), Error> {
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    let params = PatchParams::default();
    let patched = pods.patch_metadata(name, &params, &patch);
    match within(DEADLINE, patched).await {
        Ok(_) => Ok(()),
        // Only the UID can conflict.
        Err(error) if matches!(error.code(), Some(404 | 409)) => Err(Error::Gone(name.to_owned())),
        Err(error) => Err(Error::Failed(name.to_owned(), error.to_string())),
    }
}
