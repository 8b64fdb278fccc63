//! `/gpu` shows the cards of the cluster and the requests that still fit.

mod bars;
mod filter;
pub(super) mod node;
mod what_if;

use maud::{Markup, html};
use serde::Serialize;
use tautline_gpu_slice::{
    inspection::NodeGpus,
    report::{Amounts, CardSums, Fragmentation, Given, NodeTop, Total, format},
};

use self::{bars::MAX_NAME_CHARS, filter::Filter};
use crate::{
    admin::{MAX_NODES_WITH_USE, gpu_uses},
    console::lists,
    draw::{cards, cards_of, clean, in_cards, key, not_known, problems, share, state},
    inspections::{Figures, Inspected},
    request::{PageRequest, PageResult},
    table::{Window, column, name, number, table, text},
};

/// The maximum number of bars and segments on a page.
const MAX_DRAWN: usize = 280;
/// The maximum number of nodes on a page.
const MAX_NODES: usize = 25;
/// The maximum number of pods that are named where they hardly use their parts.
const MAX_NAMED_PODS: usize = 5;
/// The maximum number of common requests on a page.
const MAX_CLASSES: usize = 20;
const MAX_REQUEST_CHARS: usize = 160;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    nodes_with_gpus: usize,
    /// The sums over all cards that are known individually.
    sums: CardSums,
    /// The totals by product and sharing mode.
    products: &'a [Total],
    fragmentation: &'a Fragmentation,
    what_if: Option<what_if::Answer>,
    /// The errors of the form's fields, by their names.
    what_if_errors: &'a what_if::Errors,
    nodes: Window<NodeTop>,
    /// The number of the cluster's nodes, with and without GPUs.
    cluster_nodes: usize,
    /// The parts of cards that pods have and hardly use; absent without agents, and with agents on
    /// more than 100 nodes.
    given: Option<Given>,
    use_error: Option<String>,
    warnings: &'a [String],
    warning_count: usize,
    /// True if a shown node reports the use of its cards.
    measured: bool,
    #[serde(skip)]
    inspected: &'a Inspected,
}

