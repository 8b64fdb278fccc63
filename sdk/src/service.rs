//! From the wire to the traits and back.

use std::sync::Arc;

use tautline_proto::{
    allocator::{self, allocator_server},
    ruleprovider::{self as wire, rule_provider_server},
};
use tonic::{Request, Response, Status};

use crate::{
    Allocator, AllocatorError, CostQuestion, EvaluateQuestion, ReserveQuestion, RuleProvider,
    deadline, metrics::Metrics, types::reference,
};

pub(crate) struct RuleService<P> {
    pub(crate) provider: Arc<P>,
    pub(crate) metrics: Metrics,
}

#[tonic::async_trait]
impl<P: RuleProvider> rule_provider_server::RuleProvider for RuleService<P> {
    async fn evaluate(
        &self,
        request: Request<wire::EvaluateRequest>,
    ) -> Result<Response<wire::EvaluateResponse>, Status> {
        let deadline = deadline::of(request.metadata());
        let ask = request.into_inner();
        let question = EvaluateQuestion {
            targets: ask
                .targets
                .into_iter()
                .map(|(n, t)| (n, reference(t)))
                .collect(),
            rule: ask.rule.unwrap_or_default().into(),
            deadline,
        };
        let answer = self.provider.evaluate(question);
        self.metrics.observed("Evaluate", answer).await
    }

    async fn endpoint_cost(
        &self,
        request: Request<wire::EndpointCostRequest>,
    ) -> Result<Response<wire::EndpointCostResponse>, Status> {
        let question = CostQuestion {
            deadline: deadline::of(request.metadata()),
            ..request.into_inner().into()
        };
        let answer = self.provider.endpoint_cost(question);
        self.metrics.observed("EndpointCost", answer).await
    }
}

pub(crate) struct AllocatorService<A> {
    pub(crate) allocator: Arc<A>,
    pub(crate) metrics: Metrics,
}

#[tonic::async_trait]
impl<A: Allocator> allocator_server::Allocator for AllocatorService<A> {
    async fn reserve(
        &self,
        request: Request<allocator::ReserveRequest>,
    ) -> Result<Response<allocator::ReserveResponse>, Status> {
        let ask = ReserveQuestion::from(request);
        let answer = async {
            // Two pods without a UID would share one reservation.
            for (field, value) in [("uid", &ask.uid), ("node", &ask.node)] {
                if value.is_empty() {
                    let what = format!("ReserveRequest, {field}: empty; say which it is");
                    return Err(AllocatorError::BadRule(what));
                }
            }
            self.allocator.reserve(ask).await
        };
        self.metrics.observed("Reserve", answer).await
    }

    async fn confirm(
        &self,
        request: Request<allocator::ConfirmRequest>,
    ) -> Result<Response<allocator::ConfirmResponse>, Status> {
        let done = self.allocator.confirm(request.into());
        let answer = async { done.await.map(|()| allocator::ConfirmResponse {}) };
        self.metrics.observed("Confirm", answer).await
    }

    async fn release(
        &self,
        request: Request<allocator::ReleaseRequest>,
    ) -> Result<Response<allocator::ReleaseResponse>, Status> {
        let done = self.allocator.release(request.into());
        let answer = async { done.await.map(|()| allocator::ReleaseResponse {}) };
        self.metrics.observed("Release", answer).await
    }
}

impl From<crate::Evaluation> for wire::EvaluateResponse {
    fn from(evaluation: crate::Evaluation) -> Self {
        Self {
            compliance: evaluation.compliance as i32,
            reason: evaluation.reason,
        }
    }
}
