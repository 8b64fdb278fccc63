use std::ops::Range;

use tautline_core::Snapshot;

use super::{
    super::{scope, tiles},
    Level,
};
use crate::{
    request::{PageError, PageRequest, PageResult, escaped},
    table::Window,
};

/// The number of a node's peers on a page.
const PEERS_PER_PAGE: usize = 60;

/// The request to the provider, and the groups of the names in its answer.
pub(super) struct Question {
    pub path: String,
    /// The labels of the groups and their requested members; empty if names are shown individually.
    pub groups: Vec<(String, Vec<String>)>,
    /// The range of names in each group.
    pub ranges: Vec<Range<usize>>,
    /// The node whose pairs are shown, with the shown peers; `None` for all pairs.
    pub only: Option<(String, Window<String>)>,
}

pub(super) fn question(
    request: &PageRequest,
    snapshot: &Snapshot,
) -> PageResult<(Level, Question)> {
    if let Some(name) = request.field("node") {
        return of_node(request, snapshot, name);
    }
    let mut zones = scope::zones(snapshot);
    let only_zone = zones.len() == 1;
    let zone = match request.field("zone") {
        Some(zone) => zone.to_owned(),
        None if only_zone => zones.keys().next().cloned().unwrap_or_default(),
        None => {
            let question = Question {
                path: "/latency/matrix?by=zone".to_owned(),
                groups: Vec::new(),
                ranges: Vec::new(),
                only: None,
            };
            return Ok((Level::Zones, question));
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
    let most = tiles::most_names(longest(&names));
    let names = scope::narrow(names, path, most);
    let names = names.ok_or_else(|| absent(format!("group {path} of the zone")))?;
    let level = Level::Nodes {
        zone,
        to,
        groups: path.to_owned(),
        nodes: names.len(),
        only_zone,
    };
    Ok((level, Question::of_nodes(&names, most)))
}

fn absent(what: String) -> PageError {
    PageError::absent(format!("there is no {what}"))
}

/// Returns the question about a node and the other nodes of its zone, of which each page has some.
fn of_node(
    request: &PageRequest,
    snapshot: &Snapshot,
    name: &str,
) -> PageResult<(Level, Question)> {
    let node = snapshot.node(name);
    let node = node.ok_or_else(|| absent(format!("node {name}")))?;
    let zone = scope::zone_of(node);
    let mut names = scope::zones(snapshot).remove(&zone).unwrap_or_default();
    names.retain(|other| other != name);
    let peers = Window::sized(request, &names, PEERS_PER_PAGE, String::clone)?;
    let mut names = peers.rows.clone();
    names.push(name.to_owned());
    let level = Level::OneNode {
        node: name.to_owned(),
        zone,
    };
    let question = Question {
        only: Some((name.to_owned(), peers)),
        ..Question::of_nodes(&names, usize::MAX)
    };
    Ok((level, question))
}

pub(super) fn longest(names: &[String]) -> usize {
    names.iter().map(String::len).max().unwrap_or(0)
}

impl Question {
    fn of_nodes(names: &[String], most: usize) -> Self {
        let (ranges, asked) = if names.len() > most {
            let ranges = scope::groups(names.len(), most);
            let sample = scope::sample(names, &ranges);
            (ranges, sample)
        } else {
            (Vec::new(), vec![names.iter().map(String::as_str).collect()])
        };
        let list: Vec<String> = asked.iter().flatten().map(|name| escaped(name)).collect();
        let members = |names: &Vec<&str>| names.iter().map(|n| (*n).to_owned()).collect();
        let labels = ranges.iter().map(|range| scope::label(names, range));
        Self {
            path: format!("/latency/matrix?by=node&nodes={}", list.join(",")),
            groups: labels.zip(asked.iter().map(members)).collect(),
            ranges,
            only: None,
        }
    }
}
