//! Releases the allocations of earlier binds of a pod that is still unbound.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tautline_core::model::Service;

use super::{context::BindContext, finalizer};

#[derive(Debug)]
pub(super) enum StaleError {
    NothingReleased(String),
    /// Some allocations may have been released.
    Partial(String),
}

impl BindContext<'_> {
    /// Releases stale allocations, then removes their finalizers, so that each id stays on the pod
    /// until it is released. Returns the patched pod.
    pub async fn release_stale(&self, pod: &Pod, ids: &[String]) -> Result<Pod, StaleError> {
        let service = self
            .stale_underlay(pod)
            .map_err(StaleError::NothingReleased)?;
        // The earlier bind may still run at another replica. It cannot bind the pod after this
        // patch; if it has already bound the pod, or another bind has begun, the patch fails.
        let announced = self.client.announce_release(pod, ids).await.map_err(|e| {
            StaleError::Partial(format!(
                "is being changed by another writer, try again: {e}"
            ))
        })?;
        for (at, id) in ids.iter().enumerate() {
            if let Err(error) = self.release(&service, id).await {
                let error = format!("holds {id} of an earlier attempt, not released: {error}");
                return Err(match at {
                    0 => StaleError::NothingReleased(error),
                    _ => StaleError::Partial(error),
                });
            }
        }
        let removed = self.client.remove_finalizers(&announced, ids).await;
        removed.map_err(|e| {
            StaleError::Partial(format!("still has finalizers of an earlier attempt: {e}"))
        })
    }

    /// The underlay that the pod's annotation names, else the current underlay.
    fn stale_underlay(&self, pod: &Pod) -> Result<Arc<Service>, String> {
        if let Some(name) = finalizer::underlay_name(pod) {
            return self.underlay_named(name).ok_or_else(|| {
                format!(
                    "holds an allocation of the underlay {name}, which is no longer a Service \
                     with the label constraint.ciena.com/underlay-controller"
                )
            });
        }
        let current = self
            .state
            .providers
            .underlay(self.snapshot, &self.args.namespace);
        let error = "holds an allocation, and there is no underlay to release it";
        current.cloned().ok_or_else(|| error.to_owned())
    }
}
