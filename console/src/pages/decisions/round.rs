//! One planning round of a pod, and its rules with the answers of their providers.

use std::{cmp::Reverse, collections::BTreeMap};

use maud::{Markup, html};
use serde::Serialize;
use tautline_scheduler_extender::explain::{
    AnswerRecord, Record, RecordedAnswers, RuleRecord, UnderlayRecord,
};

use super::{
    matrix::{Decision, Row, cost_text, unit},
    pod_state::Excluded,
    what_if::{WhatIf, recorded_ranks},
    why_not::WhyNot,
};
use crate::{
    draw::{self, clean},
    links,
    request::{PageRequest, PageResult},
    table::{Window, frame},
};

const MAX_RULES: usize = 40;
/// The maximum number of rules with a column in the matrix; `rule=NAME` shows others.
const MAX_COLUMNS: usize = 5;
const MAX_REASONS: usize = 12;
const MAX_VALUE_CHARS: usize = 120;
/// The maximum number of nodes that are named for one reason of Kubernetes.
const MAX_FOLDED_NODES: usize = 40;
const UNKNOWN_REASON: &str = "not in the request, for a reason not known";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Round {
    pub at_unix_millis: u64,
    pub took_micros: u64,
    pub usable: usize,
    /// The number of nodes in kube-scheduler's request.
    pub asked: usize,
    /// The number of the cluster's nodes that were not in the request.
    pub not_asked: usize,
    pub answer: AnswerRecord,
    pub rules: Vec<Rule>,
    pub rules_left_out: usize,
    /// The reasons why nodes are not usable, the most frequent first.
    pub reasons: Vec<Reason>,
    pub why_not: Option<WhyNot>,
    /// The nodes that were not in the request, by reason; empty unless all nodes are shown.
    pub excluded: Vec<ExcludedNodes>,
    /// The names of the rules with a column.
    pub columns: Vec<String>,
    pub nodes: Window<Row>,
    pub what_if: WhatIf,
    pub underlay: Option<UnderlayRecord>,
}

