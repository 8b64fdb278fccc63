//! Renders the matrix of a round's nodes and rules.

use maud::{Markup, html};

use super::{
    matrix::{Cell, CellState, MAX_COST_LEVEL, Row, Verdict, cost_text},
    round::{ExcludedNodes, Round, SHOWS},
};
use crate::{
    draw::{clean, joined, state},
    links::escaped,
    request::PageRequest,
    table::frame,
};

pub(super) fn section(round: &Round, request: &PageRequest) -> Markup {
    html! {
        h2 { "Nodes and rules" }
        (legend())
        nav .tabs aria-label="Nodes to show" {
            @for (value, _, text) in SHOWS {
                @let shown = request.field("show").unwrap_or("all") == value;
                a href=(request.link_without(&["page", "show"], Some(("show", value)))) aria-current=[shown.then_some("true")] { (text) }
            }
            @if request.field("rule").is_some() { a href=(request.link("rule", None)) { "all rules" } }
        }
        @if round.nodes.rows.is_empty() {
            p .note { "No node here." }
        } @else {
            (table(round, request))
            (round.nodes.pager(request, ""))
        }
        @for excluded in &round.excluded { (folded(excluded, request)) }
    }
}

/// Renders the nodes that Kubernetes excludes for one reason, folded.
fn folded(excluded: &ExcludedNodes, request: &PageRequest) -> Markup {
    let why = |node: &str| request.link("node", Some(node)) + "#why";
    let (named, total) = (excluded.nodes.len(), excluded.total);
    html! {
        details id={ "out-" (escaped(&excluded.reason)) } {
            summary {
                (total) " node" (if total == 1 { "" } else { "s" }) " " (state("none", "Kubernetes")) " " (excluded.reason)
            }
            p {
                (joined(excluded.nodes.iter().map(|node| html! { a href=(why(node)) { (clean(node, 80)) } })))
                @if total > named {
                    ", " a href=(request.link_without(&["page", "show"], Some(("show", "notAsked")))) { "and " (total - named) " more" }
                }
            }
        }
    }
}

fn legend() -> Markup {
    html! {
        p .key-line {
            "Cost within its rule: "
            svg .scale viewBox="0 0 110 10" preserveAspectRatio="none" role="img" aria-label="from 0, the best, in light colour, to 10, the worst, in dark colour" {
                @for level in 0..=MAX_COST_LEVEL {
                    rect class={ "l" (level) } x=(level * 10) width="10" height="10" {}
                }
            }
            " 0 best to 10 worst · " span .cell.refused { "hatched" } " refused · "
            span .cell.out { "grey" } " not in the request"
        }
    }
}

fn class(state: CellState) -> String {
    match state {
        CellState::Scaled(level) => format!("l{level}"),
        CellState::Refused | CellState::NoCost => "refused".into(),
        CellState::NoAnswer => "out".into(),
    }
}

fn table(round: &Round, request: &PageRequest) -> Markup {
    let columns = [
        ("number", "Rank"),
        ("", "Node"),
        ("", "Verdict"),
        ("number", "Score"),
    ];
    let rules = round.columns.iter().map(|rule| ("", rule.as_str()));
    let rows = html! { tbody { @for row in &round.nodes.rows { (line(row, round, request)) } } };
    let style = ("Nodes and rules", "wide matrix");
    frame(style, columns.into_iter().chain(rules), &rows)
}

fn line(row: &Row, round: &Round, request: &PageRequest) -> Markup {
    let (tone, verdict) = match row.verdict {
        Verdict::Chosen => ("good", "the pod is here"),
        Verdict::Offered => ("good", "offered"),
        Verdict::Usable => ("none", "usable"),
        Verdict::Refused => ("bad", ""),
        Verdict::KeptOut => ("none", "Kubernetes"),
        Verdict::NotAsked => ("none", "not in the request"),
    };
    let columns = round.columns.len();
    html! {
        tr .chosen[row.verdict == Verdict::Chosen] {
            td .number data-th="Rank" { @if let Some(rank) = row.rank { (rank) } }
            th scope="row" {
                a href={ (request.link("node", Some(&row.node))) "#why" } title="Why not this node?" { (clean(&row.node, 80)) }
            }
            td data-th="Verdict" {
                @if !verdict.is_empty() { (state(tone, verdict)) " " }
                @match &row.reason {
                    Some(reason) if row.verdict == Verdict::KeptOut => (reason),
                    Some(reason) => (state("bad", reason)),
                    None => {},
                }
            }
            td .number data-th="Score" { @if let Some(score) = row.score { (score) } }
            @if row.cells.is_empty() && columns > 0 { td .cell.out colspan=(columns) { } }
            @for (cell, rule) in row.cells.iter().zip(&round.columns) { (tile(cell, rule)) }
        }
    }
}

fn tile(cell: &Cell, rule: &str) -> Markup {
    let cost = cell.cost.filter(|cost| *cost >= 0);
    let cost = cost.map(|cost| cost_text(rule, cost));
    let text = match (cell.state, cell.text.as_str()) {
        (CellState::Refused, "") => "refused",
        (CellState::NoCost, _) => "no cost",
        (CellState::NoAnswer, _) => "no answer",
        (_, text) => text,
    };
    html! {
        td class={ "cell " (class(cell.state)) } data-th=(rule) title=[cost.as_ref()] {
            @if let Some(cost) = cost.as_ref().filter(|_| text.is_empty()) { (cost) } @else { (text) }
            @if let CellState::Scaled(level) = cell.state { " " small { (level) "/10" } }
        }
    }
}
