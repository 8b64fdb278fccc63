use maud::{Markup, html};

use crate::{
    form,
    pages::decisions::what_if::{Moved, PREFIX, Weight, WhatIf},
    request::{PageRequest, link},
    table::{Number, Text, styled_table},
};

pub(super) fn section(what_if: &WhatIf, request: &PageRequest) -> Markup {
    if what_if.weights.is_empty() {
        return html! {};
    }
    let others = || request.fields(|name| !name.starts_with(PREFIX));
    html! {
        h2 { "What if the weights were others?" }
        p .dim {
            "Plans again from the costs of this round; nothing in the cluster changes. The weight is a field of a policy's rule."
        }
        form .sliders action=(request.path) hx-get=(request.path) hx-trigger="change, submit" hx-select="#live"
            hx-target="#live" hx-swap="outerHTML" hx-push-url="true" {
            @for (name, value) in others() { (form::hidden(name, value)) }
            @for (i, weight) in what_if.weights.iter().enumerate() { (slider(i, weight)) }
            button type="submit" { "Plan again" }
            @if what_if.changed { " " a href=(link(&request.path, others())) { "Recorded weights" } }
        }
        @if what_if.changed { (order(what_if)) }
    }
}

fn slider(i: usize, weight: &Weight) -> Markup {
    let id = format!("weight-{i}");
    html! {
        div {
            label for=(id) {
                (weight.rule) " of " (weight.offer) ": " b { (weight.weight) }
                @if weight.weight != weight.recorded { " (recorded " (weight.recorded) ")" }
            }
            input id=(id) type="range" name=(weight.field) min="0" max=(weight.max) step="1" value=(weight.weight);
        }
    }
}

fn order(what_if: &WhatIf) -> Markup {
    html! {
        p role="status" {
            span .state.near { "what-if" } " "
            @match what_if.moved {
                0 => "The order stays the same with these weights.",
                1 => "One node has another rank with these weights.",
                moved => { (moved) " nodes have another rank with these weights." },
            }
        }
        @if !what_if.nodes.is_empty() {
            (styled_table(
                "Order with these weights",
                "what-if",
                [Number("Rank, what-if"), Text("Node"), Number("Score, what-if"), Number("Recorded rank"),
                    Number("Recorded score")],
                &html! { @for node in &what_if.nodes { (row(node)) } },
            ))
        }
    }
}

fn row(node: &Moved) -> Markup {
    let change = match node.rank.cmp(&node.recorded_rank) {
        std::cmp::Ordering::Less => " ▲",
        std::cmp::Ordering::Equal => "",
        std::cmp::Ordering::Greater => " ▼",
    };
    html! {
        tr {
            td .number { b { (node.rank) } (change) }
            th scope="row" { (node.node) }
            td .number { (node.score) }
            td .number { (node.recorded_rank) }
            td .number { (node.recorded_score) }
        }
    }
}
