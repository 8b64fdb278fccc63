//! The selection of pairs to probe before an answer: estimates err too often near the limit and
//! among the best candidates, and losses of rarely visited pairs may be over.

use super::{
    cost_matrix::{CandidateCost, Cell, CostMatrix, candidate_cost},
    pair_rtt::PairRtt,
};

const MAX_BEST_CANDIDATES: usize = 16;

/// Selects the pairs to probe, most urgent first, each once: those of the best candidates, then
/// those with an estimate in [limit / 2, limit * 2], closest to the limit first, then those without
/// a time. A node's deciding pair comes first. Without a limit only the pairs of the best
/// candidates are selected.
pub(crate) fn initial_probes(matrix: &mut CostMatrix, limit: Option<u64>) -> Vec<Cell> {
    let all: Vec<Candidate> = candidates(matrix, limit);
    let best = best(all.clone(), |_| true);
    let mut pairs = pairs_of(matrix, &best);
    if let Some(limit) = limit {
        let mut near: Vec<(bool, f64, Cell)> = Vec::new();
        let mut unknown = Vec::new();
        for candidate in all {
            for (peer, known) in row(matrix, candidate.node).iter().enumerate() {
                let pair = Cell {
                    node: candidate.node,
                    peer,
                };
                match known {
                    PairRtt::Unknown | PairRtt::Unreachable { open: true, .. } => {
                        unknown.push(pair)
                    }
                    PairRtt::Rtt { micros, basis }
                        if basis.is_guess() && micros.saturating_mul(2) >= limit =>
                    {
                        let (low, high) = (limit.min(*micros), limit.max(*micros));
                        let apart = high as f64 / low.max(1) as f64;
                        near.push((*micros != candidate.worst, apart, pair));
                    }
                    _ => {}
                }
            }
        }
        near.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        pairs.extend(near.into_iter().map(|(.., pair)| pair));
        pairs.extend(unknown);
    }
    pairs.retain(|pair| matrix.select(*pair));
    pairs
}

/// Selects the pairs to probe after a round: those of nodes with a better estimate than the best
/// verified node. Pairs that were selected before are left out.
pub(crate) fn next_probes(matrix: &mut CostMatrix, limit: Option<u64>) -> Vec<Cell> {
    let certain = matrix
        .rows()
        .filter(|row| row.iter().all(|k| !is_open(*k)))
        .filter_map(|row| match candidate_cost(row, limit) {
            CandidateCost::Usable { micros, .. } => Some(micros),
            _ => None,
        })
        .min()
        .unwrap_or(u64::MAX);
    let best = best(candidates(matrix, limit), |candidate| {
        candidate.missing == 0 && candidate.open && candidate.worst < certain
    });
    let mut pairs = pairs_of(matrix, &best);
    pairs.retain(|pair| matrix.select(*pair));
    pairs
}

pub(crate) fn group_by_peer(
    pairs: Vec<Cell>,
    peers: usize,
    most: usize,
) -> (Vec<Vec<Cell>>, usize) {
    let mut lists = vec![Vec::new(); peers];
    let mut left_out = 0;
    for pair in pairs {
        match lists.get_mut(pair.peer) {
            Some(list) if list.len() < most => list.push(pair),
            _ => left_out += 1,
        }
    }
    (lists, left_out)
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    node: usize,
    /// The number of pairs without a time, or with losses that may be over.
    missing: usize,
    /// The longest time of its pairs, in microseconds.
    worst: u64,
    /// True if a probe may change the time of a pair.
    open: bool,
}

fn row(matrix: &CostMatrix, node: usize) -> &[PairRtt] {
    matrix.rows().nth(node).unwrap_or(&[])
}

fn is_open(known: PairRtt) -> bool {
    match known {
        PairRtt::Unknown => true,
        PairRtt::Rtt { basis, .. } => basis.is_guess(),
        PairRtt::Unreachable { open, .. } => open,
        PairRtt::SameNode => false,
    }
}

