//! Which pairs to measure before answering. Estimates decide what is far from the
//! limit; near it, and among the best-looking nodes, they err too often. Losses of
//! pairs that are seldom visited may be over.

use crate::{
    board::{Board, Outcome, Pair, outcome},
    figures::Known,
};

/// So many of the best-looking nodes are verified.
const BEST: usize = 16;

/// The pairs to measure, most urgent first, each once: those of the best-looking
/// nodes, then those whose estimate lies within [limit/2, limit x 2], closest to
/// the limit first, then those without a figure. Of a node the pair that decides
/// comes first. Without a limit: only the best-looking nodes.
pub(crate) fn first(board: &mut Board, limit: Option<u64>) -> Vec<Pair> {
    let looks: Vec<Look> = looks(board, limit);
    let best = best(looks.clone(), |_| true);
    let mut pairs = of_best(board, &best);
    if let Some(limit) = limit {
        let mut near: Vec<(bool, f64, Pair)> = Vec::new();
        let mut unknown = Vec::new();
        for look in looks {
            for (peer, known) in row(board, look.node).iter().enumerate() {
                let pair = Pair {
                    node: look.node,
                    peer,
                };
                match known {
                    Known::Nothing | Known::Unreachable { open: true, .. } => unknown.push(pair),
                    Known::Rtt { micros, basis }
                        if basis.is_guess() && micros.saturating_mul(2) >= limit =>
                    {
                        let (low, high) = (limit.min(*micros), limit.max(*micros));
                        let apart = high as f64 / low.max(1) as f64;
                        near.push((*micros != look.worst, apart, pair));
                    }
                    _ => {}
                }
            }
        }
        near.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        pairs.extend(near.into_iter().map(|(.., pair)| pair));
        pairs.extend(unknown);
    }
    pairs.retain(|pair| board.want(*pair));
    pairs
}

/// After a round: the pairs of nodes that look better, unverified, than the best
/// that is certain. Those that were wanted before are not named again.
pub(crate) fn next(board: &mut Board, limit: Option<u64>) -> Vec<Pair> {
    let certain = board
        .rows()
        .filter(|row| row.iter().all(|k| !is_open(*k)))
        .filter_map(|row| match outcome(row, limit) {
            Outcome::Usable { micros, .. } => Some(micros),
            _ => None,
        })
        .min()
        .unwrap_or(u64::MAX);
    let best = best(looks(board, limit), |look| {
        look.missing == 0 && look.open && look.worst < certain
    });
    let mut pairs = of_best(board, &best);
    pairs.retain(|pair| board.want(*pair));
    pairs
}

