use std::{sync::Arc, time::Duration};

use tautline_sdk::{
    Allocator, CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
};

use super::Replicas;

/// A standby lacks reservations: its answers have no version and no validity.
pub(crate) struct ReplicaCosts<P> {
    pub provider: Arc<P>,
    pub replicas: Arc<Replicas<P>>,
}

impl<P: RuleProvider + Allocator> RuleProvider for ReplicaCosts<P> {
    async fn endpoint_cost(&self, mut request: CostRequest) -> Result<CostAnswer, ProviderError> {
        if self.replicas.grants() {
            return self.provider.endpoint_cost(request).await;
        }
        request.known_version = 0;
        let mut answer = self.provider.endpoint_cost(request).await?;
        answer.version = 0;
        Ok(answer.valid_for(Duration::ZERO))
    }

    async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        self.provider.evaluate(request).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tautline_core::{index::Object, model};
    use tautline_runtime::cluster_store::ClusterStore;
    use tautline_sdk::{MAX_HOLD, Rule, Server, testkit};

    use super::{
        super::{Granting, Role},
        *,
    };
    use crate::GpuSlice;

    #[tokio::test]
    async fn only_the_granting_replica_versions_its_answers() {
        let store = ClusterStore::default();
        store.apply(Object::Node(model::Node {
            name: "n1".into(),
            ..model::Node::default()
        }));
        store.set_pods_quiet(Instant::now() + Duration::from_secs(60));
        let provider = Arc::new(GpuSlice::new(store, crate::Config::default()));
        let mut server = Server::bind(testkit::loopback()).await.unwrap();
        let replicas = Replicas::new(Arc::clone(&provider), MAX_HOLD, &mut server);
        let replicas = Arc::new(replicas);
        let costs = ReplicaCosts {
            provider,
            replicas: Arc::clone(&replicas),
        };
        let versions_since = async |known_version| {
            let question = CostRequest {
                eligible_nodes: vec!["n1".into()],
                known_version,
                rule: Rule {
                    request: "1".into(),
                    ..Rule::default()
                },
                ..CostRequest::default()
            };
            let answer = costs.endpoint_cost(question).await.unwrap();
            assert_eq!(answer.nodes().len(), 1);
            assert_eq!(answer.valid_for.is_zero(), answer.version == 0);
            (answer.version, answer.changed_since)
        };
        assert_eq!(versions_since(0).await, (0, 0));
        let (not_before, term) = (Instant::now(), None);
        replicas.set_role(Role::Granting(Granting { term, not_before }));
        let (version, _) = versions_since(0).await;
        assert_ne!(version, 0);
        assert_eq!(versions_since(version).await, (version, version));
        replicas.set_role(Role::Standby(None));
        assert_eq!(versions_since(version).await, (0, 0));
    }
}
