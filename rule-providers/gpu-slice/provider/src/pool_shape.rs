//! Computes the shape of a GPU request on a pool of cards (whole cards, or a share in thousandths
//! of a card), or the reason why the pool cannot serve it.

use tautline_core::model::MAX_CONTAINERS;
use tautline_gpu_placement::{
    CARD_MILLI, Shape, SharingMode,
    containers::{PartError, parts_of},
    inventory::CardPool,
    node_inventory::{MEMORY_RESOURCE, MILLI_RESOURCE},
    shape,
};

use crate::{
    fit::Unfit,
    gpu_request::{Amount, GpuRequest, units_milli},
};

/// A number of whole cards that exceeds any node's number of cards.
const MAX_WHOLE_CARDS: u16 = 1_024;

pub(crate) fn shape_on_pool(request: &GpuRequest, pool: &CardPool) -> Result<Shape, Unfit> {
    let mode = pool.kind.mode;
    if mode == SharingMode::Claim {
        let detail = "its agent gives cards to claims only: claim devices of class gpu.tautline.io";
        return Err(Unfit::new(2, "GpuNotOffered", detail));
    }
    if pool.has_agent() {
        let Some(milli) = pool.round_up(agent_milli(request, pool)?) else {
            let detail = "its cards are given whole: MIG is off, and the node's limits are mig";
            return Err(Unfit::new(2, "NoSharedGpu", detail));
        };
        if milli > 0 && !pool.offered {
            let detail = "its agent is away, or another device plugin has the cards: \
                          tautline.io/gpu-milli is not allocatable";
            return Err(Unfit::new(8, "GpuNotOffered", detail));
        }
        let shape = request.shape(mode, milli);
        return check_containers(request, pool, &shape).map(|()| shape);
    }
    let milli = match (&request.amount, mode) {
        (Amount::Nothing, _) => 0,
        (Amount::Cards(cards), SharingMode::Whole | SharingMode::Milli | SharingMode::Agent) => {
            let milli = cards.saturating_mul(i64::from(CARD_MILLI));
            return check_requested(request, pool, *cards).map(|()| request.shape(mode, milli));
        }
        (Amount::Cards(_), SharingMode::Shared { .. } | SharingMode::Claim) => {
            let detail = "its cards are shared, whole ones are wanted";
            return Err(Unfit::new(1, "NoSuchGpu", detail));
        }
        (Amount::Share(_) | Amount::Memory(_), SharingMode::Whole) => {
            return Err(Unfit::no_shared_gpu());
        }
        (Amount::Share(milli), _) => *milli,
        (Amount::Memory(bytes), _) => memory_milli(pool, *bytes)?,
        (Amount::Units { resource, units }, _) => {
            if pool.resource.as_deref() != Some(resource) {
                let detail = format!("it offers no {resource}");
                return Err(Unfit::new(0, "NoSuchGpu", detail));
            }
            let milli = match mode {
                SharingMode::Shared { unit_milli } => units_milli(*units, unit_milli),
                _ => units.saturating_mul(i64::from(CARD_MILLI)),
            };
            return Ok(request.shape(mode, milli));
        }
        (Amount::OfAgent(_), _) => {
            let detail = "no agent gives out its cards";
            return Err(Unfit::new(0, "NoSuchGpu", detail));
        }
    };
    let SharingMode::Shared { unit_milli } = mode else {
        return Ok(request.shape(mode, milli));
    };
    let unit = i64::from(unit_milli.max(1));
    let units = (milli + unit - 1) / unit;
    check_requested(request, pool, units)?;
    Ok(request.shape(mode, units_milli(units, unit_milli)))
}

/// Checks that the pod requests enough units of the pool's resource. A device plugin counts its
/// resource only, and could put two pods that request too little on the same card.
fn check_requested(request: &GpuRequest, pool: &CardPool, units: i64) -> Result<(), Unfit> {
    let Some(resource) = &pool.resource else {
        return Ok(());
    };
    match request.requested(resource) {
        Some(requested) if requested < units => Err(Unfit::not_requested(units, resource)),
        _ => Ok(()),
    }
}

/// Returns the thousandths of a card that the pod gets from an agent. The agent gives each
/// container the amount that the container requests, so the pod gets its own request. The rule's
/// request is the minimum that the pod must request.
fn agent_milli(request: &GpuRequest, pool: &CardPool) -> Result<i64, Unfit> {
    let rule = match &request.amount {
        Amount::Nothing | Amount::OfAgent(_) => 0,
        Amount::Cards(cards) => cards.saturating_mul(i64::from(CARD_MILLI)),
        Amount::Share(milli) => *milli,
        Amount::Memory(bytes) => memory_milli(pool, *bytes)?,
        Amount::Units { resource, .. } => {
            let detail = format!("it offers no {resource}");
            return Err(Unfit::new(0, "NoSuchGpu", detail));
        }
    };
    let Some(own) = request.of_agent() else {
        return Ok(rule);
    };
    let by_memory = match own.memory_gib {
        0 => 0,
        _ => memory_milli(pool, own.memory_bytes())?,
    };
    match own.milli.max(by_memory) {
        own if own >= rule => Ok(own),
        _ => Err(match request.amount {
            Amount::Memory(bytes) => {
                let gib = bytes.saturating_add((1 << 30) - 1) >> 30;
                Unfit::not_requested(gib, MEMORY_RESOURCE)
            }
            _ => Unfit::not_requested(rule, MILLI_RESOURCE),
        }),
    }
}

/// Checks that each container finds its part on the pod's cards, as the agent will give it.
fn check_containers(request: &GpuRequest, pool: &CardPool, shape: &Shape) -> Result<(), Unfit> {
    if request.containers.len() > MAX_CONTAINERS {
        let detail = format!("more than {MAX_CONTAINERS} containers of the pod request cards");
        return Err(Unfit::new(8, "ContainerSplit", detail));
    }
    // No node has that many cards.
    if shape.whole > MAX_WHOLE_CARDS {
        return Ok(());
    }
    let memory = pool.card_memory_bytes.unwrap_or_default();
    let memory = u64::try_from(memory).unwrap_or_default();
    let whole = (0..shape.whole).map(|_| CARD_MILLI);
    let parts = whole.chain(Some(shape.share).filter(|share| *share > 0));
    let cards: Vec<((), u16)> = parts.map(|milli| ((), milli)).collect();
    for at in 0..request.containers.len() {
        let part = parts_of(&request.containers, at, cards.clone(), |()| memory);
        if let Err(PartError::Short { asks, left }) = part {
            let left: Vec<String> = left.iter().map(|milli| format!("{milli}m")).collect();
            let left = match left.as_slice() {
                [] => "none".to_owned(),
                left => left.join(" and "),
            };
            let detail = format!(
                "a container needs {asks}m, with a part of a card on one card, and the pod's other \
                 containers leave it {left}: request whole cards, or amounts that fill cards together"
            );
            return Err(Unfit::new(8, "ContainerSplit", detail));
        }
    }
    Ok(())
}

/// Returns the thousandths of a card that have `bytes` of memory, rounded up.
fn memory_milli(pool: &CardPool, bytes: i64) -> Result<i64, Unfit> {
    let Some(card) = pool.card_memory_bytes.filter(|c| *c > 0) else {
        let detail = if pool.has_agent() {
            "its agent reports no memory of the cards"
        } else {
            "the label nvidia.com/gpu.memory is missing"
        };
        return Err(Unfit::new(3, "NoMemoryLabel", detail));
    };
    shape::memory_milli(bytes, card)
        .ok_or_else(|| Unfit::new(4, "CardTooSmall", "one card has less memory"))
}