/// The first of each peer's pairs, up to `most`, and how many are left out.
pub(crate) fn by_peer(pairs: Vec<Pair>, peers: usize, most: usize) -> (Vec<Vec<Pair>>, usize) {
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

/// A node that may be usable, as far as is known.
#[derive(Clone, Copy, Debug)]
struct Look {
    node: usize,
    /// Pairs without a figure, or with losses that may be over.
    missing: usize,
    /// The longest round trip of its pairs, in microseconds.
    worst: u64,
    /// A measurement could tell more.
    open: bool,
}

fn row(board: &Board, node: usize) -> &[Known] {
    board.rows().nth(node).unwrap_or(&[])
}

fn is_open(known: Known) -> bool {
    match known {
        Known::Nothing => true,
        Known::Rtt { basis, .. } => basis.is_guess(),
        Known::Unreachable { open, .. } => open,
        Known::Same => false,
    }
}

/// All nodes but those that a fact, or an estimate far above the limit, rules out.
fn looks(board: &Board, limit: Option<u64>) -> Vec<Look> {
    let limit = limit.unwrap_or(u64::MAX);
    let look = |(node, row): (usize, &[Known])| {
        let (mut missing, mut worst, mut open) = (0, 0, false);
        for known in row {
            open |= is_open(*known);
            match *known {
                Known::Same => {}
                Known::Nothing | Known::Unreachable { open: true, .. } => missing += 1,
                Known::Unreachable { .. } => return None,
                Known::Rtt { micros, basis } => {
                    let most = if basis.is_guess() { 2 } else { 1 };
                    if micros > limit.saturating_mul(most) {
                        return None;
                    }
                    worst = worst.max(micros);
                }
            }
        }
        Some(Look {
            node,
            missing,
            worst,
            open,
        })
    };
    board.rows().enumerate().filter_map(look).collect()
}

fn best(mut looks: Vec<Look>, which: impl Fn(&Look) -> bool) -> Vec<Look> {
    looks.retain(which);
    let rank = |l: &Look| (l.missing, l.worst, l.node);
    if looks.len() > BEST {
        looks.select_nth_unstable_by_key(BEST, rank);
        looks.truncate(BEST);
    }
    looks.sort_unstable_by_key(rank);
    looks
}

/// What to measure of the best: what decides, then what might once that is known.
fn of_best(board: &Board, best: &[Look]) -> Vec<Pair> {
    let (mut decide, mut might) = (Vec::new(), Vec::new());
    for look in best.iter().filter(|l| l.open) {
        let node = look.node;
        for (peer, known) in row(board, node).iter().enumerate() {
            match *known {
                Known::Nothing | Known::Unreachable { open: true, .. } => {
                    decide.push(Pair { node, peer });
                }
                Known::Rtt { micros, basis } if basis.is_guess() => {
                    if micros == look.worst {
                        decide.push(Pair { node, peer });
                    } else if micros.saturating_mul(2) >= look.worst {
                        might.push(Pair { node, peer });
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
    use crate::figures::Basis;

    const GUESS: Basis = Basis::Estimated { low: 0, high: 0 };

    fn board(peers: usize, known: Vec<Known>) -> Board {
        let names = |n: usize| (0..n).map(|i| format!("n{i}")).collect();
        Board::new(names(known.len() / peers), names(peers), known)
    }

    fn guess(micros: u64) -> Known {
        Known::Rtt {
            micros,
            basis: GUESS,
        }
    }

    fn fact(micros: u64) -> Known {
        Known::Rtt {
            micros,
            basis: Basis::Measured,
        }
    }

    fn named(pairs: &[Pair]) -> Vec<(usize, usize)> {
        pairs.iter().map(|p| (p.node, p.peer)).collect()
    }

    #[test]
    fn the_best_then_the_closest_to_the_limit_then_the_unknown() {
        // Sixteen good ones, every other one measured; then around a limit of 1000.
        let mut known: Vec<Known> = (0..16u64)
            .map(|i| {
                if i % 2 == 0 {
                    guess(i + 1)
                } else {
                    fact(i + 1)
                }
            })
            .collect();
        known.extend([2_001, 2_000, 499, 500, 900, 1_100].map(guess));
        known.extend([fact(700), Known::Nothing]);
        let mut board = board(1, known);
        let got: Vec<usize> = first(&mut board, Some(1_000))
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
    fn without_a_limit_only_the_best() {
        let mut board = board(1, (1..100).map(guess).collect());
        let got = named(&first(&mut board, None));
        assert_eq!(got, (0..16).map(|n| (n, 0)).collect::<Vec<_>>());
    }

    #[test]
    fn losses_of_what_is_seldom_visited_are_looked_into() {
        let gone = |open| Known::Unreachable { seconds: 9, open };
        let known = vec![gone(true), gone(false), fact(9), guess(5)];
        let mut board = board(1, known);
        assert_eq!(named(&first(&mut board, None)), [(3, 0), (0, 0)]);
    }

    #[test]
    fn what_decides_comes_first() {
        let mut board = board(
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
        let got = named(&first(&mut board, None));
        // Node 2 is decided by a measured pair; the other would have to err fourfold.
        assert_eq!(got, [(0, 0), (1, 1), (0, 1)]);
    }

    #[test]
    fn who_looks_better_than_the_certain_is_next() {
        let mut board = board(1, (1..=40).map(|i| guess(i * 10)).collect());
        for pair in first(&mut board, None) {
            board.set(pair, fact(275));
        }
        let got: Vec<usize> = next(&mut board, None).iter().map(|p| p.node).collect();
        assert_eq!(got, (16..27).collect::<Vec<_>>(), "170 to 270");
        assert_eq!(next(&mut board, None), [], "asked once");
    }

    fn any_known() -> impl Strategy<Value = Known> {
        prop_oneof![
            3 => (1u64..5_000).prop_map(guess),
            2 => (1u64..5_000).prop_map(fact),
            1 => Just(Known::Nothing),
            1 => Just(Known::Same),
            1 => any::<bool>().prop_map(|open| Known::Unreachable { seconds: 1, open }),
        ]
    }

    proptest! {
        #[test]
        fn only_what_is_open_each_once_and_all_near_the_limit(
            known in proptest::collection::vec(any_known(), 0..90),
            limit in 1u64..3_000,
        ) {
            let known = known[..known.len() / 3 * 3].to_vec();
            let mut board = board(3, known.clone());
            let got = first(&mut board, Some(limit));
            let mut seen = std::collections::HashSet::new();
            for pair in &got {
                prop_assert!(is_open(known[pair.node * 3 + pair.peer]));
                prop_assert!(seen.insert(*pair));
            }
            for (node, row) in known.chunks(3).enumerate() {
                let facts = row.iter().any(|k| match k {
                    Known::Unreachable { open, .. } => !open,
                    Known::Rtt { micros, basis } => *micros > limit * if basis.is_guess() { 2 } else { 1 },
                    _ => false,
                });
                for (peer, known) in row.iter().enumerate() {
                    let near = matches!(known, Known::Rtt { micros, basis } if basis.is_guess() && micros * 2 >= limit);
                    let asked = seen.contains(&Pair { node, peer });
                    prop_assert!(!facts || !asked, "ruled out");
                    prop_assert!(facts || !near || asked, "near the limit");
                }
            }
            let (lists, left_out) = by_peer(got.clone(), 3, 5);
            prop_assert!(lists.iter().all(|l| l.len() <= 5));
            prop_assert_eq!(lists.iter().map(Vec::len).sum::<usize>() + left_out, got.len());
        }
    }
}
