//! Plans a pod: a round of its rules, then the underlay's offers if the rules leave no node.

use tautline_core::{Snapshot, constraints::PodConstraints};
use tautline_provider_client::PlanningQuestion;
use tokio::time::Instant;

use crate::{plans::PodPlan, state::State, underlay::Discovery};

/// Discover ends a little before `deadline`.
pub(crate) async fn plan_pod(
    state: &State,
    snapshot: &Snapshot,
    constraints: &[PodConstraints],
    question: PlanningQuestion,
    deadline: Instant,
) -> PodPlan {
    let providers = &state.providers;
    let mut round = providers.plan_with(snapshot, constraints, question).await;
    let no_node = round.plan.usable().next().is_none() && !round.nodes.is_empty();
    let service = providers.underlay(snapshot, &round.subject.namespace);
    let underlay = match service.filter(|_| no_node) {
        None => None,
        Some(service) => {
            let discovery = Discovery {
                providers,
                snapshot,
                service,
                constraints,
                can_bind: state.config.bind,
                deadline,
            };
            let result = discovery.run(&mut round).await;
            state.metrics.underlay_discover(result.code);
            if let Some(error) = &result.error {
                tracing::debug!(service = %result.service, code = result.code, %error, "the underlay offered nothing");
            }
            Some(result)
        }
    };
    PodPlan { round, underlay }
}
