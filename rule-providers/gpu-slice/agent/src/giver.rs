//! Gives a container the cards of its pod's record.

use std::{sync::Arc, time::Duration};

use tautline_gpu_placement::{
    device_annotation::CardShare, node_inventory::NodeInventory, shape::CARD_MILLI,
};
use tautline_runtime::events::{EventNote, Events, reference_to_pod};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    assignment::{self, Denial, PLACE_ANEW, Part, assign, find_card},
    cdi::{CardSpecs, Edits, VISIBLE, VOID},
    channels::Failure,
    device_plugin::{Give, Refusal},
    dra::{PreparedClaim, PreparedClaims},
    limits::{self, Mode, Settings},
    mig::Instances,
    occupancy::{Occupant, fits},
    pods::{PodEntry, PodRef, Pods},
};

/// The longest time that the start of a container waits for the pod, its record and free cards.
const START_WAIT: Duration = Duration::from_secs(5);
/// The interval at which occupied cards are checked again.
const OCCUPANCY_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The shortest time between two equal events; the kubelet tries a container again every few
/// seconds.
const EVENT_QUIET: Duration = Duration::from_secs(60);

/// Gives containers their cards.
pub(crate) struct Giver {
    pub node: String,
    pub pods: Arc<Pods>,
    /// The cards that the agent gives out; while there are none, containers that request cards are
    /// refused.
    pub inventory: watch::Receiver<Arc<NodeInventory>>,
    pub specs: Arc<CardSpecs>,
    /// The mode of limits that is in force, and its settings.
    pub mode: watch::Receiver<Mode>,
    pub limits: Settings,
    pub events: Arc<Events>,
    pub instances: Instances,
    /// The claims that are prepared, which hold their cards as running pods do.
    pub claims: Arc<PreparedClaims>,
}

#[tonic::async_trait]
impl Give for Giver {
    /// Waits for the pod, its record and free cards. The error has the text of the event on the
    /// pod; a pod that is not known has no event.
    async fn give(&self, pod: &PodRef, container: &str) -> Result<Edits, Refusal> {
        let deadline = Instant::now() + START_WAIT;
        let enough = |pod: &PodEntry| {
            let asks = pod.container(container).is_some_and(|c| !c.asks.is_empty());
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
                reason: why.code,
                text: format!(
                    "container {container} of pod {}/{} gets no card of node {}: {}; {}",
                    entry.namespace, entry.name, self.node, why.text, why.mend
                ),
            };
            self.publish(&entry, container, &refusal);
            refusal
        })
    }
}

impl Giver {
    /// Publishes the reason why a container of the pod gets no cards, at most once a minute.
    fn publish(&self, pod: &PodEntry, container: &str, refusal: &Refusal) {
        let key = format!("{}/{container}/{}", pod.uid, refusal.reason);
        self.events.publish_once(key, EVENT_QUIET, || {
            Some(EventNote {
                regarding: reference_to_pod(&pod.namespace, &pod.name, &pod.api_uid),
                secondary: None,
                warning: true,
                reason: "GpuRefused".to_owned(),
                action: "GiveGpu",
                text: refusal.to_string(),
            })
        });
    }

    async fn give_known(
        &self,
        pod: &PodEntry,
        container: &str,
        deadline: Instant,
    ) -> Result<Edits, Denial> {
        let inventory = self.inventory_until(deadline).await?;
        let parts = assign(pod, container, &inventory)?;
        let mut shares = Vec::new();
        if !parts.is_empty() {
            shares = assignment::shares(pod, &inventory)?;
        }
        let share_of = |part: Part| {
            let share = shares.iter().find(|share| *share.card == *part.0.uuid);
            Some((part, share?.clone()))
        };
        let given: Vec<_> = parts.into_iter().filter_map(share_of).collect();
        self.wait_free(&pod.uid, &given, &inventory, deadline)
            .await?;
        self.edits(&given, &inventory, deadline).await
    }

    /// Waits for the node's cards, and returns them.
    pub async fn cards(&self) -> Result<Arc<NodeInventory>, Denial> {
        self.inventory_until(Instant::now() + START_WAIT).await
    }

