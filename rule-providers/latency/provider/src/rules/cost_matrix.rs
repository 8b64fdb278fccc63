//! The matrix of a cost question: the round-trip time of each pair of a candidate and a peer, from
//! which the answer follows.

use std::fmt::Write;

use tautline_sdk::CostAnswer;

use super::pair_rtt::{Basis, PairRtt, push_basis};
use crate::{format::push_micros, network::outside::NoFigure};

#[derive(Clone, Debug, Default)]
pub(crate) struct CostMatrix {
    nodes: Vec<String>,
    peers: Vec<String>,
    /// The round-trip times row by row: the pairs of a node are adjacent.
    rtts: Vec<PairRtt>,
    selected: Vec<bool>,
    /// The reasons why peers outside the cluster have no figure; may be empty.
    no_figures: Vec<Option<NoFigure>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub node: usize,
    pub peer: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CandidateCost {
    Usable { micros: u64, peer: usize },
    OverLimit { micros: u64, peer: usize },
    Unreachable { seconds: u32, peer: usize },
    NoData { peer: usize },
}

/// Returns the cost of a candidate by its worst pair. Facts that rule the node out take precedence
/// over missing data.
pub(crate) fn candidate_cost(row: &[PairRtt], limit: Option<u64>) -> CandidateCost {
    let (mut micros, mut peer, mut missing) = (0, 0, None);
    for (index, rtt) in row.iter().enumerate() {
        match *rtt {
            PairRtt::Unreachable { seconds, .. } => {
                return CandidateCost::Unreachable {
                    seconds,
                    peer: index,
                };
            }
            PairRtt::Unknown => missing = missing.or(Some(index)),
            PairRtt::Rtt { micros: rtt, .. } if rtt >= micros => (micros, peer) = (rtt, index),
            PairRtt::Rtt { .. } | PairRtt::SameNode => {}
        }
    }
    match (limit, missing) {
        (Some(limit), _) if micros > limit => CandidateCost::OverLimit { micros, peer },
        (_, Some(peer)) => CandidateCost::NoData { peer },
        _ => CandidateCost::Usable { micros, peer },
    }
}

impl CostMatrix {
    pub(crate) fn new(
        nodes: Vec<String>,
        peers: Vec<String>,
        rtts: impl IntoIterator<Item = PairRtt>,
    ) -> Self {
        let rtts: Vec<PairRtt> = rtts.into_iter().collect();
        debug_assert_eq!(rtts.len(), nodes.len() * peers.len());
        Self {
            selected: vec![false; rtts.len()],
            nodes,
            peers,
            rtts,
            no_figures: Vec::new(),
        }
    }

    pub(crate) fn with_no_figures(mut self, reasons: Vec<Option<NoFigure>>) -> Self {
        self.no_figures = reasons;
        self
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &[PairRtt]> {
        // Without peers there are no pairs.
        self.rtts.chunks_exact(self.peers.len().max(1))
    }

    pub(crate) fn peers(&self) -> &[String] {
        &self.peers
    }

    pub(crate) fn node(&self, cell: Cell) -> &str {
        self.nodes.get(cell.node).map_or("", String::as_str)
    }

    fn index(&self, cell: Cell) -> usize {
        cell.node * self.peers.len() + cell.peer
    }

    /// Marks a pair for verification; returns false if it was marked before.
    pub(crate) fn select(&mut self, cell: Cell) -> bool {
        let index = self.index(cell);
        match self.selected.get_mut(index) {
            Some(selected) => !std::mem::replace(selected, true),
            None => false,
        }
    }

    pub(crate) fn set(&mut self, cell: Cell, rtt: PairRtt) {
        let index = self.index(cell);
        if let Some(old) = self.rtts.get_mut(index) {
            *old = rtt;
        }
    }

    pub(crate) fn bases(&self, limit: Option<u64>) -> impl Iterator<Item = &'static str> {
        self.rows()
            .map(move |row| match candidate_cost(row, limit) {
                CandidateCost::NoData { .. } => "nothing",
                CandidateCost::Unreachable { .. } => "measured",
                CandidateCost::Usable { peer, .. } | CandidateCost::OverLimit { peer, .. } => {
                    match row[peer] {
                        PairRtt::Rtt { basis, .. } => basis.name(),
                        _ => "same-node",
                    }
                }
            })
    }

