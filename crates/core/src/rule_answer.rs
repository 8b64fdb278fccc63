use crate::{costs::Costs, model::Prefer};

/// The result of one rule.
#[derive(Clone, Debug)]
pub enum RuleOutcome {
    /// The provider's costs.
    Costs(Costs),
    /// No answer.
    Unavailable {
        /// One of [`code`](crate::planning::code).
        code: &'static str,
        /// No node is usable; else the rule is left out.
        reject: bool,
    },
}

/// One rule of one offer with its result.
#[derive(Clone, Copy, Debug)]
pub struct RuleAnswer<'a> {
    /// A number that the rules of one offer share.
    pub offer: usize,
    /// The rule's name.
    pub rule: &'a str,
    /// The rule's weight within its offer.
    pub weight: u32,
    /// The nodes that the rule prefers.
    pub prefer: Prefer,
    /// Its result.
    pub outcome: &'a RuleOutcome,
}

impl RuleAnswer<'_> {
    /// The cost up to which all nodes are equally good; `None` if the nearest is preferred, also
    /// because the provider does not say which nodes are within the request.
    pub(crate) fn equal_up_to(&self) -> Option<i64> {
        match (self.prefer, self.outcome) {
            (Prefer::WithinRequest, RuleOutcome::Costs(costs)) => costs.request_cost,
            _ => None,
        }
    }

    pub(crate) fn admits(&self, at: usize) -> bool {
        match self.outcome {
            RuleOutcome::Costs(costs) => costs.get(at).is_some_and(|cost| cost >= 0),
            RuleOutcome::Unavailable { reject, .. } => !reject,
        }
    }
}
