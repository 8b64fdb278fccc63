//! `/latency` shows zones, with `?zone=Z` the nodes of a zone, and with `?node=N` a node and the
//! other nodes of its zone.

mod counts;
mod question;
mod render;

use std::ops::Range;

use serde::Serialize;
use tautline_latency::report::{By, Cell, MatrixReport, TopReport};

use self::{
    counts::{Counts, pairs},
    question::{Question, longest},
};
use super::{
    answers::{self, Missing},
    limit, scope, tiles,
};
use crate::{
    draw::clean,
    events,
    request::{PageError, PageInfo, PageRequest, PageResult, redirect},
    shell::quote,
    table::Window,
};

/// The number of the worst pairs that are shown.
const MAX_WORST_PAIRS: usize = 20;
/// The limit for names in texts.
const MAX_NAME_CHARS: usize = 120;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
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
enum Level {
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

pub(in super::super) async fn page(request: &PageRequest) -> PageResult {
    if let Some(canonical) = limit::redirect(request)? {
        return redirect(&canonical);
    }
    let view = view(request).await?;
    let info = PageInfo {
        title: "Latency",
        command: &match &view.level {
            Level::Zones => "latency matrix".to_owned(),
            Level::Nodes { zone, .. } | Level::OneNode { zone, .. } => {
                let zone = quote(&clean(zone, MAX_NAME_CHARS));
                format!("latency matrix --zone {zone}")
            }
        },
        live: &[events::TICKS],
    };
    request.respond(&info, &view, |view| render::render(view, request))
}

async fn view(request: &PageRequest) -> PageResult<View> {
    let (limit, limit_error) = request.shown_beside(limit::read(request))?;
    let limit = limit.flatten();
    let snapshot = request.console.store.snapshot();
    let (level, question) = question::question(request, &snapshot)?;
    let source = &*request.console.source;
    let worst_path = format!("/latency/top?limit={MAX_WORST_PAIRS}");
    let (report, worst) = tokio::join!(
        answers::read::<MatrixReport>(source, &question.path),
        answers::read::<TopReport>(source, &worst_path),
    );
    let (network, error) = match report {
        Ok(report) => (Some(Network::new(request, report, question, limit)?), None),
        Err(Missing::Unknown(text)) => return Err(PageError::absent(text)),
        Err(missing) => (None, Some(missing.text())),
    };
    let (worst, worst_error) = match worst {
        Ok(worst) => (Some(worst), None),
        // One error is enough where both are missing.
        Err(missing) => (None, error.is_none().then(|| missing.text())),
    };
    Ok(View {
        level,
        limit_micros: limit,
        limit_error,
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
        report: MatrixReport,
        question: Question,
        limit: Option<u64>,
    ) -> PageResult<Self> {
        let (mut matrix, mut sampled_nodes) = (report, None);
        if !question.groups.is_empty() {
            sampled_nodes = Some(matrix.names.len());
            matrix = grouped(&matrix, &question.groups);
        }
        let only = question.only.as_ref().map(|(node, _)| node.as_str());
        let pairs = pairs(&matrix, only);
        let counts = Counts::new(&matrix, &pairs, limit);
        let row = |at: &(usize, usize)| Pair {
            from: matrix.names[at.0].clone(),
            to: matrix.names[at.1].clone(),
            cell: matrix.cells[at.0][at.1].clone(),
            at: *at,
        };
        let pairs = match question.only {
            None => Window::new(request, &pairs, row)?,
            // The question has selected the page of a node's peers already.
            Some((_, peers)) => Window {
                rows: pairs.iter().map(row).collect(),
                total: peers.total,
                page: peers.page,
                pages: peers.pages,
            },
        };
        let mut ranges = question.ranges;
        let most = tiles::most_names(longest(&matrix.names));
        if matrix.by == By::Zone && ranges.is_empty() && matrix.names.len() > most {
            ranges = scope::groups(matrix.names.len(), most);
            let names = &matrix.names;
            let group =
                |range: &Range<usize>| (scope::label(names, range), names[range.clone()].to_vec());
            matrix = grouped(&matrix, &ranges.iter().map(group).collect::<Vec<_>>());
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

/// Joins rows and columns to groups, each with its label and its members.
fn grouped(matrix: &MatrixReport, groups: &[(String, Vec<String>)]) -> MatrixReport {
    let groups = groups.iter().map(|(label, names)| {
        let names = names.iter().map(String::as_str).collect();
        (label.clone(), names)
    });
    matrix.grouped(&groups.collect::<Vec<_>>())
}
