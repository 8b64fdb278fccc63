//! Gives containers their cards by their pod's record, for NRI and for the kubelet's device plugin.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tautline_gpu_placement::node_inventory::NodeInventory;
use tautline_runtime::events::Events;
use tokio::{sync::watch, time::Instant};

use crate::{
    assignment::{self, AssignmentError, Part, assign},
    cdi::CardSpecs,
    device_plugin::{Give, PodRef, Refusal},
    events,
    injection::{Injection, inject},
    limits::{LimitEdits, LimitError},
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
        let gift = self.give_until(pod, container, Instant::now() + WAIT);
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
    ) -> Result<Gift, Why> {
        let inventory = self.inventory_until(deadline).await?;
        let parts = assign(pod, container, &inventory)?;
        let mut occupant = Occupant {
            uid: Arc::clone(&pod.uid),
            name: format!("{}/{}", pod.namespace, pod.name),
            held: Vec::new(),
        };
        if !parts.is_empty() {
            occupant.held = held(&assignment::record(pod, &inventory)?);
            self.wait_free(&occupant, &parts, &inventory, deadline)
                .await?;
        }
        let limits = (self.limits)(&parts).map_err(|error| {
            let mend = "delete the pod afterwards";
            Why::new("Limits", error.to_string(), mend)
        })?;
        let cdi = self.card_edits(&parts, deadline).await?;
        let injection = inject(&parts, cdi, limits);
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
        let on_parts = |(card, _): &&Held| parts.iter().any(|(part, _)| part.uuid == *card);
        let wanted: Vec<Held> = occupant.held.iter().filter(on_parts).cloned().collect();
        loop {
            let Err(occupied) = fits(&occupant.uid, &wanted, &self.occupants(inventory)) else {
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
            held: held(&assignment::record(pod, inventory).ok()?),
        })
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

fn held(parts: &[Part]) -> Vec<Held> {
    let parts = parts.iter();
    parts
        .map(|(card, milli)| (card.uuid.clone(), *milli))
        .collect()
}
