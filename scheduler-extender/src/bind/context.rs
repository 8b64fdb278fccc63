//! The inputs of one bind, and its calls to the underlay.

use std::sync::Arc;

use tautline_core::{
    Snapshot,
    constraints::{PodConstraints, PodIdentity},
    model::Service,
};

use super::pod_client::PodClient;
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

    pub async fn release(&self, service: &Service, id: &str) -> Result<(), String> {
        let providers = &self.state.providers;
        let released = providers.release_underlay(self.snapshot, service, id).await;
        let outcome = if released.is_ok() { "released" } else { "left" };
        self.state.metrics.underlay_allocation(outcome);
        released.map_err(|e| e.to_string())
    }
}