    pub(crate) fn into_answer(self, limit: Option<u64>) -> CostAnswer {
        let Self {
            nodes,
            peers,
            rtts,
            selected,
            no_figures,
        } = self;
        let mut answer = CostAnswer::with_capacity(nodes.len());
        if peers.is_empty() {
            for node in nodes {
                answer.usable(node, 0, "no peer is placed yet");
            }
            return answer;
        }
        let mut detail = String::new();
        let rows = rtts
            .chunks_exact(peers.len())
            .zip(selected.chunks_exact(peers.len()));
        for (node, (row, selected)) in nodes.into_iter().zip(rows) {
            detail.clear();
            let push_source = |detail: &mut String, peer: usize| match row[peer] {
                PairRtt::Rtt { basis, .. } => {
                    detail.push_str(", ");
                    push_basis(detail, basis);
                    if selected[peer] && basis.is_guess() {
                        detail.push_str(", not verified");
                    }
                }
                _ => detail.push_str(", the same node"),
            };
            match candidate_cost(row, limit) {
                CandidateCost::Usable { micros, peer } => {
                    push_micros(&mut detail, micros);
                    detail.extend([" to ", &peers[peer]]);
                    push_source(&mut detail, peer);
                    answer.usable(node, i64::try_from(micros).unwrap_or(i64::MAX), &detail);
                }
                CandidateCost::OverLimit { micros, peer } => {
                    push_micros(&mut detail, micros);
                    detail.extend([" to ", &peers[peer], " > "]);
                    push_micros(&mut detail, limit.unwrap_or(u64::MAX));
                    let configured = PairRtt::Rtt {
                        micros,
                        basis: Basis::Configured,
                    };
                    if row[peer] != configured {
                        push_source(&mut detail, peer);
                    }
                    answer.unusable(node, "OverLimit", &detail, false);
                }
                CandidateCost::Unreachable { seconds, peer } => {
                    _ = write!(detail, "no way to {} for {seconds}s", peers[peer]);
                    answer.unusable(node, "Unreachable", &detail, false);
                }
                CandidateCost::NoData { peer } => {
                    detail.extend(["no figure to ", &peers[peer]]);
                    if let Some(Some(reason)) = no_figures.get(peer) {
                        _ = write!(detail, ": {reason}");
                    }
                    answer.unusable(node, "NoData", &detail, false);
                }
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtt(micros: u64, basis: Basis) -> PairRtt {
        PairRtt::Rtt { micros, basis }
    }

    #[test]
    fn facts_that_rule_a_node_out_come_first() {
        let near = rtt(1_000, Basis::Measured);
        let far = rtt(9_000, Basis::Measured);
        let gone = PairRtt::Unreachable {
            seconds: 4,
            open: true,
        };
        let none = PairRtt::Unknown;
        let limit = Some(5_000);
        let not = |peer| CandidateCost::NoData { peer };
        assert_eq!(candidate_cost(&[near, none], limit), not(1));
        let (micros, peer) = (9_000, 1);
        let over = CandidateCost::OverLimit { micros, peer };
        assert_eq!(candidate_cost(&[none, far], limit), over);
        assert_eq!(candidate_cost(&[none, far], None), not(0));
        let (seconds, peer) = (4, 2);
        let unreachable = CandidateCost::Unreachable { seconds, peer };
        assert_eq!(candidate_cost(&[none, far, gone], limit), unreachable);
        let usable = |micros, peer| CandidateCost::Usable { micros, peer };
        assert_eq!(candidate_cost(&[far, near], None), usable(9_000, 0));
        assert_eq!(candidate_cost(&[PairRtt::SameNode], limit), usable(0, 0));
    }

    #[test]
    fn details_name_peer_and_basis() {
        let estimated = Basis::Estimated {
            low: 2_900,
            high: 3_600,
        };
        let nodes = ["a", "b", "c", "d", "e", "f", "g", "h"]
            .map(str::to_owned)
            .to_vec();
        let rtts = [
            rtt(180, Basis::Measured),
            rtt(3_200, estimated),
            rtt(3_300, estimated),
            rtt(31_500, Basis::Old { seconds: 75 }),
            PairRtt::Unreachable {
                seconds: 12,
                open: false,
            },
            PairRtt::Unknown,
            rtt(31_000, Basis::Configured),
            rtt(190, Basis::Connect),
        ];
        let mut matrix = CostMatrix::new(nodes, vec!["db-1".to_owned()], rtts);
        assert!(matrix.select(Cell { node: 2, peer: 0 }));
        assert!(!matrix.select(Cell { node: 2, peer: 0 }), "once is enough");
        let answer = matrix.into_answer(Some(20_000));
        let details: Vec<String> = answer
            .nodes()
            .iter()
            .map(|n| format!("{} {} {}: {}", n.node, n.cost, n.code, n.detail))
            .collect();
        assert_eq!(
            details,
            [
                "a 180 : 180us to db-1, measured",
                "b 3200 : 3.2ms to db-1, estimated (2.9ms to 3.6ms)",
                "c 3300 : 3.3ms to db-1, estimated (2.9ms to 3.6ms), not verified",
                "d -1 OverLimit: 31.5ms to db-1 > 20ms, measured 75s ago",
                "e -1 Unreachable: no way to db-1 for 12s",
                "f -1 NoData: no figure to db-1",
                "g -1 OverLimit: 31ms to db-1 > 20ms",
                "h 190 : 190us to db-1, measured by TCP connect",
            ]
        );
    }
}
