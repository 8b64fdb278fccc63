//! Finalizers of pods, changed without losing those of others.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

/// The most that one look or write may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// Others write pods, too: so often their conflict is tried again.
const TRIES: usize = 5;

/// Why a pod's finalizers could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("pod {0} is gone, or another of that name has come")]
    Gone(String),
    #[error("pod {0}: {1}")]
    Failed(String, String),
}

/// Adds `add` to and removes `remove` from the finalizers of the pod with this
/// UID, and sets `annotations`, in one write. Nothing to change is no write.
///
/// # Errors
/// The pod is gone, or the API server did not take it.
pub async fn change(
    pods: &Api<Pod>,
    name: &str,
    uid: &str,
    add: &[String],
    remove: &[String],
    annotations: &[(&str, String)],
) -> Result<(), Error> {
    let failed = |what: String| Error::Failed(name.to_owned(), what);
    let mut last = String::new();
    for _ in 0..TRIES {
        let pod = match tokio::time::timeout(DEADLINE, pods.get_opt(name)).await {
            Ok(Ok(Some(pod))) if pod.metadata.uid.as_deref() == Some(uid) => pod,
            Ok(Ok(_)) => return Err(Error::Gone(name.to_owned())),
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => return Err(failed(format!("no answer within {DEADLINE:?}"))),
        };
        let before = pod.metadata.finalizers.unwrap_or_default();
        let mut after: Vec<String> = before
            .iter()
            .filter(|f| !remove.contains(f))
            .cloned()
            .collect();
        after.extend(add.iter().filter(|f| !before.contains(f)).cloned());
        let has = |(key, value): &(&str, String)| {
            let all = pod.metadata.annotations.as_ref();
            all.and_then(|a| a.get(*key)) == Some(value)
        };
        if after == before && annotations.iter().all(has) {
            return Ok(());
        }
        let annotations: serde_json::Map<String, serde_json::Value> = annotations
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.clone().into()))
            .collect();
        // The version makes a write of others in between a conflict.
        let patch = json!({"metadata": {
            "uid": uid,
            "resourceVersion": pod.metadata.resource_version,
            "finalizers": after,
            "annotations": annotations,
        }});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        match tokio::time::timeout(DEADLINE, pods.patch_metadata(name, &params, &patch)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                return Err(Error::Gone(name.to_owned()));
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => last = status.message,
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => return Err(failed(format!("no answer within {DEADLINE:?}"))),
        }
    }
    Err(failed(format!("{TRIES} conflicts, the last: {last}")))
}
