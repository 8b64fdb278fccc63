//! The network as a page shows it: a matrix, its pairs, and their counts.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use tautline_latency::report::{Basis, By, Cell, MatrixReport, TopReport};

use super::{
    limit,
    scope::{Level, Scope},
    tiles::is_within,
};
use crate::{
    admin::{Missing, latency_report},
    request::{PageError, PageRequest, PageResult},
    table::Window,
};

/// The number of the worst pairs that are shown.
const MAX_WORST_PAIRS: usize = 20;
/// The limit for names in texts.
pub(super) const MAX_NAME_CHARS: usize = 120;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View {
    pub level: Level,
    pub limit_micros: Option<u64>,
    /// The network; absent if no provider answers.
    pub network: Option<Network>,
    pub error: Option<String>,
    pub worst: Option<TopReport>,
    pub worst_error: Option<String>,
    /// The number of nodes in the cluster.
    nodes: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Network {
    pub matrix: MatrixReport,
    pub counts: Counts,
    /// The pairs, each once, the slowest first.
    pub pairs: Window<Pair>,
}

#[derive(Debug, Serialize)]
pub(super) struct Pair {
    pub from: String,
    pub to: String,
    #[serde(flatten)]
    pub cell: Cell,
    #[serde(skip)]
    pub at: (usize, usize),
}

pub(super) async fn view(request: &PageRequest) -> PageResult<View> {
    let limit = limit::read(request)?;
    let snapshot = request.console.store.snapshot();
    let mut scope = Scope::new(request, &snapshot)?;
    let source = &*request.console.source;
    let worst_path = format!("/latency/top?limit={MAX_WORST_PAIRS}");
    let (report, worst) = tokio::join!(
        latency_report::<MatrixReport>(source, &scope.path),
        latency_report::<TopReport>(source, &worst_path),
    );
    let (network, error) = match report {
        Ok(report) => (
            Some(Network::new(request, report, &mut scope, limit)?),
            None,
        ),
        Err(Missing::Unknown(text)) => return Err(PageError::absent(text)),
        Err(missing) => (None, Some(missing.text())),
    };
    let (worst, worst_error) = match worst {
        Ok(worst) => (Some(worst), None),
        // One error is enough where both are missing.
        Err(missing) => (None, error.is_none().then(|| missing.text())),
    };
    Ok(View {
        level: scope.level,
        limit_micros: limit,
        network,
        error,
        worst,
        worst_error,
        nodes: snapshot.node_count(),
    })
}

impl Network {
    fn new(
        request: &PageRequest,
        matrix: MatrixReport,
        scope: &mut Scope,
        limit: Option<u64>,
    ) -> PageResult<Self> {
        let only = scope.only.as_ref().map(|(node, _)| node.as_str());
        let pairs = pairs(&matrix, only);
        let counts = Counts::new(&matrix, &pairs, limit);
        let row = |at: &(usize, usize)| Pair {
            from: matrix.names[at.0].clone(),
            to: matrix.names[at.1].clone(),
            cell: matrix.cells[at.0][at.1].clone(),
            at: *at,
        };
        let pairs = match scope.only.take() {
            None => Window::new(request, &pairs, row)?,
            // The scope has selected the page of a node's peers already.
            Some((_, peers)) => Window {
                rows: pairs.iter().map(row).collect(),
                total: peers.total,
                page: peers.page,
                pages: peers.pages,
            },
        };
        Ok(Self {
            matrix,
            counts,
            pairs,
        })
    }
}

/// The counts of the shown pairs. Each pair counts once.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counts {
    pub pairs: usize,
    pub names: usize,
    pub by_basis: BTreeMap<&'static str, usize>,
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
            match is_within(cell, limit) {
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
/// matrix of zones, a name makes a pair with itself, too.
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
