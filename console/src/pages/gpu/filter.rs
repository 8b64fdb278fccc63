use std::{cmp::Reverse, collections::BTreeSet};

use maud::{Markup, html};
use tautline_gpu_slice::inspection::NodeGpus;

use super::summary::{Figures, Summary};
use crate::request::{PageError, PageRequest};

/// The maximum number of names in a drop-down list. If there are more, the form has a text field.
const MAX_CHOICES: usize = 200;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Name,
    Idle,
    Fragmented,
    Faults,
}

/// The filter of the nodes to show and their order, from the fields of the query.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// A part of the node's name.
    node: Option<String>,
    product: Option<String>,
    /// The namespace of a pod with a part of a card.
    namespace: Option<String>,
    sort: Sort,
}

impl Sort {
    const ALL: [Self; 4] = [Self::Name, Self::Idle, Self::Fragmented, Self::Faults];

    fn value(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Idle => "idle",
            Self::Fragmented => "fragmented",
            Self::Faults => "faults",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Name => "Name",
            Self::Idle => "Most idle",
            Self::Fragmented => "Most fragmented",
            Self::Faults => "Most faults",
        }
    }
}

impl Filter {
    pub(super) fn new(request: &PageRequest) -> Result<Self, PageError> {
        let own = |name: &str| request.field(name).map(str::to_owned);
        let sort = match request.field("sort") {
            None => Sort::default(),
            Some(value) => {
                let known = Sort::ALL.into_iter().find(|sort| sort.value() == value);
                known.ok_or_else(|| {
                    let all = Sort::ALL.map(Sort::value).join(", ");
                    PageError::bad(format!("sort={value}: write one of {all}"))
                })?
            }
        };
        Ok(Self {
            node: own("node"),
            product: own("product"),
            namespace: own("namespace"),
            sort,
        })
    }

    /// Returns the nodes to show, in their order.
    pub(super) fn select<'a, 'n>(
        &self,
        nodes: &'n [NodeGpus<'a>],
        summary: &'n Summary,
    ) -> Vec<(&'n NodeGpus<'a>, &'n Figures)> {
        let all = nodes.iter().zip(&summary.figures);
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
        let has_product = |wanted: &String| {
            inventory.pools.iter().any(|p| *p.kind.product == **wanted)
                || inventory.counted.iter().any(|c| *c.product == **wanted)
        };
        let holds = |namespace: &String| {
            let cards = inventory.pools.iter().flat_map(|pool| &pool.cards);
            let mut holders = cards.flat_map(|card| &card.holders);
            holders.any(|h| h.pod.split('/').next() == Some(namespace))
        };
        self.node
            .as_ref()
            .is_none_or(|part| node.name.contains(part.as_str()))
            && self.product.as_ref().is_none_or(has_product)
            && self.namespace.as_ref().is_none_or(holds)
    }

    /// Returns the command that prints all nodes, in the same order where it has that order.
    pub(super) fn command(&self) -> &'static str {
        match self.sort {
            Sort::Name | Sort::Faults => "gpu top",
            Sort::Idle => "gpu top --sort idle",
            Sort::Fragmented => "gpu top --sort fragmented",
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.node.is_none() && self.product.is_none() && self.namespace.is_none()
    }

    pub(super) fn form(&self, summary: &Choices) -> Markup {
        html! {
            // A refresh of the page preserves the form, as the user may be typing.
            form #gpu-filter .filter method="get" action="/gpu" hx-preserve="true" {
                label { "Node" input type="search" name="node" value=[self.node.as_deref()]; }
                (choice("Product", "product", self.product.as_deref(), &summary.products))
                (choice("Namespace", "namespace", self.namespace.as_deref(), &summary.namespaces))
                label {
                    "Order"
                    select name="sort" {
                        @for sort in Sort::ALL {
                            option value=(sort.value()) selected[self.sort == sort] { (sort.text()) }
                        }
                    }
                }
                button { "Filter" }
            }
        }
    }
}

/// The names in the drop-down lists; empty if there are too many.
#[derive(Debug, Default)]
pub(super) struct Choices {
    products: Vec<String>,
    namespaces: Vec<String>,
}

impl Choices {
    pub(super) fn new(summary: &Summary) -> Self {
        let few = |names: &BTreeSet<String>| {
            if names.len() <= MAX_CHOICES {
                names.iter().cloned().collect()
            } else {
                Vec::new()
            }
        };
        Self {
            products: few(&summary.products),
            namespaces: few(&summary.namespaces),
        }
    }
}

fn choice(title: &str, name: &str, chosen: Option<&str>, all: &[String]) -> Markup {
    html! {
        label {
            (title)
            @if all.is_empty() {
                input name=(name) value=[chosen];
            } @else {
                select name=(name) {
                    option value="" { "all" }
                    @for one in all {
                        option selected[chosen == Some(one)] { (one) }
                    }
                }
            }
        }
    }
}
