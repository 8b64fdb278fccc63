//! `/latency/matrix?by=zone|node[&zone=Z][&nodes=a,b]`
//!
//! A matrix of zones reads the measured pairs and a bounded sample of the others, never all
//! pairs: 5,000 nodes have 12 million.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{
    error::ReportError,
    facts::{NodeZone, ReportSource},
    model::EffectiveRtt,
    names,
    pairs::Pairs,
    query::Query,
};

pub(super) const MOST: usize = 200;
/// Besides the measured pairs: so many nodes of each zone are sampled,
const PEERS: usize = 8;
/// so many of all zones together,
const ALL_PEERS: usize = 400;
/// and for each of them the pairs with so many nodes of each zone.
const FROM: usize = 8;
/// The zone of nodes without the label, in a matrix.
pub const NO_ZONE: &str = "(no zone)";

/// What rows and columns are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum By {
    /// Zones.
    #[default]
    Zone,
    /// Nodes.
    Node,
}

/// Round-trip times of all pairs of zones or nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MatrixReport {
    /// What `names` are.
    pub by: By,
    /// Zones or nodes, in order: the names of both rows and columns.
    pub names: Vec<String>,
    /// Cells by row and column. A matrix of zones is symmetric; its diagonal is within a zone.
    pub cells: Vec<Vec<Cell>>,
}

/// Two nodes: the time that a rule uses. Two zones: the median over the measured pairs of
/// their nodes and a sample of the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// For zones: with the source of most of the figures.
    #[serde(flatten)]
    pub effective: EffectiveRtt,
    /// A tenth of the pairs of nodes is below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p10_micros: Option<u64>,
    /// A tenth of them is above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90_micros: Option<u64>,
    /// For zones: pairs of nodes whose time is measured.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub measured_pairs: usize,
    /// For zones: pairs of nodes that lose all packets.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unreachable_pairs: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl MatrixReport {
    pub(super) fn from_query(facts: &impl ReportSource, query: &str) -> Result<Self, ReportError> {
        let query = Query::parse(query, &["by", "zone", "nodes"])?;
        let error = |field: &str, what: &str| ReportError::Query {
            field: field.to_owned(),
            what: what.to_owned(),
        };
        let narrowed = query.get("zone").is_some() || query.get("nodes").is_some();
        match query.get("by") {
            None if !narrowed => Self::by_zone(facts),
            Some("zone") if narrowed => Err(error(
                "by",
                "zone and nodes narrow a matrix by node; write by=node",
            )),
            Some("zone") => Self::by_zone(facts),
            None | Some("node") => {
                let nodes: Vec<&str> = query
                    .get("nodes")
                    .map(|list| list.split(',').filter(|n| !n.is_empty()).collect())
                    .unwrap_or_default();
                Self::by_node(facts, query.get("zone"), &nodes)
            }
            Some(_) => Err(error("by", "write zone or node")),
        }
    }

    /// Of the nodes named (at most 200), of a zone, or of all.
    pub(crate) fn by_node(
        facts: &impl ReportSource,
        zone: Option<&str>,
        nodes: &[&str],
    ) -> Result<Self, ReportError> {
        let places = facts.nodes();
        let unknown = |what, name: &str, near| ReportError::Unknown {
            what,
            name: name.to_owned(),
            near,
        };
        let known: BTreeSet<&str> = places.iter().map(|p| p.node.as_str()).collect();
        if let Some(name) = nodes.iter().find(|n| !known.contains(*n)) {
            let near = names::near(name, known.iter().copied());
            return Err(unknown("node", name, near));
        }
        let selected: BTreeSet<&str> = nodes.iter().copied().collect();
        let zones: BTreeSet<&str> = places.iter().map(zone_of).collect();
        if let Some(zone) = zone.filter(|z| !zones.contains(z)) {
            let near = names::near(zone, zones.iter().copied());
            return Err(unknown("zone", zone, near));
        }
        let names: Vec<String> = places
            .iter()
            .filter(|p| zone.is_none_or(|z| zone_of(p) == z))
            .filter(|p| selected.is_empty() || selected.contains(p.node.as_str()))
            .map(|p| p.node.clone())
            .collect();
        bounded(
            names.len(),
            "nodes",
            "narrow it with zone=ZONE or nodes=A,B,C",
        )?;
        let mut cells = vec![Vec::with_capacity(names.len()); names.len()];
        for to in &names {
            facts.with_rtts_to(to, &mut |way| {
                for (from, row) in names.iter().zip(&mut cells) {
                    row.push(Cell {
                        effective: way(from),
                        ..Cell::default()
                    });
                }
            });
        }
        Ok(Self {
            by: By::Node,
            names,
            cells,
        })
    }

    pub(crate) fn by_zone(facts: &impl ReportSource) -> Result<Self, ReportError> {
        let places = facts.nodes();
        let mut members: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for place in &places {
            members.entry(zone_of(place)).or_default().push(&place.node);
        }
        bounded(
            members.len(),
            "zones",
            "look at some nodes with by=node&nodes=A,B,C",
        )?;
        let mut number: HashMap<&str, (usize, usize)> = HashMap::new();
        for (zone, nodes) in members.values().enumerate() {
            for node in nodes {
                number.insert(node, (number.len(), zone));
            }
        }
        let count = members.len();
        let mut pools = vec![Pairs::default(); count * count];
        let mut seen: HashSet<(usize, usize)> = HashSet::new();
        let mut add = |a: &str, b: &str, way: &dyn Fn(&str) -> EffectiveRtt| {
            let (Some(&(x, i)), Some(&(y, j))) = (number.get(a), number.get(b)) else {
                return;
            };
            if x != y && seen.insert((x.min(y), x.max(y))) {
                pools[i.min(j) * count + i.max(j)].add(way(a));
            }
        };
        for place in &places {
            let others = facts.measured_with(&place.node);
            if !others.is_empty() {
                facts.with_rtts_to(&place.node, &mut |way| {
                    for other in &others {
                        add(other, &place.node, way);
                    }
                });
            }
        }
        let all: Vec<&Vec<&str>> = members.values().collect();
        let peers = (ALL_PEERS / count.max(1)).clamp(1, PEERS);
        for (j, theirs) in all.iter().enumerate() {
            for peer in 0..peers {
                let to = theirs[peer * theirs.len() / peers];
                facts.with_rtts_to(to, &mut |way| {
                    for ours in &all[..=j] {
                        // Other nodes for each peer, evenly over the zone.
                        let at = |from| (from * peers + peer) * ours.len() / (FROM * peers);
                        for from in 0..FROM {
                            add(ours[at(from)], to, way);
                        }
                    }
                });
            }
        }
        let cell = |i: usize, j: usize| pools[i.min(j) * count + i.max(j)].cell();
        Ok(Self {
            by: By::Zone,
            names: members.keys().map(|z| (*z).to_owned()).collect(),
            cells: (0..count)
                .map(|i| (0..count).map(|j| cell(i, j)).collect())
                .collect(),
        })
    }
}

fn zone_of(place: &NodeZone) -> &str {
    place.zone.as_deref().unwrap_or(NO_ZONE)
}

fn bounded(count: usize, what: &'static str, fix: &'static str) -> Result<(), ReportError> {
    if count <= MOST {
        return Ok(());
    }
    Err(ReportError::TooMany {
        count,
        what,
        most: MOST,
        fix,
    })
}
