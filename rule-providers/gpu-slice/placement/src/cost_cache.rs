//! Caches the costs of shapes on nodes: a change of one node recomputes only that node's costs.

use crate::{
    node_capacity::{NodeCapacity, Shortage},
    planned_classes::PlannedClasses,
    policy::{NodeView, PlacementCost, Policy},
    request_distribution::RequestClass,
    shape::{CardKind, Shape},
};

/// The default for the maximum number of shapes whose costs are cached.
const DEFAULT_MAX_SHAPES: usize = 256;
/// The additional cost of a placement whose cards have no links to each other, in multiples of
/// [`Policy::resolution`]: a higher one would reduce allocation (docs/benchmarks.md).
const UNLINKED_RESOLUTIONS: i64 = 2;

/// Reasons why a shape has no cost on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// The cache has no capacity for the node.
    UnknownNode,
    /// The node's cards have another sharing mode or model than the shape asks for.
    OtherKind,
    /// The node's cards suit the shape, but too little is free.
    Shortage(Shortage),
}

#[derive(Clone, Copy, Debug)]
struct CachedCost {
    version: u32,
    epoch: u32,
    cost: Result<PlacementCost, PlacementError>,
}

/// The entry of a node without a cached cost; versions of nodes with a capacity are not 0.
const NOT_CACHED: CachedCost = CachedCost {
    version: 0,
    epoch: 0,
    cost: Err(PlacementError::UnknownNode),
};

#[derive(Debug)]
struct ShapeCosts {
    shape: Shape,
    /// True for each card kind that may serve the shape.
    allowed: Vec<bool>,
    costs: Vec<CachedCost>,
    last_used: u64,
}

#[derive(Debug, Default)]
struct Node {
    capacity: Option<NodeCapacity>,
    version: u32,
    position: f64,
    precomputed: Box<[f64]>,
}

impl Node {
    fn view(&self) -> Option<NodeView<'_>> {
        Some(NodeView {
            capacity: self.capacity.as_ref()?,
            precomputed: &self.precomputed,
            position: self.position,
        })
    }
}

/// The free capacity of each node, and the cost of each recent shape on it. Callers number the
/// nodes from 0.
#[derive(Debug)]
pub struct CostCache {
    policy: Box<dyn Policy>,
    kinds: Vec<CardKind>,
    classes: Vec<(RequestClass, f64)>,
    nodes: Vec<Node>,
    by_shape: Vec<ShapeCosts>,
    max_shapes: usize,
    clock: u64,
    epoch: u32,
    invalidations: u32,
}

