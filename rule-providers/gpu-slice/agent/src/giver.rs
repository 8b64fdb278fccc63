//! Gives a container the cards of its pod's record.

use std::{sync::Arc, time::Duration};

use tautline_gpu_placement::{
    device_annotation::CardShare, mig::MigPlace, node_inventory::NodeInventory, shape::CARD_MILLI,
};
use tautline_runtime::events::Events;
use tokio::{sync::watch, time::Instant};

use crate::{
    assignment::{self, AssignmentError, Part, assign},
    cdi::CardSpecs,
    device_plugin::{Give, PodRef, Refusal},
    events,
    injection::{Injection, inject},
    limits::{LimitEdits, LimitError},
    mig::Instances,
    occupancy::{Held, Occupant, fits},
    pods::{PodEntry, Pods},
};

/// The longest time that the start of a container waits for the pod, its record and free cards.
const START_WAIT: Duration = Duration::from_secs(5);
/// The interval at which occupied cards are checked again.
const OCCUPANCY_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A function that returns the limits of a container with these cards.
pub(crate) type Limits = dyn Fn(&[Part]) -> Result<LimitEdits, LimitError> + Send + Sync;

/// Gives containers their cards.
pub(crate) struct Giver {
    pub node: String,
    pub pods: Arc<Pods>,
    /// The cards that the agent gives out; while there are none, containers that request cards are
    /// refused.
    pub inventory: watch::Receiver<Arc<NodeInventory>>,
    pub specs: Arc<CardSpecs>,
    pub limits: Box<Limits>,
    pub events: Arc<Events>,
    pub instances: Instances,
}

impl Give for Arc<Giver> {
    async fn give(&self, pod: &PodRef, container: &str) -> Result<Injection, Refusal> {
        let deadline = Instant::now() + START_WAIT;
        self.give_until(pod, container, deadline).await
    }
}

impl Giver {
    /// Returns the changes that give the container its cards. Waits for the pod, its record and
    /// free cards until the deadline.
    ///
    /// # Errors
    /// The reason for the refusal, with the text of the event on the pod. A pod that is not known
    /// has no event.
    async fn give_until(
        &self,
        pod: &PodRef,
        container: &str,
        deadline: Instant,
    ) -> Result<Injection, Refusal> {
        let enough = |pod: &PodEntry| {
            let asks = pod.container(container).is_some_and(|c| c.asks.any());
            pod.record.is_some() || !asks
        };
        let Some(entry) = self.pods.wait_for(pod, deadline, enough).await else {
            return Err(Refusal {
                reason: "UnknownPod",
                text: format!(
                    "container {container} of pod {pod} gets no card of node {}: the agent does \
                     not see the pod; if this lasts, look for errors of its watch in the agent's log",
                    self.node
                ),
            });
        };
        let given = self.give_known(&entry, container, deadline).await;
        given.map_err(|why| {
            let refusal = Refusal {
                reason: why.reason,
                text: format!(
                    "container {container} of pod {}/{} gets no card of node {}: {}; {}",
                    entry.namespace, entry.name, self.node, why.text, why.mend
                ),
            };
            events::refused(&self.events, &entry, container, &refusal);
            refusal
        })
    }

    async fn give_known(
        &self,
        pod: &PodEntry,
        container: &str,
        deadline: Instant,
    ) -> Result<Injection, Why> {
        let inventory = self.inventory_until(deadline).await?;
        let parts = assign(pod, container, &inventory)?;
        let mut held = Vec::new();
        if !parts.is_empty() {
            held = assignment::shares(pod, &inventory)?;
            self.wait_free(&pod.uid, &held, (&parts, &inventory), deadline)
                .await?;
        }
        let limits = (self.limits)(&parts).map_err(|error| {
            let mend = "delete the pod afterwards";
            Why::new("Limits", error.to_string(), mend)
        })?;
        let devices = self.devices(&parts, &held, &inventory).await?;
        let cdi = self.card_edits(&devices, deadline).await?;
        Ok(inject(&devices, cdi, limits))
    }

    async fn inventory_until(&self, deadline: Instant) -> Result<Arc<NodeInventory>, Why> {
        let mut inventory = self.inventory.clone();
        let cards = inventory.wait_for(|inventory| !inventory.cards.is_empty());
        match tokio::time::timeout_at(deadline, cards).await {
            Ok(Ok(inventory)) => Ok(Arc::clone(&inventory)),
            _ => {
                let text = "the agent has no cards to give".to_owned();
                let mend = "look for the reason in its log and in events of the node";
                Err(Why::new("NoCards", text, mend))
            }
        }
    }

