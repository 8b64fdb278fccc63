//! A need as a pool of cards would serve it.

use tautline_gpu_placement::{CARD, Lane, Shape, inventory::Pool};

use crate::{
    need::{Amount, Need, units_milli},
    refusal::{No, no},
};

/// The need as this pool would serve it.
pub(crate) fn shape(need: &Need, pool: &Pool) -> Result<Shape, No> {
    let lane = pool.kind.lane;
    let milli = match (&need.amount, lane) {
        (Amount::Nothing, _) => 0,
        (Amount::Cards(cards), Lane::Whole | Lane::Milli) => {
            let milli = cards.saturating_mul(i64::from(CARD));
            return requested(need, pool, *cards).map(|()| need.shape(lane, milli));
        }
        (Amount::Cards(_), Lane::Shared { .. }) => {
            return Err(no(
                1,
                "NoSuchGpu",
                "its cards are shared, whole ones are wanted",
            ));
        }
        (Amount::Share(_) | Amount::Memory(_), Lane::Whole) => {
            return Err(no(1, "NoSharedGpu", "no card of it is shared"));
        }
        (Amount::Share(milli), _) => *milli,
        (Amount::Memory(bytes), _) => memory_milli(pool, *bytes)?,
        (Amount::Units { resource, units }, _) => {
            if pool.resource.as_deref() != Some(resource) {
                return Err(no(0, "NoSuchGpu", format!("it offers no {resource}")));
            }
            let milli = match lane {
                Lane::Shared { unit_milli } => units_milli(*units, unit_milli),
                _ => units.saturating_mul(i64::from(CARD)),
            };
            return Ok(need.shape(lane, milli));
        }
    };
    let Lane::Shared { unit_milli } = lane else {
        return Ok(need.shape(lane, milli));
    };
    let unit = i64::from(unit_milli.max(1));
    let units = (milli + unit - 1) / unit;
    requested(need, pool, units)?;
    Ok(need.shape(lane, units_milli(units, unit_milli)))
}

/// What the pod does not request of a plugin's resource it is not charged for, and
/// nobody could keep two such pods from the same card.
fn requested(need: &Need, pool: &Pool, units: i64) -> Result<(), No> {
    let Some(resource) = &pool.resource else {
        return Ok(());
    };
    match need.requested(resource) {
        Some(requested) if requested < units => {
            let detail = format!("the pod must request {units} {resource}");
            Err(no(5, "NotRequested", detail))
        }
        _ => Ok(()),
    }
}

/// So many bytes as a part of one card, rounded up.
fn memory_milli(pool: &Pool, bytes: i64) -> Result<i64, No> {
    let Some(card) = pool.card_memory_bytes.filter(|c| *c > 0) else {
        let detail = "the label nvidia.com/gpu.memory is missing";
        return Err(no(3, "NoMemoryLabel", detail));
    };
    let milli = (i128::from(bytes) * 1000 + i128::from(card) - 1) / i128::from(card);
    match i64::try_from(milli) {
        Ok(milli) if milli <= i64::from(CARD) => Ok(milli),
        _ => Err(no(4, "CardTooSmall", "one card has less memory")),
    }
}