    /// Returns the changes for a container with the parts of cards that a claim was allocated, once
    /// no other pod or claim occupies them. An administrator's claim takes nothing, and so does not
    /// wait.
    pub async fn edits_of_claim(
        &self,
        uid: &str,
        given: &[(Part, CardShare)],
        is_admin: bool,
    ) -> Result<Edits, Denial> {
        let deadline = Instant::now() + START_WAIT;
        let inventory = self.inventory_until(deadline).await?;
        if !is_admin {
            self.wait_free(uid, given, &inventory, deadline).await?;
        }
        self.edits(given, &inventory, deadline).await
    }

    /// Returns the changes for a container with these parts of cards, each with the share of the pod
    /// or claim that it is of.
    async fn edits(
        &self,
        given: &[(Part, CardShare)],
        inventory: &NodeInventory,
        deadline: Instant,
    ) -> Result<Edits, Denial> {
        let parts: Vec<Part> = given.iter().map(|(part, _)| part.clone()).collect();
        let mode = *self.mode.borrow();
        let limits = limits::edits(mode, &self.limits, &parts).map_err(|error| {
            Denial::new("Limits", error.to_string(), "delete the pod afterwards")
        })?;
        let devices = self.devices(given, inventory).await?;
        let cdi = self.card_edits(&devices, deadline).await?;
        Ok(inject(&devices, cdi, limits))
    }

    async fn inventory_until(&self, deadline: Instant) -> Result<Arc<NodeInventory>, Denial> {
        let mut inventory = self.inventory.clone();
        let cards = inventory.wait_for(|inventory| !inventory.cards.is_empty());
        match timeout_at(deadline, cards).await {
            Ok(Ok(inventory)) => Ok(Arc::clone(&inventory)),
            _ => {
                let mend = "look for the reason in its log and in events of the node";
                Err(Denial::new(
                    "NoCards",
                    "the agent has no cards to give",
                    mend,
                ))
            }
        }
    }

    /// Waits until no running container of another pod and no other claim occupies these parts of
    /// cards.
    async fn wait_free(
        &self,
        uid: &str,
        given: &[(Part, CardShare)],
        inventory: &NodeInventory,
        deadline: Instant,
    ) -> Result<(), Denial> {
        let wanted: Vec<CardShare> = given.iter().map(|(_, share)| share.clone()).collect();
        let place = |held: &CardShare| {
            let card = find_card(inventory, &held.card)?;
            card.mig.as_ref()?.place_of(held.milli, held.start?)
        };
        loop {
            let Err(occupied) = fits(uid, &wanted, &self.occupants(inventory), place) else {
                return Ok(());
            };
            if Instant::now() + OCCUPANCY_POLL_INTERVAL >= deadline {
                return Err(occupied);
            }
            sleep(OCCUPANCY_POLL_INTERVAL).await;
        }
    }

    /// Returns the prepared claims, and the pods of which a container with cards runs, according to
    /// the API server, except those whose record cannot be read.
    fn occupants(&self, inventory: &NodeInventory) -> Vec<Occupant> {
        let pods = self.pods.all();
        let occupant = |pod: &Arc<PodEntry>| {
            Some(Occupant {
                uid: Arc::clone(&pod.uid),
                name: format!("{}/{}", pod.namespace, pod.name),
                held: assignment::shares(pod, inventory).ok()?,
            })
        };
        let holding = pods.iter().filter(|pod| pod.holds());
        let claim = |(uid, claim): (String, PreparedClaim)| Occupant {
            uid: uid.into(),
            name: format!("claim {}/{}", claim.namespace, claim.name),
            held: claim.shares(),
        };
        let claims = self.claims.all().into_iter().map(claim);
        holding.filter_map(occupant).chain(claims).collect()
    }

