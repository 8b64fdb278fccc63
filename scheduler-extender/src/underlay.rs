//! Gets the underlay's offers. If the rules leave no node, Discover returns allocations that would
//! make nodes usable, and bind makes them.

mod discover;
mod offers;

use std::{sync::Arc, time::Duration};

pub(crate) use self::{discover::Discovery, offers::CheckedOffer};

/// The stable codes of the results of Discover.
pub(crate) mod code {
    pub(crate) const OFFERED: &str = "Offered";
    pub(crate) const NO_OFFER: &str = "NoOffer";
    /// The extender does not bind, so it cannot allocate.
    pub(crate) const NEEDS_BIND: &str = "UnderlayNeedsBind";
    /// A rule without an answer rejects the nodes: its cost after an allocation is unknown.
    pub(crate) const RULE_UNANSWERED: &str = "RuleUnanswered";
    /// An allocator refuses every node: a path cannot add to the resources that it counts.
    pub(crate) const NO_ELIGIBLE_NODE: &str = "NoEligibleNode";
    pub(crate) const NO_TIME: &str = "NoTime";
    pub(crate) const TIMEOUT: &str = "UnderlayTimeout";
    pub(crate) const OVER_BUDGET: &str = "UnderlayOverBudget";
    pub(crate) const NOT_ALLOWED: &str = "UnderlayNotAllowed";
    pub(crate) const NOT_READY: &str = "UnderlayNotReady";
    pub(crate) const BREAKER: &str = "UnderlayBreakerOpen";
    pub(crate) const BAD_ANSWER: &str = "UnderlayBadAnswer";
    pub(crate) const FAILED: &str = "UnderlayFailed";
}

#[derive(Debug)]
pub(crate) struct UnderlayResult {
    /// The Service, as `namespace/name`.
    pub service: Arc<str>,
    pub code: &'static str,
    pub error: Option<String>,
    /// The number of nodes in the request.
    pub eligible_nodes: usize,
    pub took: Duration,
    /// The accepted offers, then the refused offers with their codes.
    pub offers: Vec<CheckedOffer>,
    /// The number of refused offers that are not in `offers`.
    pub left_out: usize,
}

impl UnderlayResult {
    pub fn offer_for(&self, node: &str) -> Option<&CheckedOffer> {
        let accepted = |o: &&CheckedOffer| o.refused.is_none() && o.node == node;
        self.offers.iter().find(accepted)
    }

    /// The approximate size of the result, in bytes.
    pub fn weight(&self) -> usize {
        let offers = self.offers.iter().map(|o| 80 + o.id.len() + o.node.len());
        160 + self.error.as_ref().map_or(0, String::len) + offers.sum::<usize>()
    }
}
