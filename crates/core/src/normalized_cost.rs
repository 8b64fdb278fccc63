//! The normalized cost of each node: one mean over the costs of several rules.
//!
//! Integer arithmetic makes results independent of order and units: costs become fractions
//! `floor((cost - lowest) x 2^62 / (highest - lowest))`.
//!
//! Differences up to a provider's resolution, and tie-breaks, count only where the mean leaves
//! nodes equal: scaled like a cost they would weigh as much as a whole rule.

use crate::{
    costs::Costs,
    rule_answer::{RuleAnswer, RuleOutcome},
};

pub(crate) const ONE: u64 = 1 << 62;

struct Scale<'a> {
    offer: usize,
    rule: &'a str,
    weight: u128,
    costs: &'a Costs,
    net: bool,
    /// See [`RuleAnswer::equal_up_to`].
    equal_up_to: Option<i64>,
    /// The costs by position; only those of usable nodes count.
    values: Vec<i64>,
    low: i64,
    span: u64,
    significant: u64,
}

impl<'a> Scale<'a> {
    fn raw(answer: &RuleAnswer<'a>, usable: &[bool]) -> Option<Self> {
        Self::new(answer, usable, false, 0)
    }

    fn net(answer: &RuleAnswer<'a>, usable: &[bool]) -> Option<Self> {
        let resolution = match answer.outcome {
            RuleOutcome::Costs(costs) => u64::try_from(costs.resolution).unwrap_or(0),
            RuleOutcome::Unavailable { .. } => 0,
        };
        Self::new(answer, usable, true, resolution)
    }

    fn new(answer: &RuleAnswer<'a>, usable: &[bool], net: bool, resolution: u64) -> Option<Self> {
        let RuleOutcome::Costs(costs) = answer.outcome else {
            return None;
        };
        let mut scale = Self {
            offer: answer.offer,
            rule: answer.rule,
            weight: answer.weight.into(),
            costs,
            net: net && costs.has_tie_breaks(),
            equal_up_to: answer.equal_up_to(),
            values: Vec::new(),
            low: i64::MAX,
            span: 0,
            significant: 0,
        };
        let mut high = i64::MIN;
        let mut value = |at: usize| {
            if !usable[at] {
                return 0;
            }
            let cost = scale.cost(at);
            (scale.low, high) = (scale.low.min(cost), high.max(cost));
            cost
        };
        scale.values = (0..usable.len()).map(&mut value).collect();
        if scale.low > high {
            return None;
        }
        scale.span = high.abs_diff(scale.low);
        scale.significant = scale.span.saturating_sub(resolution);
        Some(scale)
    }

    fn provider_cost(&self, at: usize, net: bool) -> i64 {
        let cost = self.costs.get(at).unwrap_or(i64::MIN);
        match net {
            true => cost - self.costs.tie_break(at),
            false => cost,
        }
    }

    /// Nodes within the request cost as much as one that just meets it: they are equal with and
    /// without tie-breaks, and any node beyond the request costs more.
    fn cost(&self, at: usize) -> i64 {
        match self.equal_up_to {
            Some(request) if self.provider_cost(at, true) <= request => request,
            _ => self.provider_cost(at, self.net),
        }
    }

    /// Whether nodes differ by more than the resolution.
    fn decides(&self) -> bool {
        self.significant > 0 && self.weight > 0
    }

    fn scaled(&self, cost: i64) -> u128 {
        let above = u128::from(cost.abs_diff(self.low));
        let (span, significant) = (u128::from(self.span), u128::from(self.significant));
        let scaled = above * u128::from(ONE) / span;
        match significant == span {
            true => scaled,
            false => scaled * significant / span,
        }
    }

    fn is_exact(&self) -> bool {
        self.costs.resolution <= 0 && !self.costs.has_tie_breaks()
    }

    /// Nodes that another rule excludes may lie outside the scale.
    fn shown(&self, at: usize) -> Option<u64> {
        self.costs.get(at).filter(|cost| *cost >= 0)?;
        let cost = self.cost(at);
        if cost <= self.low || self.span == 0 {
            return Some(0);
        }
        Some(u64::try_from(self.scaled(cost)).unwrap_or(ONE).min(ONE))
    }

    fn rule_scale(&self, usable: &[bool]) -> RuleScale {
        let nodes = self.costs.len();
        let in_use = || (0..usable.len()).filter(|at| usable[*at]);
        let costs = || in_use().map(|at| self.provider_cost(at, self.net));
        RuleScale {
            low: costs().min().unwrap_or(self.low),
            high: costs().max().unwrap_or(self.low),
            decides: self.decides(),
            scaled: (0..nodes).map(|at| self.shown(at)).collect(),
        }
    }
}

