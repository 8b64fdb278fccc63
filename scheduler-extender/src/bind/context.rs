//! The inputs of one bind, and its calls to the underlay and about its pod.

use std::{fmt, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::Patch};
use serde_json::Value;
use tautline_core::{
    Snapshot,
    constraints::{PodConstraints, PodIdentity},
    model::Service,
};
use tautline_provider_client::CallError;
use tautline_runtime::{api_call::within, pods};

use crate::{state::State, wire::BindArgs};

/// The reason why nothing was bound: the metric's outcome, and the text.
pub(super) type BindFailure = (&'static str, String);

#[derive(Clone, Copy)]
pub(super) struct BindContext<'a> {
    pub state: &'a State,
    pub snapshot: &'a Snapshot,
    pub client: PodClient<'a>,
    pub args: &'a BindArgs,
    pub pod: &'a PodIdentity,
    /// The constraints of the pod; empty for an ungoverned pod.
    pub constraints: &'a [PodConstraints],
}

impl BindContext<'_> {
    pub fn fail(&self, reason: &str) -> BindFailure {
        ("failed", format!("{} {reason}", self.client.object()))
    }

    /// The Service `namespace/name`, if it still is an underlay.
    pub fn underlay_named(&self, name: &str) -> Option<Arc<Service>> {
        let providers = &self.state.providers;
        let service = providers.underlay_named(self.snapshot, name, &self.pod.namespace);
        service.cloned()
    }

    pub async fn release(&self, service: &Service, id: &str) -> Result<(), CallError> {
        let providers = &self.state.providers;
        let released = providers.release_underlay(self.snapshot, service, id).await;
        let outcome = if released.is_ok() { "released" } else { "left" };
        self.state.metrics.underlay_allocation(outcome);
        released
    }
}

/// The maximum number of attempts of a patch or Binding while other writers change the pod.
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

    pub async fn get(&self) -> Result<Pod, BindFailure> {
        let pod = within(self.timeout, pods::get(self.pods, &self.args.pod)).await;
        pod.map_err(|e| ("failed", format!("{}: {e}", self.object())))
    }

    pub async fn patch(&self, patch: Value) -> Result<Pod, PatchError> {
        let patch = Patch::Strategic(patch);
        let patched = within(self.timeout, pods::patch(self.pods, &self.args.pod, &patch)).await;
        patched.map_err(|error| match error.code() {
            Some(409) => PatchError::Conflict,
            Some(404) => PatchError::Gone,
            _ => PatchError::Other(error.message()),
        })
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::{Client, client::Body};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn errors_are_the_message_of_the_api_server() {
        let server = tower::service_fn(|_: http::Request<Body>| async {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "message": "pods \"web-0\" is forbidden: no", "reason": "Forbidden",
                "details": {"name": "web-0", "kind": "pods"}, "code": 403});
            let answer = http::Response::builder().status(403);
            Ok::<_, Infallible>(
                answer
                    .body(Body::from(status.to_string().into_bytes()))
                    .unwrap(),
            )
        });
        let pods = Api::namespaced(Client::new(server, "default"), "shop");
        let args = BindArgs {
            pod: "web-0".into(),
            namespace: "shop".into(),
            ..BindArgs::default()
        };
        let client = PodClient {
            pods: &pods,
            args: &args,
            timeout: Duration::from_secs(60),
        };
        let message = "pods \"web-0\" is forbidden: no";
        let expected = format!("pod shop/web-0: {message} (403)");
        assert_eq!(client.get().await.unwrap_err(), ("failed", expected));
        let error = client.patch(json!({})).await.unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}
