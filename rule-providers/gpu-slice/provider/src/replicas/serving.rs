//! A provider that reserves, as a process.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use kube::Client;
use tautline_runtime::tasks::{self, Tasks};
use tautline_sdk::{
    Allocator, CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
    Server,
};

use super::{Config, Replicas};

/// Serves `provider` with its reservations until SIGTERM or Ctrl-C; without a
/// configuration as the only replica.
///
/// # Errors
/// TLS files that do not load, or a task that fails.
pub async fn serve<P: RuleProvider + Allocator>(
    mut server: Server,
    provider: P,
    config: Option<Config>,
    client: Client,
    mut tasks: Tasks,
) -> Result<()> {
    let provider = Arc::new(provider);
    let inner = Arc::clone(&provider);
    let allocator = match config {
        None => Replicas::alone(inner, &mut server),
        Some(config) => Replicas::of_lease(inner, config, client, &mut server, &mut tasks)?,
    };
    tracing::info!(address = %server.address(), "rule provider listening");
    let costs = Costs {
        provider,
        replicas: Arc::clone(&allocator),
    };
    server.spawn_with_allocator(Arc::new(costs), allocator, &mut tasks)?;
    tasks.run(tasks::shutdown_signal()).await
}

/// What a replica says. One that does not grant does not know of all that is reserved:
/// it numbers no answer, and none holds for a while, so that whoever asks for changes asks the one that grants.
struct Costs<P> {
    provider: Arc<P>,
    replicas: Arc<Replicas<P>>,
}

impl<P: RuleProvider + Allocator> RuleProvider for Costs<P> {
    async fn endpoint_cost(&self, mut ask: CostRequest) -> Result<CostAnswer, ProviderError> {
        if self.replicas.grants() {
            return self.provider.endpoint_cost(ask).await;
        }
        ask.known_version = 0;
        let mut answer = self.provider.endpoint_cost(ask).await?;
        answer.version = 0;
        Ok(answer.valid_for(Duration::ZERO))
    }

    async fn evaluate(&self, ask: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        self.provider.evaluate(ask).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tautline_core::{index::Object, model};
    use tautline_runtime::cluster_store::ClusterStore;
    use tautline_sdk::{MAX_HOLD, Rule, testkit};

    use super::{
        super::{Granting, Role},
        *,
    };
    use crate::GpuSlice;

    #[tokio::test]
    async fn only_the_replica_that_grants_numbers_its_answers() {
        let feed = ClusterStore::default();
        feed.apply(Object::Node(model::Node {
            name: "n1".into(),
            ..model::Node::default()
        }));
        feed.set_pods_quiet(Instant::now() + Duration::from_secs(60));
        let provider = Arc::new(GpuSlice::new(feed, crate::Config::default()));
        let mut server = Server::bind(testkit::loopback()).await.unwrap();
        let replicas = Replicas::new(Arc::clone(&provider), MAX_HOLD, &mut server);
        let replicas = Arc::new(replicas);
        let costs = Costs {
            provider,
            replicas: Arc::clone(&replicas),
        };
        let ask = async |known_version| {
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
        assert_eq!(ask(0).await, (0, 0));
        let (from, term) = (Instant::now(), None);
        replicas.take(Role::Granting(Granting { term, from }));
        let (version, _) = ask(0).await;
        assert_ne!(version, 0);
        assert_eq!(ask(version).await, (version, version));
        replicas.take(Role::Standby(None));
        assert_eq!(ask(version).await, (0, 0));
    }
}
