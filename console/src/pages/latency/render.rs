//! Renders the page `/latency` as HTML: the matrix of zones or nodes, the table of their pairs, and
//! the worst pairs under active rules.

use maud::{Markup, html};
use tautline_latency::report::{
    Basis, By, TopPair, TopReport,
    units::{age, exact, percent, short},
    words::marked_figure,
};

use super::{
    limit,
    network::{MAX_NAME_CHARS, Network, Pair, View, Within},
    scope::Level,
    tiles::{Tiles, is_within, most_names},
};
use crate::{
    draw::{badge, clean, joined, state},
    form,
    links::{self, link},
    request::PageRequest,
    table::{column, name, number, only_if, table, text},
};

/// The number of the worst pairs that are not folded.
const FIRST_WORST_PAIRS: usize = 5;

pub(super) fn render(view: &View, request: &PageRequest) -> Markup {
    html! {
        (place(view, request))
        @let named = view.worst.as_ref().is_some_and(|worst| !worst.pairs.is_empty());
        @if named { (worst_part(view)) }
        @match &view.network {
            Some(network) if network.matrix.is_empty() => (nothing_known(&view.level)),
            Some(network) => (network_part(view, network, request)),
            None => (no_provider(view.error.as_deref())),
        }
        @if view.network.is_some() && !named { (worst_part(view)) }
    }
}

fn worst_part(view: &View) -> Markup {
    html! {
        h2 #worst { "The worst pairs under active rules" }
        @if let Some(error) = &view.worst_error { p .error role="status" { (error) } }
        @if let Some(report) = &view.worst { (worst(report)) }
    }
}

/// Renders the position of the page in the network, with links to the levels above it.
fn place(view: &View, request: &PageRequest) -> Markup {
    html! {
        p {
            @match &view.level {
                Level::Zones => {
                    "Round-trip times between zones: medians over pairs of their nodes. A zone's name leads to its nodes, a \
                     tile to those of both."
                }
                Level::Nodes { zone, to, nodes, shown, only_zone } => {
                    @if !only_zone { a href="/latency" { "All zones" } " › " }
                    b { (zones_text(zone, to.as_deref())) } ", " (nodes) " nodes"
                    @if shown < nodes {
                        "; " (shown) " of them, evenly spaced by name, are here, and the page of a node has its pairs with \
                         all of its zone"
                    }
                }
                Level::OneNode { node, zone } => {
                    a href="/latency" { "All zones" } " › "
                    a href=(zones_link(request, zone, None)) { "Zone " (clean(zone, MAX_NAME_CHARS)) } " › "
                    "Node " b { (clean(node, MAX_NAME_CHARS)) } " and the others of its zone"
                }
            }
        }
    }
}

fn zones_text(zone: &str, to: Option<&str>) -> String {
    let zone = clean(zone, MAX_NAME_CHARS);
    match to {
        Some(to) => format!("Zones {zone} and {}", clean(to, MAX_NAME_CHARS)),
        None => format!("Zone {zone}"),
    }
}

/// Returns the link to a part of the network, with the limit of this page.
fn part_link<'a>(
    request: &'a PageRequest,
    fields: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let limit = request.field("limit").map(|limit| ("limit", limit));
    link("/latency", fields.into_iter().chain(limit))
}

/// Returns the link to the nodes of a zone, or of two.
fn zones_link(request: &PageRequest, zone: &str, to: Option<&str>) -> String {
    let to = to.filter(|to| *to != zone).map(|to| ("to", to));
    part_link(request, [("zone", zone)].into_iter().chain(to))
}

fn network_part(view: &View, network: &Network, request: &PageRequest) -> Markup {
    html! {
        (limit::form(request))
        (counted(view, network))
        @if !matches!(view.level, Level::Zones) {
            (form::filter("lat-node", "/latency", &form::text("Node", "node", request.field("node"))))
        }
        @if !matches!(view.level, Level::OneNode { .. }) {
            @if network.matrix.names.len() <= most_names(&network.matrix.names) { (matrix(view, network, request)) }
            @else { p .dim { "There are too many for tiles." } }
        }
        h2 { "Pairs, the slowest first" }
        (pairs(view, network, request))
        (network.pairs.pager(request, ""))
    }
}

fn counted(view: &View, network: &Network) -> Markup {
    let counts = &network.counts;
    let what = match network.matrix.by {
        By::Node => "nodes",
        By::Zone => "zones",
    };
    html! {
        p {
            @if let (Some(within), Some(limit)) = (&counts.within, view.limit_micros) {
                b { (within.pairs) " of " (counts.pairs) " pairs of " (what) " hold " (exact(limit)) }
                (within_rest(within, counts.names, what))
            } @else {
                (counts.pairs) " pairs of " (what) ". "
            }
            "Sources: " (joined(counts.by_basis.iter().map(|(basis, count)| html! { (count) " " (basis) }))) "."
        }
    }
}

fn within_rest(within: &Within, names: usize, what: &str) -> Markup {
    html! {
        @if within.predicted_pairs > 0 { ", " (within.predicted_pairs) " of them by prediction" }
        @if within.unknown_pairs > 0 { "; " (within.unknown_pairs) " have no figure" }
        ". " (within.names) " of " (names) " " (what) " hold it with all others that are known. "
    }
}

fn matrix(view: &View, network: &Network, request: &PageRequest) -> Markup {
    let row = |i: usize| {
        let name = network.matrix.names.get(i)?;
        Some(match view.level {
            Level::Zones => zones_link(request, name, None),
            _ => part_link(request, [("node", name.as_str())]),
        })
    };
    let tile = |i: usize, j: usize| page_of(view, network, request, (i, j));
    Tiles {
        report: &network.matrix,
        limit: view.limit_micros,
        row: &row,
        tile: &tile,
        is_sized: false,
    }
    .render()
}

