//! The state of one run: pods arrive, and the policy places or drops each pod.

use tautline_gpu_placement::{
    CARD_MILLI, CardGrant, CardKind, CostCache, NodeCapacity, PlannedClasses, RequestDistribution,
    Shape, SharingMode, Topology,
};

use crate::{
    arrivals::Arrivals,
    contender::Contender,
    curve::{self, Curve},
    ties::TieBreaker,
    trace::{Trace, Workload},
};

/// The cluster of a trace while pods are placed on it.
#[derive(Debug)]
pub struct Cluster {
    contender: Contender,
    costs: CostCache,
    cards: i64,
    used_milli: i64,
    classes: PlannedClasses,
    fragmented: Vec<f64>,
    fragmented_sum: f64,
    links: Vec<Option<Topology>>,
    /// Number of placed pods with several whole cards, on nodes with NVLink.
    linkable: u32,
    /// Number of those pods whose cards are in as few NVLink domains as possible.
    linked: u32,
}

impl Cluster {
    /// Creates the cluster without pods. Its nodes have the indexes of `order.nodes`.
    pub fn new(trace: &Trace, workload: &Workload, order: &Arrivals, contender: Contender) -> Self {
        let policy = contender.policy().build();
        let mut costs = CostCache::new(policy).with_capacity_for(workload.shapes.len());
        let nodes = order.nodes.iter().map(|n| &trace.nodes[*n as usize]);
        let nodes: Vec<_> = nodes.collect();
        for (i, node) in nodes.iter().enumerate() {
            let kind = costs.kind_index(&CardKind {
                product: node.model.clone(),
                mode: SharingMode::Milli,
            });
            let cards = vec![CARD_MILLI; node.cards.into()];
            costs.set_position(i, i as f64 / nodes.len() as f64);
            let capacity = NodeCapacity::new(node.cpu_milli, node.memory_bytes, kind, cards)
                .with_topology(node.topology());
            costs.set_capacity(i, Some(capacity));
        }
        let pods = workload.pods.iter();
        let requested = pods.map(|p| &workload.shapes[p.shape as usize]);
        costs.plan_for(RequestDistribution::from_shapes(requested).classes());
        let classes = PlannedClasses::new(costs.classes(), costs.kinds());
        let fragmented = costs.capacities();
        let fragmented = fragmented.map(|(_, r)| classes.fragmented_milli(r));
        let fragmented: Vec<f64> = fragmented.collect();
        Self {
            contender,
            cards: trace.cards(),
            used_milli: 0,
            fragmented_sum: fragmented.iter().sum(),
            costs,
            classes,
            fragmented,
            links: nodes.iter().map(|n| n.topology()).collect(),
            linkable: 0,
            linked: 0,
        }
    }

    /// Places a pod on the node that the policy prefers; `None`: the pod fits nowhere.
    pub fn place(&mut self, shape: &Shape, chooser: &mut TieBreaker) -> Option<PlacedPod> {
        let best = |nth| chooser.replaces(nth);
        let (node, place) = self.costs.cheapest_with_ties(shape, best)?;
        let capacity = self.costs.capacity(node)?;
        let card = self.contender.card(capacity, shape, place.card);
        self.place_on(shape, node, card)
    }

    /// Places a pod on a given node. `node` is an index of the order's nodes, `card` the card that
    /// gives the share. `None`: too little is free on the node.
    pub fn place_on(&mut self, shape: &Shape, node: usize, card: Option<u16>) -> Option<PlacedPod> {
        let mut capacity = self.costs.capacity(node)?.clone();
        let grant = capacity.take(shape, card.map(usize::from)).ok()?;
        self.used_milli += shape.milli();
        self.count_links(node, &grant);
        self.set(node, capacity);
        Some(PlacedPod { node, grant })
    }

    fn count_links(&mut self, node: usize, grant: &[(u16, u16)]) {
        let whole = grant.iter().filter(|(_, milli)| *milli == CARD_MILLI);
        let whole: Vec<usize> = whole.map(|(card, _)| usize::from(*card)).collect();
        if whole.len() > 1
            && let Some((topology, costs)) =
                self.links[node].as_ref().zip(self.costs.capacity(node))
        {
            let domain = (0..costs.cards().len()).filter(|c| topology.domains(&[0, *c]) == 1);
            let least = whole.len().div_ceil(domain.count().max(1));
            self.linkable += 1;
            self.linked += u32::from(topology.domains(&whole) <= least);
        }
    }

    /// The pods whose whole cards are in as few NVLink domains as possible, in percent of the pods
    /// with several whole cards on nodes with NVLink; `None`: there are no such pods.
    pub fn linked(&self) -> Option<f64> {
        let percent = |of: u32| curve::round2(100.0 * f64::from(self.linked) / f64::from(of));
        (self.linkable > 0).then(|| percent(self.linkable))
    }

    pub(crate) fn remove(&mut self, shape: &Shape, placed: &PlacedPod) {
        if let Some(mut capacity) = self.costs.capacity(placed.node).cloned() {
            capacity.release(shape, &placed.grant);
            self.used_milli -= shape.milli();
            self.set(placed.node, capacity);
        }
    }

    fn set(&mut self, node: usize, capacity: NodeCapacity) {
        let fragmented = self.classes.fragmented_milli(&capacity);
        self.fragmented_sum += fragmented - self.fragmented[node];
        self.fragmented[node] = fragmented;
        self.costs.set_capacity(node, Some(capacity));
    }

    pub(crate) fn allocation(&self) -> f64 {
        curve::allocation(self.cards, self.used_milli)
    }

    /// The idle GPU that the expected next pod cannot use, in percent of the cluster's GPU.
    pub fn fragmentation(&self) -> f64 {
        100.0 * self.fragmented_sum / 1000.0 / self.cards as f64
    }
}

/// A pod's node and cards.
#[derive(Clone, Debug)]
pub struct PlacedPod {
    pub(crate) node: usize,
    /// The parts of the node's cards that the pod holds.
    pub grant: CardGrant,
}

/// Load, allocation and fragmentation after each arrival.
#[derive(Clone, Debug, Default)]
pub struct RunRecord {
    /// Total of requests after each arrival, in thousandths of cards.
    arrived: Vec<i64>,
    allocation: Vec<f64>,
    fragmentation: Vec<f64>,
    pub(crate) dropped: usize,
    /// Result of [`Cluster::linked`] after the last arrival.
    pub(crate) linked: Option<f64>,
}

impl RunRecord {
    /// Adds an arrival; `cluster` is the cluster after the arrival.
    pub fn arrival(&mut self, shape: &Shape, placed: bool, cluster: &Cluster) {
        let before = self.arrived.last().copied().unwrap_or(0);
        self.arrived.push(before + shape.milli());
        self.allocation.push(cluster.allocation());
        self.fragmentation.push(cluster.fragmentation());
        self.dropped += usize::from(!placed);
    }

    pub(crate) fn curves(&self, cards: i64) -> (Curve, Curve) {
        (
            curve::curve(cards, &self.arrived, &self.allocation),
            curve::curve(cards, &self.arrived, &self.fragmentation),
        )
    }
}