/// How a plan scales the costs of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleScale {
    /// The lowest cost of a usable node.
    pub low: i64,
    /// The highest cost of a usable node.
    pub high: i64,
    /// The rule has a weight, and its costs differ by more than their resolution.
    pub decides: bool,
    /// By position, 0 (the lowest cost, and all within the request if they are equally good) to
    /// 2^62; `None` for a node that the rule excludes.
    pub scaled: Vec<Option<u64>>,
}

/// The scale of each answer, in their order; `None` without costs of usable nodes. If the answers
/// together leave no node, each is scaled over the nodes that it leaves.
pub fn rule_scales(nodes: usize, answers: &[RuleAnswer<'_>]) -> Vec<Option<RuleScale>> {
    let usable = usable_by(nodes, answers);
    if usable.contains(&true) {
        let scales = scales(&usable, answers).into_iter();
        return scales.map(|s| s.map(|s| s.rule_scale(&usable))).collect();
    }
    let alone = |answer: &RuleAnswer<'_>| {
        let usable = usable_by(nodes, &[*answer]);
        let scale = scales(&usable, &[*answer]).pop().flatten()?;
        Some(scale.rule_scale(&usable))
    };
    answers.iter().map(alone).collect()
}

/// Whether all answers admit a node, by position.
pub(crate) fn usable_by(nodes: usize, answers: &[RuleAnswer<'_>]) -> Vec<bool> {
    (0..nodes)
        .map(|at| answers.iter().all(|a| a.admits(at)))
        .collect()
}

/// The scales of the mean: net, except that a rule that decides alone keeps its tie-breaks, which
/// its provider weighed against its costs.
fn scales<'a>(usable: &[bool], answers: &[RuleAnswer<'a>]) -> Vec<Option<Scale<'a>>> {
    let net = answers.iter().map(|a| Scale::net(a, usable));
    let mut net: Vec<Option<Scale<'a>>> = net.collect();
    if net.iter().flatten().all(Scale::is_exact) {
        return net;
    }
    let decides = |s: &&Scale<'_>| s.decides();
    let mut deciding = net.iter().flatten().filter(decides).map(|s| s.rule);
    let alone = deciding
        .next()
        .is_some_and(|rule| deciding.all(|r| r == rule));
    if alone {
        for (net, answer) in net.iter_mut().zip(answers) {
            if net.as_ref().is_some_and(Scale::decides) {
                *net = Scale::raw(answer, usable);
            }
        }
    }
    net
}

/// For each node the mean, and the order among nodes of equal mean.
pub(crate) fn ranks(usable: &[bool], answers: &[RuleAnswer<'_>]) -> Vec<(u64, u64)> {
    let net: Vec<Scale<'_>> = scales(usable, answers).into_iter().flatten().collect();
    if net.iter().all(Scale::is_exact) {
        return mean(usable, &net).into_iter().map(|m| (m, 0)).collect();
    }
    let raw = answers.iter().filter_map(|a| Scale::raw(a, usable));
    let raw: Vec<Scale<'_>> = raw.collect();
    let means = mean(usable, &net).into_iter();
    means.zip(mean(usable, &raw)).collect()
}

fn mean(usable: &[bool], scales: &[Scale<'_>]) -> Vec<u64> {
    let mut offers: Vec<(usize, u128, Vec<u128>)> = Vec::new();
    for scale in scales {
        let at = offers
            .iter()
            .position(|(o, ..)| *o == scale.offer)
            .unwrap_or_else(|| {
                offers.push((scale.offer, 0, vec![0; usable.len()]));
                offers.len() - 1
            });
        let (_, weights, sums) = &mut offers[at];
        *weights += scale.weight;
        if !scale.decides() {
            continue;
        }
        for (at, sum) in sums.iter_mut().enumerate() {
            if usable[at] {
                *sum += scale.weight * scale.scaled(scale.values[at]);
            }
        }
    }
    // An offer of weight 0 only excludes nodes.
    offers.retain(|(_, weights, _)| *weights > 0);
    let count = offers.len().max(1) as u128;
    let mean = |at: usize| -> u64 {
        let total: u128 = offers
            .iter()
            .map(|(_, weights, sums)| sums[at] / *weights)
            .sum();
        u64::try_from(total / count).unwrap_or(ONE)
    };
    (0..usable.len())
        .map(|at| if usable[at] { mean(at) } else { ONE })
        .collect()
}