    /// Waits until no running container of another pod occupies the pod's part of these cards.
    async fn wait_free(
        &self,
        uid: &str,
        held: &[Held],
        (parts, inventory): (&[Part], &NodeInventory),
        deadline: Instant,
    ) -> Result<(), Why> {
        let on_parts = |held: &&Held| parts.iter().any(|(part, _)| *part.uuid == *held.card);
        let wanted: Vec<Held> = held.iter().filter(on_parts).cloned().collect();
        loop {
            let occupants = self.occupants(inventory);
            let place = |held: &Held| place(held, inventory);
            let Err(occupied) = fits(uid, &wanted, &occupants, place) else {
                return Ok(());
            };
            if Instant::now() + OCCUPANCY_POLL_INTERVAL >= deadline {
                let mend = "the kubelet tries again";
                return Err(Why::new("OccupiedCard", occupied.to_string(), mend));
            }
            tokio::time::sleep(OCCUPANCY_POLL_INTERVAL).await;
        }
    }

    /// Returns the pods of which a container with cards runs, according to the API server.
    fn occupants(&self, inventory: &NodeInventory) -> Vec<Occupant> {
        let pods = self.pods.all();
        let holding = pods.iter().filter(|pod| pod.holds());
        holding.filter_map(|pod| occupant(pod, inventory)).collect()
    }

    /// Returns the parts with the UUIDs of the devices that the container sees: cards, or the MIG
    /// instances that the pod's record names.
    async fn devices(
        &self,
        parts: &[Part],
        record: &[CardShare],
        inventory: &NodeInventory,
    ) -> Result<Vec<Part>, Why> {
        let mut devices = parts.to_vec();
        for (card, _) in &mut devices {
            let Some(share) = record.iter().find(|share| *share.card == *card.uuid) else {
                continue;
            };
            let bad = |what: &str| {
                let text = format!("card {} {what}", card.uuid);
                Why::new(
                    "BadRecord",
                    text,
                    "delete the pod so that it is placed anew",
                )
            };
            let start = match (&card.mig, share.start) {
                (Some(_), Some(start)) => start,
                (Some(_), None) => return Err(bad("has MIG on, and the record names no slice")),
                (None, Some(_)) => return Err(bad("has MIG off, and the record names a slice")),
                (None, None) if inventory.is_mig() && share.milli < CARD_MILLI => {
                    return Err(bad(
                        "has MIG off, so limits mig cannot hold on a share of it",
                    ));
                }
                (None, None) => continue,
            };
            let uuid = self.instances.make(card, share.milli, start).await;
            let why = |text| Why::new("NoInstance", text, "the kubelet tries again");
            card.uuid = uuid.map_err(why)?;
        }
        Ok(devices)
    }

    async fn card_edits(
        &self,
        parts: &[Part],
        deadline: Instant,
    ) -> Result<Option<Injection>, Why> {
        if parts.is_empty() {
            return Ok(None);
        }
        let (specs, parts) = (Arc::clone(&self.specs), parts.to_vec());
        let read = tokio::task::spawn_blocking(move || specs.edits(&parts));
        match tokio::time::timeout_at(deadline, read).await {
            Ok(Ok(edits)) => Ok(edits),
            _ => {
                let text = "the node's CDI specs were not read in time".to_owned();
                let mend = "the kubelet tries again";
                Err(Why::new("CdiUnreadable", text, mend))
            }
        }
    }
}

struct Why {
    reason: &'static str,
    text: String,
    mend: &'static str,
}

impl Why {
    fn new(reason: &'static str, text: String, mend: &'static str) -> Self {
        Self { reason, text, mend }
    }
}

impl From<AssignmentError> for Why {
    fn from(error: AssignmentError) -> Self {
        Self::new(error.code(), error.to_string(), error.mend())
    }
}

/// Returns the pod with the shares of its record; `None` if the record cannot be read.
fn occupant(pod: &PodEntry, inventory: &NodeInventory) -> Option<Occupant> {
    Some(Occupant {
        uid: Arc::clone(&pod.uid),
        name: format!("{}/{}", pod.namespace, pod.name),
        held: assignment::shares(pod, inventory).ok()?,
    })
}

fn place(held: &Held, inventory: &NodeInventory) -> Option<MigPlace> {
    let card = inventory
        .cards
        .iter()
        .find(|card| *card.uuid == *held.card)?;
    card.mig.as_ref()?.place_of(held.milli, held.start?)
}
