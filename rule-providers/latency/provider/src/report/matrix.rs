//! The report `/latency/matrix?by=zone|node[&zone=Z][&nodes=a,b]`: the round-trip times between
//! zones or nodes.
//!
//! A matrix of zones reads the measured pairs and a bounded sample of the other pairs, as 5,000
//! nodes have 12 million pairs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{
    facts::{NodeZone, ReportSource, RttFrom},
    model::{Basis, EffectiveRtt},
    query::{ReportError, fields},
};

/// The maximum number of rows, and of columns.
const MAX_NAMES: usize = 200;
/// The maximum number of nodes of a zone that are sampled in addition to the measured pairs.
const MAX_ZONE_PEERS: usize = 8;
/// The maximum number of sampled nodes of all zones together.
const MAX_PEERS: usize = 400;
/// The number of nodes of each zone whose pairs with a sampled node are read.
const SAMPLES_PER_ZONE: usize = 8;
/// The zone, in a matrix, of nodes without a zone label.
pub const NO_ZONE: &str = "(no zone)";

/// The kind of rows and columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum By {
    /// Rows and columns are zones.
    #[default]
    Zone,
    /// Rows and columns are nodes.
    Node,
}

/// The round-trip times of all pairs of zones or nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MatrixReport {
    /// The kind of `names`.
    pub by: By,
    /// The names of the zones or nodes, in the order of both rows and columns.
    pub names: Vec<String>,
    /// The cells by row and column. A matrix of zones is symmetric; its diagonal has the pairs
    /// within each zone.
    pub cells: Vec<Vec<Cell>>,
}

/// A cell of a matrix. For two nodes it has the time that a rule uses, for two zones the median
/// over the measured pairs of their nodes and a sample of the other pairs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// The time and its source; for zones, the source of most of the figures.
    #[serde(flatten)]
    pub effective: EffectiveRtt,
    /// The 10th percentile over the pairs of nodes of two zones, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p10_micros: Option<u64>,
    /// The 90th percentile over the pairs of nodes of two zones, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90_micros: Option<u64>,
    /// The number of pairs of nodes of two zones whose time is measured.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub measured_pairs: usize,
    /// The number of pairs of nodes of two zones that lose all packets.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unreachable_pairs: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MatrixQuery {
    by: String,
    zone: String,
    nodes: String,
}

impl MatrixReport {
    pub(super) fn from_query(facts: &impl ReportSource, query: &str) -> Result<Self, ReportError> {
        let MatrixQuery { by, zone, nodes } = fields(query)?;
        let narrowed = !zone.is_empty() || !nodes.is_empty();
        match by.as_str() {
            "" if !narrowed => Self::by_zone(facts),
            "zone" if narrowed => Err(ReportError::field(
                "by",
                "zone and nodes narrow a matrix by node; write by=node",
            )),
            "zone" => Self::by_zone(facts),
            "" | "node" => {
                let nodes: Vec<&str> = nodes.split(',').filter(|n| !n.is_empty()).collect();
                Self::by_node(facts, Some(&*zone).filter(|z| !z.is_empty()), &nodes)
            }
            _ => Err(ReportError::field("by", "write zone or node")),
        }
    }