    /// Returns the parts with the UUIDs of the devices that the container sees: cards, or the MIG
    /// instances that the shares name.
    async fn devices(
        &self,
        given: &[(Part, CardShare)],
        inventory: &NodeInventory,
    ) -> Result<Vec<Part>, Denial> {
        let mut devices = Vec::with_capacity(given.len());
        for ((card, milli), share) in given {
            let mut card = card.clone();
            let bad = |what: &str| {
                let text = format!("card {} {what}", card.uuid);
                Denial::new("BadRecord", text, PLACE_ANEW)
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
                (None, None) => {
                    devices.push((card, *milli));
                    continue;
                }
            };
            let uuid = self.instances.make(&card, share.milli, start).await;
            let why = |why: Failure| {
                Denial::new("NoInstance", why.to_string(), "the kubelet tries again")
            };
            card.uuid = uuid.map_err(why)?;
            devices.push((card, *milli));
        }
        Ok(devices)
    }

    async fn card_edits(&self, parts: &[Part], deadline: Instant) -> Result<Option<Edits>, Denial> {
        if parts.is_empty() {
            return Ok(None);
        }
        let (specs, parts) = (Arc::clone(&self.specs), parts.to_vec());
        let read = tokio::task::spawn_blocking(move || specs.edits(&parts));
        match timeout_at(deadline, read).await {
            Ok(Ok(edits)) => Ok(edits),
            _ => {
                let text = "the node's CDI specs were not read in time";
                let mend = "the kubelet tries again";
                Err(Denial::new("CdiUnreadable", text, mend))
            }
        }
    }
}

/// Returns the changes for a container with these cards: the edits of their CDI devices, or else
/// the variable that NVIDIA's runtime obeys, and the container's limits.
fn inject(parts: &[Part], cdi: Option<Edits>, limits: Edits) -> Edits {
    let visible = match &cdi {
        None if !parts.is_empty() => {
            let uuids: Vec<&str> = parts.iter().map(|(card, _)| card.uuid.as_str()).collect();
            uuids.join(",")
        }
        _ => VOID.to_owned(),
    };
    let mut edits = cdi.unwrap_or_default();
    edits.extend(limits);
    edits.env.insert(VISIBLE.to_owned(), visible);
    edits
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use tautline_gpu_placement::node_inventory::InventoryCard;

    use super::*;
    use crate::cdi::Mount;

    fn part(uuid: &str) -> Part {
        let uuid = uuid.to_owned();
        let card = InventoryCard {
            uuid,
            ..InventoryCard::default()
        };
        (card, 250)
    }

    fn env(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = list.iter();
        pairs
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn text_of_an_event_begins_with_the_code() {
        let refusal = Refusal {
            reason: "NoRecord",
            text: "container app of pod shop/a gets no card".to_owned(),
        };
        let expected = "NoRecord: container app of pod shop/a gets no card";
        assert_eq!(refusal.to_string(), expected);
    }

    #[test]
    fn cdi_edits_turn_nvidias_runtime_off() {
        let mount = Mount {
            host_path: "/lib/libcuda.so".to_owned(),
            ..Mount::default()
        };
        let cdi = Edits {
            env: env(&[("NVIDIA_VISIBLE_DEVICES", "all"), ("A", "1")]),
            mounts: vec![mount.clone()],
            ..Edits::default()
        };
        let limits = Edits {
            env: env(&[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25")]),
            ..Edits::default()
        };
        let got = inject(&[part("GPU-a")], Some(cdi), limits);
        let expected = env(&[
            ("A", "1"),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25"),
            ("NVIDIA_VISIBLE_DEVICES", "void"),
        ]);
        assert_eq!((got.env, got.mounts), (expected, vec![mount]));
    }

    proptest! {
        #[test]
        fn without_cdi_just_the_given_cards_are_visible(
            uuids in prop::collection::btree_set("GPU-[0-9a-f]{4}", 0..5),
            forged in "[A-Za-z0-9,-]{0,12}",
        ) {
            let parts: Vec<Part> = uuids.iter().map(|u| part(u)).collect();
            let limits = Edits { env: env(&[(VISIBLE, &forged)]), ..Edits::default() };
            let got = inject(&parts, None, limits);
            let list: Vec<String> = uuids.into_iter().collect();
            let expected = if list.is_empty() { VOID.to_owned() } else { list.join(",") };
            prop_assert_eq!(got.env.get(VISIBLE), Some(&expected));
            prop_assert!(got.device_nodes.is_empty());
        }
    }
}
