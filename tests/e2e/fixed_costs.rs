//! A rule provider with costs set by the test.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
};

/// Costs by node; a node that is not listed is not named in the answer.
#[derive(Clone, Default)]
pub struct FixedCosts {
    pub costs: Arc<Mutex<BTreeMap<String, i64>>>,
    /// The cost up to which a node is within the request.
    pub request_cost: Arc<Mutex<Option<i64>>>,
    pub requests: Arc<Mutex<u64>>,
    /// How long each answer takes.
    pub delay: Arc<Mutex<Duration>>,
}

impl FixedCosts {
    pub fn new(costs: &[(&str, i64)]) -> Self {
        let provider = Self::default();
        provider.set(costs);
        provider
    }

    pub fn set(&self, costs: &[(&str, i64)]) {
        *self.costs.lock().unwrap() = costs.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
    }

    pub fn request_count(&self) -> u64 {
        *self.requests.lock().unwrap()
    }
}

impl RuleProvider for FixedCosts {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        *self.requests.lock().unwrap() += 1;
        let delay = *self.delay.lock().unwrap();
        tokio::time::sleep(delay).await;
        let mut answer = CostAnswer::default();
        answer.request_cost = *self.request_cost.lock().unwrap();
        let costs = self.costs.lock().unwrap().clone();
        for node in request.eligible_nodes {
            match costs.get(&node) {
                Some(cost @ 0..) => answer.usable(node, *cost, ""),
                Some(_) => answer.unusable(node, "OverLimit", "far", false),
                None => {}
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::compliant("fixed"))
    }
}
