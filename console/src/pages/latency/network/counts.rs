use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use tautline_latency::report::{Basis, By, Cell, MatrixReport};

use super::super::tiles;

/// The counts of the shown pairs. Each pair counts once.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counts {
    pub pairs: usize,
    pub names: usize,
    pub by_basis: BTreeMap<&'static str, usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
}

/// The counts of pairs by a limit.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Within {
    /// The number of pairs within the limit.
    pub pairs: usize,
    /// The number of pairs within the limit by prediction.
    pub predicted_pairs: usize,
    /// The number of pairs without a figure.
    pub unknown_pairs: usize,
    /// The number of names whose known pairs are all within the limit.
    pub names: usize,
}

impl Counts {
    pub(super) fn new(matrix: &MatrixReport, pairs: &[(usize, usize)], limit: Option<u64>) -> Self {
        let mut counts = Self {
            pairs: pairs.len(),
            names: matrix.names.len(),
            ..Self::default()
        };
        for (i, j) in pairs {
            let basis = matrix.cells[*i][*j].effective.basis;
            *counts.by_basis.entry(basis.words()).or_default() += 1;
        }
        counts.within = limit.map(|limit| Within::new(matrix, pairs, limit));
        counts
    }
}

impl Within {
    fn new(matrix: &MatrixReport, pairs: &[(usize, usize)], limit: u64) -> Self {
        let mut within = Self::default();
        let mut holds = vec![true; matrix.names.len()];
        for (i, j) in pairs {
            let cell = &matrix.cells[*i][*j];
            match tiles::is_within(cell, limit) {
                Some(true) => {
                    within.pairs += 1;
                    within.predicted_pairs += usize::from(cell.effective.basis == Basis::Estimated);
                }
                Some(false) => (holds[*i], holds[*j]) = (false, false),
                None => within.unknown_pairs += 1,
            }
        }
        within.names = holds.iter().filter(|holds| **holds).count();
        within
    }
}

/// Returns each pair of names once, the slowest first, or only the pairs of the name `only`. In a
/// matrix of zones or groups, a name makes a pair with itself, too.
pub(super) fn pairs(matrix: &MatrixReport, only: Option<&str>) -> Vec<(usize, usize)> {
    let own = matrix.by == By::Zone;
    let count = matrix.names.len();
    let is_only = |i: usize, j: usize| {
        only.is_none_or(|name| matrix.names[i] == name || matrix.names[j] == name)
    };
    let slowness = |(i, j): (usize, usize)| slowness(&matrix.cells[i][j]);
    let all = (0..count).flat_map(|i| (i..count).map(move |j| (i, j)));
    let of_two = all.filter(|(i, j)| (own || i != j) && is_only(*i, *j));
    // The slower direction represents the pair.
    let slower = |(i, j)| {
        if slowness((i, j)) >= slowness((j, i)) {
            (i, j)
        } else {
            (j, i)
        }
    };
    let mut pairs: Vec<_> = of_two.map(slower).collect();
    pairs.sort_by_key(|pair| Reverse(slowness(*pair)));
    pairs
}

/// Returns the key by which pairs are sorted: unreachable pairs are the slowest, and pairs without
/// a figure the fastest.
fn slowness(cell: &Cell) -> (u8, u64) {
    match (cell.effective.basis, cell.effective.rtt_micros) {
        (Basis::Unreachable, _) => (2, 0),
        (_, Some(micros)) => (1, micros),
        (_, None) => (0, 0),
    }
}
