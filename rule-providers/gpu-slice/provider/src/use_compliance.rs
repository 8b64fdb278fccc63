//! Checks that pods use only their own cards, by the reported use of their containers.

use std::{collections::HashMap, time::Instant};

use tautline_core::{Snapshot, model::Pod};
use tautline_gpu_placement::{
    CARD_MILLI, Inventory,
    inventory::{Card, CardPool},
};
use tautline_proto::gpu::ContainerUse;
use tautline_sdk::{Compliance, Evaluation};

use crate::{
    cluster_inventory::ClusterInventory,
    use_store::{NodeUse, SeenUse, UseStore},
};

/// The used percentage of a part's memory from which the use is near its limit.
const NEAR_LIMIT_PERCENT: u64 = 95;
/// The memory, in bytes, that monitoring, or a process outside of pods such as a display server,
/// may use of any card.
const STRAY_BYTES: u64 = 64 << 20;

/// Returns the worst evaluation of the cards that the pod's record names, and of the cards that it
/// uses without having them. `None`: nothing is wrong, or nothing is known.
pub(crate) fn of_pod(
    cluster: &ClusterInventory,
    uses: &UseStore,
    pod: &Pod,
    now: Instant,
) -> Option<Evaluation> {
    let node = pod.node.as_deref()?;
    let used = uses.fresh(node, now)?;
    let inventory = &cluster.node(node)?.inventory;
    let assigned = inventory.assigned_cards(&cluster.names, pod);
    let parts = assigned.and_then(Result::ok).unwrap_or_default();
    let mut held: Vec<(&CardPool, &Card, u64)> = Vec::new();
    for part in &parts {
        let Some((pool, card)) = inventory.card(&part.card) else {
            continue;
        };
        match held.iter_mut().find(|(_, of, _)| std::ptr::eq(*of, card)) {
            Some((.., milli)) => *milli += u64::from(part.milli),
            None => held.push((pool, card, part.milli.into())),
        }
    }
    let of_cards = held.into_iter().flat_map(|(pool, card, milli)| {
        let on_card = OnCard { node, card, used };
        [
            on_card.memory(pod, milli, pool.card_memory_bytes),
            on_card.stray(),
        ]
    });
    let is_own = |seen: &&SeenUse| !pod.uid.is_empty() && *seen.of.pod_uid == *pod.uid;
    let mut own = used.containers.iter().filter(is_own);
    let own_stray = own.find_map(|seen| {
        if !seen.is_stray() {
            return None;
        }
        let (_, card) = inventory.card(&seen.of.card)?;
        Some(Evaluation::violation(stray_use(&seen.of, card, node)))
    });
    let mut found: Vec<Evaluation> = own_stray.into_iter().chain(of_cards.flatten()).collect();
    let worst = Compliance::aggregate(found.iter().map(|e| e.compliance));
    let at = found.iter().position(|e| e.compliance == worst)?;
    Some(found.swap_remove(at))
}

/// The pods that may use the cards of a node.
pub(crate) struct Users<'a> {
    inventory: &'a Inventory,
    pods: HashMap<&'a str, &'a Pod>,
}

impl<'a> Users<'a> {
    pub(crate) fn new(inventory: &'a Inventory, snapshot: &'a Snapshot, node: &str) -> Self {
        let pods = snapshot.pods_on(node).iter();
        Self {
            inventory,
            pods: pods.map(|pod| (&*pod.uid, &**pod)).collect(),
        }
    }

    /// Returns whether a container uses more than [`STRAY_BYTES`] of a card that an agent gives
    /// out, and no record gives the card to its pod.
    pub(crate) fn is_stray(&self, of: &ContainerUse) -> bool {
        let Some((pool, card)) = self.inventory.card(&of.card) else {
            return false;
        };
        if !pool.offered || of.memory_bytes <= STRAY_BYTES {
            return false;
        }
        if of.pod_uid.is_empty() {
            return true;
        }
        // A reservation has the name of its pod, also before the watch shows the pod's binding.
        let (namespace, name) = match self.pods.get(&*of.pod_uid) {
            Some(pod) => (&*pod.namespace, &*pod.name),
            None => (&*of.namespace, &*of.pod),
        };
        let is_pod = |holder: &str| holder.split_once('/') == Some((namespace, name));
        !card.holders.iter().any(|h| h.annotated && is_pod(&h.pod))
    }
}

