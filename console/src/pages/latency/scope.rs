//! The names that a page's matrix is about, and the question to the provider: zones, the nodes of
//! a zone or of two, or a node and its peers. Too many nodes for tiles are joined to groups.

use std::collections::BTreeMap;

use serde::Serialize;
use tautline_core::{Snapshot, model::Node};
use tautline_latency::{
    ZONE,
    report::{MatrixReport, NO_ZONE},
};

use super::tiles;
use crate::{
    admin::clean_value,
    links::escaped,
    request::{PageError, PageRequest, PageResult},
    table::Window,
};

/// The maximum number of nodes in one request, if there are fewer groups.
const MAX_SAMPLE_NODES: usize = 160;
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
        /// The path of chosen groups, such as `3,7/1,2`.
        groups: String,
        nodes: usize,
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
    /// The names of the nodes; empty for zones.
    pub names: Vec<String>,
    /// The number of nodes up to which they have rows of their own, instead of groups.
    pub most: usize,
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
                    names: Vec::new(),
                    most: 0,
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
        let path = request.field("groups").unwrap_or_default();
        let most = tiles::most_names(&names);
        let names = narrow(names, path, most);
        let names = names.ok_or_else(|| absent(format!("group {path} of the zone")))?;
        let level = Level::Nodes {
            zone,
            to,
            groups: path.to_owned(),
            nodes: names.len(),
            only_zone,
        };
        Ok(Self::of_nodes(level, names, most))
    }

    /// Returns the scope of a node and the other nodes of its zone, of which each page has some.
    fn of_node(request: &PageRequest, snapshot: &Snapshot, name: &str) -> PageResult<Self> {
        let node = snapshot.node(name);
        let node = node.ok_or_else(|| absent(format!("node {name}")))?;
        let zone = zone_of(node);
        let mut names = zones(snapshot).remove(&zone).unwrap_or_default();
        names.retain(|other| other != name);
        let peers = Window::sized(request, &names, PEERS_PER_PAGE, String::clone)?;
        let mut names = peers.rows.clone();
        names.push(name.to_owned());
        let node = name.to_owned();
        Ok(Self {
            only: Some((name.to_owned(), peers)),
            ..Self::of_nodes(Level::OneNode { node, zone }, names, usize::MAX)
        })
    }

    fn of_nodes(level: Level, names: Vec<String>, most: usize) -> Self {
        let asked: Vec<String> = sample(&names, most).into_iter().map(escaped).collect();
        Self {
            level,
            path: format!("/latency/matrix?by=node&nodes={}", asked.join(",")),
            names,
            most,
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

/// Splits names into at most `most` groups of neighbours. All groups but the last have the same
/// size.
fn groups(names: &[String], most: usize) -> std::slice::Chunks<'_, String> {
    names.chunks(names.len().div_ceil(most.max(1)).max(1))
}

/// Joins the rows and columns of a matrix to at most `most` groups of `names`. Each has as its label
/// the first name, and the number of further ones.
pub(super) fn grouped(matrix: &MatrixReport, names: &[String], most: usize) -> MatrixReport {
    let label = |group: &[String]| match group {
        [first, more @ ..] if !more.is_empty() => format!("{first} +{}", more.len()),
        _ => group.concat(),
    };
    let groups = groups(names, most).map(|group| {
        let members = group.iter().map(String::as_str).collect();
        (label(group), members)
    });
    matrix.grouped(&groups.collect::<Vec<_>>())
}

/// Returns the names that a path of groups selects: `3,7/1,2` selects the groups 3 and 7, and of
/// their names the groups 1 and 2. Returns `None` if there is no such group.
fn narrow(mut names: Vec<String>, path: &str, most: usize) -> Option<Vec<String>> {
    for step in path.split('/').filter(|step| !step.is_empty()) {
        let (one, other) = step.split_once(',')?;
        let (one, other): (usize, usize) = (one.parse().ok()?, other.parse().ok()?);
        if names.len() <= most {
            return None;
        }
        let group = |at: usize| groups(&names, most).nth(at);
        let mut chosen = group(one)?.to_vec();
        if one != other {
            chosen.extend_from_slice(group(other)?);
        }
        chosen.sort_unstable();
        names = chosen;
    }
    Some(names)
}

/// Returns evenly spaced names of each group, or all names if there are few.
fn sample(names: &[String], most: usize) -> Vec<&str> {
    let groups = groups(names, most);
    let each = (MAX_SAMPLE_NODES / groups.len().max(1)).max(1);
    let names = groups.flat_map(|group| {
        let count = group.len().min(each);
        (0..count).map(move |i| group[i * group.len() / count].as_str())
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("n{i:04}")).collect()
    }

    #[test]
    fn groups_hold_all_names_once() {
        for (count, most) in [(0, 9), (1, 9), (9, 9), (10, 9), (5_000, 24), (7, 0)] {
            let all = names(count);
            let groups: Vec<&[String]> = groups(&all, most).collect();
            assert!(groups.len() <= most.max(1), "{groups:?}");
            assert_eq!(groups.concat(), all);
        }
    }

    #[test]
    fn narrow_follows_a_path() {
        let all = names(5_000);
        let of = |path| narrow(all.clone(), path, 20);
        assert_eq!(of("").unwrap().len(), 5_000);
        assert_eq!(of("3,7").unwrap().len(), 500);
        assert_eq!(of("3,3/0,1").unwrap(), all[750..776]);
        for wrong in ["3", "3,x", "20,1", "3,7/0,1/0,1/0,1/0,0/0,0", "-1,2"] {
            assert!(of(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn sample_is_bounded_and_covers_all_groups() {
        let all = names(5_000);
        let sample = sample(&all, 24);
        for group in groups(&all, 24) {
            assert!(group.iter().any(|name| sample.contains(&name.as_str())));
        }
        assert!(sample.len() <= MAX_SAMPLE_NODES);
        let few = names(7);
        assert_eq!(super::sample(&few, usize::MAX), few);
    }
}