/// Returns the link to the page of two zones or nodes, which are given by their indexes in the matrix.
fn page_of(
    view: &View,
    network: &Network,
    request: &PageRequest,
    (i, j): (usize, usize),
) -> Option<String> {
    let names = &network.matrix.names;
    let (from, to) = (names.get(i)?, names.get(j)?);
    match &view.level {
        Level::Zones => Some(zones_link(request, from, Some(to))),
        _ => (i != j).then(|| links::pair(from, to)),
    }
}

fn pairs(view: &View, network: &Network, request: &PageRequest) -> Markup {
    let of_nodes = network.matrix.by == By::Node;
    let pair = |pair: &Pair| {
        let page = page_of(view, network, request, pair.at);
        let name = html! {
            (pair.from)
            @if pair.at.0 == pair.at.1 { ", within" } @else { " – " (pair.to) }
        };
        html! { @if let Some(page) = page { a href=(page) { (name) } } @else { (name) } }
    };
    let limit = |pair: &Pair| match is_within(&pair.cell, view.limit_micros.unwrap_or(u64::MAX)) {
        Some(true) => state("good", "holds"),
        Some(false) => state("bad", "too far"),
        None => state("none", "unknown"),
    };
    let rows = &network.pairs.rows;
    html! {
        (table(("", ""), rows, &[
            name("Pair", &pair),
            number("RTT", &|pair| match pair.cell.effective.basis {
                Basis::Unreachable => html! { "unreachable" },
                _ => html! { (marked_figure(pair.cell.effective)) },
            }),
            column("lat-source", "Source", &|pair| html! { (pair.cell.effective.basis.words()) }),
            only_if(!of_nodes, number("p10 to p90", &|pair| match pair.cell.p10_micros.zip(pair.cell.p90_micros) {
                Some((low, high)) => html! { (short(low)) " to " (short(high)) },
                None => html! { "-" },
            })),
            only_if(!of_nodes, number("Pairs measured", &|pair| html! { (pair.cell.measured_pairs) })),
            only_if(!of_nodes, number("Unreachable", &|pair| html! { (pair.cell.unreachable_pairs) })),
            only_if(view.limit_micros.is_some(), text("Limit", &limit)),
        ]))
    }
}

fn nothing_known(level: &Level) -> Markup {
    let what = match level {
        Level::Zones => "The provider has no measurements and no tables.",
        Level::Nodes { .. } | Level::OneNode { .. } => {
            "Nothing is known of these nodes' distances."
        }
    };
    html! {
        p .note {
            (what) " Run the agents on the nodes, which the chart does unless switched off ("
            code { "--set agent.enabled=true" } "; " code { "tautline agent latency" }
            " by hand), or configure a table: " code { "docs/latency-reference.md" }
            ". Tables of namespaces that are not trusted count for their own pods only, and are not shown here."
        }
    }
}

fn no_provider(error: Option<&str>) -> Markup {
    html! {
        p .note {
            "No latency provider answers, so no distance is known. It comes with the chart unless switched off: "
            code { "helm upgrade tautline deploy/chart -n tautline-system --reuse-values --set providers.latency.enabled=true \
                    --set agent.enabled=true" }
            ". " code { "tautline doctor" } " checks the installation, and " code { "docs/latency.md" } " explains it."
        }
        @if let Some(error) = error { p .error role="status" { (error) } }
    }
}

/// Renders the pairs that active rules name, the worst first.
fn worst(report: &TopReport) -> Markup {
    html! {
        @if report.pairs.is_empty() {
            p .note {
                "No active rule of latency names a pair of nodes. Bindings are evaluated every period of their offer; "
                a href="/policies" { "Policies" } " shows the offers."
            }
        } @else {
            @let (first, rest) = report.pairs.split_at(report.pairs.len().min(FIRST_WORST_PAIRS));
            (worst_table(first))
            @if !rest.is_empty() {
                details #worst-rest { summary { (rest.len()) " more" } (worst_table(rest)) }
            }
            p .dim {
                @if report.named > report.pairs.len() {
                    "The worst " (report.pairs.len()) " of " (report.named) " pairs under active rules. "
                }
                @if report.pairs.iter().any(|p| p.effective.basis == Basis::Estimated) {
                    "~ is predicted: evaluations use no prediction. "
                }
                code { "tautline latency top" } " prints them; " a href="/bindings?compliance=Violation" { "bindings in violation" }
                " have the pods."
            }
        }
    }
}

fn worst_table(pairs: &[TopPair]) -> Markup {
    let figure = |micros: Option<u64>| html! { (micros.map_or("-".to_owned(), short)) };
    let share = |share: Option<f64>| html! { (share.map_or("-".to_owned(), percent)) };
    table(
        ("", ""),
        pairs,
        &[
            text("Compliance", &|pair| badge(&pair.compliance)),
            name("Pair", &|pair| {
                html! {
                    a href=(links::pair(&pair.from, &pair.to)) { (pair.from) " – " (pair.to) }
                }
            }),
            text("Rule", &|pair| html! { (pair.rule) }),
            number("RTT", &|pair| match pair.effective.basis {
                Basis::Unreachable => html! { "unreachable" },
                Basis::Same => html! { "0" },
                _ => html! { (marked_figure(pair.effective)) },
            }),
            number("Request", &|pair| figure(pair.request_micros)),
            number("Limit", &|pair| figure(pair.limit_micros)),
            number("Of the limit", &|pair| share(pair.limit_share)),
            number("Directions apart", &|pair| share(pair.apart)),
            number("Last sample", &|pair| match pair.age_micros {
                Some(micros) => html! { (age(micros)) " ago" },
                None => html! { "-" },
            }),
        ],
    )
}
