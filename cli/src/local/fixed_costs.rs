//! Costs that a test gives in place of a provider.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use tautline_latency::Latency;
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
};

use super::builtin::LATENCY_RULES;

/// The costs of one rule by node.
pub(crate) type NodeCosts = BTreeMap<String, FixedCost>;

/// The cost of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FixedCost {
    /// The cost. A lower cost is better; with a negative cost the node is not usable.
    Cost(i64),
    /// The node is not usable, with this reason code.
    Refused(String),
}

/// The costs by rule and node, the same for every pod. A node without an entry has no cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct FixedCosts(Arc<ArcSwap<BTreeMap<String, NodeCosts>>>);

impl FixedCosts {
    pub(super) fn set(&self, costs: BTreeMap<String, NodeCosts>) {
        self.0.store(Arc::new(costs));
    }
}

/// Returns the cost of the rule's request. Costs of `latency`, `jitter` and `bandwidth` have these
/// rules' units, so their request counts; other rules have `None`.
async fn request_cost(request: &CostRequest) -> Option<i64> {
    if !LATENCY_RULES.contains(&request.rule.name.as_str()) {
        return None;
    }
    let of_no_node = CostRequest {
        source: request.source.clone(),
        rule: request.rule.clone(),
        ..CostRequest::default()
    };
    let latency = Latency::new(ClusterStore::default());
    latency.endpoint_cost(of_no_node).await.ok()?.request_cost
}

impl RuleProvider for FixedCosts {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let costs = self.0.load();
        let mut answer = CostAnswer::default();
        let Some(nodes) = costs.get(&request.rule.name) else {
            return Ok(answer);
        };
        answer.request_cost = request_cost(&request).await;
        for node in &request.eligible_nodes {
            match nodes.get(node) {
                Some(FixedCost::Cost(cost @ 0..)) => answer.usable(node, *cost, ""),
                Some(FixedCost::Cost(_)) => answer.unusable(node, "Refused", "", false),
                Some(FixedCost::Refused(code)) => answer.unusable(node, code, "", false),
                None => {}
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::compliant("tests do not evaluate"))
    }
}
