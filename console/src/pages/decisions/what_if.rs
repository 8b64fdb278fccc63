//! Plans a recorded round again with other weights.

use serde::Serialize;
use tautline_scheduler_extender::explain::{Record, RecordedAnswers, RuleRecord};

use super::order::ranks;
use crate::request::{PageRequest, PageResult};

/// The largest weight of a rule in the API.
const MAX_WEIGHT: u32 = 1000;
/// The maximum number of nodes in the shown order.
const MAX_SHOWN_NODES: usize = 10;
/// The maximum number of sliders. Rules without costs have no slider.
const MAX_SLIDERS: usize = 16;
/// The prefix of the query's fields with weights.
pub(super) const PREFIX: &str = "weight.";

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
pub(super) fn field(rule: &RuleRecord) -> String {
    format!("{PREFIX}{}.{}", rule.offer, rule.rule)
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
        let of_costs = record
            .rules
            .iter()
            .filter(|r| r.outcome == "OK")
            .take(MAX_SLIDERS);
        let weights = of_costs.map(|rule| {
            let weight = weight(request, rule)?;
            Ok(Weight {
                offer: rule.offer.clone(),
                rule: rule.rule.clone(),
                recorded: rule.weight,
                weight,
                max: 10
                    .max(rule.weight.saturating_mul(2))
                    .max(weight)
                    .min(MAX_WEIGHT),
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
