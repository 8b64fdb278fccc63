//! An underlay allocation of a bind, until the pod is bound or the allocation is released, and the
//! release of those of earlier binds.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tautline_core::model::Service;

use super::{
    context::{BindContext, MAX_TRIES, PatchError},
    finalizer::{self, PodState},
};
use crate::bind_locks::BindLock;

pub(super) struct Allocation<'a> {
    pub context: BindContext<'a>,
    pub service: Arc<Service>,
    pub id: String,
    /// The pod with the finalizer, as it was last read.
    pub pod: Pod,
    pub conflicts: usize,
    pub _lock: BindLock<'a>,
}

impl Allocation<'_> {
    /// The version of the pod with the finalizer, the only one that the Binding applies to.
    pub fn pod_version(&self) -> Option<String> {
        self.pod.metadata.resource_version.clone()
    }

    /// Reads the pod again after a conflict of the Binding. Returns whether the Binding can be
    /// retried: the pod is unbound, has only this finalizer, and no other bind releases it.
    pub async fn can_retry(&mut self) -> bool {
        self.conflicts += 1;
        if self.conflicts >= MAX_TRIES {
            return false;
        }
        let Ok(pod) = self.context.client.get().await else {
            return false;
        };
        let can_retry = finalizer::allocation_ids(&pod) == [self.id.as_str()]
            && !finalizer::is_releasing(&pod, &self.id)
            && finalizer::pod_state(&pod, &self.context.args.uid) == PodState::Unbound;
        if can_retry {
            self.pod = pod;
        }
        can_retry
    }

    /// Releases the allocation if the bound pod lacks this finalizer, since another attempt has
    /// bound it.
    pub async fn release_if_unused(&self, bound: &Pod) {
        if !finalizer::allocation_ids(bound).contains(&self.id) {
            _ = self.release().await;
        }
    }

    /// Releases the allocation of an unbound pod, then removes the finalizer. If the release
    /// fails the finalizer stays: the next bind, or the controller at deletion, retries.
    pub async fn undo(&self) {
        if self.release().await {
            self.remove_finalizer().await;
        }
    }

    async fn release(&self) -> bool {
        let released = self.context.release(&self.service, &self.id).await;
        if let Err(error) = &released {
            let args = self.context.args;
            tracing::warn!(pod = %args.pod, namespace = %args.namespace, id = %self.id, %error, "an allocation was not released; the pod's finalizer stays");
        }
        released.is_ok()
    }

    /// Removes the finalizer of an id that is released or was never allocated.
    pub async fn remove_finalizer(&self) {
        let ids = [self.id.clone()];
        match self.context.client.remove_finalizers(&self.pod, &ids).await {
            Ok(_) | Err(PatchError::Gone) => {}
            // A later Release of the id answers NOT_FOUND, which counts as released.
            Err(error) => {
                let args = self.context.args;
                tracing::warn!(pod = %args.pod, namespace = %args.namespace, id = %self.id, %error, "a finalizer was not removed");
            }
        }
    }
}

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
        let service = self.stale_underlay(pod)?;
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
    fn stale_underlay(&self, pod: &Pod) -> Result<Arc<Service>, StaleError> {
        if let Some(name) = finalizer::underlay_name(pod) {
            return self.underlay_named(name).ok_or_else(|| {
                StaleError::NothingReleased(format!(
                    "holds an allocation of the underlay {name}, which is no longer a Service \
                     with the label constraint.ciena.com/underlay-controller"
                ))
            });
        }
        let (providers, namespace) = (&self.state.providers, &self.args.namespace);
        let current = providers.underlay(self.snapshot, namespace).cloned();
        current.ok_or_else(|| {
            let error = "holds an allocation, and there is no underlay to release it";
            StaleError::NothingReleased(error.to_owned())
        })
    }
}
