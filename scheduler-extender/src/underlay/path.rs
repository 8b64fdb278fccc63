//! What a bind holds of the underlay, until the pod is bound or it is given back.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tautline_core::model::Service;

use super::{
    bind::{Bind, TRIES},
    mark::{self, Refusal, Stage},
    turns::Turn,
};

/// An allocation that this bind made.
pub(crate) struct Path<'a> {
    bind: Bind<'a>,
    service: Arc<Service>,
    id: String,
    /// The pod with the finalizer, as it was read last.
    pod: Pod,
    changes: usize,
    _turn: Turn<'a>,
}

impl<'a> Path<'a> {
    pub(super) fn new(
        bind: Bind<'a>,
        service: Arc<Service>,
        id: String,
        pod: Pod,
        turn: Turn<'a>,
    ) -> Self {
        Self {
            bind,
            service,
            id,
            pod,
            changes: 0,
            _turn: turn,
        }
    }

    pub(super) fn service(&self) -> &Service {
        &self.service
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// What the Binding must be written to: the pod with our finalizer.
    pub(crate) fn version(&self) -> Option<String> {
        self.pod.metadata.resource_version.clone()
    }

    /// After the Binding met a conflict: whether to write it again, because the pod
    /// still waits with our finalizer on it, and nobody else takes it over.
    pub(crate) async fn again(&mut self) -> bool {
        self.changes += 1;
        if self.changes >= TRIES {
            return false;
        }
        let Ok(now) = self.bind.marked().get().await else {
            return false;
        };
        let ours = mark::ids(&now) == [self.id.as_str()]
            && !mark::is_releasing(&now, &self.id)
            && mark::stage(&now, &self.bind.args.uid) == Stage::Unbound;
        if ours {
            self.pod = now;
        }
        ours
    }

    /// The pod turned out to be bound. If by another attempt, what we hold is not
    /// on it and nobody else would release it.
    pub(crate) async fn settle(&self, pod: &Pod) {
        if !mark::ids(pod).contains(&self.id) {
            _ = self.release().await;
        }
    }

    /// The pod is not bound: releases, then takes the finalizer away. Without the
    /// first the second must not happen; the next bind tries again, or whoever
    /// sees the pod go.
    pub(crate) async fn undo(&self) {
        if self.release().await {
            self.unmark().await;
        }
    }

    async fn release(&self) -> bool {
        let released = self.bind.release(&self.service, &self.id).await;
        if let Err(error) = &released {
            tracing::warn!(pod = %self.bind.args.pod, namespace = %self.bind.args.namespace, id = %self.id, %error, "an allocation was not released; the pod's finalizer stays");
        }
        released.is_ok()
    }

    /// Takes the finalizer away: only of what is released, or never was allocated.
    pub(super) async fn unmark(&self) {
        let marked = self.bind.marked();
        let ids = [self.id.clone()];
        let alone = mark::ids(&self.pod).len() == 1;
        let mut removed = marked.remove(&ids, alone.then_some(&self.pod)).await;
        if alone && matches!(removed, Err(Refusal::Conflict)) {
            removed = marked.remove(&ids, None).await;
        }
        match removed {
            Ok(_) | Err(Refusal::Gone) => {}
            // Released already: whoever releases it again finds nothing.
            Err(error) => {
                tracing::warn!(pod = %self.bind.args.pod, namespace = %self.bind.args.namespace, id = %self.id, %error, "a finalizer was not removed");
            }
        }
    }
}
