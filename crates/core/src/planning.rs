//! Turns the costs of all rules into usable nodes with scores, and reason codes of other nodes.

use std::sync::Arc;

use crate::normalized_cost::{FIXED_POINT_ONE, RuleCosts, ranks, usable_by};
pub use crate::{
    costs::{CostDetail, Costs},
    normalized_cost::{RuleScale, rule_scales},
    rule_answer::{RuleAnswer, RuleOutcome},
};

/// The greatest normalized cost, 2^62; the least is 0.
pub const MAX_NORMALIZED_COST: u64 = FIXED_POINT_ONE;

/// The greatest score of a node: kube-scheduler's `MaxExtenderPriority`.
pub const MAX_SCORE: u8 = 10;

/// Reason codes of planning and its callers; providers add their own.
pub mod code {
    /// The answer does not name the node.
    pub const NO_COST: &str = "NoCost";
    /// The cost is negative and has no code.
    pub const UNUSABLE: &str = "Unusable";
    /// No Service provides the rule.
    pub const NO_PROVIDER: &str = "NoProvider";
    /// The provider has no ready address.
    pub const NO_ADDRESS: &str = "ProviderNotReady";
    /// The provider did not answer within the deadline.
    pub const TIMEOUT: &str = "ProviderTimeout";
    /// The call failed, or the provider answered with an error.
    pub const FAILED: &str = "ProviderFailed";
    /// The provider was not called, as it failed repeatedly.
    pub const BREAKER_OPEN: &str = "ProviderBreakerOpen";
    /// The provider was not called, as its namespace has used up its share of the scheduler's time.
    pub const OVER_BUDGET: &str = "ProviderOverBudget";
    /// The provider was not called, as too many rules govern the pod.
    pub const TOO_MANY_RULES: &str = "TooManyRules";
    /// The provider was not called, as its namespace may not do what the Service declares.
    pub const NOT_ALLOWED: &str = "ProviderNotAllowed";
    /// The answer is too large or malformed.
    pub const BAD_ANSWER: &str = "ProviderBadAnswer";
    /// The offer names a policy that does not exist.
    pub const POLICY_MISSING: &str = "PolicyMissing";
    /// The provider was not called, as the pods of another cluster that the offer names are not
    /// known.
    pub const CLUSTER_UNAVAILABLE: &str = "ClusterUnavailable";
}

/// The decision on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeVerdict {
    /// The pod may run on the node.
    Usable {
        /// The weighted mean of the normalized costs, 0 (best) to 2^62.
        normalized_cost: u64,
        /// The order among nodes whose mean is equal; lower is better.
        tie_break: u64,
        /// The score: 10 for the best nodes, else `round(9 x (1 - mean))` with a mean of 0 to 1.
        score: u8,
    },
    /// A rule excludes the node.
    Unusable {
        /// The reason as `rule/Code`: short, stable, without figures.
        reason: Arc<str>,
        /// True if removing pods from the node could make it usable.
        freeable: bool,
    },
}

impl NodeVerdict {
    /// Returns whether the pod may run on the node.
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Usable { .. })
    }

    /// Returns the sort key of nodes, best first; unusable nodes are last.
    pub fn rank(&self) -> (u64, u64) {
        match self {
            Self::Usable {
                normalized_cost: badness,
                tie_break,
                ..
            } => (*badness, *tie_break),
            Self::Unusable { .. } => (u64::MAX, u64::MAX),
        }
    }

    /// Returns the score for kube-scheduler, 0 to [`MAX_SCORE`]; 0 for an unusable node.
    pub fn score(&self) -> u8 {
        match self {
            Self::Usable { score, .. } => *score,
            Self::Unusable { .. } => 0,
        }
    }
}

/// The decision on every node of a request.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The decisions by the node's position in the request.
    pub verdicts: Vec<NodeVerdict>,
}

impl Plan {
    /// Decides on `nodes` nodes from the answers of all rules of all offers.
    pub fn new(nodes: usize, answers: &[RuleAnswer<'_>]) -> Self {
        let costs = RuleCosts::of(answers);
        let usable = usable_by(nodes, &costs);
        let ranks = ranks(&usable, &costs);
        let best = (0..nodes)
            .filter(|at| usable[*at])
            .map(|at| ranks[at])
            .min();
        let mut last = None;
        let verdicts = (0..nodes)
            .map(|at| {
                if !usable[at] {
                    return unusable_verdict(at, answers, &mut last);
                }
                let (badness, tie_break) = ranks[at];
                let is_best = best == Some(ranks[at]);
                NodeVerdict::Usable {
                    normalized_cost: badness,
                    tie_break,
                    score: if is_best { MAX_SCORE } else { score(badness) },
                }
            })
            .collect();
        Self { verdicts }
    }

    /// Returns the positions of the usable nodes, ascending.
    pub fn usable(&self) -> impl Iterator<Item = usize> {
        self.verdicts
            .iter()
            .enumerate()
            .filter(|(_, v)| v.is_usable())
            .map(|(at, _)| at)
    }
}

fn score(badness: u64) -> u8 {
    let one = u128::from(FIXED_POINT_ONE);
    let good = one - u128::from(badness).min(one);
    ((good * 9 + one / 2) / one) as u8
}

/// Returns the verdict on an excluded node. If several rules exclude it, a rule that preemption
/// cannot satisfy gives the reason, then the first rule by name.
fn unusable_verdict<'a>(
    at: usize,
    answers: &[RuleAnswer<'a>],
    last: &mut Option<LastReason<'a>>,
) -> NodeVerdict {
    let reasons = answers.iter().filter(|a| !a.admits(at)).map(|a| {
        let (freeable, code) = match a.outcome {
            RuleOutcome::Unavailable { code, .. } => (false, *code),
            RuleOutcome::Costs(costs) => match (costs.get(at), costs.detail(at)) {
                (None, _) => (false, code::NO_COST),
                (_, Some(detail)) if detail.code.is_empty() => (detail.freeable, code::UNUSABLE),
                (_, Some(detail)) => (detail.freeable, detail.code),
                (_, None) => (false, code::UNUSABLE),
            },
        };
        (freeable, a.rule, code)
    });
    let (freeable, why) = match reasons.min() {
        Some((freeable, rule, code)) => (freeable, [rule, "/", code]),
        None => (false, ["", "", code::UNUSABLE]),
    };
    let reason = match last {
        Some((previous, reason)) if *previous == why => Arc::clone(reason),
        _ => {
            let reason: Arc<str> = why.concat().into();
            *last = Some((why, Arc::clone(&reason)));
            reason
        }
    };
    NodeVerdict::Unusable { reason, freeable }
}

/// The parts and the text of the previous reason, which most excluded nodes share.
type LastReason<'a> = ([&'a str; 3], Arc<str>);

/// Returns the 64-bit FNV-1a hash of the parts, with a separator after each.
pub fn fnv1a_64(parts: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

#[cfg(test)]
#[path = "planning_tests.rs"]
mod tests;
