//! Costs in, usable nodes with scores and reason codes out.

use std::sync::Arc;

pub use crate::costs::{CostDetail, Costs};
use crate::{
    nodes::NodeSet,
    normalized_cost::{ONE, ranks},
};

/// kube-scheduler's `MaxExtenderPriority`.
pub const MAX_SCORE: u8 = 10;

/// Reason codes that planning and its callers give; a provider adds its own.
pub mod code {
    /// The provider did not name the node.
    pub const NO_COST: &str = "NoCost";
    /// The provider gave a negative cost and no code of its own.
    pub const UNUSABLE: &str = "Unusable";
    pub const NO_PROVIDER: &str = "NoProvider";
    /// A provider is chosen and none of its addresses is ready.
    pub const NO_ADDRESS: &str = "ProviderNotReady";
    pub const TIMEOUT: &str = "ProviderTimeout";
    pub const FAILED: &str = "ProviderFailed";
    /// Not called: it has failed too often just now.
    pub const BREAKER_OPEN: &str = "ProviderBreakerOpen";
    /// Not called: its namespace has used up its share of the scheduler's time.
    pub const OVER_BUDGET: &str = "ProviderOverBudget";
    /// Not called: too many rules govern the pod.
    pub const TOO_MANY_RULES: &str = "TooManyRules";
    /// Not called: what its Service asks for is not allowed to its namespace.
    pub const NOT_ALLOWED: &str = "ProviderNotAllowed";
    /// It answered something that is no answer (too large, malformed).
    pub const BAD_ANSWER: &str = "ProviderBadAnswer";
    pub const POLICY_MISSING: &str = "PolicyMissing";
}

/// What came of asking one rule.
#[derive(Clone, Debug)]
pub enum RuleOutcome {
    Costs(Costs),
    /// No answer. `reject`: then no node is usable; else the rule does not count.
    Unavailable {
        code: &'static str,
        reject: bool,
    },
}

/// One rule of one offer, answered.
#[derive(Clone, Copy, Debug)]
pub struct RuleAnswer<'a> {
    /// Groups the rules of one offer; any number that is its own.
    pub offer: usize,
    pub rule: &'a str,
    pub weight: u32,
    pub outcome: &'a RuleOutcome,
}

/// What is decided of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeVerdict {
    Usable {
        /// The weighted mean of the scaled costs, 0 (best) to 2^62.
        normalized_cost: u64,
        /// Orders nodes whose mean is equal; lower is better.
        tie_break: u64,
        /// 10 for the best, else `round(9 x (1 - mean))`.
        score: u8,
    },
    Unusable {
        /// `rule/Code`: short, stable, without figures.
        reason: Arc<str>,
        /// Removing pods from the node could help.
        freeable: bool,
    },
}

impl NodeVerdict {
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Usable { .. })
    }

    /// Orders nodes, the best first; unusable nodes are the last.
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

    /// The score for kube-scheduler; 0 for a node that cannot be used.
    pub fn score(&self) -> u8 {
        match self {
            Self::Usable { score, .. } => *score,
            Self::Unusable { .. } => 0,
        }
    }
}

/// The decision on every node of a question, by position.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub verdicts: Vec<NodeVerdict>,
}

impl Plan {
    /// Decides on `nodes` nodes from the answers of all rules of all offers.
    pub fn new(nodes: usize, answers: &[RuleAnswer<'_>]) -> Self {
        let usable: Vec<bool> = (0..nodes)
            .map(|at| answers.iter().all(|a| a.admits(at)))
            .collect();
        let ranks = ranks(&usable, answers);
        let best = (0..nodes)
            .filter(|at| usable[*at])
            .map(|at| ranks[at])
            .min();
        let mut said = None;
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
                false => unusable_verdict(at, answers, &mut said),
            })
            .collect();
        Self { verdicts }
    }

    pub fn usable(&self) -> impl Iterator<Item = usize> {
        self.verdicts
            .iter()
            .enumerate()
            .filter(|(_, v)| v.is_usable())
            .map(|(at, _)| at)
    }

    /// The positions of the `most` best usable nodes, ascending; 0 means all.
    /// Among equals at the cut, `seed` (the pod's UID) decides, so that pods
    /// spread and the order of the question does not matter.
    pub fn shortlist(&self, nodes: &NodeSet, most: usize, seed: &str) -> Vec<usize> {
        let mut list: Vec<usize> = self.usable().collect();
        if most == 0 || list.len() <= most {
            return list;
        }
        let rank = |at: &usize| self.verdicts[*at].rank();
        // Only ties are worth a hash: this runs for every pod.
        let turn = |at: &usize| (fnv1a_64(&[seed, nodes.name(*at)]), nodes.name(*at));
        list.select_nth_unstable_by(most - 1, |a, b| {
            rank(a).cmp(&rank(b)).then_with(|| turn(a).cmp(&turn(b)))
        });
        list.truncate(most);
        list.sort_unstable();
        list
    }
}

impl RuleAnswer<'_> {
    fn admits(&self, at: usize) -> bool {
        match self.outcome {
            RuleOutcome::Costs(costs) => costs.is_usable(at),
            RuleOutcome::Unavailable { reject, .. } => !reject,
        }
    }
}

fn score(badness: u64) -> u8 {
    let good = u128::from(ONE - badness.min(ONE)) * 9 + u128::from(ONE / 2);
    (good / u128::from(ONE)) as u8
}

/// Of several rules that refuse a node, the one that preemption cannot help
/// speaks, then the first by name: independent of their order.
fn unusable_verdict<'a>(
    at: usize,
    answers: &[RuleAnswer<'a>],
    said: &mut Option<LastReason<'a>>,
) -> NodeVerdict {
    let refusals = answers.iter().filter(|a| !a.admits(at)).map(|a| {
        let (freeable, code) = match a.outcome {
            RuleOutcome::Unavailable { code, .. } => (false, *code),
            RuleOutcome::Costs(costs) => match (costs.get(at), costs.detail(at)) {
                (None, _) => (false, code::NO_COST),
                (_, Some(note)) if note.code.is_empty() => (note.freeable, code::UNUSABLE),
                (_, Some(note)) => (note.freeable, note.code),
                (_, None) => (false, code::UNUSABLE),
            },
        };
        (freeable, a.rule, code)
    });
    let (freeable, why) = match refusals.min() {
        Some((freeable, rule, code)) => (freeable, [rule, "/", code]),
        None => (false, ["", "", code::UNUSABLE]),
    };
    let reason = match said {
        Some((before, reason)) if *before == why => Arc::clone(reason),
        _ => {
            let reason: Arc<str> = why.concat().into();
            *said = Some((why, Arc::clone(&reason)));
            reason
        }
    };
    NodeVerdict::Unusable { reason, freeable }
}

/// The last reason with its parts: most nodes that are refused have the same.
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
