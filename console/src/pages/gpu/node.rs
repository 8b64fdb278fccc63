//! `/gpu/NODE`

use std::sync::Arc;

use maud::{Markup, html};
use serde::Serialize;
use tautline_gpu_placement::RequestClass;
use tautline_gpu_slice::{
    Inspection,
    inspection::NodeGpus,
    report::{ClassFit, NodeTop, Uses, class_fit, copies_on, format, has_gpus, warnings},
};
use tautline_runtime::error_text::error_text;

use super::{
    bars::{self, MAX_NAME, NodeBars, Segment, Used},
    usage,
};
use crate::{
    draw::clean,
    inspections::Inspected,
    list::Window,
    request::{PageError, PageRequest, path},
};

const MAX_CLASSES: usize = 20;
const MAX_WARNINGS: usize = 20;
const MAX_WARNING: usize = 300;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View {
    node: NodeBars,
    cordoned: bool,
    /// The pods with parts of cards, in the cards' order.
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
    /// `3`, or `0-7`.
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
    /// Why it cannot run here.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}

impl View {
    pub(super) fn name(&self) -> &str {
        &self.node.node
    }
}

pub(super) async fn view(request: &PageRequest, name: &str) -> Result<View, PageError> {
    let console = &request.console;
    let inspected = console.inspections.get(&console.store).await?;
    let agent = has_agent(&inspected, name)?;
    let (uses, use_error) = match agent {
        false => (Uses::default(), None),
        true => match usage::read(&*console.source, Some(&[name])).await {
            Ok(uses) => (uses, None),
            Err(error) => (
                Uses::default(),
                Some(clean(&error_text(error.as_ref()), MAX_WARNING)),
            ),
        },
    };
    let inspection = &inspected.inspection;
    let nodes = inspection.nodes();
    let node = find(&nodes, inspection, name)?;
    let types = inspection.types();
    let known = (!types.is_empty()).then_some(&types);
    let snapshot = inspection.snapshot();
    let top = NodeTop::new(node, snapshot, known, uses.node(name));
    let parts: Vec<(String, usize, usize)> = parts(&top);
    let cards: Vec<_> = top.cards().collect();
    let pods = Window::new(request, &parts, |(label, card, holder)| PodRow {
        cards: label.clone(),
        part: segment(&cards[*card].holders[*holder]),
    })?;
    let all = warnings(inspection, &uses, node)
        .into_iter()
        .take(MAX_WARNINGS);
    let warnings = all.map(|w| clean(&w, MAX_WARNING)).collect();
    drop(cards);
    let bars = NodeBars::new(top);
    let measured = bars.bars().any(|bar| bar.used.is_some());
    Ok(View {
        cordoned: snapshot.node(name).is_some_and(|n| n.unschedulable),
        pods,
        fits: fits(inspection, node),
        measured,
        node: bars,
        use_error,
        warnings,
    })
}

fn has_agent(inspected: &Arc<Inspected>, name: &str) -> Result<bool, PageError> {
    let nodes = inspected.inspection.nodes();
    let node = find(&nodes, &inspected.inspection, name)?;
    Ok(node.inventory.pools.iter().any(|pool| pool.has_agent()))
}

fn find<'a, 'n>(
    nodes: &'n [NodeGpus<'a>],
    inspection: &Inspection,
    name: &str,
) -> Result<&'n NodeGpus<'a>, PageError> {
    let node = nodes.iter().find(|n| **n.name == *name && has_gpus(n));
    node.ok_or_else(|| {
        let name = clean(name, MAX_NAME);
        PageError::absent(match inspection.snapshot().node(&name) {
            Some(_) => format!("node {name} has no GPUs"),
            None => format!("there is no node {name}"),
        })
    })
}

/// The label of a row of equal cards, and the indexes of its first card and of a holder.
fn parts(top: &NodeTop) -> Vec<(String, usize, usize)> {
    let mut all = Vec::new();
    let mut card = 0;
    for pool in &top.pools {
        for alike in pool.cards.chunk_by(|before, card| card.is_like(before)) {
            let label = match alike {
                [first, .., last] => format!("{}-{}", first.card, last.card),
                [one] => one.card.clone(),
                [] => continue,
            };
            let holders = 0..alike[0].holders.len();
            all.extend(holders.map(|holder| (label.clone(), card, holder)));
            card += alike.len();
        }
    }
    all
}

fn segment(holder: &tautline_gpu_slice::report::HolderTop) -> Segment {
    let (namespace, pod) = holder.pod.split_once('/').unwrap_or(("", &holder.pod));
    Segment {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        milli: holder.milli,
        used: holder.used.map(|used| Used {
            memory_bytes: used.used_bytes,
            busy_milli: used.busy_milli,
        }),
        card_is_guessed: holder.card_is_guessed,
    }
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
    clean(&format::class(class), MAX_NAME)
}

pub(super) fn render(view: &View, request: &PageRequest) -> Markup {
    html! {
        p {
            a href="/gpu" { "All GPUs" } " · "
            a href={ "/latency?node=" (crate::request::escaped(view.name())) } { "Latency of this node" }
            @if view.cordoned { " · " span .state.near { "cordoned" } " no further pod is placed here" }
        }
        @if let Some(error) = &view.use_error { p .error role="status" { (error) } }
        (bars::table(std::slice::from_ref(&view.node), view.measured))
        h2 { "Pods" }
        (pods(view))
        (view.pods.pager(request))
        h2 { "What still fits here" }
        (fits_table(&view.fits))
        @if !view.warnings.is_empty() {
            h2 { "Warnings" }
            ul .problems { @for warning in &view.warnings { li { (warning) } } }
        }
    }
}

fn pods(view: &View) -> Markup {
    html! {
        @if view.pods.rows.is_empty() {
            p .note { "No pod has a part of a card that is known." }
        } @else {
            div .scroll {
                table {
                    thead {
                        tr {
                            th scope="col" { "Pod" }
                            th scope="col" { "Card" }
                            th .number scope="col" { "Given of each" }
                            @if view.measured { th .number scope="col" { "Used now" } }
                            th scope="col" { "The card is" }
                        }
                    }
                    tbody {
                        @for row in &view.pods.rows { (pod_row(row, view.measured)) }
                    }
                }
            }
        }
    }
}

fn pod_row(row: &PodRow, measured: bool) -> Markup {
    let part = &row.part;
    let pod = path(&["decisions", &part.namespace, &part.pod]);
    html! {
        tr {
            th scope="row" { a href=(pod) { (bars::pod_name(part)) } }
            td { (clean(&row.cards, MAX_NAME)) }
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
            div .scroll {
                table {
                    thead {
                        tr {
                            th scope="col" { "Request" }
                            th scope="col" { "Mode" }
                            th .number scope="col" { "Still fit" }
                            th scope="col" { "Why not" }
                        }
                    }
                    tbody {
                        @for fit in fits {
                            tr {
                                th scope="row" { (fit.request) }
                                td { (fit.mode) }
                                td .number { (fit.copies) }
                                td { (fit.why.unwrap_or_default()) }
                            }
                        }
                    }
                }
            }
        }
    }
}
