//! Checks that pods use only their own cards, by the reported use of their containers.

use std::time::Instant;

use tautline_core::model::Pod;
use tautline_gpu_placement::{
    CARD_MILLI,
    inventory::{Card, CardPool},
};
use tautline_proto::gpu::ContainerUse;
use tautline_sdk::{Compliance, Evaluation};

use crate::{
    compliance::worst,
    state::State,
    use_store::{NodeUse, SeenUse},
};

/// The used percentage of a part's memory from which the use is near its limit.
const NEAR_LIMIT_PERCENT: u64 = 95;

/// Returns the worst evaluation of the cards that the pod's claims or record name, and of the cards
/// that it uses without having them. `None`: nothing is wrong, or nothing is known.
pub(crate) fn of_pod(state: &State, pod: &Pod, now: Instant) -> Option<Evaluation> {
    let node = pod.node.as_deref()?;
    let used = state.uses.fresh(node, now)?;
    let inventory = &state.inventory.nodes.get(node)?.inventory;
    let claimed = state.devices.pools.agent_parts(pod);
    let recorded = || inventory.assigned_cards(pod)?.ok();
    let parts = claimed.or_else(recorded).unwrap_or_default();
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
    let is_own = |seen: &&SeenUse| !pod.uid.is_empty() && *seen.of.pod_uid == *pod.uid;
    let strays = used.containers.iter().filter(|seen| seen.is_stray());
    let own_stray = strays.clone().filter(is_own).find_map(|seen| {
        let (_, card) = inventory.card(&seen.of.card)?;
        Some(Evaluation::violation(stray_use(&seen.of, card, node)))
    });
    let mut found: Vec<Evaluation> = own_stray.into_iter().collect();
    for (pool, card, milli) in held {
        found.extend(memory_use(pod, node, (pool, card), milli, used));
        let stray = strays.clone().find(|seen| card.is(&seen.of.card));
        found.extend(stray.map(|seen| stray_beside(&seen.of, card, node)));
    }
    worst(found)
}

/// Evaluates the pod's use of its part of the card's memory. A pod may fill the memory of a whole
/// card.
fn memory_use(
    pod: &Pod,
    node: &str,
    (pool, card): (&CardPool, &Card),
    milli: u64,
    used: &NodeUse,
) -> Option<Evaluation> {
    let card_bytes = u64::try_from(pool.card_memory_bytes?).ok();
    let card_bytes = card_bytes.filter(|bytes| *bytes > 0)?;
    if milli >= u64::from(CARD_MILLI) {
        return None;
    }
    let allowed = u64::try_from(u128::from(card_bytes) * u128::from(milli) / 1000).ok()?;
    let containers = used.containers.iter().map(|seen| &seen.of);
    let own = containers.filter(|of| *of.pod_uid == *pod.uid && card.is(&of.card));
    let used = own.fold(0_u64, |sum, of| sum.saturating_add(of.memory_bytes));
    let reason = || {
        let ((used, allowed), pod) = (amounts(used, allowed), &pod.name);
        let card = card.record_name();
        format!("pod {pod} uses {used} of its {allowed} on card {card} of node {node}")
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

/// Evaluates the use of a card by a container or process that does not have it, for a pod that has
/// it. The pod of such a container is itself a violation. For the pods that have the card, its use
/// is only Limit; otherwise any pod could get them evicted.
fn stray_beside(of: &ContainerUse, card: &Card, node: &str) -> Evaluation {
    let reason = stray_use(of, card, node);
    if of.pod_uid.is_empty() {
        Evaluation::violation(reason)
    } else {
        Evaluation::new(Compliance::Limit, reason)
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
