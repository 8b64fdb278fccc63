//! Renders the pairs that active rules name, the worst first.

use maud::{Markup, html};
use tautline_latency::report::{
    Basis, TopPair, TopReport,
    units::{age, percent, short},
    words::marked_figure,
};

use crate::table::{Number, Text, table};

pub(super) fn render(report: &TopReport) -> Markup {
    html! {
        @if report.pairs.is_empty() {
            p .note {
                "No active rule of latency names a pair of nodes. Bindings are evaluated every period of their offer; "
                a href="/policies" { "Policies" } " shows the offers."
            }
        } @else {
            (table(
                [Text("Compliance"), Text("Pair"), Text("Rule"), Number("RTT"), Number("Request"), Number("Limit"),
                    Number("Of the limit"), Number("Directions apart"), Number("Last sample")],
                &html! { @for pair in &report.pairs { (row(pair)) } },
            ))
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

fn row(pair: &TopPair) -> Markup {
    let figure = |micros: Option<u64>| micros.map_or("-".to_owned(), short);
    let rtt = match pair.effective.basis {
        Basis::Unreachable => "unreachable".to_owned(),
        Basis::Same => "0".to_owned(),
        _ => marked_figure(pair.effective),
    };
    html! {
        tr {
            td { span class={ "state " (tone(&pair.compliance)) } { (pair.compliance) } }
            th scope="row" {
                a href=(super::pair_link(&pair.from, &pair.to)) {
                    (pair.from) " – " (pair.to)
                }
            }
            td { (pair.rule) }
            td .number { (rtt) }
            td .number { (figure(pair.request_micros)) }
            td .number { (figure(pair.limit_micros)) }
            td .number { (pair.limit_share.map_or("-".to_owned(), percent)) }
            td .number { (pair.apart.map_or("-".to_owned(), percent)) }
            td .number { @if let Some(micros) = pair.age_micros { (age(micros)) " ago" } @else { "-" } }
        }
    }
}

/// Returns the CSS class for the colour of a compliance.
pub(super) fn tone(compliance: &str) -> &'static str {
    match compliance {
        "Compliant" => "good",
        "Limit" => "near",
        "Violation" | "Error" => "bad",
        _ => "none",
    }
}
