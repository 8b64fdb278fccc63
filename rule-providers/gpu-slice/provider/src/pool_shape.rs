use tautline_gpu_placement::{CARD, Shape, SharingMode, inventory::CardPool};

use crate::{
    gpu_request::{Amount, GpuRequest, units_milli},
    unfit::Unfit,
};

pub(crate) fn shape_on_pool(request: &GpuRequest, pool: &CardPool) -> Result<Shape, Unfit> {
    let mode = pool.kind.mode;
    let milli = match (&request.amount, mode) {
        (Amount::Nothing, _) => 0,
        (Amount::Cards(cards), SharingMode::Whole | SharingMode::Milli) => {
            let milli = cards.saturating_mul(i64::from(CARD));
            return check_requested(request, pool, *cards).map(|()| request.shape(mode, milli));
        }
        (Amount::Cards(_), SharingMode::Shared { .. }) => {
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
                _ => units.saturating_mul(i64::from(CARD)),
            };
            return Ok(request.shape(mode, milli));
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

/// A device plugin counts its resource only, and could put two such pods on the same card.
fn check_requested(request: &GpuRequest, pool: &CardPool, units: i64) -> Result<(), Unfit> {
    let Some(resource) = &pool.resource else {
        return Ok(());
    };
    match request.requested(resource) {
        Some(requested) if requested < units => Err(Unfit::not_requested(units, resource)),
        _ => Ok(()),
    }
}

/// Rounded up.
fn memory_milli(pool: &CardPool, bytes: i64) -> Result<i64, Unfit> {
    let Some(card) = pool.card_memory_bytes.filter(|c| *c > 0) else {
        let detail = "the label nvidia.com/gpu.memory is missing";
        return Err(Unfit::new(3, "NoMemoryLabel", detail));
    };
    let milli = (i128::from(bytes) * 1000 + i128::from(card) - 1) / i128::from(card);
    match i64::try_from(milli) {
        Ok(milli) if milli <= i64::from(CARD) => Ok(milli),
        _ => Err(Unfit::new(4, "CardTooSmall", "one card has less memory")),
    }
}
