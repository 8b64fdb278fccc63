//! Resources known by number only: MIG instances, and shares of unknown size.

use tautline_gpu_placement::{Names, inventory::Counted, shape::names_model};

use crate::{
    cost::RANKS,
    need::{Amount, Need},
    refusal::{No, busy, no},
};

/// Where cards are known is better than where units are only counted.
const UNKNOWN_CARDS: i64 = 1 << 52;

/// What is left that another pod like this one
/// could not use, then the fuller node.
pub(crate) fn cost(names: &Names, need: &Need, counted: &Counted) -> Result<(i64, String), No> {
    let resource = &counted.resource;
    let units = match &need.amount {
        Amount::Units { resource, units } if **resource == *counted.resource => *units,
        Amount::Share(_) | Amount::Memory(_) if names.is_shared(resource) => {
            let label = &names.replicas;
            return Err(no(
                3,
                "NoReplicasLabel",
                format!("the label {label} is missing"),
            ));
        }
        Amount::Share(_) | Amount::Memory(_) => {
            return Err(no(1, "NoSharedGpu", "no card of it is shared"));
        }
        _ => return Err(no(0, "NoSuchGpu", "it has no such GPU")),
    };
    if !need.models.is_empty() && !need.models.iter().any(|m| names_model(&counted.product, m)) {
        let (product, wanted) = (&counted.product, need.models.join("|"));
        return Err(no(
            6,
            "WrongModel",
            format!("{product:?} is none of {wanted}"),
        ));
    }
    if need
        .requested(resource)
        .is_some_and(|requested| requested < units)
    {
        let detail = format!("the pod must request {units} {resource}");
        return Err(no(5, "NotRequested", detail));
    }
    let (has, free) = (counted.has, (counted.has - counted.used).max(0));
    if has < units {
        return Err(no(
            7,
            "NoSuchGpu",
            format!("offers {has} {resource}, {units} wanted"),
        ));
    }
    if free < units {
        let detail = format!("{free} of {has} {resource} free, {units} wanted");
        return Err(busy("GpuBusy", detail));
    }
    let left = free - units;
    let useless = (left % units.max(1)).min(1 << 16);
    let mut cost = (useless << 16) + left.min((1 << 16) - 1);
    if names.is_shared(resource) {
        cost += UNKNOWN_CARDS / RANKS;
    }
    Ok((cost, format!("leaves {left} of {has} {resource} free")))
}
