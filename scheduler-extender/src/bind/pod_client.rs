//! Reads and patches the pod to bind at the API server.

use std::{fmt, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::Value;

use crate::wire::BindArgs;

/// How often a patch or Binding is tried while other writers change the pod.
pub(super) const MAX_TRIES: usize = 4;

#[derive(Clone, Copy)]
pub(super) struct PodClient<'a> {
    pub pods: &'a Api<Pod>,
    pub args: &'a BindArgs,
    pub timeout: Duration,
}

#[derive(Debug)]
pub(super) enum PatchError {
    Conflict,
    Gone,
    Other(String),
}

impl PodClient<'_> {
    pub fn object(&self) -> String {
        format!("pod {}/{}", self.args.namespace, self.args.pod)
    }

    pub async fn get(&self) -> Result<Pod, String> {
        match tokio::time::timeout(self.timeout, self.pods.get(&self.args.pod)).await {
            Ok(result) => result.map_err(|e| format!("{}: {e}", self.object())),
            Err(_) => Err(format!("{}: {}", self.object(), self.timed_out())),
        }
    }

    pub async fn patch(&self, patch: Value) -> Result<Pod, PatchError> {
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        let patched = self.pods.patch(&self.args.pod, &params, &patch);
        match tokio::time::timeout(self.timeout, patched).await {
            Ok(Ok(pod)) => Ok(pod),
            Ok(Err(kube::Error::Api(status))) => Err(match status.code {
                409 => PatchError::Conflict,
                404 => PatchError::Gone,
                _ => PatchError::Other(status.message),
            }),
            Ok(Err(error)) => Err(PatchError::Other(error.to_string())),
            Err(_) => Err(PatchError::Other(self.timed_out())),
        }
    }

    fn timed_out(&self) -> String {
        format!("the API server did not answer within {:?}", self.timeout)
    }
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("other writers keep changing it"),
            Self::Gone => f.write_str("it is gone"),
            Self::Other(error) => f.write_str(error),
        }
    }
}
