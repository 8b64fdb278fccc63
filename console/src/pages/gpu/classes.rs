//! The common requests, and how many more of each fit.

use maud::{Markup, html};
use serde::Serialize;
use tautline_gpu_slice::report::{Fragmentation, format};

use crate::{
    draw::{cards_of, clean},
    table::{Number, Text, table},
};

/// The maximum number of rows on the page.
const MAX_CLASSES: usize = 20;
const MAX_TEXT_CHARS: usize = 160;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Classes {
    /// The requests, the most frequent first.
    pub rows: Vec<ClassRow>,
    pub total: usize,
    /// The number of pods with a known request.
    pub pods: usize,
    pub idle_milli: i64,
    pub nodes_with_cards: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClassRow {
    pub request: String,
    pub mode: String,
    /// The share of this request in all requests, from 0 to 1.
    pub share: f64,
    pub pods: usize,
    pub still_fit: i64,
    /// The idle thousandths of cards that the request cannot use.
    pub unusable_milli: i64,
    pub runs_in: usize,
    pub not_in: String,
}

impl Classes {
    pub(super) fn new(of: &Fragmentation) -> Self {
        let rows = of.classes.iter().take(MAX_CLASSES).map(|class| ClassRow {
            request: clean(&class.text, MAX_TEXT_CHARS),
            mode: class.lane.clone(),
            share: class.share,
            pods: class.pods.len(),
            still_fit: class.still_fit,
            unusable_milli: class.unusable_milli,
            runs_in: class.nodes.runs,
            not_in: class.nodes.others(),
        });
        Self {
            rows: rows.collect(),
            total: of.classes.len(),
            pods: of.counted.pods,
            idle_milli: of.idle_milli,
            nodes_with_cards: of.nodes_with_cards,
        }
    }
}

pub(super) fn render(classes: &Classes) -> Markup {
    html! {
        @if classes.rows.is_empty() {
            p .note { "No pod requests GPUs, so no request is expected and no idle GPU counts as useless." }
        } @else {
            p .dim {
                "The requests of " (format::count(classes.pods, "pod")) ", and how many more of each fit if no others come. "
                code { "tautline gpu fragmentation" } " prints them."
            }
            (table(
                [Text("Request"), Text("Mode"), Number("Share"), Number("Pods"), Number("Still fit"),
                    Number("Cannot use of the idle GPU"), Number("Runs in"), Text("Not in")],
                &html! { @for row in &classes.rows { (class_row(row, classes)) } },
            ))
            @if classes.total > classes.rows.len() {
                p .dim { "The most frequent " (classes.rows.len()) " of " (classes.total) "." }
            }
        }
    }
}

fn class_row(row: &ClassRow, classes: &Classes) -> Markup {
    let unusable = format::percent(row.unusable_milli as f64, classes.idle_milli as f64);
    html! {
        tr {
            th scope="row" { (row.request) }
            td { (row.mode) }
            td .number { (format::percent(row.share, 1.0)) }
            td .number { (row.pods) }
            td .number {
                @if row.still_fit == 0 { span .state.bad { "0" } } @else { (row.still_fit) }
            }
            td .number { (cards_of(row.unusable_milli)) " cards, " (unusable) }
            td .number { (row.runs_in) " of " (classes.nodes_with_cards) " nodes" }
            td .text { (row.not_in) }
        }
    }
}