impl CostCache {
    /// Creates a cache without nodes and classes, for the costs of 256 shapes.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            kinds: Vec::new(),
            classes: Vec::new(),
            nodes: Vec::new(),
            by_shape: Vec::new(),
            max_shapes: DEFAULT_MAX_SHAPES,
            clock: 0,
            epoch: 0,
            invalidations: 0,
        }
    }

    /// Raises the maximum number of shapes whose costs are cached. A further shape replaces the
    /// least recently used one.
    pub fn with_capacity_for(mut self, shapes: usize) -> Self {
        self.max_shapes = self.max_shapes.max(shapes);
        self
    }

    /// Returns the index by which a [`NodeCapacity`] refers to a card kind. A new kind invalidates
    /// all cached costs.
    pub fn kind_index(&mut self, kind: &CardKind) -> u16 {
        if let Some(known) = self.kinds.iter().position(|k| k == kind) {
            return known as u16;
        }
        self.kinds.push(kind.clone());
        for entry in &mut self.by_shape {
            entry.allowed.push(entry.shape.allows(kind));
        }
        let classes = std::mem::take(&mut self.classes);
        self.plan_for(classes);
        (self.kinds.len() - 1) as u16
    }

    /// Returns the policy's [`Policy::resolution`].
    pub fn resolution(&self) -> i64 {
        self.policy.resolution()
    }

    /// The card kinds, in the order of their indexes from [`CostCache::kind_index`].
    pub fn kinds(&self) -> &[CardKind] {
        &self.kinds
    }

    /// Sets the classes of requests to plan for, with their probabilities. Invalidates all cached
    /// costs.
    pub fn plan_for(&mut self, classes: Vec<(RequestClass, f64)>) {
        self.policy
            .plan_for(PlannedClasses::new(&classes, &self.kinds));
        self.classes = classes;
        self.invalidate_all();
    }

    fn invalidate_all(&mut self) {
        self.invalidations = self.invalidations.wrapping_add(1);
        for node in &mut self.nodes {
            if let Some(capacity) = &node.capacity {
                node.precomputed = self.policy.precompute(capacity);
                self.policy.node_changed(None, node.view());
            }
            node.version = node.version.wrapping_add(1);
        }
    }

    /// The classes of the last [`CostCache::plan_for`] with their probabilities; empty before it.
    pub fn classes(&self) -> &[(RequestClass, f64)] {
        &self.classes
    }

    /// The free capacity of a node; `None`: no capacity is set for it.
    pub fn capacity(&self, node: usize) -> Option<&NodeCapacity> {
        self.nodes.get(node)?.capacity.as_ref()
    }

    /// The nodes that have a capacity, in ascending order.
    pub fn capacities<'a>(&'a self) -> impl Iterator<Item = (usize, &'a NodeCapacity)> {
        let capacity = |(i, node): (usize, &'a Node)| Some((i, node.capacity.as_ref()?));
        self.nodes.iter().enumerate().filter_map(capacity)
    }

    /// Sets a node's [position](NodeView::position). Must be called before
    /// [`CostCache::set_capacity`].
    pub fn set_position(&mut self, node: usize, position: f64) {
        let at = self.node(node);
        if at.position != position {
            at.position = position;
            at.version = at.version.wrapping_add(1);
        }
    }

    fn node(&mut self, node: usize) -> &mut Node {
        if self.nodes.len() <= node {
            self.nodes.resize_with(node + 1, Node::default);
        }
        &mut self.nodes[node]
    }

    /// Sets the free capacity of a node; `None` removes the node.
    pub fn set_capacity(&mut self, node: usize, capacity: Option<NodeCapacity>) {
        self.node(node);
        let at = &mut self.nodes[node];
        if at.capacity == capacity {
            return;
        }
        let precomputed = capacity.as_ref().map(|c| self.policy.precompute(c));
        let after = Node {
            precomputed: precomputed.unwrap_or_default(),
            capacity,
            version: at.version.wrapping_add(1),
            position: at.position,
        };
        self.policy.node_changed(at.view(), after.view());
        *at = after;
    }

    /// The cost of the best placement on a node, computed only if it is not in the cache.
    /// `shape_index` is from [`CostCache::shape_index`]; any other index may panic.
    pub fn place_by_index(
        &mut self,
        shape_index: usize,
        node: usize,
    ) -> Result<PlacementCost, PlacementError> {
        let at = self.nodes.get(node).ok_or(PlacementError::UnknownNode)?;
        let view = at.view().ok_or(PlacementError::UnknownNode)?;
        let entry = &mut self.by_shape[shape_index];
        let missing = self.nodes.len().saturating_sub(entry.costs.len());
        entry.costs.extend(std::iter::repeat_n(NOT_CACHED, missing));
        let cached = &mut entry.costs[node];
        if cached.version != at.version || cached.epoch != self.epoch {
            let allowed = entry.allowed.get(usize::from(view.capacity.kind())) == Some(&true);
            *cached = CachedCost {
                version: at.version,
                epoch: self.epoch,
                cost: place(&*self.policy, view, &entry.shape, allowed),
            };
        }
        cached.cost
    }

    /// The cost of the best placement if the node had this free capacity; it is not cached. A node
    /// that is not in the cache has position 1.
    pub fn place_with_capacity(
        &self,
        shape: &Shape,
        node: usize,
        capacity: &NodeCapacity,
    ) -> Result<PlacementCost, PlacementError> {
        let kind = self.kinds.get(usize::from(capacity.kind()));
        let allowed = kind.is_some_and(|k| shape.allows(k));
        let view = NodeView {
            capacity,
            precomputed: &self.policy.precompute(capacity),
            position: self.nodes.get(node).map_or(1.0, |n| n.position),
        };
        place(&*self.policy, view, shape, allowed)
    }

    /// A node with the lowest cost; `None`: the shape fits nowhere. `replaces` decides whether the
    /// nth of equally cheap nodes replaces the one found before.
    pub fn cheapest_with_ties(
        &mut self,
        shape: &Shape,
        mut replaces: impl FnMut(u32) -> bool,
    ) -> Option<(usize, PlacementCost)> {
        let shape_index = self.shape_index(shape);
        let mut best: Option<(usize, PlacementCost)> = None;
        let mut equals = 1;
        for node in 0..self.nodes.len() {
            let Ok(place) = self.place_by_index(shape_index, node) else {
                continue;
            };
            match &best {
                Some((_, found)) if found.cost < place.cost => {}
                Some((_, found)) if found.cost == place.cost => {
                    equals += 1;
                    if replaces(equals) {
                        best = Some((node, place));
                    }
                }
                _ => {
                    equals = 1;
                    best = Some((node, place));
                }
            }
        }
        best
    }

    /// The version of the costs: within a version, equal capacities and positions cost the same.
    pub fn version(&mut self) -> (u32, u32) {
        if self.policy.refresh() {
            self.invalidate_all();
        }
        self.epoch = self.policy.epoch();
        (self.invalidations, self.epoch)
    }

    /// The index of a shape; valid until a capacity changes or another shape is requested.
    pub fn shape_index(&mut self, shape: &Shape) -> usize {
        self.version();
        self.clock += 1;
        if let Some(at) = self.by_shape.iter().position(|s| s.shape == *shape) {
            self.by_shape[at].last_used = self.clock;
            return at;
        }
        let new = ShapeCosts {
            shape: shape.clone(),
            allowed: self.kinds.iter().map(|k| shape.allows(k)).collect(),
            costs: Vec::new(),
            last_used: self.clock,
        };
        if self.by_shape.len() < self.max_shapes {
            self.by_shape.push(new);
            return self.by_shape.len() - 1;
        }
        let age = |at: &usize| self.by_shape[*at].last_used;
        let oldest = (0..self.by_shape.len()).min_by_key(age).unwrap_or(0);
        self.by_shape[oldest] = new;
        oldest
    }
}

