//! The gRPC services, which turn messages into calls of the traits, and back.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use tautline_proto::{
    allocator::{self, allocator_server},
    ruleprovider::{self as wire, rule_provider_server::SERVICE_NAME},
};
use tokio_util::sync::CancellationToken;
use tonic::{
    Request, Response, Status,
    body::Body,
    codec::Codec,
    codegen::{BoxFuture, Service, http},
    server::{Grpc, NamedService},
};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::{
    Allocator, AllocatorError, CostAnswer, CostRequest, EvaluationRequest, ReservationRef,
    ReservationRequest, RuleProvider, answer::CostCodec, calls::time_left,
    cost_streams::CostStreams, gate::Gate, types::reference,
};

/// The maximum size of a request, which fits 100,000 node names of 63 bytes.
pub(crate) const MAX_REQUEST_BYTES: usize = 16 << 20;

/// The service of a rule provider, an `Arc`. It writes the lines of EndpointCost in place, without a
/// message per node.
#[derive(Clone)]
pub(crate) struct RuleService<P> {
    pub(crate) provider: P,
    pub(crate) gate: Gate,
    pub(crate) streams: Arc<CostStreams>,
    pub(crate) stop: CancellationToken,
}

impl<P> NamedService for RuleService<P> {
    const NAME: &'static str = SERVICE_NAME;
}

impl<P: RuleProvider> Service<http::Request<Body>> for RuleService<Arc<P>> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        let left = time_left(request.headers());
        let deadline = left.and_then(|left| Instant::now().checked_add(left));
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/ruleprovider.RuleProvider/Evaluate" => {
                    let answer = service_fn(|asked| service.evaluate(asked, deadline));
                    grpc(ProstCodec::default()).unary(answer, request).await
                }
                "/ruleprovider.RuleProvider/EndpointCost" => {
                    let answer = service_fn(|asked| service.endpoint_cost(asked, deadline));
                    grpc(CostCodec).unary(answer, request).await
                }
                "/ruleprovider.RuleProvider/WatchCosts" => {
                    let answer = service_fn(|asked| service.watch_costs(asked));
                    grpc(ProstCodec::default()).streaming(answer, request).await
                }
                _ => Status::unimplemented("").into_http(),
            })
        })
    }
}

fn grpc<C: Codec>(codec: C) -> Grpc<C> {
    Grpc::new(codec).max_decoding_message_size(MAX_REQUEST_BYTES)
}

impl<P: RuleProvider> RuleService<Arc<P>> {
    async fn evaluate(
        &self,
        request: Request<wire::EvaluateRequest>,
        deadline: Option<Instant>,
    ) -> Result<Response<wire::EvaluateResponse>, Status> {
        let request = request.into_inner();
        let targets = request.targets.into_iter();
        let nodes = request.target_nodes.into_iter();
        let places = request.target_places.into_iter();
        let question = EvaluationRequest {
            targets: targets.map(|(n, t)| (n, reference(t))).collect(),
            target_places: places.map(|(name, all)| (name, all.places)).collect(),
            target_nodes: nodes
                .map(|(name, node)| (name, Some(node).filter(|n| !n.is_empty())))
                .collect(),
            rule: request.rule.unwrap_or_default().into(),
            deadline,
        };
        let answer = async { self.provider.evaluate(question).await };
        let evaluation = self.gate.pass("Evaluate", answer).await?;
        Ok(Response::new(wire::EvaluateResponse {
            compliance: evaluation.compliance as i32,
            reason: evaluation.reason,
        }))
    }

    async fn endpoint_cost(
        &self,
        request: Request<wire::EndpointCostRequest>,
        deadline: Option<Instant>,
    ) -> Result<Response<CostAnswer>, Status> {
        let question = CostRequest {
            deadline,
            ..request.into_inner().into()
        };
        let answer = async { self.provider.endpoint_cost(question).await };
        let answered = self.gate.pass("EndpointCost", answer).await;
        answered.map(Response::new)
    }
}

pub(crate) struct AllocatorService<A> {
    pub(crate) allocator: Arc<A>,
    pub(crate) gate: Gate,
}

#[tonic::async_trait]
impl<A: Allocator> allocator_server::Allocator for AllocatorService<A> {
    async fn reserve(
        &self,
        request: Request<allocator::ReserveRequest>,
    ) -> Result<Response<allocator::ReserveResponse>, Status> {
        let request = ReservationRequest::from(request);
        let answer = async {
            // Pods without a UID would share one reservation.
            for (field, value) in [("uid", &request.uid), ("node", &request.node)] {
                if value.is_empty() {
                    let what = format!("ReserveRequest, {field}: empty; say which it is");
                    return Err(AllocatorError::BadRule(what));
                }
            }
            self.allocator.reserve(request).await
        };
        let reserved = self.gate.pass("Reserve", answer).await?;
        Ok(Response::new(reserved.into()))
    }

    async fn confirm(
        &self,
        request: Request<allocator::ConfirmRequest>,
    ) -> Result<Response<allocator::ConfirmResponse>, Status> {
        let reservation = ReservationRef::new(request, |request| request.id);
        let answer = async { self.allocator.confirm(reservation).await };
        self.gate.pass("Confirm", answer).await?;
        Ok(Response::new(allocator::ConfirmResponse {}))
    }

    async fn release(
        &self,
        request: Request<allocator::ReleaseRequest>,
    ) -> Result<Response<allocator::ReleaseResponse>, Status> {
        let reservation = ReservationRef::new(request, |request| request.id);
        let answer = async { self.allocator.release(reservation).await };
        self.gate.pass("Release", answer).await?;
        Ok(Response::new(allocator::ReleaseResponse {}))
    }
}
