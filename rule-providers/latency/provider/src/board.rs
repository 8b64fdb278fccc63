//! The nodes of one question, what is known of the ways from each to the peers,
//! and what follows for a limit.

use std::{fmt::Write, time::Duration};

use tautline_sdk::CostAnswer;

use crate::figures::{Basis, Known, push_basis, push_micros};

/// Nodes by peers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    nodes: Vec<String>,
    peers: Vec<String>,
    /// Row by row: a node's pairs stand together.
    known: Vec<Known>,
    /// Pairs that ought to be verified.
    wanted: Vec<bool>,
}

/// One pair of a board, by the places of its node and peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pair {
    pub node: usize,
    pub peer: usize,
}

/// What the pairs of one node come to; the peer decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Usable { micros: u64, peer: usize },
    OverLimit { micros: u64, peer: usize },
    Unreachable { seconds: u32, peer: usize },
    NoData { peer: usize },
}

/// What the worst pair is. Facts that rule a node out come before what is not known.
pub(crate) fn outcome(row: &[Known], limit: Option<u64>) -> Outcome {
    let (mut worst, mut decides, mut missing) = (0, 0, None);
    for (peer, known) in row.iter().enumerate() {
        match *known {
            Known::Unreachable { seconds, .. } => return Outcome::Unreachable { seconds, peer },
            Known::Nothing => missing = missing.or(Some(peer)),
            Known::Rtt { micros, .. } if micros >= worst => (worst, decides) = (micros, peer),
            Known::Rtt { .. } | Known::Same => {}
        }
    }
    let (micros, peer) = (worst, decides);
    match (limit, missing) {
        (Some(limit), _) if micros > limit => Outcome::OverLimit { micros, peer },
        (_, Some(peer)) => Outcome::NoData { peer },
        _ => Outcome::Usable { micros, peer },
    }
}

impl Board {
    /// `known` says what is known of each node's way to each peer.
    pub(crate) fn new(
        nodes: Vec<String>,
        peers: Vec<String>,
        known: impl IntoIterator<Item = Known>,
    ) -> Self {
        let known: Vec<Known> = known.into_iter().collect();
        debug_assert_eq!(known.len(), nodes.len() * peers.len());
        Self {
            wanted: vec![false; known.len()],
            nodes,
            peers,
            known,
        }
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &[Known]> {
        // Without peers there are no pairs.
        self.known.chunks_exact(self.peers.len().max(1))
    }

    pub(crate) fn peers(&self) -> &[String] {
        &self.peers
    }

    pub(crate) fn node(&self, pair: Pair) -> &str {
        self.nodes.get(pair.node).map_or("", String::as_str)
    }

    fn at(&self, pair: Pair) -> usize {
        pair.node * self.peers.len() + pair.peer
    }

    /// Notes that a pair ought to be verified; whether that is new.
    pub(crate) fn want(&mut self, pair: Pair) -> bool {
        let at = self.at(pair);
        match self.wanted.get_mut(at) {
            Some(wanted) => !std::mem::replace(wanted, true),
            None => false,
        }
    }

    pub(crate) fn set(&mut self, pair: Pair, known: Known) {
        let at = self.at(pair);
        if let Some(old) = self.known.get_mut(at) {
            *old = known;
        }
    }

    /// How many nodes' costs rest on what.
    pub(crate) fn bases(&self, limit: Option<u64>) -> impl Iterator<Item = &'static str> {
        self.rows().map(move |row| match outcome(row, limit) {
            Outcome::NoData { .. } => "nothing",
            Outcome::Unreachable { .. } => "measured",
            Outcome::Usable { peer, .. } | Outcome::OverLimit { peer, .. } => match row[peer] {
                Known::Rtt { basis, .. } => basis.name(),
                _ => "same-node",
            },
        })
    }