pub(super) async fn page(request: &PageRequest) -> PageResult {
    let filter = Filter::new(request)?;
    let console = &request.console;
    let inspected = console.inspections.get(console).await?;
    let (host, errors) = what_if::host(request);
    let host = errors.is_empty().then_some(host);
    let answer = what_if::answer(request, host, &inspected).await?;
    let inspection = &inspected.inspection;
    let nodes = inspection.nodes();
    let chosen = filter.select(&nodes, &inspected);
    let (page, pages, shown) = window(&chosen, request.number("page")?.unwrap_or(1));
    let names: Vec<&str> = shown.iter().map(|(node, _)| &**node.name).collect();
    let (uses, use_error) = match inspected.agents {
        0 => Default::default(),
        n => {
            let only = (n > MAX_NODES_WITH_USE).then_some(names.as_slice());
            gpu_uses(&*console.source, only).await
        }
    };
    let types = inspection.types();
    let known = (!types.is_empty()).then_some(&types);
    let top = |node: &NodeGpus<'_>| {
        let used = uses.node(node.name);
        NodeTop::new(node, inspection.snapshot(), known, used)
    };
    let rows: Vec<NodeTop> = shown.iter().map(|(node, _)| top(node)).collect();
    let given = (inspected.agents <= MAX_NODES_WITH_USE).then(|| Given::new(nodes.iter(), &uses));
    let view = View {
        nodes_with_gpus: inspected.figures.iter().filter(|f| f.has_gpus).count(),
        sums: CardSums::of_all(&inspected.totals),
        products: &inspected.totals,
        fragmentation: &inspected.fragmentation,
        what_if: answer,
        what_if_errors: &errors,
        measured: rows.iter().any(bars::is_measured),
        nodes: Window {
            rows,
            total: chosen.len(),
            page,
            pages,
        },
        cluster_nodes: nodes.len(),
        given: given.flatten(),
        use_error,
        warnings: &inspected.warnings,
        warning_count: inspected.warning_count,
        inspected: &inspected,
    };
    request.respond("GPU", filter.command(), &view, |view| {
        render(view, &filter, request)
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

fn render(view: &View<'_>, filter: &Filter<'_>, request: &PageRequest) -> Markup {
    html! {
        @if view.nodes_with_gpus == 0 && request.console.lacks(&[lists::NODES]) {
            (not_known())
        } @else if view.nodes_with_gpus == 0 {
            (empty(view.cluster_nodes))
        } @else {
            (sums(view))
            h2 { "What still fits" }
            (classes(view.fragmentation))
            h2 #what-if { "What if more pods came?" }
            (what_if::form(request, view.what_if_errors))
            @if let Some(answer) = &view.what_if { (what_if::render(answer)) }
            h2 #nodes { "Nodes" }
            (filter.form(request, view.inspected))
            @if let Some(error) = &view.use_error { p .error role="status" { (error) } }
            (nodes(view, request))
            (products(view.products))
            (warnings(view))
        }
    }
}

fn sums(view: &View<'_>) -> Markup {
    let sums = &view.sums;
    let useless = sums.fragmented_milli.unwrap_or(0).min(sums.free_milli);
    let amount = |milli: i64| u64::try_from(milli).unwrap_or(0);
    let lost = sums.unhealthy_cards as u64 * 1000;
    let usable = sums.free_milli - useless;
    let parts = [
        (
            "gpu-pod",
            "thousandths given to pods",
            amount(sums.held_milli),
        ),
        ("gpu-idle", "idle and usable", amount(usable)),
        ("gpu-useless", "idle and useless", amount(useless)),
        ("gpu-lost", "on lost cards", lost),
    ];
    let all = sums.cards as f64 * 1000.0;
    let part = |milli: i64| format::percent(milli as f64, all);
    html! {
        div .gpu-share { (share("Thousandths of cards", parts.into_iter())) }
        div .tiles {
            div .tile {
                h2 { (key("gpu-pod")) " Given to pods" }
                p .figure { (part(sums.held_milli)) }
                p .dim { (cards_of(sums.held_milli)) " of " (format::count(sums.cards, "card")) " on " (format::count(view.nodes_with_gpus, "node")) }
                @if let Some(given) = &view.given { (given_idle(given)) }
            }
            div .tile {
                h2 { (key("gpu-card")) " Idle" }
                p .figure { (part(sums.free_milli)) }
                p .dim { (cards_of(sums.free_milli)) " cards are free for further pods" }
            }
            div .tile {
                h2 { (key("gpu-useless")) " Useless, of the idle" }
                @match sums.fragmented_milli {
                    Some(milli) => {
                        p .figure { (part(milli)) }
                        p .dim {
                            (cards_of(milli)) " cards, " (format::percent(milli as f64, sums.free_milli as f64))
                            " of what is idle: free, but the next request, drawn from those of the pods here, cannot use                              it. The part is too small, too little CPU is free beside it, or it wants another model"
                        }
                        @if milli > 0 { p .dim { a href="/gpu?sort=fragmented#nodes" { "Where, the most first" } } }
                    }
                    None => {
                        p .figure { "-" }
                        p .dim { "No pod requests cards, so no request is expected." }
                    }
                }
            }
            div .tile {
                h2 { (key("gpu-lost")) " Lost by faults" }
                p .figure { (sums.unhealthy_cards) }
                p .dim {
                    @if sums.unhealthy_cards > 0 {
                        a href="/gpu?sort=faults#nodes" { "cards" } " that cannot be used"
                    } @else { "cards; all are healthy" }
                }
            }
        }
    }
}

fn given_idle(given: &Given) -> Markup {
    let first = given.idle_pods.iter().take(MAX_NAMED_PODS);
    let first: Vec<String> = first.map(|pod| clean(pod, MAX_NAME_CHARS)).collect();
    html! {
        p .dim {
            (format::percent(given.idle_milli as f64, given.milli as f64)) " of it is hardly used now"
            @if !first.is_empty() {
                ": " (first.join(", "))
                @if given.idle_pods.len() > first.len() { " and " (given.idle_pods.len() - first.len()) " more" }
            }
        }
    }
}

fn nodes(view: &View<'_>, request: &PageRequest) -> Markup {
    html! {
        @if view.nodes.rows.is_empty() {
            p .note {
                "No node fits the filter. "
                @if request.has_any(&["node", "product", "namespace"]) { a href="/gpu#nodes" { "Show all" } }
            }
        } @else {
            (bars::table(&view.nodes.rows, view.measured))
        }
        (view.nodes.pager(request, "#nodes"))
    }
}

/// Renders the common requests, and how many more of each fit.
fn classes(of: &Fragmentation) -> Markup {
    let unusable = |milli: i64| format::percent(milli as f64, of.idle_milli as f64);
    let shown = &of.classes[..of.classes.len().min(MAX_CLASSES)];
    html! {
        @if shown.is_empty() {
            p .note { "No pod requests GPUs, so no request is expected and no idle GPU counts as useless." }
        } @else {
            p .dim {
                "The requests of " (format::count(of.counted.pods, "pod")) ", and how many more of each fit if no others come. "
                code { "tautline gpu fragmentation" } " prints them."
            }
            (table(("", ""), shown, &[
                name("Request", &|class| html! { (clean(&in_cards(&class.text), MAX_REQUEST_CHARS)) }),
                text("Mode", &|class| html! { (class.lane) }),
                number("Share", &|class| html! { (format::percent(class.share, 1.0)) }),
                number("Pods", &|class| html! { (class.pods.len()) }),
                number("Still fit", &|class| match class.still_fit {
                    0 => state("bad", "0"),
                    copies => html! { (copies) },
                }),
                number("Cannot use of the idle GPU", &|class| html! {
                    (cards_of(class.unusable_milli)) " cards, " (unusable(class.unusable_milli))
                }),
                number("Runs in", &|class| html! { (class.nodes.runs) " of " (of.nodes_with_cards) " nodes" }),
                column("text", "Not in", &|class| html! { (class.nodes.others()) }),
            ]))
            @if of.classes.len() > shown.len() {
                p .dim { "The most frequent " (shown.len()) " of " (of.classes.len()) "." }
            }
        }
    }
}

fn products(products: &[Total]) -> Markup {
    html! {
        h2 { "Products" }
        (table(("", ""), products, &[
            name("Product", &|total| html! { (clean(&total.product, MAX_NAME_CHARS)) }),
            text("Mode or resource", &|total| html! { (clean(&total.lane, MAX_NAME_CHARS)) }),
            number("Nodes", &|total| html! { (total.nodes) }),
            number("Cards", &|total| html! { (amounts(total)[0]) }),
            number("Unhealthy", &|total| html! { (amounts(total)[1]) }),
            number("Given", &|total| html! { (amounts(total)[2]) }),
            number("Free", &|total| html! { (amounts(total)[3]) }),
            number("Useless", &|total| html! { (amounts(total)[4]) }),
        ]))
    }
}

/// Returns the numbers of cards and of unhealthy ones, and the given, free and useless amounts.
fn amounts(total: &Total) -> [String; 5] {
    let unknown = || "-".to_owned();
    match &total.amounts {
        Amounts::Cards(sums) => [
            sums.cards.to_string(),
            sums.unhealthy_cards.to_string(),
            cards(sums.held_milli),
            cards(sums.free_milli),
            sums.fragmented_milli.map_or_else(unknown, cards),
        ],
        Amounts::Units {
            units,
            used_units,
            free_units,
        } => [
            unknown(),
            unknown(),
            format!("{used_units} of {units} units"),
            format!("{free_units} units"),
            unknown(),
        ],
    }
}

fn warnings(view: &View<'_>) -> Markup {
    html! {
        @if view.warning_count > 0 {
            h2 { "Warnings" }
            (problems(view.warnings))
            @if view.warning_count > view.warnings.len() {
                p .dim {
                    "The first " (view.warnings.len()) " of " (view.warning_count) "; "
                    code { "tautline gpu top" } " prints all."
                }
            }
        }
    }
}

fn empty(nodes: usize) -> Markup {
    html! {
        p .note {
            "No node has GPUs, of " (nodes) ". A node with GPUs reports them by NVIDIA's device plugin ("
            code { "nvidia.com/gpu" } "), by DRA, or by Tautline's own agent, which also cuts cards into slices and \
             measures their use: "
            code { "helm upgrade tautline deploy/chart -n tautline-system --reuse-values --set gpu.enabled=true" }
            ". The page " code { "docs/howto/gpu-sharing.md" } " compares them; " code { "tautline doctor" }
            " checks the installation."
        }
    }
}

#[cfg(test)]
mod tests;
