//! Ranks the nodes of a round, and plans it again with other weights.

use maud::{Markup, html};
use serde::Serialize;
use tautline_core::planning::Plan;
use tautline_scheduler_extender::explain::{Record, RecordedAnswers, RuleRecord};

use crate::{
    form,
    links::link,
    request::{PageRequest, PageResult, WEIGHT_PREFIX},
    table::{name, number, table},
};

/// The largest weight of a rule in the API.
const MAX_WEIGHT: u32 = 1000;
/// The maximum number of nodes in the shown order.
const MAX_SHOWN_NODES: usize = 10;
/// The maximum number of sliders. Rules without costs have no slider.
const MAX_SLIDERS: usize = 16;

/// The order with the weights of the query, compared with the recorded one.
#[derive(Debug, Serialize)]
pub(super) struct WhatIf {
    pub weights: Vec<Weight>,
    /// True if a weight differs from the recorded one.
    pub changed: bool,
    /// The best nodes with these weights; empty unless a weight has changed.
    pub nodes: Vec<Moved>,
    /// The number of nodes whose rank differs.
    pub moved: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Weight {
    pub offer: String,
    pub rule: String,
    pub recorded: u32,
    pub weight: u32,
    /// The largest value of the slider.
    #[serde(skip)]
    pub max: u32,
    #[serde(skip)]
    pub field: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Moved {
    pub node: String,
    pub rank: usize,
    pub recorded_rank: usize,
    pub score: u8,
    pub recorded_score: u8,
}

/// Returns the name of the query's field with a rule's weight.
fn field(rule: &RuleRecord) -> String {
    format!("{WEIGHT_PREFIX}{}.{}", rule.offer, rule.rule)
}

fn weight(request: &PageRequest, rule: &RuleRecord) -> PageResult<u32> {
    let weight = request.number::<u32>(&field(rule))?;
    Ok(weight.unwrap_or(rule.weight).min(MAX_WEIGHT))
}

impl WhatIf {
    pub fn new(
        request: &PageRequest,
        record: &Record,
        answers: &RecordedAnswers<'_>,
        recorded_ranks: &[Option<usize>],
    ) -> PageResult<Self> {
        let of_costs = record.rules.iter().filter(|r| r.outcome == "OK");
        let of_costs = of_costs.take(MAX_SLIDERS);
        let weights = of_costs.map(|rule| {
            let weight = weight(request, rule)?;
            let max = weight.max(rule.weight.saturating_mul(2)).max(10);
            Ok(Weight {
                offer: rule.offer.clone(),
                rule: rule.rule.clone(),
                recorded: rule.weight,
                weight,
                max: max.min(MAX_WEIGHT),
                field: field(rule),
            })
        });
        let weights = weights.collect::<PageResult<Vec<Weight>>>()?;
        let changed = weights.iter().any(|w| w.weight != w.recorded);
        let mut what_if = Self {
            weights,
            changed,
            nodes: Vec::new(),
            moved: 0,
        };
        if changed {
            // Invalid fields were reported above.
            let plan = answers.plan(|rule| weight(request, rule).unwrap_or(rule.weight));
            let new = ranks(&plan);
            let pairs = new.iter().zip(recorded_ranks).enumerate();
            let usable = pairs.filter_map(|(at, (new, old))| Some((at, (*new)?, (*old)?)));
            let mut both: Vec<(usize, usize, usize)> = usable.collect();
            what_if.moved = both.iter().filter(|(_, new, old)| new != old).count();
            both.sort_by_key(|(_, new, old)| (*new, *old));
            let moved = |(at, rank, recorded_rank): (usize, usize, usize)| Moved {
                node: record.nodes[at].node.clone(),
                rank,
                recorded_rank,
                score: plan.verdicts[at].score(),
                recorded_score: record.nodes[at].score,
            };
            what_if.nodes = both.into_iter().take(MAX_SHOWN_NODES).map(moved).collect();
        }
        Ok(what_if)
    }
}

/// Returns the rank of each node by position: 1 is the best, nodes that tie share a rank, and
/// unusable nodes have `None`.
fn ranks(plan: &Plan) -> Vec<Option<usize>> {
    let mut usable: Vec<usize> = plan.usable().collect();
    usable.sort_by_key(|at| plan.verdicts[*at].rank());
    let mut ranks = vec![None; plan.verdicts.len()];
    let mut before: Option<(usize, usize)> = None;
    for (i, at) in usable.into_iter().enumerate() {
        let rank = match before {
            Some((last, rank)) if plan.verdicts[last].rank() == plan.verdicts[at].rank() => rank,
            _ => i + 1,
        };
        ranks[at] = Some(rank);
        before = Some((at, rank));
    }
    ranks
}

/// Returns the ranks of a record's nodes. If offers of the underlay made nodes usable, the ranks
/// follow the order of the record.
pub(super) fn recorded_ranks(record: &Record, plan: &Plan) -> Vec<Option<usize>> {
    let ranks = ranks(plan);
    let mut both = record.nodes.iter().zip(&ranks);
    if both.all(|(node, rank)| node.usable == rank.is_some()) {
        return ranks;
    }
    let by_order = record.nodes.iter().enumerate();
    by_order
        .map(|(i, node)| node.usable.then_some(i + 1))
        .collect()
}

pub(super) fn section(what_if: &WhatIf, request: &PageRequest) -> Markup {
    if what_if.weights.is_empty() {
        return html! {};
    }
    let others = || request.fields(|name| !name.starts_with(WEIGHT_PREFIX));
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
            (table(("Order with these weights", "what-if"), &what_if.nodes, &[
                number("Rank, what-if", &|node| html! { b { (node.rank) } (change(node)) }),
                name("Node", &|node| html! { (node.node) }),
                number("Score, what-if", &|node| html! { (node.score) }),
                number("Recorded rank", &|node| html! { (node.recorded_rank) }),
                number("Recorded score", &|node| html! { (node.recorded_score) }),
            ]))
        }
    }
}

fn change(node: &Moved) -> &'static str {
    match node.rank.cmp(&node.recorded_rank) {
        std::cmp::Ordering::Less => " ▲",
        std::cmp::Ordering::Equal => "",
        std::cmp::Ordering::Greater => " ▼",
    }
}
