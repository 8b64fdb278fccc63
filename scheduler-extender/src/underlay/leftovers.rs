//! What an earlier bind left on a pod that is not bound: released, then unmarked.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tautline_core::model::Service;

use super::{
    bind::Bind,
    mark::{self, Refusal},
};

/// Why the pod still carries earlier allocations.
#[derive(Debug)]
pub(super) enum Stuck {
    /// None of them is released.
    Whole(String),
    /// Some are.
    Part(String),
}

impl Bind<'_> {
    /// Releases what earlier attempts allocated, then takes the finalizers away: in
    /// this order, so that none goes before its id is released. Gives the pod as it
    /// is then.
    pub(super) async fn give_back(&self, whole: &Pod, ids: &[String]) -> Result<Pod, Stuck> {
        let service = self.allocator_of(whole).map_err(Stuck::Whole)?;
        let marked = self.marked();
        // The earlier attempt may still run, at another replica. From here on it
        // cannot bind the pod; if it has, or another has begun, this fails.
        let claimed = marked.claim(whole, ids).await;
        let claimed = claimed
            .map_err(|e| Stuck::Part(format!("is being changed by another, try again: {e}")))?;
        for (at, id) in ids.iter().enumerate() {
            if let Err(error) = self.release(&service, id).await {
                let error = format!("holds {id} of an earlier attempt, not released: {error}");
                return Err(match at {
                    0 => Stuck::Whole(error),
                    _ => Stuck::Part(error),
                });
            }
        }
        let all = mark::ids(&claimed).len() == ids.len();
        let mut removed = marked.remove(ids, all.then_some(&claimed)).await;
        if all && matches!(removed, Err(Refusal::Conflict)) {
            removed = marked.remove(ids, None).await;
        }
        removed.map_err(|e| Stuck::Part(format!("keeps finalizers of an earlier attempt: {e}")))
    }

    /// The underlay that allocated what the pod carries: the one that it names, or
    /// if it names none the one that would be asked now.
    fn allocator_of(&self, whole: &Pod) -> Result<Arc<Service>, String> {
        match mark::service(whole) {
            Some(named) => self.service(named).ok_or_else(|| {
                format!(
                    "holds an allocation of the underlay {named}, which is no Service with the \
                     label constraint.ciena.com/underlay-controller any more"
                )
            }),
            None => {
                let now = self
                    .state
                    .discovery
                    .underlay(self.snapshot, &self.args.namespace);
                let error = "holds an allocation, and there is no underlay to release it";
                now.cloned().ok_or_else(|| error.to_owned())
            }
        }
    }
}
