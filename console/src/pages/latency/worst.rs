//! The pairs that active rules name, the worst first.

use maud::{Markup, html};
use tautline_latency::report::{
    Basis, TopPair, TopReport,
    units::{age, percent, short},
    words::marked_figure,
};

use crate::draw::clean;

const MAX_NAME: usize = 80;

pub(super) fn render(report: &TopReport) -> Markup {
    html! {
        @if report.pairs.is_empty() {
            p .note {
                "No active rule of latency names a pair of nodes. Bindings are evaluated every period of their offer; "
                a href="/policies" { "Policies" } " shows the offers."
            }
        } @else {
            div .scroll {
                table {
                    thead {
                        tr {
                            th scope="col" { "Compliance" }
                            th scope="col" { "Pair" }
                            th scope="col" { "Rule" }
                            th .number scope="col" { "RTT" }
                            th .number scope="col" { "Request" }
                            th .number scope="col" { "Limit" }
                            th .number scope="col" { "Of the limit" }
                            th .number scope="col" { "Directions apart" }
                            th .number scope="col" { "Last sample" }
                        }
                    }
                    tbody { @for pair in &report.pairs { (row(pair)) } }
                }
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

fn row(pair: &TopPair) -> Markup {
    let figure = |micros: Option<u64>| micros.map_or("-".to_owned(), short);
    let rtt = match pair.effective.basis {
        Basis::Unreachable => "unreachable".to_owned(),
        Basis::Same => "0".to_owned(),
        _ => marked_figure(pair.effective),
    };
    html! {
        tr {
            td { span class={ "state " (tone(&pair.compliance)) } { (clean(&pair.compliance, 40)) } }
            th scope="row" {
                a href=(super::pair_link(&pair.from, &pair.to)) {
                    (clean(&pair.from, MAX_NAME)) " – " (clean(&pair.to, MAX_NAME))
                }
            }
            td { (clean(&pair.rule, 40)) }
            td .number { (rtt) }
            td .number { (figure(pair.request_micros)) }
            td .number { (figure(pair.limit_micros)) }
            td .number { (pair.limit_share.map_or("-".to_owned(), percent)) }
            td .number { (pair.apart.map_or("-".to_owned(), percent)) }
            td .number { @if let Some(micros) = pair.age_micros { (age(micros)) " ago" } @else { "-" } }
        }
    }
}

/// The colour of a level of compliance.
pub(super) fn tone(compliance: &str) -> &'static str {
    match compliance {
        "Compliant" => "good",
        "Limit" => "near",
        "Violation" | "Error" => "bad",
        _ => "none",
    }
}
