//! `/latency` shows zones, with `?zone=Z` the nodes of a zone, and with `?node=N` a node and the
//! other nodes of its zone.

mod counts;
mod question;
mod render;

use std::ops::Range;

use serde::Serialize;
use tautline_latency::report::{By, Cell, MatrixReport, TopReport};

use self::{
    counts::{Counts, pairs, slowness},
    question::{Question, longest},
};
use super::{answers::Missing, limit, scope, tiles};
use crate::{
    draw::clean,
    list::Window,
    request::{PageError, PageRequest},
    shell::quote,
};

pub(super) use render::render;

/// The number of the worst pairs that are shown.
const MAX_WORST_PAIRS: usize = 20;
/// The limit for names in texts.
const MAX_NAME_CHARS: usize = 120;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View {
    level: Level,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_micros: Option<u64>,
    #[serde(skip)]
    limit_error: Option<String>,
    /// The network; absent if no provider answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Network>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worst: Option<TopReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worst_error: Option<String>,
    /// The number of nodes in the cluster.
    nodes: usize,
}

/// The objects in the rows and columns of the matrix.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "of")]
pub(super) enum Level {
    Zones,
    #[serde(rename_all = "camelCase")]
    Nodes {
        zone: String,
        /// The second zone, if there are two.
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// The path of chosen groups, such as `3,7/1,2`.
        groups: String,
        nodes: usize,
        /// True if the cluster has no other zone.
        only_zone: bool,
    },
    #[serde(rename_all = "camelCase")]
    OneNode {
        node: String,
        zone: String,
    },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Network {
    matrix: MatrixReport,
    /// The range of names behind each row, if rows are groups of nodes or of zones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<Range<usize>>,
    /// The number of sampled nodes, if rows are groups of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    sampled_nodes: Option<usize>,
    counts: Counts,
    /// The pairs, each once, the slowest first.
    pairs: Window<Pair>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pair {
    from: String,
    to: String,
    #[serde(flatten)]
    cell: Cell,
    #[serde(skip)]
    at: (usize, usize),
}

impl View {
    pub(super) fn command(&self) -> String {
        match &self.level {
            Level::Zones => "latency matrix".to_owned(),
            Level::Nodes { zone, .. } | Level::OneNode { zone, .. } => {
                format!(
                    "latency matrix --zone {}",
                    quote(&clean(zone, MAX_NAME_CHARS))
                )
            }
        }
    }
}

pub(super) async fn view(request: &PageRequest) -> Result<View, PageError> {
    let console = &request.console;
    let (limit, limit_error) = request.shown_beside(limit::read(request))?;
    let limit = limit.flatten();
    let snapshot = console.store.snapshot();
    let (level, question) = question::question(request, &snapshot)?;
    let (source, answers) = (&*console.source, &console.latency);
    let worst_path = format!("/latency/top?limit={MAX_WORST_PAIRS}");
    let (report, worst) = tokio::join!(
        answers.read::<MatrixReport>(source, &question.path),
        answers.read::<TopReport>(source, &worst_path),
    );
    let (network, error) = match report {
        Ok(report) => (Some(Network::new(request, report, question, limit)?), None),
        Err(Missing::Unknown(text)) => return Err(PageError::absent(text)),
        Err(missing) => (None, Some(missing.text())),
    };
    let (worst, worst_error) = match worst {
        Ok(worst) => (Some(worst), None),
        Err(missing) => (None, Some(missing.text())),
    };
    Ok(View {
        level,
        limit_micros: limit,
        limit_error,
        // One error is enough where both are missing.
        worst_error: worst_error.filter(|_| error.is_none()),
        network,
        error,
        worst,
        nodes: snapshot.node_count(),
    })
}

impl Network {
    fn new(
        request: &PageRequest,
        report: MatrixReport,
        question: Question,
        limit: Option<u64>,
    ) -> Result<Self, PageError> {
        let mut ranges = question.ranges;
        let (mut matrix, mut sampled_nodes) = (report, None);
        if !question.groups.is_empty() {
            sampled_nodes = Some(matrix.names.len());
            let groups: Vec<(String, Vec<&str>)> = question
                .groups
                .iter()
                .map(|(label, names)| (label.clone(), names.iter().map(String::as_str).collect()))
                .collect();
            matrix = matrix.grouped(&groups);
        }
        let (counts, pairs) = (Counts::new(&matrix, limit, question.only.as_deref()), {
            let mut all = pairs(&matrix, question.only.as_deref());
            all.sort_by_key(|at| std::cmp::Reverse(slowness(&matrix.cells[at.0][at.1])));
            all
        });
        // The question has selected the page of a node's peers already.
        let row = |at: &(usize, usize)| Pair {
            from: matrix.names[at.0].clone(),
            to: matrix.names[at.1].clone(),
            cell: matrix.cells[at.0][at.1].clone(),
            at: *at,
        };
        let pairs = match question.only {
            None => Window::new(request, &pairs, row)?,
            Some(_) => Window {
                rows: pairs.iter().map(row).collect(),
                total: pairs.len(),
                page: 1,
                pages: 1,
            },
        };
        let most = tiles::most_names(longest(&matrix.names));
        if matrix.by == By::Zone && ranges.is_empty() && matrix.names.len() > most {
            ranges = scope::groups(matrix.names.len(), most);
            matrix = zone_groups(&matrix, &ranges);
        }
        Ok(Self {
            matrix,
            groups: ranges,
            sampled_nodes,
            counts,
            pairs,
        })
    }
}

fn zone_groups(matrix: &MatrixReport, ranges: &[Range<usize>]) -> MatrixReport {
    let group = |range: &Range<usize>| {
        let members: Vec<&str> = matrix.names[range.clone()]
            .iter()
            .map(String::as_str)
            .collect();
        let more = members.len() - 1;
        let first = members.first().copied().unwrap_or_default();
        let label = if more > 0 {
            format!("{first} +{more}")
        } else {
            first.to_owned()
        };
        (label, members)
    };
    matrix.grouped(&ranges.iter().map(group).collect::<Vec<_>>())
}
