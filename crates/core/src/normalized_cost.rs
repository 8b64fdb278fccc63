//! Computes the normalized cost of each node: one mean over the costs of several rules.
//!
//! Integer arithmetic makes results independent of order and units: costs become fractions
//! `floor((cost - lowest) x 2^62 / (highest - lowest))`.
//!
//! Differences up to a provider's resolution, and tie-breaks, count only among nodes with equal
//! means: scaled like a cost they would weigh as much as a whole rule.

use std::borrow::Cow;

use crate::rule_answer::{RuleAnswer, RuleOutcome};

/// The number 1 in fixed point with 62 fractional bits: the greatest normalized cost.
pub(crate) const FIXED_POINT_ONE: u64 = 1 << 62;

/// The costs of one answer by position, read once from the parts of its table.
pub(crate) struct RuleCosts<'a> {
    answer: RuleAnswer<'a>,
    /// The costs by position; `None` if the rule has no costs.
    costs: Option<Vec<i64>>,
    /// The tie-breaks by position; empty if no node has a tie-break.
    tie_breaks: Vec<i64>,
    resolution: u64,
}

impl<'a> RuleCosts<'a> {
    fn new(answer: &RuleAnswer<'a>) -> Self {
        let costs = match answer.outcome {
            RuleOutcome::Costs(costs) => Some(costs),
            RuleOutcome::Unavailable { .. } => None,
        };
        let resolution = costs.map_or(0, |costs| costs.resolution);
        Self {
            answer: *answer,
            costs: costs.map(|costs| costs.values()),
            tie_breaks: costs.map_or_else(Vec::new, |costs| costs.tie_breaks()),
            resolution: u64::try_from(resolution).unwrap_or(0),
        }
    }

    /// Reads the costs of each answer.
    pub(crate) fn of(answers: &[RuleAnswer<'a>]) -> Vec<Self> {
        answers.iter().map(Self::new).collect()
    }

    fn restrict(&self, usable: &mut [bool]) {
        match (&self.costs, self.answer.outcome) {
            (Some(costs), _) => {
                let costs = costs.iter().copied().chain(std::iter::repeat(-1));
                for (usable, cost) in usable.iter_mut().zip(costs) {
                    *usable &= cost >= 0;
                }
            }
            (None, RuleOutcome::Unavailable { reject: true, .. }) => usable.fill(false),
            (None, _) => {}
        }
    }

    fn is_exact(&self) -> bool {
        self.resolution == 0 && self.tie_breaks.is_empty()
    }
}

/// The scale of one rule's costs over the usable nodes.
struct Scale<'a> {
    of: &'a RuleCosts<'a>,
    weight: u128,
    /// True if `values` exclude the tie-breaks.
    net: bool,
    /// The costs by position; only those of usable nodes count.
    values: Cow<'a, [i64]>,
    low: i64,
    /// The difference between the highest and the lowest cost of a usable node.
    span: u64,
    /// The part of `span` beyond the resolution.
    significant: u64,
}

impl<'a> Scale<'a> {
    /// Scales the costs with their tie-breaks; every difference counts.
    fn raw(of: &'a RuleCosts<'a>, usable: &[bool]) -> Option<Self> {
        Self::new(of, usable, false, 0)
    }

    /// Scales the costs without tie-breaks, and deducts the resolution from their span.
    fn net(of: &'a RuleCosts<'a>, usable: &[bool]) -> Option<Self> {
        Self::new(of, usable, true, of.resolution)
    }

    fn new(of: &'a RuleCosts<'a>, usable: &[bool], net: bool, resolution: u64) -> Option<Self> {
        let costs = of.costs.as_deref()?;
        let net = net && !of.tie_breaks.is_empty();
        let values = match (net, of.answer.equal_up_to()) {
            (false, None) => Cow::Borrowed(costs),
            (_, equal_up_to) => (0..costs.len())
                .map(|at| cost(of, at, net, equal_up_to))
                .collect(),
        };
        let in_use = values.iter().zip(usable).filter(|(_, usable)| **usable);
        let (low, high) = in_use.fold((i64::MAX, i64::MIN), |(low, high), (value, _)| {
            (low.min(*value), high.max(*value))
        });
        if low > high {
            return None;
        }
        let span = high.abs_diff(low);
        Some(Self {
            of,
            weight: of.answer.weight.into(),
            net,
            values,
            low,
            span,
            significant: span.saturating_sub(resolution),
        })
    }