struct OnCard<'a> {
    node: &'a str,
    card: &'a Card,
    used: &'a NodeUse,
}

impl OnCard<'_> {
    /// Evaluates the pod's use of its part of the card's memory. A pod may fill the memory of a
    /// whole card.
    fn memory(&self, pod: &Pod, milli: u64, card_bytes: Option<i64>) -> Option<Evaluation> {
        let card_bytes = u64::try_from(card_bytes?).ok().filter(|bytes| *bytes > 0)?;
        if milli >= u64::from(CARD_MILLI) {
            return None;
        }
        let allowed = u64::try_from(u128::from(card_bytes) * u128::from(milli) / 1000).ok()?;
        let own = |of: &&ContainerUse| *of.pod_uid == *pod.uid;
        let used = self.containers().filter(own);
        let used = used.fold(0_u64, |sum, of| sum.saturating_add(of.memory_bytes));
        let reason = || {
            let (used, allowed) = amounts(used, allowed);
            format!(
                "pod {} uses {used} of its {allowed} on card {} of node {}",
                pod.name,
                self.card.record_name(),
                self.node
            )
        };
        if used > allowed {
            return Some(Evaluation::violation(reason()));
        }
        let percent = u128::from(used) * 100 / u128::from(allowed.max(1));
        (percent >= u128::from(NEAR_LIMIT_PERCENT)).then(|| {
            let reason = format!("{}: {percent} %", reason());
            Evaluation::new(Compliance::Limit, reason)
        })
    }

    /// Evaluates the use of the card by a container or process that does not have it. The pod of
    /// such a container is itself a violation. For the pods that have the card, its use is only
    /// Limit; otherwise any pod could get them evicted.
    fn stray(&self) -> Option<Evaluation> {
        let mut seen = self.used.containers.iter().filter(|seen| seen.is_stray());
        let of = &seen.find(|seen| self.card.is(&seen.of.card))?.of;
        let reason = stray_use(of, self.card, self.node);
        Some(if of.pod_uid.is_empty() {
            Evaluation::violation(reason)
        } else {
            Evaluation::new(Compliance::Limit, reason)
        })
    }

    fn containers(&self) -> impl Iterator<Item = &ContainerUse> {
        let all = self.used.containers.iter().map(|seen| &seen.of);
        all.filter(|of| self.card.is(&of.card))
    }
}

fn stray_use(of: &ContainerUse, card: &Card, node: &str) -> String {
    let who = match (&*of.pod_uid, &*of.pod) {
        ("", _) => format!("process {} outside of pods", of.container),
        (uid, "") => format!("a container of pod {uid}, which is gone or not known,"),
        (_, pod) if of.container.is_empty() => format!("pod {}/{pod}", of.namespace),
        (_, pod) => format!("container {} of pod {}/{pod}", of.container, of.namespace),
    };
    let (used, _) = amounts(of.memory_bytes, 0);
    format!(
        "{who} uses {used} of card {} of node {node} without having it",
        card.record_name()
    )
}

/// Formats both amounts in GiB, or in MiB where GiB would show less than one or no difference.
fn amounts(used: u64, allowed: u64) -> (String, String) {
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1_u32 << 30));
    let mib = |bytes: u64| format!("{} MiB", bytes.div_ceil(1 << 20));
    let small = used < 1 << 30 && allowed < 1 << 30;
    if small || (gib(used) == gib(allowed) && used != allowed) {
        return (mib(used), mib(allowed));
    }
    (gib(used), gib(allowed))
}

#[cfg(test)]
#[path = "use_compliance_tests.rs"]
mod tests;
