use maud::{Markup, html};
use tautline_latency::report::{
    Basis, By,
    units::{exact, short},
    words::marked_figure,
};

use super::{
    super::{limit, pair_link, tiles::Tiles, worst},
    Level, MAX_NAME_CHARS, Network, Pair, View,
    counts::Within,
};
use crate::{
    draw::{clean, joined},
    request::{PageRequest, link},
    table::{Number, Text, table},
};

pub(super) fn render(view: &View, request: &PageRequest) -> Markup {
    html! {
        (place(view, request))
        @match &view.network {
            Some(network) if network.is_empty() => (nothing_known(&view.level)),
            Some(network) => (network_part(view, network, request)),
            None => (no_provider(view.error.as_deref())),
        }
        @if view.network.is_some() {
            h2 #worst { "The worst pairs under active rules" }
            @if let Some(error) = &view.worst_error { p .error role="status" { (error) } }
            @if let Some(report) = &view.worst { (worst::render(report)) }
        }
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
                Level::Nodes { zone, to, groups, nodes, only_zone } => {
                    @if !only_zone { a href="/latency" { "All zones" } " › " }
                    @let name = zones_text(zone, to.as_deref());
                    @if groups.is_empty() {
                        b { (name) }
                    } @else {
                        a href=(zones_link(request, zone, to.as_deref())) { (name) }
                        " › groups " (clean(groups, 40))
                    }
                    ", " (nodes) " nodes"
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
        (limit::form(request, view.limit_micros))
        @if let Some(error) = &view.limit_error { p .error role="alert" { (error) } }
        (counted(view, network))
        @if let Some(nodes) = network.sampled_nodes {
            p .dim {
                "Each tile is a group of neighbours by name, and its figure the median over the pairs of a sample, "
                (nodes) " nodes in all. A tile leads to the nodes of its two groups."
            }
        }
        @if !matches!(view.level, Level::OneNode { .. }) { (matrix(view, network, request)) }
        h2 { "Pairs, the slowest first" }
        (pairs(view, network, request))
        (network.pairs.pager(request, ""))
    }
}

fn counted(view: &View, network: &Network) -> Markup {
    let counts = &network.counts;
    let what = match (network.matrix.by, network.groups.is_empty()) {
        (By::Node, _) => "nodes",
        (By::Zone, true) => "zones",
        (By::Zone, false) => "groups",
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
    let names = &network.matrix.names;
    let is_single = network.groups.is_empty();
    // Groups of zones have no page.
    let has_pages = is_single || !matches!(view.level, Level::Zones);
    let row = |i: usize| match &view.level {
        Level::Nodes { .. } if is_single => {
            Some(part_link(request, [("node", names.get(i)?.as_str())]))
        }
        _ if has_pages => page_of(view, network, request, (i, i)),
        _ => None,
    };
    let tile = |i: usize, j: usize| {
        let page = || page_of(view, network, request, (i, j));
        has_pages.then(page).flatten()
    };
    Tiles {
        report: &network.matrix,
        limit: view.limit_micros,
        row: &row,
        tile: &tile,
    }
    .render()
}

/// Returns the link to the page of a pair of the matrix's names, by their indexes.
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
        _ if network.groups.is_empty() => (i != j).then(|| pair_link(from, to)),
        Level::OneNode { .. } => None,
        Level::Nodes {
            zone, to, groups, ..
        } => {
            let groups = match groups.as_str() {
                "" => format!("{i},{j}"),
                groups => format!("{groups}/{i},{j}"),
            };
            let to = to.as_deref().map(|to| ("to", to));
            let fields = [("zone", zone.as_str())].into_iter().chain(to);
            Some(part_link(
                request,
                fields.chain([("groups", groups.as_str())]),
            ))
        }
    }
}

fn pairs(view: &View, network: &Network, request: &PageRequest) -> Markup {
    let of_nodes = network.matrix.by == By::Node;
    let mut columns = vec![Text("Pair"), Number("RTT"), Text("Source")];
    if !of_nodes {
        columns.extend(["p10 to p90", "Pairs measured", "Unreachable"].map(Number));
    }
    columns.extend(view.limit_micros.map(|_| Text("Limit")));
    let rows = html! {
        @for pair in &network.pairs.rows {
            @let page = match view.level {
                Level::Zones => Some(zones_link(request, &pair.from, Some(&pair.to))),
                _ => page_of(view, network, request, pair.at),
            };
            (pair_row(pair, page, view, of_nodes))
        }
    };
    table(columns, &rows)
}

fn pair_row(pair: &Pair, page: Option<String>, view: &View, of_nodes: bool) -> Markup {
    let cell = &pair.cell;
    let name = html! {
        (pair.from)
        @if pair.at.0 == pair.at.1 { ", within" } @else { " – " (pair.to) }
    };
    let range = cell.p10_micros.zip(cell.p90_micros);
    html! {
        tr {
            th scope="row" {
                @if let Some(page) = page { a href=(page) { (name) } } @else { (name) }
            }
            td .number {
                @match cell.effective.basis {
                    Basis::Unreachable => "unreachable",
                    _ => (marked_figure(cell.effective)),
                }
            }
            td .lat-source { (cell.effective.basis.words()) }
            @if !of_nodes {
                td .number { @if let Some((low, high)) = range { (short(low)) " to " (short(high)) } @else { "-" } }
                td .number { (cell.measured_pairs) }
                td .number { (cell.unreachable_pairs) }
            }
            @if let Some(limit) = view.limit_micros {
                td {
                    @match super::tiles::is_within(cell, limit) {
                        Some(true) => span .state.good { "holds" },
                        Some(false) => span .state.bad { "too far" },
                        None => span .state.none { "unknown" },
                    }
                }
            }
        }
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

impl Network {
    fn is_empty(&self) -> bool {
        let mut cells = self.matrix.cells.iter().flatten();
        cells.all(|c| matches!(c.effective.basis, Basis::Nothing | Basis::Same))
    }
}