/// Places a shape by the policy and by the links of the cards: a placement costs more if NVLink
/// does not link its cards. `allowed` is true if cards of the node's kind may serve the shape.
fn place(
    policy: &dyn Policy,
    node: NodeView<'_>,
    shape: &Shape,
    allowed: bool,
) -> Result<PlacementCost, PlacementError> {
    if !allowed {
        return Err(PlacementError::OtherKind);
    }
    node.capacity
        .fits(shape)
        .map_err(PlacementError::Shortage)?;
    let mut place = policy.place(node, shape);
    place.card = place.card.map(|card| node.capacity.prefer_by_links(card));
    let unlinked = node.capacity.unlinked_part(shape, place.card);
    let most = policy.resolution().saturating_mul(UNLINKED_RESOLUTIONS) as f64;
    place.cost = place.cost.saturating_add((most * unlinked).round() as i64);
    Ok(place)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        policy::PolicyName,
        request_distribution::RequestDistribution,
        topology::{CardLinks, Topology},
    };

    fn shape(whole: u16, share: u16) -> Shape {
        Shape {
            cpu_milli: 1000,
            whole,
            share,
            ..Shape::default()
        }
    }

    fn place(
        costs: &mut CostCache,
        shape: &Shape,
        node: usize,
    ) -> Result<PlacementCost, PlacementError> {
        let shape_index = costs.shape_index(shape);
        costs.place_by_index(shape_index, node)
    }

    proptest! {
        /// Equal nodes cost the same except for their position.
        #[test]
        fn equal_nodes_differ_by_position_cost_only(
            asks in prop::collection::vec((0..3_u16, 0..1000_u16), 1..9),
            cards in prop::collection::vec(0..=1000_u16, 1..9),
            positions in prop::collection::vec(0.0..1.0_f64, 6),
        ) {
            let shapes: Vec<Shape> = asks.iter().map(|(whole, share)| match whole {
                0 => shape(0, *share),
                whole => shape(*whole, 0),
            }).collect();
            for name in PolicyName::ALL {
                let mut costs = CostCache::new(name.build());
                let kind = costs.kind_index(&CardKind::default());
                costs.plan_for(RequestDistribution::from_shapes(&shapes).classes());
                for (node, position) in positions.iter().enumerate() {
                    costs.set_position(node, *position);
                    costs.set_capacity(node, Some(NodeCapacity::new(16_000, 0, kind, cards.clone())));
                }
                for shape in &shapes {
                    let places = (0..positions.len()).map(|node| place(&mut costs, shape, node));
                    let Ok(places) = places.collect::<Result<Vec<PlacementCost>, _>>() else {
                        continue;
                    };
                    for place in &places {
                        let net = |place: &PlacementCost| (place.cost - place.position_cost, place.card);
                        prop_assert_eq!(net(place), net(&places[0]), "{}", name);
                        prop_assert!((0..=place.cost).contains(&place.position_cost), "{}", name);
                    }
                }
            }
        }

        /// Among nodes that are equal but for their links, the better linked ones are cheaper.
        #[test]
        fn unlinked_cards_cost_more(
            whole in 0..5_u16, free in prop::collection::vec(any::<bool>(), 8),
        ) {
            let cards: Vec<u16> = free.iter().map(|free| u16::from(*free) * 1000).collect();
            let shape = shape(whole, 0);
            let mut costs = CostCache::new(PolicyName::Tautline.build());
            let kind = costs.kind_index(&CardKind::default());
            costs.plan_for(RequestDistribution::from_shapes([&shape]).classes());
            let domains: [&dyn Fn(u16) -> u16; 3] = [&|_| 0, &|i| i / 4, &|i| i];
            for (node, domain) in domains.into_iter().enumerate() {
                let links = (0..8).map(|i| CardLinks { nvlink: Some(domain(i)), numa: None });
                let capacity = NodeCapacity::new(16_000, 0, kind, cards.clone());
                costs.set_capacity(node, Some(capacity.with_topology(Topology::new(links))));
            }
            costs.set_capacity(3, Some(NodeCapacity::new(16_000, 0, kind, cards.clone())));
            let Ok(plain) = place(&mut costs, &shape, 3) else { return Ok(()) };
            let [one, two, none] = [0, 1, 2].map(|node| place(&mut costs, &shape, node).unwrap().cost);
            prop_assert_eq!(one, plain.cost);
            prop_assert!(one <= two && two <= none);
            let most = if whole > 1 { 2 * costs.resolution() } else { 0 };
            prop_assert_eq!(none - one, most);
        }

        #[test]
        fn cached_costs_equal_computed_costs(
            asks in prop::collection::vec((0..5_usize, 0..3_u16, 0..10_u16), 1..60)
        ) {
            let shapes: Vec<Shape> = asks.iter().map(|(_, w, s)| match w {
                0 => shape(0, 50 + s * 95),
                w => shape(*w, 0),
            }).collect();
            for name in PolicyName::ALL {
                let mut costs = CostCache::new(name.build());
                let kind = costs.kind_index(&CardKind::default());
                costs.plan_for(RequestDistribution::from_shapes(&shapes).classes());
                for node in 0..5 {
                    costs.set_capacity(node, Some(NodeCapacity::new(16_000, 0, kind, vec![1000; 4])));
                }
                for (shape, (node, _, _)) in shapes.iter().zip(&asks) {
                    let mut fresh = CostCache::new(name.build());
                    fresh.kind_index(&CardKind::default());
                    for node in 0..5 {
                        fresh.set_capacity(node, costs.capacity(node).cloned());
                    }
                    fresh.plan_for(costs.classes().to_vec());
                    // Tautline's policy updates its weights only after a drift.
                    if name != PolicyName::Tautline {
                        let cheapest = |costs: &mut CostCache| costs.cheapest_with_ties(shape, |_| false);
                        prop_assert_eq!(cheapest(&mut costs), cheapest(&mut fresh), "{}", name);
                    }
                    for node in 0..5 {
                        let capacity = costs.capacity(node).cloned().unwrap();
                        let cached = place(&mut costs, shape, node);
                        prop_assert_eq!(cached, costs.place_with_capacity(shape, node, &capacity), "{}", name);
                        prop_assert_eq!(cached.is_ok(), place(&mut fresh, shape, node).is_ok());
                    }
                    if let Ok(place) = place(&mut costs, shape, *node) {
                        let mut capacity = costs.capacity(*node).unwrap().clone();
                        capacity.take(shape, place.card.map(usize::from)).unwrap();
                        costs.set_capacity(*node, Some(capacity));
                    }
                }
            }
        }
    }
}
