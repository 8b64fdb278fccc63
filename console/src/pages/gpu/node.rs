//! `/gpu/NODE`: the page of one node's cards.

use maud::{Markup, html};
use serde::Serialize;
use tautline_gpu_slice::{
    Inspection,
    inspection::NodeGpus,
    report::{ClassFit, HolderTop, NodeTop, class_fit, copies_on, format, has_gpus, warnings},
};

use super::bars::{self, MAX_NAME_CHARS};
use crate::{
    admin::gpu_uses,
    console::quote,
    draw::{cards, clean, in_cards, problems},
    inspections::{MAX_WARNINGS, clean_warning},
    links,
    request::{PageError, PageRequest, PageResult},
    table::{Window, column, name, number, only_if, table, text},
};

const MAX_CLASSES: usize = 20;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    node: &'a NodeTop,
    cordoned: bool,
    /// The pods with parts of cards, in the order of the cards.
    pods: Window<PodRow<'a>>,
    fits: Vec<Fits>,
    measured: bool,
    use_error: Option<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PodRow<'a> {
    /// The index of the card, such as `3`, or a range of indexes, such as `0-7`.
    cards: String,
    #[serde(flatten)]
    part: &'a HolderTop,
}

/// A common request, and the number of further ones that the node has room for.
#[derive(Debug, Serialize)]
struct Fits {
    request: String,
    mode: String,
    copies: i64,
    /// The reason why the request cannot run on this node.
    why: Option<&'static str>,
}

pub(in super::super) async fn page(request: &PageRequest, name: &str) -> PageResult {
    let console = &request.console;
    let inspected = console.inspections.get(console).await?;
    let inspection = &inspected.inspection;
    let nodes = inspection.nodes();
    let node = find(&nodes, inspection, name)?;
    let (uses, use_error) = if node.inventory.pools.iter().any(|pool| pool.has_agent()) {
        gpu_uses(&*console.source, Some(&[name])).await
    } else {
        Default::default()
    };
    let types = inspection.types();
    let known = (!types.is_empty()).then_some(&types);
    let snapshot = inspection.snapshot();
    let top = NodeTop::new(node, snapshot, known, uses.node(name));
    let warnings = warnings(inspection, &uses, node).into_iter();
    let view = View {
        cordoned: snapshot.node(name).is_some_and(|n| n.unschedulable),
        pods: Window::new(request, &parts(&top), |(cards, part)| PodRow {
            cards: cards.clone(),
            part,
        })?,
        fits: fits(inspection, node),
        measured: bars::is_measured(&top),
        node: &top,
        use_error,
        warnings: warnings
            .take(MAX_WARNINGS)
            .map(|w| clean_warning(&w))
            .collect(),
    };
    let title = format!("GPU of {name}");
    let command = format!("gpu top --node {}", quote(name));
    request.respond(&title, &command, &view, |view| render(view, request))
}

fn find<'a, 'n>(
    nodes: &'n [NodeGpus<'a>],
    inspection: &Inspection,
    name: &str,
) -> PageResult<&'n NodeGpus<'a>> {
    let node = nodes.iter().find(|n| **n.name == *name && has_gpus(n));
    node.ok_or_else(|| {
        PageError::absent(match inspection.snapshot().node(name) {
            Some(_) => format!("node {name} has no GPUs"),
            None => format!("there is no node {name}"),
        })
    })
}

/// Returns the holders of each run of equal cards, with the run's name.
fn parts(top: &NodeTop) -> Vec<(String, &HolderTop)> {
    let runs = top.pools.iter().flat_map(|pool| pool.runs());
    let parts = runs.flat_map(|(name, first, _)| {
        let holders = first.holders.iter();
        holders.map(move |holder| (name.clone(), holder))
    });
    parts.collect()
}

fn fits(inspection: &Inspection, node: &NodeGpus<'_>) -> Vec<Fits> {
    let types = inspection.types();
    let fits = types.iter().take(MAX_CLASSES).map(|class| {
        let why = match class_fit(class, node) {
            ClassFit::Runs => None,
            ClassFit::CpuShort => Some("too little CPU is free"),
            ClassFit::GpuShort => Some("too little of its cards is free"),
            ClassFit::NoSuchModel => Some("no card is of these models"),
            ClassFit::OtherLane => Some("its cards are shared in another way"),
        };
        Fits {
            request: clean(&format::class(&class.request), MAX_NAME_CHARS),
            mode: format::sharing_mode(class.request.mode),
            copies: copies_on(class, node),
            why,
        }
    });
    fits.collect()
}

fn render(view: &View<'_>, request: &PageRequest) -> Markup {
    html! {
        p {
            a href="/gpu" { "All GPUs" } " · "
            a href=(links::latency(&view.node.node)) { "Latency of this node" }
            @if view.cordoned { " · " span .state.near { "cordoned" } " no further pod is placed here" }
        }
        @if let Some(error) = &view.use_error { p .error role="status" { (error) } }
        (bars::table(std::slice::from_ref(view.node), view.measured))
        h2 { "Pods" }
        (pods(view))
        (view.pods.pager(request, ""))
        h2 { "What still fits here" }
        (fits_table(&view.fits))
        @if !view.warnings.is_empty() {
            h2 { "Warnings" }
            (problems(&view.warnings))
        }
    }
}

fn pods(view: &View<'_>) -> Markup {
    html! {
        @if view.pods.rows.is_empty() {
            p .note { "No pod has a part of a card that is known." }
        } @else {
            (table(("", ""), &view.pods.rows, &[
                name("Pod", &|row| bars::pod(row.part)),
                text("Card", &|row| html! { (clean(&row.cards, MAX_NAME_CHARS)) }),
                number("Given of each", &|row| html! { (cards(row.part.milli)) }),
                only_if(view.measured, number("Used now", &|row| html! {
                    @if let Some(used) = row.part.used { (bars::used_text(used)) } @else { span .dim { "not reported" } }
                })),
                column("dim", "The card is", &|row| html! {
                    @if row.part.card_is_guessed { "a guess: the device plugin chose it" } @else { "written on the pod or its claim" }
                }),
            ]))
        }
    }
}

fn fits_table(fits: &[Fits]) -> Markup {
    html! {
        @if fits.is_empty() {
            p .note { "No pod of the cluster requests GPUs, so no request is expected." }
        } @else {
            (table(("", ""), fits, &[
                name("Request", &|fit| html! { (in_cards(&fit.request)) }),
                text("Mode", &|fit| html! { (fit.mode) }),
                number("Still fit", &|fit| html! { (fit.copies) }),
                text("Why not", &|fit| html! { (fit.why.unwrap_or_default()) }),
            ]))
        }
    }
}
