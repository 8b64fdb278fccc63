use std::collections::BTreeSet;

use tautline_gpu_slice::{
    Inspection,
    inspection::NodeGpus,
    report::{Fragmentation, Uses, has_gpus, warnings},
};

/// The maximum number of warnings on a page.
pub(super) const MAX_WARNINGS: usize = 20;
pub(super) const MAX_WARNING_CHARS: usize = 300;

/// The results of one pass over all nodes.
pub(crate) struct Summary {
    /// The figures of all nodes, in the order of the inspection.
    pub figures: Vec<Figures>,
    pub fragmentation: Fragmentation,
    /// The products of all cards, for the filter.
    pub products: BTreeSet<String>,
    /// The namespaces of all pods with parts of cards, for the filter.
    pub namespaces: BTreeSet<String>,
    pub warnings: Vec<String>,
    pub warning_count: usize,
    /// The number of nodes whose cards an agent gives to containers.
    pub agents: usize,
}

/// The figures by which a node is sorted and paged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub has_gpus: bool,
    pub free_milli: i64,
    /// The fragmented thousandths of the node's cards, not rounded.
    pub fragmented: f64,
    pub faults: usize,
    /// The number of the node's bars and segments, with two for its head.
    pub drawn: usize,
}

impl Summary {
    pub(crate) fn new(inspection: &Inspection) -> Self {
        let nodes = inspection.nodes();
        let types = inspection.types();
        let uses = Uses::default();
        let mut summary = Self {
            figures: Vec::with_capacity(nodes.len()),
            fragmentation: Fragmentation::new(inspection, &uses),
            products: BTreeSet::new(),
            namespaces: BTreeSet::new(),
            warnings: Vec::new(),
            warning_count: 0,
            agents: 0,
        };
        for node in &nodes {
            let mut figures = Figures::new(node);
            let rooms = node.capacities.iter();
            figures.fragmented = rooms.map(|room| types.fragmented_milli(room)).sum();
            summary.figures.push(figures);
            summary.add_names(node);
            for warning in warnings(inspection, &uses, node) {
                summary.warning_count += 1;
                if summary.warnings.len() < MAX_WARNINGS {
                    summary.warnings.push(warning);
                }
            }
        }
        summary
    }

    fn add_names(&mut self, node: &NodeGpus<'_>) {
        let pools = &node.inventory.pools;
        self.agents += usize::from(pools.iter().any(|pool| pool.has_agent()));
        let counted = node.inventory.counted.iter().map(|c| &c.product);
        for product in pools.iter().map(|pool| &pool.kind.product).chain(counted) {
            if !product.is_empty() && !self.products.contains(&**product) {
                self.products.insert(product.to_string());
            }
        }
        for holder in pools.iter().flat_map(|p| &p.cards).flat_map(|c| &c.holders) {
            let namespace = holder.pod.split('/').next().unwrap_or_default();
            if !self.namespaces.contains(namespace) {
                self.namespaces.insert(namespace.to_owned());
            }
        }
    }
}

impl Figures {
    fn new(node: &NodeGpus<'_>) -> Self {
        let cards = || node.inventory.pools.iter().flat_map(|pool| &pool.cards);
        Self {
            has_gpus: has_gpus(node),
            free_milli: cards().map(|card| i64::from(card.left_milli())).sum(),
            fragmented: 0.0,
            faults: cards().filter(|card| card.fault.is_some()).count(),
            drawn: 2 + cards().map(|card| 2 + card.holders.len()).sum::<usize>(),
        }
    }
}
