//! From the wire to the trait and back.

use std::{future::Future, sync::Arc, time::Instant};

use tautline_proto::ruleprovider::{self as wire, rule_provider_server};
use tonic::{Code, Request, Response, Status};

use crate::{
    EvaluateQuestion, RuleProvider,
    metrics::Metrics,
    types::{ProviderError, reference},
};

pub(crate) struct Service<P> {
    pub(crate) provider: Arc<P>,
    pub(crate) metrics: Metrics,
}

impl<P> Service<P> {
    async fn observed<T, A>(
        &self,
        rpc: &'static str,
        answer: impl Future<Output = Result<A, ProviderError>> + Send,
    ) -> Result<Response<T>, Status>
    where
        T: From<A>,
    {
        let start = Instant::now();
        let result = answer.await.map_err(Status::from);
        let code = match &result {
            Ok(_) => "OK",
            Err(s) if s.code() == Code::InvalidArgument => "INVALID_ARGUMENT",
            Err(s) if s.code() == Code::FailedPrecondition => "FAILED_PRECONDITION",
            Err(_) => "INTERNAL",
        };
        self.metrics.observe(rpc, code, start.elapsed());
        result.map(|a| Response::new(T::from(a)))
    }
}

#[tonic::async_trait]
impl<P: RuleProvider> rule_provider_server::RuleProvider for Service<P> {
    async fn evaluate(
        &self,
        request: Request<wire::EvaluateRequest>,
    ) -> Result<Response<wire::EvaluateResponse>, Status> {
        let ask = request.into_inner();
        let question = EvaluateQuestion {
            targets: ask
                .targets
                .into_iter()
                .map(|(n, t)| (n, reference(t)))
                .collect(),
            rule: ask.rule.unwrap_or_default().into(),
        };
        self.observed("Evaluate", self.provider.evaluate(question))
            .await
    }

    async fn endpoint_cost(
        &self,
        request: Request<wire::EndpointCostRequest>,
    ) -> Result<Response<wire::EndpointCostResponse>, Status> {
        let question = request.into_inner().into();
        self.observed("EndpointCost", self.provider.endpoint_cost(question))
            .await
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
