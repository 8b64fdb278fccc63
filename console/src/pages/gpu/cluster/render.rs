use maud::{Markup, html};
use tautline_gpu_slice::report::{Amounts, Total, format};

use super::{
    super::{bars, classes, filter::Filter, what_if},
    GivenIdle, View,
};
use crate::{
    console::lists,
    draw::{cards_of, key, not_known, problems, share},
    request::PageRequest,
    table::{Number, Text, table},
};

pub(super) fn render(view: &View, filter: &Filter<'_>, request: &PageRequest) -> Markup {
    html! {
        @if view.sums.nodes == 0 && request.console.lacks(&[lists::NODES]) {
            (not_known())
        } @else if view.sums.nodes == 0 {
            (empty(view.cluster_nodes))
        } @else {
            (sums(view))
            h2 { "What still fits" }
            (classes::render(&view.classes))
            h2 #what-if { "What if more pods came?" }
            (what_if::form(request))
            @if let Some(error) = &view.what_if_error { p .error role="alert" { (error) } }
            @if let Some(answer) = &view.what_if { (what_if::render(answer)) }
            h2 #nodes { "Nodes" }
            (filter.form(request, &view.choices))
            @if let Some(error) = &view.use_error { p .error role="status" { (error) } }
            (nodes(view, request))
            (products(&view.products))
            (warnings(view))
        }
    }
}

fn sums(view: &View) -> Markup {
    let sums = &view.sums;
    let useless = sums.useless_milli.unwrap_or(0).min(sums.idle_milli);
    let amount = |milli: i64| u64::try_from(milli).unwrap_or(0);
    let lost = sums.unhealthy_cards as u64 * 1000;
    let usable = sums.idle_milli - useless;
    let parts = [
        (
            "gpu-pod",
            "thousandths given to pods",
            amount(sums.given_milli),
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
                p .figure { (part(sums.given_milli)) }
                p .dim { (cards_of(sums.given_milli)) " of " (format::count(sums.cards, "card")) " on " (format::count(sums.nodes, "node")) }
                @if let Some(given) = &view.given { (given_idle(given)) }
            }
            div .tile {
                h2 { (key("gpu-card")) " Idle" }
                p .figure { (part(sums.idle_milli)) }
                p .dim { (cards_of(sums.idle_milli)) " cards are free for further pods" }
            }
            div .tile {
                h2 { (key("gpu-useless")) " Useless, of the idle" }
                @match sums.useless_milli {
                    Some(milli) => {
                        p .figure { (part(milli)) }
                        p .dim {
                            (cards_of(milli)) " cards, " (format::percent(milli as f64, sums.idle_milli as f64))
                            " of what is idle: the next expected request cannot use it"
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

fn given_idle(given: &GivenIdle) -> Markup {
    html! {
        p .dim {
            (format::percent(given.idle_milli as f64, given.given_milli as f64)) " of it is hardly used now"
            @if given.pods > 0 {
                ": " (given.first_pods.join(", "))
                @if given.pods > given.first_pods.len() { " and " (given.pods - given.first_pods.len()) " more" }
            }
        }
    }
}

fn nodes(view: &View, request: &PageRequest) -> Markup {
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

fn products(products: &[Total]) -> Markup {
    html! {
        h2 { "Products" }
        (table(
            [Text("Product"), Text("Mode or resource"), Number("Nodes"), Number("Cards"), Number("Unhealthy"),
                Number("Given"), Number("Free"), Number("Useless")],
            &html! { @for total in products { (product_row(total)) } },
        ))
    }
}

fn product_row(total: &Total) -> Markup {
    html! {
        tr {
            th scope="row" { (total.product) }
            td { (total.lane) }
            td .number { (total.nodes) }
            @match &total.amounts {
                Amounts::Cards(sums) => {
                    td .number { (sums.cards) }
                    td .number { (sums.unhealthy_cards) }
                    td .number { (format::milli(sums.held_milli)) }
                    td .number { (format::milli(sums.free_milli)) }
                    td .number { @if let Some(milli) = sums.fragmented_milli { (format::milli(milli)) } @else { "-" } }
                }
                Amounts::Units { units, used_units, free_units } => {
                    td .number { "-" }
                    td .number { "-" }
                    td .number { (used_units) " of " (units) " units" }
                    td .number { (free_units) " units" }
                    td .number { "-" }
                }
            }
        }
    }
}

fn warnings(view: &View) -> Markup {
    html! {
        @if view.warning_count > 0 {
            h2 { "Warnings" }
            (problems(&view.warnings))
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