    /// The costs, with a word on each.
    pub(crate) fn answer(self, limit: Option<u64>, valid_for: Duration) -> CostAnswer {
        let Self {
            nodes,
            peers,
            known,
            wanted,
        } = self;
        let mut answer = CostAnswer::with_capacity(nodes.len()).valid_for(valid_for);
        if peers.is_empty() {
            for node in nodes {
                answer.usable(node, 0, "no peer is placed yet");
            }
            return answer;
        }
        let mut detail = String::new();
        let pairs = known
            .chunks_exact(peers.len())
            .zip(wanted.chunks_exact(peers.len()));
        for (node, (row, wanted)) in nodes.into_iter().zip(pairs) {
            detail.clear();
            let rest = |detail: &mut String, peer: usize| match row[peer] {
                Known::Rtt { basis, .. } => {
                    detail.push_str(", ");
                    push_basis(detail, basis);
                    if wanted[peer] && basis.is_guess() {
                        detail.push_str(", not verified");
                    }
                }
                _ => detail.push_str(", the same node"),
            };
            match outcome(row, limit) {
                Outcome::Usable { micros, peer } => {
                    push_micros(&mut detail, micros);
                    detail.extend([" to ", &peers[peer]]);
                    rest(&mut detail, peer);
                    answer.usable(node, i64::try_from(micros).unwrap_or(i64::MAX), &detail);
                }
                Outcome::OverLimit { micros, peer } => {
                    push_micros(&mut detail, micros);
                    detail.extend([" to ", &peers[peer], " > "]);
                    push_micros(&mut detail, limit.unwrap_or(u64::MAX));
                    // What somebody wrote down leaves nothing to add.
                    if !matches!(
                        row[peer],
                        Known::Rtt {
                            basis: Basis::Configured,
                            ..
                        }
                    ) {
                        rest(&mut detail, peer);
                    }
                    answer.unusable(node, "OverLimit", &detail, false);
                }
                Outcome::Unreachable { seconds, peer } => {
                    _ = write!(detail, "no way to {} for {seconds}s", peers[peer]);
                    answer.unusable(node, "Unreachable", &detail, false);
                }
                Outcome::NoData { peer } => {
                    detail.extend(["no figure to ", &peers[peer]]);
                    answer.unusable(node, "NoData", &detail, false);
                }
            }
        }
        answer
    }
}

impl Basis {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Measured | Self::Connect => "measured",
            Self::Verified => "verified",
            Self::Estimated { .. } => "estimated",
            Self::Old { .. } => "old",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtt(micros: u64, basis: Basis) -> Known {
        Known::Rtt { micros, basis }
    }

    #[test]
    fn facts_that_rule_out_come_first() {
        let near = rtt(1_000, Basis::Measured);
        let far = rtt(9_000, Basis::Measured);
        let gone = Known::Unreachable {
            seconds: 4,
            open: true,
        };
        let none = Known::Nothing;
        let limit = Some(5_000);
        let not = |peer| Outcome::NoData { peer };
        assert_eq!(outcome(&[near, none], limit), not(1));
        let (micros, peer) = (9_000, 1);
        let over = Outcome::OverLimit { micros, peer };
        assert_eq!(outcome(&[none, far], limit), over);
        assert_eq!(outcome(&[none, far], None), not(0));
        let (seconds, peer) = (4, 2);
        let unreachable = Outcome::Unreachable { seconds, peer };
        assert_eq!(outcome(&[none, far, gone], limit), unreachable);
        let usable = |micros, peer| Outcome::Usable { micros, peer };
        assert_eq!(outcome(&[far, near], None), usable(9_000, 0));
        assert_eq!(outcome(&[Known::Same], limit), usable(0, 0));
    }

    #[test]
    fn details() {
        let estimated = Basis::Estimated {
            low: 2_900,
            high: 3_600,
        };
        let nodes = ["a", "b", "c", "d", "e", "f", "g", "h"]
            .map(str::to_owned)
            .to_vec();
        let known = [
            rtt(180, Basis::Measured),
            rtt(3_200, estimated),
            rtt(3_300, estimated),
            rtt(31_500, Basis::Old { seconds: 75 }),
            Known::Unreachable {
                seconds: 12,
                open: false,
            },
            Known::Nothing,
            rtt(31_000, Basis::Configured),
            rtt(190, Basis::Connect),
        ];
        let mut board = Board::new(nodes, vec!["db-1".to_owned()], known);
        assert!(board.want(Pair { node: 2, peer: 0 }));
        assert!(!board.want(Pair { node: 2, peer: 0 }), "once is enough");
        let answer = board.answer(Some(20_000), Duration::ZERO);
        let said: Vec<String> = answer
            .nodes()
            .iter()
            .map(|n| format!("{} {} {}: {}", n.node, n.cost, n.code, n.detail))
            .collect();
        assert_eq!(
            said,
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
