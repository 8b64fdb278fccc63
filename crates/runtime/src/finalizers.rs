//! Adds and removes finalizers of pods. Strategic merge patches leave other writers' finalizers.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::api_call::within;

const DEADLINE: Duration = Duration::from_secs(5);

/// A change of finalizers that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The pod is gone, or another one has its name.
    #[error("pod {0} is gone, or another of that name has come")]
    Gone(String),
    /// The write failed: the pod and the error.
    #[error("pod {0}: {1}")]
    Failed(String, String),
}

/// Adds a finalizer and an annotation to the pod with this UID.
///
/// # Errors
/// The pod is gone or being deleted, or the write failed.
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

/// Removes a finalizer from the pod with this UID.
///
/// # Errors
/// The pod is gone, or the write failed.
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