    /// Returns the matrix of the named nodes, of the nodes of a zone, or of all nodes; at most 200.
    pub(crate) fn by_node(
        facts: &impl ReportSource,
        zone: Option<&str>,
        nodes: &[&str],
    ) -> Result<Self, ReportError> {
        let places = facts.nodes();
        let known: BTreeSet<&str> = places.iter().map(|p| p.node.as_str()).collect();
        if let Some(name) = nodes.iter().find(|n| !known.contains(*n)) {
            return Err(ReportError::unknown("node", name, known.into_iter()));
        }
        let selected: BTreeSet<&str> = nodes.iter().copied().collect();
        let zones: BTreeSet<&str> = places.iter().map(zone_of).collect();
        if let Some(zone) = zone.filter(|z| !zones.contains(z)) {
            return Err(ReportError::unknown("zone", zone, zones.into_iter()));
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
            facts.with_rtts_to(to, &mut |rtt_from| {
                for (from, row) in names.iter().zip(&mut cells) {
                    row.push(Cell {
                        effective: rtt_from(from),
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
        let mut add = |a: &str, b: &str, rtt_from: RttFrom<'_>| {
            let (Some(&(x, i)), Some(&(y, j))) = (number.get(a), number.get(b)) else {
                return;
            };
            if x != y && seen.insert((x.min(y), x.max(y))) {
                pools[i.min(j) * count + i.max(j)].add(rtt_from(a));
            }
        };
        for place in &places {
            let others = facts.measured_with(&place.node);
            if !others.is_empty() {
                facts.with_rtts_to(&place.node, &mut |rtt_from| {
                    for other in &others {
                        add(other, &place.node, rtt_from);
                    }
                });
            }
        }
        let all: Vec<&Vec<&str>> = members.values().collect();
        let peers = (MAX_PEERS / count.max(1)).clamp(1, MAX_ZONE_PEERS);
        for (j, theirs) in all.iter().enumerate() {
            for peer in 0..peers {
                let to = theirs[peer * theirs.len() / peers];
                facts.with_rtts_to(to, &mut |rtt_from| {
                    for ours in &all[..=j] {
                        // Each peer is paired with other nodes, spread evenly over the zone.
                        let at =
                            |from| (from * peers + peer) * ours.len() / (SAMPLES_PER_ZONE * peers);
                        for from in 0..SAMPLES_PER_ZONE {
                            add(ours[at(from)], to, rtt_from);
                        }
                    }
                });
            }
        }
        let names = members.keys().map(|z| (*z).to_owned()).collect();
        let pool = |i: usize, j: usize| &pools[i.min(j) * count + i.max(j)];
        Ok(Self::of_groups(names, pool))
    }

    /// Returns whether no time is known.
    pub fn is_empty(&self) -> bool {
        let mut cells = self.cells.iter().flatten();
        cells.all(|c| matches!(c.effective.basis, Basis::Nothing | Basis::Same))
    }

    fn of_groups<'a>(names: Vec<String>, pairs: impl Fn(usize, usize) -> &'a Pairs) -> Self {
        let row = |i| (0..names.len()).map(|j| pairs(i, j).cell()).collect();
        Self {
            by: By::Zone,
            cells: (0..names.len()).map(row).collect(),
            names,
        }
    }
}

/// The times of many pairs of nodes, which become one cell.
#[derive(Clone, Debug, Default)]
struct Pairs {
    figures: Vec<(u64, Basis)>,
    unreachable: usize,
}

impl Pairs {
    fn add(&mut self, rtt: EffectiveRtt) {
        match (rtt.basis, rtt.rtt_micros) {
            (Basis::Unreachable, _) => self.unreachable += 1,
            (Basis::Nothing | Basis::Same, _) | (_, None) => {}
            (basis, Some(micros)) => self.figures.push((micros, basis)),
        }
    }

    fn cell(&self) -> Cell {
        let of = |basis| self.figures.iter().filter(|f| f.1 == basis).count();
        let measured_pairs = of(Basis::Measured);
        let bases = [
            (Basis::Measured, measured_pairs),
            (Basis::Configured, of(Basis::Configured)),
            (Basis::Estimated, of(Basis::Estimated)),
            (Basis::Old, of(Basis::Old)),
            (Basis::Unreachable, self.unreachable),
        ];
        // The first of equal counts decides.
        let most = bases.iter().rev().filter(|b| b.1 > 0).max_by_key(|b| b.1);
        let basis = most.map_or(Basis::Nothing, |b| b.0);
        let mut sorted: Vec<u64> = self.figures.iter().map(|f| f.0).collect();
        sorted.sort_unstable();
        let known = basis != Basis::Unreachable;
        let at = |percent| known.then(|| quantile(&sorted, percent)).flatten();
        Cell {
            effective: EffectiveRtt {
                basis,
                rtt_micros: at(50),
            },
            p10_micros: at(10),
            p90_micros: at(90),
            measured_pairs,
            unreachable_pairs: self.unreachable,
        }
    }
}

/// Returns a quantile of a sorted list: the lower figure if it falls between two.
fn quantile(sorted: &[u64], percent: usize) -> Option<u64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get(last * percent / 100).copied()
}

fn zone_of(place: &NodeZone) -> &str {
    place.zone.as_deref().unwrap_or(NO_ZONE)
}

fn bounded(count: usize, what: &str, fix: &str) -> Result<(), ReportError> {
    if count <= MAX_NAMES {
        return Ok(());
    }
    let text = format!("{count} {what}, and at most {MAX_NAMES} can be shown; {fix}");
    Err(ReportError::bad_request(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_of_the_list_and_in_order(mut list in prop::collection::vec(0u64..100, 1..50)) {
            list.sort_unstable();
            let [low, middle, high] = [10, 50, 90].map(|p| quantile(&list, p).unwrap());
            prop_assert!(low <= middle && middle <= high);
            prop_assert!(list.contains(&low) && list.contains(&high));
        }
    }

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!(quantile(&[], 50), None);
        assert_eq!(quantile(&[7], 90), Some(7));
        assert_eq!(Pairs::default().cell(), Cell::default());
    }
}
