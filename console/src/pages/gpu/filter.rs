//! Filters and sorts the nodes on the page `/gpu` by the fields of its query, and renders the form
//! with these fields.

use std::{cmp::Reverse, collections::BTreeSet};

use maud::{Markup, html};
use tautline_gpu_slice::inspection::NodeGpus;

use crate::{
    form,
    inspections::{Figures, Inspected},
    request::{PageRequest, PageResult},
};

#[derive(Clone, Copy)]
enum Sort {
    Name,
    Idle,
    Fragmented,
    Faults,
}

/// The orders of the nodes by the values of the field `sort`, with their texts; the first is the
/// default.
const SORTS: [(&str, Sort, &str); 4] = [
    ("name", Sort::Name, "Name"),
    ("idle", Sort::Idle, "Most idle"),
    ("fragmented", Sort::Fragmented, "Most fragmented"),
    ("faults", Sort::Faults, "Most faults"),
];

/// The filter of the nodes to show and their order, from the fields of the query.
pub(super) struct Filter<'a> {
    /// A part of the node's name.
    node: Option<&'a str>,
    product: Option<&'a str>,
    /// The namespace of a pod with a part of a card.
    namespace: Option<&'a str>,
    sort: Sort,
}

impl<'a> Filter<'a> {
    pub(super) fn new(request: &'a PageRequest) -> PageResult<Self> {
        let sort = request.choice("sort", &SORTS.map(|(name, sort, _)| (name, sort)))?;
        Ok(Self {
            node: request.field("node"),
            product: request.field("product"),
            namespace: request.field("namespace"),
            sort: sort.unwrap_or(Sort::Name),
        })
    }

    /// Returns the nodes to show, in their order.
    pub(super) fn select<'g, 'n>(
        &self,
        nodes: &'n [NodeGpus<'g>],
        inspected: &'n Inspected,
    ) -> Vec<(&'n NodeGpus<'g>, &'n Figures)> {
        let all = nodes.iter().zip(&inspected.figures);
        let mut chosen: Vec<_> = all.filter(|(n, f)| f.has_gpus && self.matches(n)).collect();
        match self.sort {
            Sort::Name => {}
            Sort::Idle => chosen.sort_by_key(|(_, f)| Reverse(f.free_milli)),
            Sort::Fragmented => chosen.sort_by(|a, b| b.1.fragmented.total_cmp(&a.1.fragmented)),
            Sort::Faults => chosen.sort_by_key(|(_, f)| Reverse(f.faults)),
        }
        chosen
    }

    fn matches(&self, node: &NodeGpus<'_>) -> bool {
        let inventory = node.inventory;
        let has_product = |wanted: &str| {
            inventory.pools.iter().any(|p| *p.kind.product == *wanted)
                || inventory.counted.iter().any(|c| *c.product == *wanted)
        };
        let holds = |namespace: &str| {
            let cards = inventory.pools.iter().flat_map(|pool| &pool.cards);
            let mut holders = cards.flat_map(|card| &card.holders);
            holders.any(|h| h.pod.split('/').next() == Some(namespace))
        };
        self.node.is_none_or(|part| node.name.contains(part))
            && self.product.is_none_or(has_product)
            && self.namespace.is_none_or(holds)
    }

    /// Returns the command that prints all nodes, in the same order where it has that order.
    pub(super) fn command(&self) -> &'static str {
        match self.sort {
            Sort::Name | Sort::Faults => "gpu top",
            Sort::Idle => "gpu top --sort idle",
            Sort::Fragmented => "gpu top --sort fragmented",
        }
    }

    pub(super) fn form(&self, request: &PageRequest, inspected: &Inspected) -> Markup {
        let name = |title, field, chosen, names: &BTreeSet<String>| {
            form::name(title, field, chosen, names.iter().map(String::as_str))
        };
        let sorts = SORTS.map(|(name, _, text)| (name, text));
        let sort = request.field("sort").unwrap_or(SORTS[0].0);
        let fields = html! {
            (form::search("Node", "node", self.node))
            (name("Product", "product", self.product, &inspected.products))
            (name("Namespace", "namespace", self.namespace, &inspected.namespaces))
            (form::choice("Order", "sort", sort, sorts))
        };
        form::filter("gpu-filter", "/gpu", &fields)
    }
}
