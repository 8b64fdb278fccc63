//! A provider of one rule that evaluates pods by their node.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tautline_sdk::{
    Compliance, CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
};

use crate::fixed_costs::FixedCosts;

/// Costs by node. Below 0 the node is unusable, and pods on it violate the rule.
#[derive(Clone)]
pub struct NodeJudge {
    client: Client,
    fixed: FixedCosts,
    pub evaluations: Arc<AtomicU64>,
}

impl NodeJudge {
    pub fn new(client: &Client, costs: &[(&str, i64)]) -> Self {
        Self {
            client: client.clone(),
            fixed: FixedCosts::new(costs),
            evaluations: Arc::default(),
        }
    }

    pub fn set(&self, costs: &[(&str, i64)]) {
        self.fixed.set(costs);
    }

    pub fn evaluations(&self) -> u64 {
        self.evaluations.load(Ordering::Relaxed)
    }

    async fn node(&self, namespace: &str, pod: &str) -> Result<Option<String>, ProviderError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let found = pods.get_opt(pod).await;
        let found = found.map_err(|e| ProviderError::Internal(e.to_string()))?;
        Ok(found.and_then(|p| p.spec?.node_name))
    }
}

impl RuleProvider for NodeJudge {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        self.fixed.endpoint_cost(request).await
    }

    async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        self.evaluations.fetch_add(1, Ordering::Relaxed);
        let pod = request.targets.values().find(|t| t.kind == "Pod");
        let pod = pod.ok_or_else(|| ProviderError::Internal("no pod".into()))?;
        let Some(node) = self.node(&pod.namespace, &pod.name).await? else {
            return Ok(Evaluation::new(Compliance::Pending, "not placed yet"));
        };
        let cost = self.fixed.costs.lock().unwrap().get(&node).copied();
        Ok(match cost {
            Some(0..) => Evaluation::compliant(format!("{node} is near")),
            _ => Evaluation::violation(format!("{node} is far")),
        })
    }
}
