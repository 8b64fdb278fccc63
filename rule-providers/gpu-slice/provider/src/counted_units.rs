//! Resources of which only the number is known: MIG instances, and shares of unknown size.

use tautline_gpu_placement::{Names, inventory::CountedResource, shape::is_model};

use crate::{
    fit::POSITION_STEPS,
    gpu_request::{Amount, GpuRequest},
    unfit::Unfit,
};

/// The extra cost of shares of unknown size, in the answer's cost steps.
const UNKNOWN_SIZE_COST: i64 = 1 << 52;

/// Returns the cost and a text for people. The cost counts first the units that another such pod
/// could not use, then the units left.
pub(crate) fn cost(
    names: &Names,
    request: &GpuRequest,
    counted: &CountedResource,
) -> Result<(i64, String), Unfit> {
    let resource = &counted.resource;
    let units = match &request.amount {
        Amount::Units { resource, units } if **resource == *counted.resource => *units,
        Amount::Cards(_) | Amount::Share(_) | Amount::Memory(_)
            if counted.is_instance && !names.is_instance(resource) =>
        {
            return Err(Unfit::instances_only(resource));
        }
        Amount::Share(_) | Amount::Memory(_) if names.is_shared(resource) => {
            let detail = format!("the label {} is missing", names.replicas);
            return Err(Unfit::new(3, "NoReplicasLabel", detail));
        }
        Amount::Share(_) | Amount::Memory(_) => return Err(Unfit::no_shared_gpu()),
        _ => return Err(Unfit::new(0, "NoSuchGpu", "it has no such GPU")),
    };
    let (product, models) = (&counted.product, &request.models);
    if !models.is_empty() && !models.iter().any(|m| is_model(product, m)) {
        return Err(Unfit::wrong_model(product, models));
    }
    if request.requested(resource).is_some_and(|r| r < units) {
        return Err(Unfit::not_requested(units, resource));
    }
    let (has, free) = (counted.total, (counted.total - counted.used).max(0));
    if has < units {
        let detail = format!("offers {has} {resource}, {units} wanted");
        return Err(Unfit::new(7, "NoSuchGpu", detail));
    }
    if free < units {
        let detail = format!("{free} of {has} {resource} free, {units} wanted");
        return Err(Unfit::busy("GpuBusy", detail));
    }
    let left = free - units;
    let useless = (left % units.max(1)).min(1 << 16);
    let mut cost = (useless << 16) + left.min((1 << 16) - 1);
    if names.is_shared(resource) {
        cost += UNKNOWN_SIZE_COST / POSITION_STEPS;
    }
    Ok((cost, format!("leaves {left} of {has} {resource} free")))
}