/// Returns all nodes except those that a measurement, or an estimate far above the limit, rules
/// out.
fn candidates(matrix: &CostMatrix, limit: Option<u64>) -> Vec<Candidate> {
    let limit = limit.unwrap_or(u64::MAX);
    let candidate = |(node, row): (usize, &[PairRtt])| {
        let (mut missing, mut worst, mut open) = (0, 0, false);
        for known in row {
            open |= is_open(*known);
            match *known {
                PairRtt::SameNode => {}
                PairRtt::Unknown | PairRtt::Unreachable { open: true, .. } => missing += 1,
                PairRtt::Unreachable { .. } => return None,
                PairRtt::Rtt { micros, basis } => {
                    let most = if basis.is_guess() { 2 } else { 1 };
                    if micros > limit.saturating_mul(most) {
                        return None;
                    }
                    worst = worst.max(micros);
                }
            }
        }
        Some(Candidate {
            node,
            missing,
            worst,
            open,
        })
    };
    matrix.rows().enumerate().filter_map(candidate).collect()
}

fn best(mut candidates: Vec<Candidate>, which: impl Fn(&Candidate) -> bool) -> Vec<Candidate> {
    candidates.retain(which);
    let rank = |c: &Candidate| (c.missing, c.worst, c.node);
    if candidates.len() > MAX_BEST_CANDIDATES {
        candidates.select_nth_unstable_by_key(MAX_BEST_CANDIDATES, rank);
        candidates.truncate(MAX_BEST_CANDIDATES);
    }
    candidates.sort_unstable_by_key(rank);
    candidates
}

