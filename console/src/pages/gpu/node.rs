//! `/gpu/NODE`: the page of one node's cards.

use maud::{Markup, html};
use serde::Serialize;
use tautline_gpu_placement::RequestClass;
use tautline_gpu_slice::{
    Inspection,
    inspection::NodeGpus,
    report::{ClassFit, HolderTop, NodeTop, class_fit, copies_on, format, has_gpus, warnings},
};

use super::bars::{self, MAX_NAME_CHARS, NodeBars, Segment};
use crate::{
    admin::gpu_uses,
    draw::{clean, problems},
    events,
    inspections::{MAX_WARNING_CHARS, MAX_WARNINGS},
    pages::decisions,
    request::{PageError, PageInfo, PageRequest, PageResult},
    shell::quote,
    table::{Number, Text, Window, table},
};

const MAX_CLASSES: usize = 20;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    node: NodeBars,
    cordoned: bool,
    /// The pods with parts of cards, in the order of the cards.
    pods: Window<PodRow>,
    fits: Vec<Fits>,
    measured: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    use_error: Option<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodRow {
    /// The index of the card, such as `3`, or a range of indexes, such as `0-7`.
    cards: String,
    #[serde(flatten)]
    part: Segment,
}

/// A common request, and the number of further ones that the node has room for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Fits {
    request: String,
    mode: String,
    copies: i64,
    /// The reason why the request cannot run on this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}

pub(in super::super) async fn page(request: &PageRequest, name: &str) -> PageResult {
    let view = view(request, name).await?;
    let info = PageInfo {
        title: &format!("GPU of {name}"),
        command: &format!("gpu top --node {}", quote(name)),
        live: &[events::TICKS],
    };
    request.respond(&info, &view, |view| render(view, request))
}

async fn view(request: &PageRequest, name: &str) -> PageResult<View> {
    let console = &request.console;
    let inspected = console.inspections.get(&console.store).await?;
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
    let pods = Window::new(request, &parts(&top), |(cards, holder)| PodRow {
        cards: cards.clone(),
        part: Segment::new(holder),
    })?;
    let all = warnings(inspection, &uses, node)
        .into_iter()
        .take(MAX_WARNINGS);
    let warnings = all.map(|w| clean(&w, MAX_WARNING_CHARS)).collect();
    let bars = NodeBars::new(&top);
    Ok(View {
        cordoned: snapshot.node(name).is_some_and(|n| n.unschedulable),
        pods,
        fits: fits(inspection, node),
        measured: bars.is_measured(),
        node: bars,
        use_error,
        warnings,
    })
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
    let classes = inspection.classes().iter().zip(types.iter());
    let fits = classes.take(MAX_CLASSES).map(|((class, _), planned)| {
        let why = match class_fit(class, planned, node) {
            ClassFit::Runs => None,
            ClassFit::CpuShort => Some("too little CPU is free"),
            ClassFit::GpuShort => Some("too little of its cards is free"),
            ClassFit::NoSuchModel => Some("no card is of these models"),
            ClassFit::OtherLane => Some("its cards are shared in another way"),
        };
        Fits {
            request: request_text(class),
            mode: format::sharing_mode(class.mode),
            copies: copies_on(class, planned, node),
            why,
        }
    });
    fits.collect()
}

fn request_text(class: &RequestClass) -> String {
    clean(&format::class(class), MAX_NAME_CHARS)
}

fn render(view: &View, request: &PageRequest) -> Markup {
    html! {
        p {
            a href="/gpu" { "All GPUs" } " · "
            a href={ "/latency?node=" (crate::request::escaped(&view.node.node)) } { "Latency of this node" }
            @if view.cordoned { " · " span .state.near { "cordoned" } " no further pod is placed here" }
        }
        @if let Some(error) = &view.use_error { p .error role="status" { (error) } }
        (bars::table(std::slice::from_ref(&view.node), view.measured))
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

fn pods(view: &View) -> Markup {
    let mut columns = vec![Text("Pod"), Text("Card"), Number("Given of each")];
    columns.extend(view.measured.then_some(Number("Used now")));
    columns.push(Text("The card is"));
    html! {
        @if view.pods.rows.is_empty() {
            p .note { "No pod has a part of a card that is known." }
        } @else {
            (table(columns, &html! { @for row in &view.pods.rows { (pod_row(row, view.measured)) } }))
        }
    }
}

fn pod_row(row: &PodRow, measured: bool) -> Markup {
    let part = &row.part;
    html! {
        tr {
            th scope="row" { a href=(decisions::link(&part.namespace, &part.pod)) { (bars::pod_name(part)) } }
            td { (clean(&row.cards, MAX_NAME_CHARS)) }
            td .number { (format::milli(part.milli)) }
            @if measured {
                td .number {
                    @if let Some(used) = part.used { (bars::used_text(used)) } @else { span .dim { "not reported" } }
                }
            }
            td .dim {
                @if part.card_is_guessed { "a guess: the device plugin chose it" } @else { "written on the pod" }
            }
        }
    }
}

fn fits_table(fits: &[Fits]) -> Markup {
    html! {
        @if fits.is_empty() {
            p .note { "No pod of the cluster requests GPUs, so no request is expected." }
        } @else {
            (table([Text("Request"), Text("Mode"), Number("Still fit"), Text("Why not")], &html! {
                @for fit in fits {
                    tr {
                        th scope="row" { (fit.request) }
                        td { (fit.mode) }
                        td .number { (fit.copies) }
                        td { (fit.why.unwrap_or_default()) }
                    }
                }
            }))
        }
    }
}
