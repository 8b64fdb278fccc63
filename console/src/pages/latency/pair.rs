//! `/latency/pair/A/B` shows all that is known about two nodes.

use maud::{Markup, html};
use serde::Serialize;
use tautline_latency::report::{
    ActiveRule, Basis, Direction, End, PairReport, State,
    units::{age, exact},
    words,
};

use crate::{
    admin::{Missing, latency_report},
    console::quote,
    draw::{badge, state},
    links::{self, link},
    request::{PageError, PageRequest, PageResult},
    table::{name, number, table, text},
};

/// The minimum number of samples for a meaningful percentile.
const MIN_JITTER_SAMPLES: u32 = 20;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    report: PairReport,
    /// The jitter of each direction, which is p95 less p50, in microseconds; absent below 20
    /// samples.
    jitter_micros: Vec<Option<u64>>,
    rules: Vec<RuleNow>,
}

/// An active rule, and the compliance by the current figure.
#[derive(Debug, Serialize)]
struct RuleNow {
    #[serde(flatten)]
    rule: ActiveRule,
    level: &'static str,
}

pub(in super::super) async fn page(request: &PageRequest, from: &str, to: &str) -> PageResult {
    let path = link("/latency/pair", [("from", from), ("to", to)]);
    let report = latency_report::<PairReport>(&*request.console.source, &path).await;
    let report = report.map_err(|missing| match missing {
        Missing::Unknown(text) => PageError::absent(text),
        Missing::Failed(error) => PageError::from(
            error.context("no latency provider answers; `tautline doctor` checks the installation"),
        ),
    })?;
    let view = View::new(report);
    let ends = [&view.report.from, &view.report.to];
    let [from, to] = ends.map(|end| &end.node);
    let title = format!("{from} – {to}");
    let command = format!("latency pair {} {}", quote(from), quote(to));
    request.respond(&title, &command, &view, render)
}

impl View {
    fn new(report: PairReport) -> Self {
        let jitter_micros: Vec<_> = report.directions.iter().map(jitter).collect();
        let rules = report.named_by.iter().map(|rule| RuleNow {
            level: level(&report, rule, &jitter_micros),
            rule: rule.clone(),
        });
        Self {
            rules: rules.collect(),
            jitter_micros,
            report,
        }
    }
}

fn jitter(d: &Direction) -> Option<u64> {
    let both = d.p50_micros.zip(d.p95_micros);
    let (p50, p95) = both.filter(|_| d.samples >= MIN_JITTER_SAMPLES)?;
    Some(p95.saturating_sub(p50).max(1))
}

/// Returns the compliance with a rule by the current figure. Only measured and configured figures
/// count; without one the result is Error.
fn level(report: &PairReport, rule: &ActiveRule, jitter: &[Option<u64>]) -> &'static str {
    let figure = match (rule.rule.as_str(), report.effective.basis) {
        (_, Basis::Unreachable) => return "Violation",
        ("jitter", _) => jitter.iter().flatten().max().copied(),
        (_, Basis::Same | Basis::Measured | Basis::Configured) => report.effective.rtt_micros,
        _ => None,
    };
    let Some(micros) = figure else {
        return "Error";
    };
    let within = |bound: Option<u64>| bound.is_none_or(|bound| micros <= bound);
    match (within(rule.request_micros), within(rule.limit_micros)) {
        (_, false) => "Violation",
        (true, true) => "Compliant",
        (false, true) => "Limit",
    }
}

fn render(view: &View) -> Markup {
    let report = &view.report;
    html! {
        p { a href="/latency" { "All zones" } @for end in [&report.from, &report.to] { " · " (end_link(end)) } }
        p .lead { b { (words::figure_and_basis(report.effective)) } }
        p { span .dim { "Why: " } (words::why(report)) "." }
        @if !report.directions.is_empty() {
            h2 { "Both directions" }
            (directions(view))
        }
        h2 { "Active rules" }
        (rules(view))
        h2 { "Also known" }
        dl .facts {
            @if !report.directions.is_empty() {
                dt { "Both directions" } dd { (or_dash(words::both_directions(report))) }
            }
            dt { "Predicted" } dd { (or_dash(report.estimate.map(words::estimate).unwrap_or_default())) }
            dt { "From a table" } dd { (or_dash(report.configured_micros.map(exact).unwrap_or_default())) }
            @for end in [&report.from, &report.to] {
                dt { (end.node) } dd { (words::end(end)) }
            }
        }
    }
}

fn end_link(end: &End) -> Markup {
    html! {
        @if end.outside { (end.node) } @else { a href=(links::latency(&end.node)) { (end.node) } }
        @if let Some(zone) = &end.zone {
            " in zone " a href=(link("/latency", [("zone", zone.as_str())])) { (zone) }
        }
    }
}

fn directions(view: &View) -> Markup {
    let rows: Vec<_> = view
        .report
        .directions
        .iter()
        .zip(&view.jitter_micros)
        .collect();
    table(
        ("", ""),
        &rows,
        &[
            name("From", &|(d, _)| html! { (d.from) }),
            text("State", &|(d, _)| state(tone(d.state), &words::state(d))),
            number("Median", &|(d, _)| figure(d.median_micros)),
            text("After the last visits", &|(d, _)| {
                let windows: Vec<String> = d.window_micros.iter().copied().map(exact).collect();
                html! { (or_dash(windows.join(", "))) }
            }),
            number("p50", &|(d, _)| figure(d.p50_micros)),
            number("p95", &|(d, _)| figure(d.p95_micros)),
            number("Jitter", &|(_, jitter)| figure(**jitter)),
            text("Loss", &|(d, _)| html! { (loss(d)) }),
            number("Samples", &|(d, _)| html! { (d.samples) }),
            number("Last sample", &|(d, _)| match d.age_micros {
                Some(micros) => html! { (age(micros)) " ago" },
                None => html! { "-" },
            }),
            number("Visited every", &|(d, _)| figure(d.refresh_micros)),
        ],
    )
}

fn tone(state: State) -> &'static str {
    match state {
        State::Measured => "good",
        State::Stale => "near",
        State::Unreachable => "bad",
        State::Nothing => "none",
    }
}

fn loss(d: &Direction) -> &'static str {
    match d.state {
        State::Unreachable => "three and more in a row",
        State::Measured if d.by_connect => "of UDP echoes; connects are answered",
        State::Measured => "not three in a row",
        State::Stale | State::Nothing => "-",
    }
}

fn rules(view: &View) -> Markup {
    html! {
        @if view.rules.is_empty() {
            p .note {
                "No active rule names this pair, so agents visit it rarely. Rules of "
                a href="/policies" { "policies" } " name the pairs of the pods that they govern."
            }
        } @else {
            (table(("", ""), &view.rules, &[
                text("Now", &|row| badge(row.level)),
                name("Rule", &|row| html! { (row.rule.rule) }),
                number("Request", &|row| figure(row.rule.request_micros)),
                number("Limit", &|row| figure(row.rule.limit_micros)),
            ]))
            p .dim { a href="/bindings?compliance=Violation" { "Bindings in violation" } " have the pods." }
        }
    }
}

fn figure(micros: Option<u64>) -> Markup {
    html! { (micros.map_or("-".to_owned(), exact)) }
}

fn or_dash(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}
