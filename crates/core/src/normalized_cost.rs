//! The normalized cost of each node: one mean over the costs of several rules.
//!
//! All arithmetic is on integers, so neither the order of rules and nodes nor
//! the unit of a rule changes a result: costs become fixed-point fractions
//! `floor((cost - lowest) x 2^62 / (highest - lowest))`, which a common factor
//! leaves as they are.
//!
//! A provider may declare differences insignificant: those up to its resolution, and the
//! tie-breaks of its lines. Scaled like a cost, either would weigh as much as a whole rule
//! between equally good nodes, so both count only where the mean leaves nodes equal.

use crate::{
    costs::Costs,
    rule_answer::{RuleAnswer, RuleOutcome},
};

/// The fixed-point 1.
pub(crate) const ONE: u64 = 1 << 62;

/// Scales the costs of one rule to 0..1.
struct Scale<'a> {
    offer: usize,
    rule: &'a str,
    weight: u128,
    costs: &'a Costs,
    /// Subtract tie-breaks from the costs.
    net: bool,
    low: i64,
    span: u64,
    /// The part of the span above the provider's resolution.
    significant: u64,
}

impl<'a> Scale<'a> {
    /// The costs as given.
    fn raw(answer: &RuleAnswer<'a>, usable: &[bool]) -> Option<Self> {
        Self::new(answer, usable, false, 0)
    }

    /// The costs without insignificant differences.
    fn net(answer: &RuleAnswer<'a>, usable: &[bool]) -> Option<Self> {
        let resolution = match answer.outcome {
            RuleOutcome::Costs(costs) => u64::try_from(costs.resolution).unwrap_or(0),
            RuleOutcome::Unavailable { .. } => 0,
        };
        Self::new(answer, usable, true, resolution)
    }

    /// `None` without costs or usable nodes.
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
            low: 0,
            span: 0,
            significant: 0,
        };
        let in_use = || (0..usable.len()).filter(|at| usable[*at]);
        let costs = || in_use().map(|at| scale.cost(at));
        let (low, high) = (costs().min()?, costs().max()?);
        (scale.low, scale.span) = (low, high.abs_diff(low));
        scale.significant = scale.span.saturating_sub(resolution);
        Some(scale)
    }

    fn cost(&self, at: usize) -> i64 {
        let cost = self.costs.by_position()[at];
        match self.net {
            true => cost - self.costs.tie_break(at),
            false => cost,
        }
    }

    /// Whether nodes differ by more than the resolution.
    fn decides(&self) -> bool {
        self.significant > 0 && self.weight > 0
    }

    /// The cost of a usable node, 0 to [`ONE`].
    fn scaled(&self, at: usize) -> u128 {
        let above = u128::from(self.cost(at).abs_diff(self.low));
        let (span, significant) = (u128::from(self.span), u128::from(self.significant));
        let scaled = above * u128::from(ONE) / span;
        match significant == span {
            true => scaled,
            false => scaled * significant / span,
        }
    }
}

/// For each node the mean, and the order among nodes of equal mean.
pub(crate) fn ranks(usable: &[bool], answers: &[RuleAnswer<'_>]) -> Vec<(u64, u64)> {
    let mut net: Vec<Scale<'_>> = answers
        .iter()
        .filter_map(|a| Scale::net(a, usable))
        .collect();
    let exact = |s: &Scale<'_>| s.costs.resolution <= 0 && !s.costs.has_tie_breaks();
    if net.iter().all(exact) {
        return mean(usable, &net).into_iter().map(|m| (m, 0)).collect();
    }
    let raw = || answers.iter().filter_map(|a| Scale::raw(a, usable));
    // The tie-breaks of a rule that decides alone overrule no other rule, and its provider has
    // weighed them against its other costs.
    let mut deciding = net.iter().filter(|s| s.decides()).map(|s| s.rule);
    let alone = deciding
        .next()
        .is_some_and(|rule| deciding.all(|r| r == rule));
    if alone {
        for (net, raw) in net.iter_mut().zip(raw()).filter(|(net, _)| net.decides()) {
            *net = raw;
        }
    }
    let raw: Vec<Scale<'_>> = raw().collect();
    let means = mean(usable, &net).into_iter();
    means.zip(mean(usable, &raw)).collect()
}

/// The mean over offers of the weighted mean over rules, for each usable node.
fn mean(usable: &[bool], scales: &[Scale<'_>]) -> Vec<u64> {
    // Per offer: the sum of the weights, and each node's weighted sum.
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
                *sum += scale.weight * scale.scaled(at);
            }
        }
    }
    // An offer of weight 0 only excludes nodes: the mean leaves it out.
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
