//! Plans a pod: makes a round of its rules, gets the underlay's offers if the rules leave no node,
//! and chooses the answer.

use tautline_core::{
    Snapshot,
    answer::{self, Answer, AnswerMode},
    constraints::PodConstraints,
    model::Resources,
    quantity,
};
use tautline_provider_client::PlanningQuestion;
use tautline_traces::Span;
use tokio::time::Instant;

use crate::{plans::PodPlan, state::State, underlay::Discovery};

/// Plans a pod. Discover ends a little before `deadline`.
pub(crate) async fn plan_pod(
    state: &State,
    snapshot: &Snapshot,
    constraints: &[PodConstraints],
    question: PlanningQuestion,
    deadline: Instant,
) -> PodPlan {
    let providers = &state.providers;
    let mode = state.config.answer;
    let requests = match mode {
        AnswerMode::Decisive => requests(&question),
        AnswerMode::Ties | AnswerMode::Shortlist(_) => Resources::default(),
    };
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
    let free = |node: &str| answer::least_allocated(snapshot, node, &requests);
    let answer = Answer::new(&round.plan, &round.nodes, mode, &round.subject.uid, free);
    PodPlan {
        round,
        underlay,
        answer,
        mode,
        span: Span::current().reference(),
    }
}

/// The resources by which kube-scheduler scores nodes.
fn requests(question: &PlanningQuestion) -> Resources {
    let of = |resource| {
        let text = question.requests.get(resource)?;
        Some((resource, quantity::parse_milli(text).ok()?))
    };
    ["cpu", "memory"].into_iter().filter_map(of).collect()
}
