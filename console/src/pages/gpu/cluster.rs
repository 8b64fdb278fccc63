//! `/gpu`: the page of all cards.

mod render;

use serde::Serialize;
use tautline_gpu_slice::{
    inspection::NodeGpus,
    report::{CardSums, Given, NodeTop, Total},
};

use super::{
    bars::{MAX_NAME_CHARS, NodeBars},
    classes::Classes,
    filter::{Choices, Filter},
    useless_milli, what_if,
};
use crate::{
    admin::{MAX_NODES_WITH_USE, gpu_uses},
    draw::clean,
    events,
    inspections::{Figures, MAX_WARNING_CHARS, Summary},
    request::{PageInfo, PageRequest, PageResult, redirect},
    table::Window,
};

/// The maximum number of bars and segments on a page.
const MAX_DRAWN: usize = 280;
/// The maximum number of nodes on a page.
const MAX_NODES: usize = 25;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    sums: Sums,
    /// The totals by product and sharing mode.
    products: Vec<Total>,
    classes: Classes,
    #[serde(skip_serializing_if = "Option::is_none")]
    what_if: Option<what_if::Answer>,
    #[serde(skip)]
    what_if_error: Option<String>,
    nodes: Window<NodeBars>,
    /// The number of the cluster's nodes, with and without GPUs.
    cluster_nodes: usize,
    /// The parts of cards that pods have and hardly use; absent without agents, and with agents on
    /// more than 100 nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    given: Option<GivenIdle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    use_error: Option<String>,
    warnings: Vec<String>,
    warning_count: usize,
    /// True if a shown node reports the use of its cards.
    measured: bool,
    #[serde(skip)]
    choices: Choices,
}

/// The sums over all cards that are known individually.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sums {
    nodes: usize,
    cards: usize,
    unhealthy_cards: usize,
    given_milli: i64,
    idle_milli: i64,
    /// The idle thousandths of cards that the next request is not expected to be able to use;
    /// absent while no requests are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    useless_milli: Option<i64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GivenIdle {
    given_milli: i64,
    idle_milli: i64,
    pods: usize,
    /// The names of the first of these pods, those with the largest parts first.
    first_pods: Vec<String>,
}

pub(in super::super) async fn page(request: &PageRequest) -> PageResult {
    if let Some(canonical) = what_if::redirect(request)? {
        return redirect(&canonical);
    }
    let filter = Filter::new(request)?;
    let view = view(request, &filter).await?;
    let info = PageInfo {
        title: "GPU",
        command: filter.command(),
        live: &[events::TICKS],
    };
    request.respond(&info, &view, |view| render::render(view, &filter, request))
}

async fn view(request: &PageRequest, filter: &Filter<'_>) -> PageResult<View> {
    let console = &request.console;
    let inspected = console.inspections.get(&console.store).await?;
    let answer = what_if::answer(request, &inspected).await;
    let (answer, what_if_error) = request.shown_beside(answer)?;
    let summary = &inspected.summary;
    let inspection = &inspected.inspection;
    let nodes = inspection.nodes();
    let chosen = filter.select(&nodes, summary);
    let (page, pages, shown) = window(&chosen, request.number("page")?.unwrap_or(1));
    let names: Vec<&str> = shown.iter().map(|(node, _)| &**node.name).collect();
    let (uses, use_error) = match summary.agents {
        0 => Default::default(),
        n => {
            let only = (n > MAX_NODES_WITH_USE).then_some(names.as_slice());
            gpu_uses(&*console.source, only).await
        }
    };
    let types = inspection.types();
    let known = (!types.is_empty()).then_some(&types);
    let snapshot = inspection.snapshot();
    let rows: Vec<NodeBars> = shown
        .iter()
        .map(|(node, _)| NodeBars::new(&NodeTop::new(node, snapshot, known, uses.node(node.name))))
        .collect();
    let warnings = summary.warnings.iter();
    let warnings = warnings.map(|w| clean(w, MAX_WARNING_CHARS));
    let given = (summary.agents <= MAX_NODES_WITH_USE).then(|| Given::new(nodes.iter(), &uses));
    Ok(View {
        sums: Sums::new(&inspected.totals, summary),
        products: inspected.totals.iter().map(cleaned).collect(),
        classes: Classes::new(&summary.fragmentation),
        what_if: answer.flatten(),
        what_if_error,
        measured: rows.iter().any(NodeBars::is_measured),
        nodes: Window {
            rows,
            total: chosen.len(),
            page,
            pages,
        },
        cluster_nodes: nodes.len(),
        given: given.flatten().map(GivenIdle::new),
        use_error,
        warnings: warnings.collect(),
        warning_count: summary.warning_count,
        choices: Choices {
            products: summary.products.iter().cloned().collect(),
            namespaces: summary.namespaces.iter().cloned().collect(),
        },
    })
}

/// Returns the number of the page (from 1), the number of pages, and the page's nodes: as many as
/// can be drawn, but at least one.
fn window<'a, 'n>(
    all: &'a [(&'n NodeGpus<'n>, &'n Figures)],
    page: usize,
) -> (usize, usize, &'a [(&'n NodeGpus<'n>, &'n Figures)]) {
    let (mut starts, mut drawn, mut nodes) = (vec![0], 0, 0);
    for (i, (_, figures)) in all.iter().enumerate() {
        if nodes > 0 && (drawn + figures.drawn > MAX_DRAWN || nodes == MAX_NODES) {
            starts.push(i);
            (drawn, nodes) = (0, 0);
        }
        (drawn, nodes) = (drawn + figures.drawn, nodes + 1);
    }
    let page = page.clamp(1, starts.len());
    let end = starts.get(page).copied().unwrap_or(all.len());
    (page, starts.len(), &all[starts[page - 1]..end])
}

fn cleaned(total: &Total) -> Total {
    Total {
        product: clean(&total.product, MAX_NAME_CHARS),
        lane: clean(&total.lane, MAX_NAME_CHARS),
        nodes: total.nodes,
        amounts: total.amounts.clone(),
    }
}

impl Sums {
    fn new(totals: &[Total], summary: &Summary) -> Self {
        let sums = CardSums::of_all(totals);
        Self {
            nodes: summary.figures.iter().filter(|f| f.has_gpus).count(),
            cards: sums.cards,
            unhealthy_cards: sums.unhealthy_cards,
            given_milli: sums.held_milli,
            idle_milli: sums.free_milli,
            useless_milli: useless_milli(&sums),
        }
    }
}

impl GivenIdle {
    /// The maximum number of pods that are named.
    const MAX_NAMED_PODS: usize = 5;

    fn new(given: Given) -> Self {
        let first = given.idle_pods.iter().take(Self::MAX_NAMED_PODS);
        Self {
            given_milli: given.milli,
            idle_milli: given.idle_milli,
            pods: given.idle_pods.len(),
            first_pods: first.map(|pod| clean(pod, MAX_NAME_CHARS)).collect(),
        }
    }
}
