//! The names that a page's matrix is about, and the question to the provider: zones, the nodes of
//! a zone or of two, or a node and its peers. Of too many nodes for tiles the page shows a sample.

use std::collections::BTreeMap;

use serde::Serialize;
use tautline_core::{Snapshot, model::Node};
use tautline_latency::{ZONE, report::NO_ZONE};

use super::tiles;
use crate::{
    admin::clean_value,
    links::escaped,
    request::{PageError, PageRequest, PageResult},
    table::Window,
};

/// The number of a node's peers on a page.
const PEERS_PER_PAGE: usize = 60;

/// The objects in the rows and columns of the matrix.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "of")]
pub(super) enum Level {
    Zones,
    #[serde(rename_all = "camelCase")]
    Nodes {
        zone: String,
        /// The second zone, if there are two.
        to: Option<String>,
        nodes: usize,
        /// The number of nodes in the matrix, which are evenly spaced by name.
        shown: usize,
        /// True if the cluster has no other zone.
        only_zone: bool,
    },
    OneNode {
        node: String,
        zone: String,
    },
}

/// The part of the network that the address names.
pub(super) struct Scope {
    pub level: Level,
    /// The path of the request to the provider.
    pub path: String,
    /// The node whose pairs are shown, with the shown peers; `None` for all pairs.
    pub only: Option<(String, Window<String>)>,
}

impl Scope {
    pub(super) fn new(request: &PageRequest, snapshot: &Snapshot) -> PageResult<Self> {
        if let Some(name) = request.field("node") {
            return Self::of_node(request, snapshot, name);
        }
        let mut zones = zones(snapshot);
        let only_zone = zones.len() == 1;
        let zone = match request.field("zone") {
            Some(zone) => zone.to_owned(),
            None if only_zone => zones.keys().next().cloned().unwrap_or_default(),
            None => {
                return Ok(Self {
                    level: Level::Zones,
                    path: "/latency/matrix?by=zone".to_owned(),
                    only: None,
                });
            }
        };

        let to = request.field("to").filter(|to| *to != zone);
        let to = to.map(str::to_owned);
        let mut names = Vec::new();
        for zone in [Some(&zone), to.as_ref()].into_iter().flatten() {
            let of_zone = zones.remove(zone);
            names.extend(of_zone.ok_or_else(|| absent(format!("zone {zone}")))?);
        }
        let shown = sample(&names, tiles::most_names(&names));
        let level = Level::Nodes {
            zone,
            to,
            nodes: names.len(),
            shown: shown.len(),
            only_zone,
        };
        Ok(Self::of_nodes(level, shown))
    }

    /// Returns the scope of a node and the other nodes of its zone, of which each page has some.
    fn of_node(request: &PageRequest, snapshot: &Snapshot, name: &str) -> PageResult<Self> {
        let node = snapshot.node(name);
        let node = node.ok_or_else(|| absent(format!("node {name}")))?;
        let zone = zone_of(node);
        let mut names = zones(snapshot).remove(&zone).unwrap_or_default();
        names.retain(|other| other != name);
        let peers = Window::sized(request, &names, PEERS_PER_PAGE, String::clone)?;
        let shown = peers.rows.iter().map(String::as_str).chain([name]);
        let node = name.to_owned();
        let scope = Self::of_nodes(Level::OneNode { node, zone }, shown.collect());
        let only = Some((name.to_owned(), peers));
        Ok(Self { only, ..scope })
    }

    fn of_nodes(level: Level, shown: Vec<&str>) -> Self {
        let asked: Vec<String> = shown.into_iter().map(escaped).collect();
        Self {
            level,
            path: format!("/latency/matrix?by=node&nodes={}", asked.join(",")),
            only: None,
        }
    }
}

fn absent(what: String) -> PageError {
    PageError::absent(format!("there is no {what}"))
}

/// Returns the names of the nodes by zone, both sorted.
fn zones(snapshot: &Snapshot) -> BTreeMap<String, Vec<String>> {
    let mut zones: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in snapshot.nodes() {
        let nodes = zones.entry(zone_of(node)).or_default();
        nodes.push(node.name.to_string());
    }
    zones.values_mut().for_each(|nodes| nodes.sort_unstable());
    zones
}

/// Returns the name of a node's zone, as the provider's answers are read.
fn zone_of(node: &Node) -> String {
    clean_value(node.labels.get(ZONE).unwrap_or(NO_ZONE))
}

/// Returns `most` evenly spaced names, or all if there are fewer.
fn sample(names: &[String], most: usize) -> Vec<&str> {
    let count = names.len().min(most);
    let names = (0..count).map(|i| names[i * names.len() / count].as_str());
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_evenly_spaced() {
        let all: Vec<String> = (0..5_000).map(|i| format!("n{i:04}")).collect();
        assert_eq!(sample(&all, 4), ["n0000", "n1250", "n2500", "n3750"]);
        assert_eq!(sample(&all[..3], 4), ["n0000", "n0001", "n0002"]);
        assert!(sample(&[], 4).is_empty());
    }
}
