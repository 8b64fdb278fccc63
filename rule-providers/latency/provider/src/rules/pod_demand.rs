//! The demand for pods, which are watched only when they are needed, as most objects and changes
//! are pods. Rules `bandwidth` need them to count the reservations of all pods, and so do callers
//! of Evaluate that do not send the nodes of their targets.

use std::{sync::Arc, time::Instant};

use tautline_core::index::Kind;
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{EvaluationRequest, ProviderError};
use tokio::sync::watch;

use super::{bandwidth::RULE as BANDWIDTH, context::measuring_deadline};

/// The demand for pods. Clones share their state. By default the store has pods from the start.
#[derive(Clone, Debug, Default)]
pub struct PodDemand(Option<Arc<watch::Sender<bool>>>);

impl PodDemand {
    pub fn on_request() -> Self {
        Self(Some(Arc::default()))
    }

    /// Waits until pods are needed; calls `not_needed` when no listed policy needs them.
    pub async fn requested(self, store: ClusterStore, not_needed: impl Fn()) {
        let Some(requested) = self.0 else { return };
        let (mut by_caller, mut changes) = (requested.subscribe(), store.changes_except_pods());
        let by_policy = |store: &ClusterStore| {
            let snapshot = store.snapshot();
            let mut rules = snapshot.policies().flat_map(|p| &p.rules);
            rules.any(|rule| *rule.name == *BANDWIDTH)
        };
        loop {
            // Read first, so that `by_policy` sees at least the listed policies.
            let listed = store.listed(Kind::Policy);
            let (caller, policy) = (*by_caller.borrow_and_update(), by_policy(&store));
            if caller || policy {
                tracing::info!(by_caller = caller, by_policy = policy, "watching pods");
                return;
            }
            if listed {
                not_needed();
            }
            tokio::select! {
                _ = by_caller.changed() => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// Requests pods and waits until they are listed, for at most four fifths of the caller's time.
    pub(crate) async fn listed(
        &self,
        store: &ClusterStore,
        deadline: Option<Instant>,
    ) -> Result<(), ProviderError> {
        let Some(requested) = &self.0 else {
            return Ok(());
        };
        let mut changes = store.changes();
        if store.listed(Kind::Pod) {
            return Ok(());
        }
        requested.send_replace(true);
        let listed = async { while !store.listed(Kind::Pod) && changes.changed().await.is_ok() {} };
        let by = measuring_deadline(deadline, Instant::now());
        let in_time = match by {
            Some(by) => tokio::time::timeout_at(by.into(), listed).await.is_ok(),
            None => false,
        };
        let late = || ProviderError::NotReady("pods are being listed; ask again".to_owned());
        in_time.then_some(()).ok_or_else(late)
    }
}

pub(crate) fn names_all_pod_nodes(request: &EvaluationRequest) -> bool {
    let mut pods = request.targets.iter().filter(|(_, t)| t.is_local_pod());
    pods.all(|(name, _)| request.target_nodes.contains_key(name))
}

#[cfg(test)]
mod tests;
