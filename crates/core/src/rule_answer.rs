use crate::{costs::Costs, model::Prefer};

/// The result of one rule.
#[derive(Clone, Debug)]
pub enum RuleOutcome {
    /// The provider's costs.
    Costs(Costs),
    /// The rule has no costs, for the reason `code`.
    Unavailable {
        /// The reason code, one of [`code`](crate::planning::code).
        code: &'static str,
        /// True if the rule makes every node unusable; otherwise planning ignores the rule.
        reject: bool,
    },
}

/// One rule of one offer with its result.
#[derive(Clone, Copy, Debug)]
pub struct RuleAnswer<'a> {
    /// The offer's number: the rules of one offer share it.
    pub offer: usize,
    /// The rule's name.
    pub rule: &'a str,
    /// The rule's weight within its offer.
    pub weight: u32,
    /// The nodes that the rule prefers.
    pub prefer: Prefer,
    /// The rule's result.
    pub outcome: &'a RuleOutcome,
}

impl RuleAnswer<'_> {
    /// The cost up to which all nodes are equally good. `None` if a lower cost is always better:
    /// the rule says so, or the provider does not report which nodes are within the request.
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
