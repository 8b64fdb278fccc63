//! `/latency` shows round-trip times between zones or between nodes; `/latency/pair/A/B` shows two
//! nodes.

mod answers;
mod limit;
mod network;
mod pair;
mod plot;
mod scope;
mod tiles;
mod worst;

use crate::request::path;

pub(super) use {network::page as network, pair::page as pair};

/// Returns the link to the page of two nodes.
fn pair_link(from: &str, to: &str) -> String {
    path(&["latency", "pair", from, to])
}

#[cfg(test)]
mod tests;
