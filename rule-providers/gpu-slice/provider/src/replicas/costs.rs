use std::sync::Arc;

use tautline_sdk::{
    Allocator, CostAnswer, CostChanges, CostRequest, Evaluation, EvaluationRequest, InFlightPod,
    ProviderError, RuleProvider,
};

use super::Replicas;

/// A provider that sends changes of costs only while its replica grants. A standby does not know
/// the reservations.
pub(crate) struct ReplicaCosts<P> {
    pub provider: Arc<P>,
    pub replicas: Arc<Replicas<P>>,
}

impl<P: RuleProvider + Allocator> RuleProvider for ReplicaCosts<P> {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        self.provider.endpoint_cost(request).await
    }

    async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        self.provider.evaluate(request).await
    }

    fn changes(&self) -> Option<&CostChanges> {
        let grants = self.replicas.grants();
        self.provider.changes().filter(|_| grants)
    }

    fn placed(&self, pod: InFlightPod) {
        self.provider.placed(pod);
    }

    fn ended(&self, uid: &str) {
        self.provider.ended(uid);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::gauge::Gauge;
    use tautline_runtime::cluster_store::ClusterStore;
    use tautline_sdk::MAX_HOLD;

    use super::{
        super::{Granting, Role},
        *,
    };
    use crate::GpuSlice;

    #[tokio::test]
    async fn only_the_granting_replica_sends_costs_ahead() {
        let provider = GpuSlice::new(ClusterStore::default(), crate::Config::default());
        let provider = Arc::new(provider);
        let replicas = Replicas::new(Arc::clone(&provider), MAX_HOLD, Gauge::default());
        let replicas = Arc::new(replicas);
        let costs = ReplicaCosts {
            provider,
            replicas: Arc::clone(&replicas),
        };
        assert!(costs.changes().is_none());
        let (not_before, term) = (std::time::Instant::now(), None);
        replicas.set_role(Role::Granting(Granting { term, not_before }));
        assert!(costs.changes().is_some());
        replicas.set_role(Role::Standby(None));
        assert!(costs.changes().is_none());
    }
}
