//! Prepares the start of a container that holds device IDs: finds the container by the IDs, finds
//! its cards, and passes these to the container runtime in a CDI spec.
//!
//! The kubelet calls Allocate once, when it admits the pod, and stores the answer for all starts of
//! the container, also in its checkpoint. It calls PreStartContainer before each start, once for
//! each resource, and waits 30 s; an error becomes an event on the pod, and the kubelet tries
//! again. After a restart the kubelet does not call PreStartContainer until the agent has
//! registered again, so the answer of Allocate alone must not give a card.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;
use tonic::Status;

use super::{
    allocations::Reader,
    holders::{Holder, held_by, holder},
    ids::{Counted, token},
};
use crate::{
    cdi::{Edits, OWN_KIND, OwnSpecs, VISIBLE, VOID},
    kubelet::device_plugin::{CdiDevice, ContainerAllocateResponse},
    metrics::Metrics,
    pods::PodRef,
};

/// The reason why a container gets no cards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {text}")]
pub(crate) struct Refusal {
    /// A stable code for events and metrics.
    pub reason: &'static str,
    /// A text that names the pod, the container and the remedy.
    pub text: String,
}

/// Gives containers their cards.
#[tonic::async_trait]
pub(crate) trait Give: Send + Sync {
    /// Returns the changes that give a container its cards by its pod's record.
    async fn give(&self, pod: &PodRef, container: &str) -> Result<Edits, Refusal>;
}

/// The state that the services of both resources share.
pub(crate) struct Starter {
    pub allocations: Reader,
    pub giver: Arc<dyn Give>,
    pub specs: OwnSpecs,
    pub metrics: Metrics,
}

impl Starter {
    /// Returns the answer to Allocate. The runtime refuses the container until PreStartContainer
    /// has written the spec of the CDI device.
    pub fn answer(&self, ids: &[String]) -> Result<ContainerAllocateResponse, Status> {
        let token = token(ids.iter().map(String::as_str));
        // The last holder of the same IDs may have left a spec.
        let removed = self.specs.remove(&token);
        removed.map_err(|e| Status::internal(format!("CDI spec {OWN_KIND}={token}: {e}")))?;
        let name = format!("{OWN_KIND}={token}");
        Ok(ContainerAllocateResponse {
            // With this variable a runtime without CDI shows no cards.
            envs: BTreeMap::from([(VISIBLE.to_owned(), VOID.to_owned())]),
            cdi_devices: vec![CdiDevice { name }],
        })
    }

    /// Prepares the start of the container that holds these IDs.
    pub async fn start(&self, counted: Counted, ids: &[String]) -> Result<(), Status> {
        let begun = Instant::now();
        self.prepare(counted, ids)
            .await
            .inspect(|()| self.metrics.given(begun.elapsed()))
            .map_err(|Refusal { reason, text }| {
                self.metrics.refused(reason, begun.elapsed());
                tracing::info!(reason, text, "a container may not start");
                Status::failed_precondition(text)
            })
    }

    async fn prepare(&self, counted: Counted, ids: &[String]) -> Result<(), Refusal> {
        let holder = self.holder(counted, ids).await?;
        let mut edits = self.give(&holder).await?;
        if holder.both && counted == Counted::Memory {
            // The spec of the other resource has the devices; this one only has to exist.
            edits = Edits {
                env: edits.env,
                ..Edits::default()
            };
        }
        let token = token(ids.iter().map(String::as_str));
        self.specs.write(&token, edits).map_err(|error| {
            let text = format!(
                "{} gets no cards: the CDI spec {OWN_KIND}={token} was not written: {error}; mend \
                 /var/run/cdi on the node",
                describe(&holder)
            );
            refusal("CdiNotWritten", text)
        })
    }

    async fn holder(&self, counted: Counted, ids: &[String]) -> Result<Holder, Refusal> {
        let allocations = self.allocations.read().await.map_err(|error| {
            let text = format!("no cards: {error}; the kubelet tries again");
            refusal("NoPodResources", text)
        })?;
        holder(&allocations, counted, ids).ok_or_else(|| {
            let text = format!(
                "no cards: the kubelet names no container that holds these {} of {}; it tries again",
                ids.len(),
                counted.resource()
            );
            refusal("UnknownContainer", text)
        })
    }

    /// Returns the changes for the holder's containers, which must all get the same.
    async fn give(&self, holder: &Holder) -> Result<Edits, Refusal> {
        let mut given: Option<Edits> = None;
        for container in &holder.containers {
            let edits = self.giver.give(&holder.pod, container).await?;
            match &given {
                Some(first) if *first != edits => {
                    let text = format!(
                        "{} get different cards, but the kubelet does not say which of them \
                         starts: let them request different amounts",
                        describe(holder)
                    );
                    return Err(refusal("AmbiguousContainer", text));
                }
                _ => given = Some(edits),
            }
        }
        given.ok_or_else(|| refusal("UnknownContainer", "no cards: no container".to_owned()))
    }

    /// Removes specs that no container needs and that are at least `age` old. The runtime reads a
    /// spec only once, when it creates the container.
    pub async fn sweep(&self, age: Duration) {
        if !self.specs.exist() {
            return;
        }
        let Ok(allocations) = self.allocations.read().await else {
            return;
        };
        let mut live = HashSet::new();
        for container in allocations.listed.iter().flat_map(|pod| &pod.containers) {
            for counted in Counted::ALL {
                live.insert(token(held_by(container, counted.resource())));
            }
        }
        if let Err(error) = self.specs.sweep(&live, age) {
            tracing::warn!(%error, "old CDI specs stay");
        }
    }

    /// Returns all IDs of a resource that containers hold; empty if the kubelet does not answer.
    pub async fn held(&self, counted: Counted) -> HashSet<String> {
        let allocations = self.allocations.read().await.unwrap_or_default();
        let containers = allocations.listed.iter().flat_map(|pod| &pod.containers);
        containers
            .flat_map(|container| held_by(container, counted.resource()))
            .map(str::to_owned)
            .collect()
    }
}

fn describe(holder: &Holder) -> String {
    let names: Vec<&str> = holder.containers.iter().map(String::as_str).collect();
    let s = if names.len() == 1 { "" } else { "s" };
    format!("container{s} {} of pod {}", names.join(" and "), holder.pod)
}

fn refusal(reason: &'static str, text: String) -> Refusal {
    Refusal { reason, text }
}