#[derive(Debug, Serialize)]
pub(super) struct Rule {
    #[serde(flatten)]
    pub record: RuleRecord,
    /// The lowest cost of the usable nodes; absent without costs.
    pub lowest: Option<i64>,
    /// The highest cost of the usable nodes; absent without costs.
    pub highest: Option<i64>,
    pub unit: Option<&'static str>,
    /// True if the costs differ by more than their resolution, so that the rule affects the order.
    pub decides: bool,
    pub refused: usize,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reason {
    pub reason: String,
    pub nodes: usize,
    /// True if Kubernetes' own rules exclude the nodes, or if the reason is not known.
    pub by_kubernetes: bool,
}

/// The nodes that are excluded for one reason.
#[derive(Debug, Serialize)]
pub(super) struct ExcludedNodes {
    pub reason: String,
    /// The names of the first nodes.
    pub nodes: Vec<String>,
    pub total: usize,
}

/// The choice of the nodes to show.
#[derive(Clone, Copy)]
pub(super) enum Show {
    All,
    Usable,
    Refused,
    NotAsked,
}

/// The choices by the values of the field `show`, with their texts; the first is the default.
pub(super) const SHOWS: [(&str, Show, &str); 4] = [
    ("all", Show::All, "all"),
    ("usable", Show::Usable, "usable"),
    ("refused", Show::Refused, "refused by a rule"),
    (
        "notAsked",
        Show::NotAsked,
        "excluded by Kubernetes, or not in the request",
    ),
];

impl Round {
    pub fn new(
        request: &PageRequest,
        record: &Record,
        excluded: &[Excluded],
        node: Option<&str>,
    ) -> PageResult<Self> {
        let answers = RecordedAnswers::new(record);
        let (plan, scales) = (answers.plan(|r| r.weight), answers.scales());
        let ranks = recorded_ranks(record, &plan);
        let decision = Decision {
            record,
            scales: &scales,
            ranks: &ranks,
            excluded,
            node,
        };
        let columns = columns(request, record);
        let node = request.field("node");
        let show = request.choice("show", &SHOWS.map(|(name, show, _)| (name, show)))?;
        let show = show.unwrap_or(Show::All);
        let rows = shown(show, record, excluded);
        let folded = match show {
            Show::All => excluded_nodes(excluded),
            _ => Vec::new(),
        };
        let rules = record.rules.iter().enumerate().take(MAX_RULES);
        let names = columns.iter().map(|i| record.rules[*i].rule.clone());
        Ok(Self {
            at_unix_millis: record.at_unix_millis,
            took_micros: record.took_micros,
            usable: record.usable,
            asked: record.nodes.len(),
            not_asked: excluded.len(),
            answer: record.answer.clone(),
            rules: rules.map(|(i, rule)| decision.rule(i, rule)).collect(),
            rules_left_out: record.rules.len().saturating_sub(MAX_RULES),
            reasons: reasons(record, excluded),
            why_not: node.map(|node| WhyNot::new(&decision, node.trim())),
            excluded: folded,
            columns: names.collect(),
            nodes: Window::new(request, &rows, |at| {
                match at.checked_sub(record.nodes.len()) {
                    None => decision.row(*at, &columns),
                    Some(at) => Row::excluded(&excluded[at]),
                }
            })?,
            what_if: WhatIf::new(request, record, &answers, &ranks)?,
            underlay: record.underlay.clone(),
        })
    }
}

/// Returns the positions of the shown nodes: first those of the record, then the excluded ones.
fn shown(show: Show, record: &Record, excluded: &[Excluded]) -> Vec<usize> {
    let is_shown = |at: &usize| {
        let usable = record.nodes.get(*at).map(|node| node.usable);
        match show {
            Show::All => usable.is_some(),
            Show::Usable => usable == Some(true),
            Show::Refused => usable == Some(false),
            Show::NotAsked => usable.is_none(),
        }
    };
    let all = 0..record.nodes.len() + excluded.len();
    all.filter(is_shown).collect()
}

/// Groups the excluded nodes by their reason. The reason with the most nodes is first.
fn excluded_nodes(excluded: &[Excluded]) -> Vec<ExcludedNodes> {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in excluded {
        let reason = node.reason.as_deref().unwrap_or(UNKNOWN_REASON);
        by_reason.entry(reason).or_default().push(&node.node);
    }
    let all = by_reason.into_iter().map(|(reason, nodes)| ExcludedNodes {
        reason: clean(reason, MAX_VALUE_CHARS),
        total: nodes.len(),
        nodes: nodes
            .into_iter()
            .take(MAX_FOLDED_NODES)
            .map(str::to_owned)
            .collect(),
    });
    let mut all: Vec<ExcludedNodes> = all.collect();
    all.sort_by_key(|e| Reverse(e.total));
    all.truncate(MAX_REASONS);
    all
}

fn columns(request: &PageRequest, record: &Record) -> Vec<usize> {
    let wanted = |rule: &RuleRecord| request.field("rule").is_none_or(|name| name == rule.rule);
    let rules = 0..record.rules.len();
    let columns = rules.filter(|rule| wanted(&record.rules[*rule]));
    columns.take(MAX_COLUMNS).collect()
}

fn reasons(record: &Record, excluded: &[Excluded]) -> Vec<Reason> {
    let refused = record.nodes.iter().filter_map(|n| n.reason.as_deref());
    let excluded = excluded
        .iter()
        .map(|e| e.reason.as_deref().unwrap_or(UNKNOWN_REASON));
    Reason::count(
        refused
            .map(|reason| (false, reason))
            .chain(excluded.map(|reason| (true, reason))),
    )
}

impl Reason {
    /// Counts the nodes by their reasons, each with its `by_kubernetes`; the most frequent first.
    pub fn count<'a>(nodes: impl Iterator<Item = (bool, &'a str)>) -> Vec<Self> {
        let mut counts: BTreeMap<(bool, &str), usize> = BTreeMap::new();
        for reason in nodes {
            *counts.entry(reason).or_default() += 1;
        }
        let reason = |((by_kubernetes, reason), nodes): ((bool, &str), usize)| Self {
            reason: clean(reason, MAX_VALUE_CHARS),
            nodes,
            by_kubernetes,
        };
        let mut all: Vec<Self> = counts.into_iter().map(reason).collect();
        all.sort_by_key(|r| Reverse(r.nodes));
        all.truncate(MAX_REASONS);
        all
    }
}

impl Decision<'_> {
    fn rule(&self, i: usize, rule: &RuleRecord) -> Rule {
        let scale = self.scales.get(i).and_then(Option::as_ref);
        let nodes = self.record.nodes.iter();
        let costs = nodes.filter_map(|n| n.costs.get(i)?.cost);
        Rule {
            record: rule.clone(),
            lowest: scale.map(|s| s.low),
            highest: scale.map(|s| s.high),
            unit: unit(&rule.rule),
            decides: scale.is_some_and(|s| s.decides),
            refused: costs.filter(|cost| *cost < 0).count(),
        }
    }
}

