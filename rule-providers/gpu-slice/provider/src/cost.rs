use std::sync::Arc;

use tautline_gpu_placement::{
    CARD_MILLI, CostCache, Names, NodeCapacity, PlacementCost, Shape, SharingMode,
    inventory::{Card, CardPool},
};

use crate::{
    cluster_inventory::NodeEntry,
    counted_units,
    fit::{Fit, Location},
    gpu_request::{Amount, GpuRequest},
    pool_shape::shape_on_pool,
    unfit::Unfit,
};

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

/// Returns the node's answer to the request. `capacities` replace those of the cost cache, because
/// a pod may use the cards again that it holds itself.
pub(crate) fn fit(
    names: &Names,
    costs: &mut CostCache,
    node: &NodeEntry,
    prepared: &mut PreparedRequest<'_>,
    capacities: Option<&[NodeCapacity]>,
) -> Fit {
    let request = prepared.request;
    // A pod without GPUs on a GPU node takes CPU and memory that the free GPUs may need.
    if request.amount == Amount::Nothing && node.inventory.pools.is_empty() {
        return Fit::Usable {
            cost: 0,
            tie_break: 0,
            policy_cost: 0,
            detail: "the pod requests no GPU".into(),
            location: None,
        };
    }
    let mut best: Option<(PlacementCost, usize)> = None;
    let mut closest: Option<Unfit> = None;
    let mut reject = |unfit: Unfit| {
        if closest
            .as_ref()
            .is_none_or(|c| unfit.closeness > c.closeness)
        {
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
        let place = match capacities.and_then(|c| c.get(i)) {
            Some(capacity) => {
                let slot = node.slots.get(i).copied().unwrap_or(usize::MAX);
                costs.place_with_capacity(shape, slot, capacity)
            }
            None => costs.place_by_index(index, node.slots[i]),
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
        match counted_units::cost(names, request, counted) {
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
