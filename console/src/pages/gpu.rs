//! `/gpu` shows the cards of the cluster and the requests that still fit; `/gpu/NODE` shows the
//! cards of one node.

mod bars;
mod classes;
mod cluster;
mod filter;
mod node;
mod what_if;

use tautline_gpu_slice::report::CardSums;

use crate::request::path;

pub(super) use {cluster::page as cluster, node::page as node};

/// Returns the link to the page of a node's cards.
pub(super) fn link(node: &str) -> String {
    path(&["gpu", node])
}

/// Returns the idle thousandths of cards that the next request is not expected to be able to use;
/// `None` without cards, and while no requests are known.
pub(super) fn useless_milli(sums: &CardSums) -> Option<i64> {
    let useless = sums.fragmented.filter(|_| sums.cards > 0);
    useless.map(|milli| milli.round() as i64)
}

#[cfg(test)]
mod tests;
