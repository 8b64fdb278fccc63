//! Costs of the rules become usable nodes with scores, and reason codes of the others.

use std::sync::Arc;

use crate::normalized_cost::{ONE, RuleCosts, ranks, usable_by};
pub use crate::{
    costs::{CostDetail, Costs},
    normalized_cost::{RuleScale, rule_scales},
    rule_answer::{RuleAnswer, RuleOutcome},
};

/// The greatest normalized cost; the least is 0.
pub const MAX_NORMALIZED_COST: u64 = ONE;

/// kube-scheduler's `MaxExtenderPriority`.
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
    /// Not called: the provider failed repeatedly.
    pub const BREAKER_OPEN: &str = "ProviderBreakerOpen";
    /// Not called: its namespace has used up its share of the scheduler's time.
    pub const OVER_BUDGET: &str = "ProviderOverBudget";
    /// Not called: too many rules govern the pod.
    pub const TOO_MANY_RULES: &str = "TooManyRules";
    /// Not called: the Service's namespace may not do what the Service declares.
    pub const NOT_ALLOWED: &str = "ProviderNotAllowed";
    /// The answer is too large or malformed.
    pub const BAD_ANSWER: &str = "ProviderBadAnswer";
    /// The offer names a policy that does not exist.
    pub const POLICY_MISSING: &str = "PolicyMissing";
}

/// The decision on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeVerdict {
    /// The pod may run there.
    Usable {
        /// The weighted mean of the normalized costs, 0 (best) to 2^62.
        normalized_cost: u64,
        /// Orders nodes whose mean is equal; lower is better.
        tie_break: u64,
        /// 10 for the best, else `round(9 x (1 - mean))`.
        score: u8,
    },
    /// A rule excludes the node.
    Unusable {
        /// `rule/Code`: short, stable, without figures.
        reason: Arc<str>,
        /// Removing pods from the node could make it usable.
        freeable: bool,
    },
}

impl NodeVerdict {
    /// Whether the pod may run there.
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Usable { .. })
    }

    /// The sort key of nodes, best first; unusable nodes are last.
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

    /// The score for kube-scheduler, 0 to [`MAX_SCORE`]; 0 for an unusable node.
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
    /// By the node's position in the request.
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
            .map(|at| match usable[at] {
                true => {
                    let (badness, tie_break) = ranks[at];
                    NodeVerdict::Usable {
                        normalized_cost: badness,
                        tie_break,
                        score: match best == Some(ranks[at]) {
                            true => MAX_SCORE,
                            false => score(badness),
                        },
                    }
                }
                false => unusable_verdict(at, answers, &mut last),
            })
            .collect();
        Self { verdicts }
    }

    /// Positions of the usable nodes, ascending.
    pub fn usable(&self) -> impl Iterator<Item = usize> {
        self.verdicts
            .iter()
            .enumerate()
            .filter(|(_, v)| v.is_usable())
            .map(|(at, _)| at)
    }
}

fn score(badness: u64) -> u8 {
    let good = u128::from(ONE - badness.min(ONE)) * 9 + u128::from(ONE / 2);
    (good / u128::from(ONE)) as u8
}

/// Of several rules one that preemption cannot satisfy gives the reason, then the first by name.
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

/// The previous reason with its parts: most excluded nodes share it.
type LastReason<'a> = ([&'a str; 3], Arc<str>);

/// FNV-1a, 64 bits, over parts with a separator between them.
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
