//! One planning round of a pod.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use tautline_scheduler_extender::explain::{Record, RecordedAnswers, RuleRecord, UnderlayRecord};

use super::{
    fitting::Excluded,
    matrix::{Decision, MapRow, Row, unit},
    what_if::{WhatIf, recorded_ranks},
    why_not::WhyNot,
};
use crate::{
    draw::clean,
    request::{PageRequest, PageResult},
    table::Window,
};

const MAX_RULES: usize = 40;
/// The maximum number of rules with a column in the matrix; `rule=NAME` shows others.
const MAX_COLUMNS: usize = 5;
const MAX_NODES: usize = 8;
const MAX_REASONS: usize = 12;
const MAX_VALUE_CHARS: usize = 120;

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
    pub answer: Answer,
    pub rules: Vec<Rule>,
    pub rules_left_out: usize,
    /// The reasons why nodes are not usable, the most frequent first.
    pub reasons: Vec<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<WhyNot>,
    /// The names of the rules with a column.
    pub columns: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub map: Vec<MapRow>,
    pub nodes: Window<Row>,
    pub what_if: WhatIf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub underlay: Option<UnderlayRecord>,
}

/// The answer of the extender's filter to kube-scheduler.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub mode: String,
    pub nodes: Vec<String>,
    pub more: usize,
    pub tied: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Rule {
    #[serde(flatten)]
    pub record: RuleRecord,
    /// The lowest cost of the usable nodes; absent without costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lowest: Option<i64>,
    /// The highest cost of the usable nodes; absent without costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highest: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
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
        let rows = shown(show.unwrap_or(Show::All), record, excluded);
        let rules = record.rules.iter().enumerate().take(MAX_RULES);
        let names = columns.iter().map(|i| record.rules[*i].rule.clone());
        Ok(Self {
            at_unix_millis: record.at_unix_millis,
            took_micros: record.took_micros,
            usable: record.usable,
            asked: record.nodes.len(),
            not_asked: excluded.len(),
            answer: answer(record),
            rules: rules.map(|(i, rule)| decision.rule(i, rule)).collect(),
            rules_left_out: record.rules.len().saturating_sub(MAX_RULES),
            reasons: reasons(record, excluded),
            why_not: node.map(|node| WhyNot::new(&decision, node.trim())),
            columns: names.collect(),
            map: decision.map(&columns),
            nodes: Window::new(request, &rows, |row| match row {
                RowOf::Asked(at) => decision.row(*at, &columns),
                RowOf::Excluded(at) => Row::excluded(&excluded[*at]),
            })?,
            what_if: WhatIf::new(request, record, &answers, &ranks)?,
            underlay: record.underlay.clone(),
        })
    }
}

/// The position of a shown node in the record, or among the excluded nodes.
#[derive(Clone, Copy)]
enum RowOf {
    Asked(usize),
    Excluded(usize),
}

fn shown(show: Show, record: &Record, excluded: &[Excluded]) -> Vec<RowOf> {
    let is_shown = |at: &usize| match show {
        Show::All => true,
        Show::Usable => record.nodes[*at].usable,
        Show::Refused => !record.nodes[*at].usable,
        Show::NotAsked => false,
    };
    let asked = (0..record.nodes.len()).filter(is_shown).map(RowOf::Asked);
    let rest = matches!(show, Show::All | Show::NotAsked);
    let rest = (0..excluded.len()).filter(|_| rest).map(RowOf::Excluded);
    asked.chain(rest).collect()
}

fn columns(request: &PageRequest, record: &Record) -> Vec<usize> {
    let wanted = |rule: &RuleRecord| request.field("rule").is_none_or(|name| name == rule.rule);
    let rules = 0..record.rules.len();
    let columns = rules.filter(|rule| wanted(&record.rules[*rule]));
    columns.take(MAX_COLUMNS).collect()
}

fn answer(record: &Record) -> Answer {
    let nodes = &record.answer.nodes;
    Answer {
        mode: record.answer.mode.clone(),
        nodes: nodes.iter().take(MAX_NODES).cloned().collect(),
        more: nodes.len().saturating_sub(MAX_NODES),
        tied: record.answer.tied,
    }
}

fn reasons(record: &Record, excluded: &[Excluded]) -> Vec<Reason> {
    const UNKNOWN: &str = "not in the request, for a reason not known";
    let refused = record.nodes.iter().filter_map(|n| n.reason.as_deref());
    let excluded = excluded
        .iter()
        .map(|e| e.reason.as_deref().unwrap_or(UNKNOWN));
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