/// Returns the pairs of the best candidates: those that decide, then those that may decide next.
fn pairs_of(matrix: &CostMatrix, best: &[Candidate]) -> Vec<Cell> {
    let (mut decide, mut might) = (Vec::new(), Vec::new());
    for candidate in best.iter().filter(|c| c.open) {
        let node = candidate.node;
        for (peer, known) in row(matrix, node).iter().enumerate() {
            match *known {
                PairRtt::Unknown | PairRtt::Unreachable { open: true, .. } => {
                    decide.push(Cell { node, peer });
                }
                PairRtt::Rtt { micros, basis } if basis.is_guess() => {
                    if micros == candidate.worst {
                        decide.push(Cell { node, peer });
                    } else if micros.saturating_mul(2) >= candidate.worst {
                        might.push(Cell { node, peer });
                    }
                }
                _ => {}
            }
        }
    }
    decide.append(&mut might);
    decide
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::pair_rtt::Basis;

    const GUESS: Basis = Basis::Estimated { low: 0, high: 0 };

    fn matrix(peers: usize, known: Vec<PairRtt>) -> CostMatrix {
        let names = |n: usize| (0..n).map(|i| format!("n{i}")).collect();
        CostMatrix::new(names(known.len() / peers), names(peers), known)
    }

    fn guess(micros: u64) -> PairRtt {
        PairRtt::Rtt {
            micros,
            basis: GUESS,
        }
    }

    fn fact(micros: u64) -> PairRtt {
        PairRtt::Rtt {
            micros,
            basis: Basis::Measured,
        }
    }

    fn named(pairs: &[Cell]) -> Vec<(usize, usize)> {
        pairs.iter().map(|p| (p.node, p.peer)).collect()
    }

    #[test]
    fn best_come_first_then_the_closest_to_the_limit_then_the_unknown() {
        let mut known: Vec<PairRtt> = (0..16u64)
            .map(|i| {
                if i % 2 == 0 {
                    guess(i + 1)
                } else {
                    fact(i + 1)
                }
            })
            .collect();
        known.extend([2_001, 2_000, 499, 500, 900, 1_100].map(guess));
        known.extend([fact(700), PairRtt::Unknown]);
        let mut matrix = matrix(1, known);
        let got: Vec<usize> = initial_probes(&mut matrix, Some(1_000))
            .iter()
            .map(|p| p.node)
            .collect();
        assert_eq!(got[..8], [0, 2, 4, 6, 8, 10, 12, 14]);
        let mut halves = got[10..12].to_vec();
        halves.sort_unstable();
        assert_eq!((got[8], got[9]), (21, 20), "1100 is closer than 900");
        assert_eq!(halves, [17, 19], "both a factor of two away");
        assert_eq!(got[12..], [23], "not 499 nor 2001, which are decided");
    }

    #[test]
    fn without_a_limit_only_the_best_are_probed() {
        let mut matrix = matrix(1, (1..100).map(guess).collect());
        let got = named(&initial_probes(&mut matrix, None));
        assert_eq!(got, (0..16).map(|n| (n, 0)).collect::<Vec<_>>());
    }

    #[test]
    fn losses_of_rarely_visited_pairs_are_probed() {
        let gone = |open| PairRtt::Unreachable { seconds: 9, open };
        let known = vec![gone(true), gone(false), fact(9), guess(5)];
        let mut matrix = matrix(1, known);
        assert_eq!(named(&initial_probes(&mut matrix, None)), [(3, 0), (0, 0)]);
    }

    #[test]
    fn deciding_pairs_come_first() {
        let mut matrix = matrix(
            2,
            vec![
                guess(300),
                guess(200),
                guess(100),
                guess(350),
                fact(9),
                guess(2),
            ],
        );
        let got = named(&initial_probes(&mut matrix, None));
        assert_eq!(got, [(0, 0), (1, 1), (0, 1)]);
    }

    #[test]
    fn better_estimates_than_the_verified_are_probed_next() {
        let mut matrix = matrix(1, (1..=40).map(|i| guess(i * 10)).collect());
        for pair in initial_probes(&mut matrix, None) {
            matrix.set(pair, fact(275));
        }
        let got: Vec<usize> = next_probes(&mut matrix, None)
            .iter()
            .map(|p| p.node)
            .collect();
        assert_eq!(got, (16..27).collect::<Vec<_>>(), "170 to 270");
        assert_eq!(next_probes(&mut matrix, None), [], "asked once");
    }

    fn any_known() -> impl Strategy<Value = PairRtt> {
        prop_oneof![
            3 => (1u64..5_000).prop_map(guess),
            2 => (1u64..5_000).prop_map(fact),
            1 => Just(PairRtt::Unknown),
            1 => Just(PairRtt::SameNode),
            1 => any::<bool>().prop_map(|open| PairRtt::Unreachable { seconds: 1, open }),
        ]
    }

    proptest! {
        #[test]
        fn open_pairs_near_the_limit_are_probed_once(
            known in proptest::collection::vec(any_known(), 0..90),
            limit in 1u64..3_000,
        ) {
            let known = known[..known.len() / 3 * 3].to_vec();
            let mut matrix = matrix(3, known.clone());
            let got = initial_probes(&mut matrix, Some(limit));
            let mut seen = std::collections::HashSet::new();
            for pair in &got {
                prop_assert!(is_open(known[pair.node * 3 + pair.peer]));
                prop_assert!(seen.insert(*pair));
            }
            for (node, row) in known.chunks(3).enumerate() {
                let facts = row.iter().any(|k| match k {
                    PairRtt::Unreachable { open, .. } => !open,
                    PairRtt::Rtt { micros, basis } => *micros > limit * if basis.is_guess() { 2 } else { 1 },
                    _ => false,
                });
                for (peer, known) in row.iter().enumerate() {
                    let near = matches!(known, PairRtt::Rtt { micros, basis } if basis.is_guess() && micros * 2 >= limit);
                    let selected = seen.contains(&Cell { node, peer });
                    prop_assert!(!facts || !selected, "ruled out");
                    prop_assert!(facts || !near || selected, "near the limit");
                }
            }
            let (lists, left_out) = group_by_peer(got.clone(), 3, 5);
            prop_assert!(lists.iter().all(|l| l.len() <= 5));
            prop_assert_eq!(lists.iter().map(Vec::len).sum::<usize>() + left_out, got.len());
        }
    }
}
