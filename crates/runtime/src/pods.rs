//! The requests for whole pods. They return boxed futures, which are compiled here: a crate that
//! calls `Api<Pod>` itself, or awaits an `async fn` that does, compiles the decoding of a pod, with
//! all its volumes and probes, once more.

use futures::future::BoxFuture;
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
pub fn get<'a>(pods: &'a Api<Pod>, name: &'a str) -> BoxFuture<'a, Result<Pod>> {
    Box::pin(pods.get(name))
}

/// Returns a page of the pods.
///
/// # Errors
/// The API server answered with an error or not at all.
pub fn list<'a>(
    pods: &'a Api<Pod>,
    params: &'a ListParams,
) -> BoxFuture<'a, Result<ObjectList<Pod>>> {
    Box::pin(pods.list(params))
}

/// Patches the pod, and returns the patched object.
///
/// # Errors
/// The API server answered with an error or not at all.
pub fn patch<'a>(
    pods: &'a Api<Pod>,
    name: &'a str,
    patch: &'a Patch<Value>,
) -> BoxFuture<'a, Result<Pod>> {
    Box::pin(async move { pods.patch(name, &PatchParams::default(), patch).await })
}