/// Renders the rules of a round.
pub(super) fn rules(round: &Round, request: &PageRequest, namespace: &str) -> Markup {
    let times = round.rules.iter().map(|r| r.record.took_micros);
    let longest = times.max().unwrap_or(0).max(1);
    html! {
        h2 { "Rules and providers" }
        (frame(
            ("Rules and providers", "wide"),
            [("", "Rule"), ("", "Request"), ("", "Limit"), ("", "Provider"), ("", "Outcome"), ("number", "Costs"),
                ("number", "Weight"), ("", "Time")],
            &html! { tbody { @for rule in &round.rules { (rule_row(rule, longest, request, namespace)) } } },
        ))
        @if round.rules_left_out > 0 { p .dim { "and " (round.rules_left_out) " more rules" } }
    }
}

fn rule_row(rule: &Rule, longest: u64, request: &PageRequest, namespace: &str) -> Markup {
    let record = &rule.record;
    html! {
        tr {
            th scope="row" {
                a href=(request.link("rule", Some(&record.rule))) title="Only its column" { (record.rule) }
                " " span .dim {
                    "of " a href=(links::offer(namespace, &record.offer)) { (record.offer) }
                }
            }
            td data-th="Request" { (record.request) }
            td data-th="Limit" { (record.limit) }
            td data-th="Provider" { @match &record.provider {
                Some(provider) => (provider),
                None => span .dim { "none" },
            } }
            td data-th="Outcome" { (outcome(rule)) }
            td .number data-th="Costs" { (range(rule)) }
            td .number data-th="Weight" { (record.weight) @if !rule.decides && rule.lowest.is_some() { " " span .dim { "no part" } } }
            td data-th="Time" { (time(rule, longest)) }
        }
        @if let Some(error) = &record.error { tr { td colspan="8" { span .error { (error) } } } }
    }
}

fn outcome(rule: &Rule) -> Markup {
    html! {
        @if rule.record.outcome == "OK" {
            span .state.good { "answered" }
            @if rule.refused > 0 { " " (rule.refused) " refused" }
        } @else {
            span .state.bad { (rule.record.outcome) }
            " " (if rule.record.counted { "so no node is usable" } else { "so the rule is left out" })
        }
    }
}

fn range(rule: &Rule) -> String {
    let text = |cost: i64| match rule.unit {
        Some(_) => cost_text(&rule.record.rule, cost),
        None => rounded(cost),
    };
    match (rule.lowest, rule.highest) {
        (Some(low), Some(high)) if low == high => text(low),
        (Some(low), Some(high)) => format!("{} to {}", text(low), text(high)),
        _ => String::new(),
    }
}

/// Formats a cost without a unit: in full below 100,000, otherwise with three significant digits.
fn rounded(cost: i64) -> String {
    const STEPS: [(i64, &str); 4] = [
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    let step = STEPS.iter().find(|(step, _)| cost >= *step);
    let Some((step, sign)) = step.filter(|_| cost >= 100_000) else {
        return cost.to_string();
    };
    let hundredths = cost / (step / 100);
    match hundredths {
        0..1_000 => format!("{}.{:02}{sign}", hundredths / 100, hundredths % 100),
        1_000..10_000 => format!("{}.{}{sign}", hundredths / 100, hundredths / 10 % 10),
        _ => format!("{}{sign}", hundredths / 100),
    }
}

fn time(rule: &Rule, longest: u64) -> Markup {
    if let Some(age) = rule.record.age_micros {
        return html! { span .dim { "sent before, " (draw::micros(age)) " old" } };
    }
    html! {
        svg .bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" {
            rect class="u-used" width=((rule.record.took_micros.saturating_mul(100) / longest).max(1)) height="10" {}
        }
        " " (draw::micros(rule.record.took_micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_has_three_figures() {
        for (cost, text) in [
            (0, "0"),
            (99_999, "99999"),
            (123_456, "123k"),
            (1_234_567, "1.23M"),
            (29_305_602_048, "29.3G"),
            (i64::MAX, "9223372T"),
        ] {
            assert_eq!(rounded(cost), text);
        }
    }
}