    /// Returns whether the rule has a weight and its costs differ by more than the resolution.
    fn decides(&self) -> bool {
        self.significant > 0 && self.weight > 0
    }

    fn scaled(&self, cost: i64) -> u128 {
        let (above, span) = (cost.abs_diff(self.low), self.span);
        let scaled = if above <= span && u32::try_from(span).is_ok() {
            // This is the same division in 64 bits.
            let (quotient, rest) = (FIXED_POINT_ONE / span, FIXED_POINT_ONE % span);
            u128::from(above * quotient + above * rest / span)
        } else {
            u128::from(above) * u128::from(FIXED_POINT_ONE) / u128::from(span)
        };
        if self.significant == span {
            scaled
        } else {
            scaled * u128::from(self.significant) / u128::from(span)
        }
    }

    /// Returns the scaled cost for display; `None` if the rule excludes the node. A node that
    /// another rule excludes may lie outside the scale; it gets the nearest end of the scale.
    fn shown(&self, at: usize) -> Option<u64> {
        let costs = self.of.costs.as_deref()?;
        costs.get(at).filter(|cost| **cost >= 0)?;
        let cost = self.values[at];
        if cost <= self.low || self.span == 0 {
            return Some(0);
        }
        Some(
            u64::try_from(self.scaled(cost))
                .unwrap_or(FIXED_POINT_ONE)
                .min(FIXED_POINT_ONE),
        )
    }

    fn rule_scale(&self, usable: &[bool]) -> RuleScale {
        let in_use = || (0..usable.len()).filter(|at| usable[*at]);
        let costs = || in_use().map(|at| provider_cost(self.of, at, self.net));
        RuleScale {
            low: costs().min().unwrap_or(self.low),
            high: costs().max().unwrap_or(self.low),
            decides: self.decides(),
            scaled: (0..self.values.len()).map(|at| self.shown(at)).collect(),
        }
    }
}

fn provider_cost(of: &RuleCosts<'_>, at: usize, net: bool) -> i64 {
    let costs = of.costs.as_deref().unwrap_or_default();
    let cost = costs.get(at).copied().unwrap_or(i64::MIN);
    match of.tie_breaks.get(at) {
        Some(tie_break) if net => cost - tie_break,
        _ => cost,
    }
}

/// Returns the cost of a node. Nodes within the request (`equal_up_to`) all cost as much as a node
/// that just meets it: they are equal with and without tie-breaks, and any node beyond the request
/// costs more.
fn cost(of: &RuleCosts<'_>, at: usize, net: bool, equal_up_to: Option<i64>) -> i64 {
    match equal_up_to {
        Some(request) if provider_cost(of, at, true) <= request => request,
        _ => provider_cost(of, at, net),
    }
}

/// The scale of one rule's costs in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleScale {
    /// The lowest cost of a usable node.
    pub low: i64,
    /// The highest cost of a usable node.
    pub high: i64,
    /// True if the rule has a weight and its costs differ by more than their resolution.
    pub decides: bool,
    /// The scaled costs by position, from 0 (the lowest cost, and all nodes within the request if
    /// they are equally good) to 2^62; `None` for a node that the rule excludes.
    pub scaled: Vec<Option<u64>>,
}

