//! The requests for whole pods. Each crate that calls `Api<Pod>` itself compiles the decoding of a
//! pod, with all its volumes and probes, once more.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Result,
    api::{ListParams, ObjectList, Patch, PatchParams},
};
use serde_json::Value;

/// Returns the pod with this name.
///
/// # Errors
/// The pod does not exist, or the API server did not answer.
pub async fn get(pods: &Api<Pod>, name: &str) -> Result<Pod> {
    pods.get(name).await
}

/// Returns a page of the pods.
///
/// # Errors
/// The API server answered with an error or not at all.
pub async fn list(pods: &Api<Pod>, params: &ListParams) -> Result<ObjectList<Pod>> {
    pods.list(params).await
}

/// Patches the pod, and returns the patched object.
///
/// # Errors
/// The API server answered with an error or not at all.
pub async fn patch(pods: &Api<Pod>, name: &str, patch: &Patch<Value>) -> Result<Pod> {
    pods.patch(name, &PatchParams::default(), patch).await
}
