//! Who needs to know where pods are, and when. Of a large cluster they are most of what
//! there is, and most of what changes, so they are followed only once it takes them: for
//! rules `bandwidth`, which count what all pods hold, and for callers of Evaluate that do
//! not say where their targets are.

use std::{sync::Arc, time::Instant};

use tautline_core::index::Kind;
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{EvaluationRequest, ProviderError};
use tokio::sync::watch;

use crate::{bandwidth, verify::time_to_measure};

/// Clones are one. By default the feed has pods from its start.
#[derive(Clone, Debug, Default)]
pub struct Pods(Option<Arc<watch::Sender<bool>>>);

impl Pods {
    /// Pods come into the feed only after [`Pods::wanted`] has ended.
    pub fn when_wanted() -> Self {
        Self(Some(Arc::default()))
    }

    /// Ends once they must be known. `not_so_far` is told while all policies are known
    /// and none needs them.
    pub async fn wanted(self, feed: ClusterStore, not_so_far: impl Fn()) {
        let Some(wanted) = self.0 else { return };
        let (mut asked, mut changes) = (wanted.subscribe(), feed.changes_except_pods());
        let counted = |feed: &ClusterStore| {
            let snapshot = feed.snapshot();
            let mut rules = snapshot.policies().flat_map(|p| &p.rules);
            rules.any(|rule| *rule.name == *bandwidth::RULE)
        };
        loop {
            // Looked at first: what was listed then is in what is counted now.
            let all = feed.listed(Kind::Policy);
            let (by_caller, by_policy) = (*asked.borrow_and_update(), counted(&feed));
            if by_caller || by_policy {
                tracing::info!(by_caller, by_policy, "pods are followed from now on");
                return;
            }
            if all {
                not_so_far();
            }
            tokio::select! {
                _ = asked.changed() => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// Waits for them, within four fifths of the caller's time.
    ///
    /// # Errors
    /// They are not known yet.
    pub(crate) async fn known(
        &self,
        feed: &ClusterStore,
        deadline: Option<Instant>,
    ) -> Result<(), ProviderError> {
        let Some(wanted) = &self.0 else { return Ok(()) };
        let mut changes = feed.changes();
        if feed.listed(Kind::Pod) {
            return Ok(());
        }
        wanted.send_replace(true);
        let listed = async { while !feed.listed(Kind::Pod) && changes.changed().await.is_ok() {} };
        let by = time_to_measure(deadline, Instant::now());
        let in_time = match by {
            Some(by) => tokio::time::timeout_at(by.into(), listed).await.is_ok(),
            None => false,
        };
        let late = || ProviderError::NotReady("pods are being listed; ask again".to_owned());
        in_time.then_some(()).ok_or_else(late)
    }
}

/// Whether it is said of all pods where they are.
pub(crate) fn are_told(ask: &EvaluationRequest) -> bool {
    let mut pods = ask.targets.iter().filter(|(_, t)| t.kind == "Pod");
    pods.all(|(name, _)| ask.target_nodes.contains_key(name))
}

#[cfg(test)]
mod tests;