/// Returns the scale of each answer, in their order; `None` if it has no costs of usable nodes. If
/// the answers together exclude every node, each is scaled over the nodes that it admits.
pub fn rule_scales(nodes: usize, answers: &[RuleAnswer<'_>]) -> Vec<Option<RuleScale>> {
    let costs = RuleCosts::of(answers);
    let usable = usable_by(nodes, &costs);
    if usable.contains(&true) {
        let scales = scales(&usable, &costs).into_iter();
        return scales.map(|s| s.map(|s| s.rule_scale(&usable))).collect();
    }
    let alone = |costs: &RuleCosts<'_>| {
        let costs = std::slice::from_ref(costs);
        let usable = usable_by(nodes, costs);
        let scale = scales(&usable, costs).pop().flatten()?;
        Some(scale.rule_scale(&usable))
    };
    costs.iter().map(alone).collect()
}

/// Returns whether all answers admit a node, by position.
pub(crate) fn usable_by(nodes: usize, answers: &[RuleCosts<'_>]) -> Vec<bool> {
    let mut usable = vec![true; nodes];
    for costs in answers {
        costs.restrict(&mut usable);
    }
    usable
}

/// Returns the scales of the mean. They exclude tie-breaks, except that a rule that decides alone
/// keeps its tie-breaks, which its provider weighed against its costs.
fn scales<'a>(usable: &[bool], answers: &'a [RuleCosts<'a>]) -> Vec<Option<Scale<'a>>> {
    let mut net: Vec<Option<Scale<'a>>> = answers.iter().map(|a| Scale::net(a, usable)).collect();
    if answers.iter().all(RuleCosts::is_exact) {
        return net;
    }
    let decides = |s: &&Scale<'_>| s.decides();
    let mut deciding = net
        .iter()
        .flatten()
        .filter(decides)
        .map(|s| s.of.answer.rule);
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

/// Returns the mean of each node, and its order among nodes with equal means.
pub(crate) fn ranks(usable: &[bool], answers: &[RuleCosts<'_>]) -> Vec<(u64, u64)> {
    let net: Vec<Scale<'_>> = scales(usable, answers).into_iter().flatten().collect();
    if answers.iter().all(RuleCosts::is_exact) {
        return mean(usable, &net).into_iter().map(|m| (m, 0)).collect();
    }
    let raw: Vec<Scale<'_>> = answers
        .iter()
        .filter_map(|a| Scale::raw(a, usable))
        .collect();
    let means = mean(usable, &net).into_iter();
    means.zip(mean(usable, &raw)).collect()
}

/// Divides in 64 bits if the operands fit, which takes a fraction of the time.
fn quotient(sum: u128, by: u128) -> u128 {
    match (u64::try_from(sum), u64::try_from(by)) {
        (Ok(sum), Ok(by)) => (sum / by).into(),
        _ => sum / by,
    }
}

fn mean(usable: &[bool], scales: &[Scale<'_>]) -> Vec<u64> {
    let mut offers: Vec<(usize, u128, Vec<u128>)> = Vec::new();
    for scale in scales {
        let offer = scale.of.answer.offer;
        let at = offers
            .iter()
            .position(|(o, ..)| *o == offer)
            .unwrap_or_else(|| {
                offers.push((offer, 0, vec![0; usable.len()]));
                offers.len() - 1
            });
        let (_, weights, sums) = &mut offers[at];
        *weights += scale.weight;
        if !scale.decides() {
            continue;
        }
        let values = scale.values.iter().zip(usable);
        for (sum, (value, usable)) in sums.iter_mut().zip(values) {
            if *usable {
                *sum += scale.weight * scale.scaled(*value);
            }
        }
    }
    // An offer whose rules all have the weight 0 only excludes nodes.
    offers.retain(|(_, weights, _)| *weights > 0);
    let count = offers.len().max(1) as u128;
    let mean = |at: usize| -> u64 {
        let total: u128 = offers
            .iter()
            .map(|(_, weights, sums)| quotient(sums[at], *weights))
            .sum();
        u64::try_from(quotient(total, count)).unwrap_or(FIXED_POINT_ONE)
    };
    (0..usable.len())
        .map(|at| {
            if usable[at] {
                mean(at)
            } else {
                FIXED_POINT_ONE
            }
        })
        .collect()
}
