use std::ops::Range;

use tautline_core::Snapshot;
use tautline_latency::{ZONE, report::NO_ZONE};

use super::{
    super::{scope, tiles},
    Level, MAX_NAME,
};
use crate::{
    draw::clean,
    request::{PageError, PageRequest, escaped},
};

/// What the provider is asked for, and how its names are grouped.
pub(super) struct Question {
    pub path: String,
    /// Labels, and the asked members; empty: names are shown one by one.
    pub groups: Vec<(String, Vec<String>)>,
    pub ranges: Vec<Range<usize>>,
    /// Only the pairs of this name count.
    pub only: Option<String>,
}

pub(super) fn question(
    request: &PageRequest,
    snapshot: &Snapshot,
) -> Result<(Level, Question), PageError> {
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
    let absent = |what: String| PageError::absent(format!("there is no {what}"));
    let to = request
        .field("to")
        .filter(|to| *to != zone)
        .map(str::to_owned);
    let mut names = Vec::new();
    for zone in [Some(&zone), to.as_ref()].into_iter().flatten() {
        let of_zone = zones.remove(zone);
        names.extend(of_zone.ok_or_else(|| absent(format!("zone {}", clean(zone, MAX_NAME))))?);
    }
    let path = request.field("groups").unwrap_or_default();
    let most = tiles::most_names(longest(&names));
    let names = scope::narrow(names, path, most);
    let names = names.ok_or_else(|| absent(format!("group {} of the zone", clean(path, 40))))?;
    let level = Level::Nodes {
        zone,
        to,
        groups: path.to_owned(),
        nodes: names.len(),
        only_zone,
    };
    Ok((level, Question::of_nodes(&names, most)))
}

/// The node with the others of its zone, page by page.
fn of_node(
    request: &PageRequest,
    snapshot: &Snapshot,
    name: &str,
) -> Result<(Level, Question), PageError> {
    let node = snapshot.node(name);
    let node = node
        .ok_or_else(|| PageError::absent(format!("there is no node {}", clean(name, MAX_NAME))))?;
    let zone = node.labels.get(ZONE).unwrap_or(NO_ZONE).to_owned();
    let mut names = scope::zones(snapshot).remove(&zone).unwrap_or_default();
    names.retain(|other| other != name);
    let page = request.number::<usize>("page")?.unwrap_or(1).max(1);
    let first = (page - 1)
        .saturating_mul(Question::PEERS)
        .min(names.len().saturating_sub(1));
    let first = first - first % Question::PEERS;
    names = names
        .into_iter()
        .skip(first)
        .take(Question::PEERS)
        .collect();
    names.push(name.to_owned());
    let level = Level::OneNode {
        node: name.to_owned(),
        zone,
    };
    let question = Question {
        only: Some(name.to_owned()),
        ..Question::of_nodes(&names, usize::MAX)
    };
    Ok((level, question))
}

pub(super) fn longest(names: &[String]) -> usize {
    names.iter().map(String::len).max().unwrap_or(0)
}

impl Question {
    /// Peers of one node on a page.
    pub(super) const PEERS: usize = 60;

    fn of_nodes(names: &[String], most: usize) -> Self {
        let (ranges, asked) = match names.len() > most {
            true => {
                let ranges = scope::groups(names.len(), most);
                let sample = scope::sample(names, &ranges);
                (ranges, sample)
            }
            false => (Vec::new(), vec![names.iter().map(String::as_str).collect()]),
        };
        let list: Vec<String> = asked.iter().flatten().map(|name| escaped(name)).collect();
        let label = |range: &Range<usize>| {
            let name = |i: usize| names.get(i).map_or("", String::as_str);
            match range.len() {
                1 => name(range.start).to_owned(),
                more => format!("{} +{}", name(range.start), more - 1),
            }
        };
        let members = |names: &Vec<&str>| names.iter().map(|n| (*n).to_owned()).collect();
        Self {
            path: format!("/latency/matrix?by=node&nodes={}", list.join(",")),
            groups: ranges
                .iter()
                .map(label)
                .zip(asked.iter().map(members))
                .collect(),
            ranges,
            only: None,
        }
    }
}
