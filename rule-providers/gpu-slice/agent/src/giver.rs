//! The cards of a container by its pod's record: the kubelet's device plugin gives them, the NRI plugin
//! holds them.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tautline_gpu_placement::{
    device_annotation::CardShare, mig::MigPlace, node_inventory::NodeInventory, shape::CARD,
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
    occupancy::{Held, Occupancy, Occupant, fits},
    pods::{PodEntry, Pods},
};

/// How long a start waits for the pod and its record where nothing else waits for it.
const WAIT: Duration = Duration::from_secs(5);
/// How often an occupied card is looked at again.
const POLL: Duration = Duration::from_millis(100);

/// The limits of a container with these cards.
pub(crate) type Limits = dyn Fn(&[Part]) -> Result<LimitEdits, LimitError> + Send + Sync;

/// Gives containers their cards.
pub(crate) struct Giver {
    pub node: String,
    pub pods: Arc<Pods>,
    /// Empty where the agent gives out nothing: then containers that ask for cards are refused.
    pub inventory: watch::Receiver<Arc<NodeInventory>>,
    pub specs: Arc<CardSpecs>,
    pub limits: Box<Limits>,
    pub events: Arc<Events>,
    /// As the runtime tells; without NRI it is empty.
    pub occupancy: Mutex<Occupancy>,
    pub instances: Instances,
}

/// What a start does for the MIG instance of its pod's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MigInstance {
    /// Makes it if need be, also after the deadline.
    Make,
    /// Waits until another start has made it.
    Find,
}

/// What a container gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gift {
    /// The pod with all that its record gives.
    pub occupant: Occupant,
    /// Empty: the container asks for no card.
    pub parts: Vec<Part>,
    pub injection: Injection,
}

impl Give for Arc<Giver> {
    async fn give(&self, pod: &PodRef, container: &str) -> Result<Injection, Refusal> {
        let deadline = Instant::now() + WAIT;
        let gift = self.give_until(pod, container, deadline, MigInstance::Make);
        gift.await.map(|gift| gift.injection)
    }
}

impl Giver {
    /// The container's cards; waits for the pod, its record and free cards until the deadline.
    ///
    /// # Errors
    /// The text that the pod's event has too.
    pub async fn give_until(
        &self,
        pod: &PodRef,
        container: &str,
        deadline: Instant,
        instance: MigInstance,
    ) -> Result<Gift, Refusal> {
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
        let given = self.give_known(&entry, container, deadline, instance).await;
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
        instance: MigInstance,
    ) -> Result<Gift, Why> {
        let inventory = self.inventory_until(deadline).await?;
        let parts = assign(pod, container, &inventory)?;
        let mut occupant = Occupant {
            uid: Arc::clone(&pod.uid),
            name: format!("{}/{}", pod.namespace, pod.name),
            held: Vec::new(),
        };
        if !parts.is_empty() {
            occupant.held = assignment::shares(pod, &inventory)?;
            self.wait_free(&occupant, &parts, &inventory, deadline)
                .await?;
        }
        let limits = (self.limits)(&parts).map_err(|error| {
            let mend = "delete the pod afterwards";
            Why::new("Limits", error.to_string(), mend)
        })?;
        let devices = self.devices(&parts, &occupant.held, &inventory, (instance, deadline));
        let devices = devices.await?;
        let cdi = self.card_edits(&devices, deadline).await?;
        let injection = inject(&devices, cdi, limits);
        Ok(Gift {
            occupant,
            parts,
            injection,
        })
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

    /// Waits until no other pod's containers run on the pod's part of these cards.
    async fn wait_free(
        &self,
        occupant: &Occupant,
        parts: &[Part],
        inventory: &NodeInventory,
        deadline: Instant,
    ) -> Result<(), Why> {
        let on_parts = |held: &&Held| parts.iter().any(|(part, _)| *part.uuid == *held.card);
        let wanted: Vec<Held> = occupant.held.iter().filter(on_parts).cloned().collect();
        loop {
            let occupants = self.occupants(inventory);
            let place = |held: &Held| place(held, inventory);
            let Err(occupied) = fits(&occupant.uid, &wanted, &occupants, place) else {
                return Ok(());
            };
            if Instant::now() + POLL >= deadline {
                let mend = "the kubelet tries again";
                return Err(Why::new("OccupiedCard", occupied.to_string(), mend));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// By running containers, as the runtime and as the API server know them.
    fn occupants(&self, inventory: &NodeInventory) -> Vec<Occupant> {
        let mut occupants: Vec<Occupant> = self.occupancy.lock().occupants().cloned().collect();
        for pod in self.pods.all().iter().filter(|pod| pod.holds()) {
            if occupants.iter().all(|occupant| occupant.uid != pod.uid) {
                occupants.extend(self.occupant(pod, inventory));
            }
        }
        occupants
    }

    /// What the pod's record gives; `None` if it cannot be read.
    pub fn occupant(&self, pod: &PodEntry, inventory: &NodeInventory) -> Option<Occupant> {
        Some(Occupant {
            uid: Arc::clone(&pod.uid),
            name: format!("{}/{}", pod.namespace, pod.name),
            held: assignment::shares(pod, inventory).ok()?,
        })
    }

    /// The parts by the UUID of what the container sees: a card, or the MIG instance that the pod's
    /// record means.
    async fn devices(
        &self,
        parts: &[Part],
        record: &[CardShare],
        inventory: &NodeInventory,
        (instance, deadline): (MigInstance, Instant),
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
                (None, None) if inventory.is_mig() && share.milli < CARD => {
                    return Err(bad(
                        "has MIG off, so limits mig cannot hold on a share of it",
                    ));
                }
                (None, None) => continue,
            };
            let uuid = match instance {
                MigInstance::Make => self.instances.make(card, share.milli, start).await,
                MigInstance::Find => {
                    let instances = &self.instances;
                    instances.find(card, share.milli, start, deadline).await
                }
            };
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

fn place(held: &Held, inventory: &NodeInventory) -> Option<MigPlace> {
    let card = inventory
        .cards
        .iter()
        .find(|card| *card.uuid == *held.card)?;
    card.mig.as_ref()?.place_of(held.milli, held.start?)
}
