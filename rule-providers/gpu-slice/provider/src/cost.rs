//! Computes the cost of placing a GPU request on a node: the cheapest of its pools of cards, or the
//! reason why no pool fits.

use std::sync::Arc;

use tautline_gpu_placement::{
    CARD_MILLI, CostCache, PlacementCost, Shape, SharingMode,
    inventory::{Card, CardPool, CountedResource},
    names::{self, REPLICAS_LABEL},
    shape::is_model,
};

use crate::{
    cluster_inventory::NodeEntry,
    fit::{Fit, Location, POSITION_STEPS, Unfit},
    gpu_request::{Amount, GpuRequest},
    pool_shape::shape_on_pool,
};

/// The extra cost of shares of unknown size, in the answer's cost steps.
const UNKNOWN_SIZE_COST: i64 = 1 << 52;

/// A request with its shapes: the shape on each kind of pool is computed once.
pub(crate) struct PreparedRequest<'a> {
    request: &'a GpuRequest,
    pools: Vec<PoolShape>,
}

struct PoolShape {
    mode: SharingMode,
    resource: Option<Arc<str>>,
    card_memory_bytes: Option<i64>,
    sizes: Option<Arc<[u16]>>,
    offered: bool,
    shape: Result<(Shape, usize), Unfit>,
}

impl<'a> PreparedRequest<'a> {
    pub(crate) fn new(request: &'a GpuRequest) -> Self {
        let pools = Vec::new();
        Self { request, pools }
    }

    fn shape(&mut self, costs: &mut CostCache, pool: &CardPool) -> &Result<(Shape, usize), Unfit> {
        let same = |p: &PoolShape| {
            p.mode == pool.kind.mode
                && p.card_memory_bytes == pool.card_memory_bytes
                && p.resource == pool.resource
                && p.sizes == pool.sizes
                && p.offered == pool.offered
        };
        let at = self.pools.iter().position(same).unwrap_or_else(|| {
            let shape = shape_on_pool(self.request, pool).map(|s| {
                let index = costs.shape_index(&s);
                (s, index)
            });
            self.pools.push(PoolShape {
                mode: pool.kind.mode,
                resource: pool.resource.clone(),
                card_memory_bytes: pool.card_memory_bytes,
                sizes: pool.sizes.clone(),
                offered: pool.offered,
                shape,
            });
            self.pools.len() - 1
        });
        &self.pools[at].shape
    }
}

/// Returns the node's answer to the request. `is_cached` is false if the node's free capacity is
/// not that in the cost cache, because a pod may use the cards again that it holds itself.
pub(crate) fn fit(
    costs: &mut CostCache,
    node: &NodeEntry,
    is_cached: bool,
    prepared: &mut PreparedRequest<'_>,
) -> Fit {
    let request = prepared.request;
    // A pod without GPUs on a GPU node takes CPU and memory that the free GPUs may need.
    let is_of_claims = |pool: &CardPool| pool.kind.mode == SharingMode::Claim;
    if request.amount == Amount::Nothing && node.inventory.pools.iter().all(is_of_claims) {
        return Fit::usable(0, 0, 0.0, "the pod requests no GPU".into(), None);
    }
    let mut best: Option<(PlacementCost, usize)> = None;
    let mut closest: Option<Unfit> = None;
    let mut reject = |unfit: Unfit| {
        let closeness = closest.as_ref().map(|c| c.closeness);
        if Some(unfit.closeness) > closeness {
            closest = Some(unfit);
        }
    };
    for (i, pool) in node.inventory.pools.iter().enumerate() {
        let (shape, index) = match prepared.shape(costs, pool) {
            Ok((shape, index)) => (shape, *index),
            Err(unfit) => {
                reject(unfit.clone());
                continue;
            }
        };
        let place = if is_cached {
            costs.place_by_index(index, node.slots[i])
        } else {
            let slot = node.slots.get(i).copied().unwrap_or(usize::MAX);
            let kind = costs.kind_index(&pool.kind);
            costs.place_with_capacity(shape, slot, &node.inventory.capacity(pool, kind))
        };
        match place {
            Ok(place) if best.is_none_or(|(b, _)| place.cost < b.cost) => best = Some((place, i)),
            Ok(_) => {}
            Err(refusal) => reject(Unfit::from_refusal(pool, shape, refusal)),
        }
    }
    if let Some((place, i)) = best
        && let Ok((shape, _)) = prepared.shape(costs, &node.inventory.pools[i])
    {
        let location = Location {
            pool: i,
            shape: shape.clone(),
            card: place.card,
        };
        let detail = remainder(&node.inventory.pools[i], &location);
        let (cost, by_order) = (place.cost, place.position_cost);
        return Fit::usable(cost, by_order, node.position, detail, Some(location));
    }
    for counted in &node.inventory.counted {
        match counted_cost(request, counted) {
            Ok((cost, detail)) => return Fit::usable(cost, 0, node.position, detail, None),
            Err(unfit) => reject(unfit),
        }
    }
    Fit::Unusable(closest.unwrap_or_else(|| Unfit::new(0, "NoSuchGpu", "it has no GPU")))
}

fn remainder(pool: &CardPool, location: &Location) -> String {
    match location.card.and_then(|c| pool.cards.get(usize::from(c))) {
        Some(card) => {
            let left = card.left_after(location.shape.share);
            format!("card {} would have {left}m left", card.name)
        }
        None => {
            let free = pool.cards.iter().map(Card::left_milli);
            let free = free.filter(|left| *left == CARD_MILLI).count();
            let left = free.saturating_sub(usize::from(location.shape.whole));
            format!("{left} of {} cards would be left", pool.cards.len())
        }
    }
}

/// Returns the cost of units of which only the number is known, such as MIG instances and shares of
/// unknown size, and a text for people. The cost counts first the units that another such pod
/// could not use, then the units left.
fn counted_cost(request: &GpuRequest, counted: &CountedResource) -> Result<(i64, String), Unfit> {
    let resource = &counted.resource;
    let units = match &request.amount {
        Amount::Units { resource, units } if **resource == *counted.resource => *units,
        amount if amount.is_of_cards() && counted.is_instance && !names::is_instance(resource) => {
            let detail = format!("its {resource} are MIG instances (strategy single), no cards");
            return Err(Unfit::new(2, "NoSuchGpu", detail));
        }
        Amount::Share(_) | Amount::Memory(_) if names::is_shared(resource) => {
            let detail = format!("the label {REPLICAS_LABEL} is missing");
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
    if names::is_shared(resource) {
        cost += UNKNOWN_SIZE_COST / POSITION_STEPS;
    }
    Ok((cost, format!("leaves {left} of {has} {resource} free")))
}
