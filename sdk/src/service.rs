//! The gRPC services, which turn messages into calls of the traits, and back.

use std::{
    any::Any,
    convert::Infallible,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use tautline_proto::{
    allocator::{self, allocator_server},
    ruleprovider::{self as wire, rule_provider_server::SERVICE_NAME},
};
use tautline_serve::admin::Readiness;
use tonic::{
    Request, Response, Status,
    body::Body,
    codec::Codec,
    codegen::{BoxFuture, Service, http},
    server::{Grpc, NamedService, UnaryService},
};
use tonic_prost::ProstCodec;

use crate::{
    Allocator, AllocatorError, CostAnswer, CostRequest, EvaluationRequest, ReservationRequest,
    RuleProvider,
    codec::CostCodec,
    deadline,
    metrics::Metrics,
    types::reference,
    watch_costs::{CostStreams, WatchCosts},
};

/// The maximum size of a request, which fits 100,000 node names of 63 bytes.
const MAX_REQUEST_BYTES: usize = 16 << 20;

#[derive(Clone)]
pub(crate) struct ReadinessGate {
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Metrics,
}

impl ReadinessGate {
    /// Fails until the server is ready. A restarted container has the same address and gets calls
    /// at once. It must not answer from incomplete lists; callers try another replica.
    pub(crate) fn ready(&self) -> Result<(), Status> {
        let missing = self.readiness.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let names = missing.join(", ");
        Err(Status::unavailable(format!(
            "not ready: waiting for {names}"
        )))
    }

    pub(crate) async fn pass<T, A, E>(
        &self,
        rpc: &'static str,
        answer: impl Future<Output = Result<A, E>> + Send,
    ) -> Result<Response<T>, Status>
    where
        T: From<A>,
        Status: From<E>,
    {
        let answer = async {
            self.ready()?;
            match caught(answer).await {
                Ok(answered) => answered.map_err(Status::from),
                Err(panic) => Err(Status::internal(format!("{rpc} panicked: {panic}"))),
            }
        };
        let answered = self.metrics.observed(rpc, answer).await.map_err(short);
        #[cfg(feature = "traces")]
        if let Err(status) = &answered {
            let why = || format!("{:?}: {}", status.code(), status.message());
            tautline_traces::Span::current().fail(why);
        }
        answered
    }
}

/// Cuts the message of a status: metadata has a bound of 16 KiB, and a longer text breaks the
/// connection.
fn short(status: Status) -> Status {
    const MAX_CHARS: usize = 1000;
    let Some((cut, _)) = status.message().char_indices().nth(MAX_CHARS) else {
        return status;
    };
    Status::new(status.code(), format!("{} ...", &status.message()[..cut]))
}

/// Returns the future's output, or the message of its panic. Without this the call would break off
/// without a reason.
pub(crate) async fn caught<T>(answer: impl Future<Output = T>) -> Result<T, String> {
    let mut answer = pin!(answer);
    let poll = |context: &mut Context<'_>| {
        let polled = catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)));
        polled.map_or_else(|panic| Poll::Ready(Err(message(&*panic))), |p| p.map(Ok))
    };
    poll_fn(poll).await
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a message".to_owned())
}

/// The service of a rule provider. It reads and writes the lines of EndpointCost in place, without
/// a message per node.
pub(crate) struct RuleService<P> {
    pub(crate) provider: Arc<P>,
    pub(crate) gate: ReadinessGate,
    pub(crate) streams: CostStreams,
}

impl<P> Clone for RuleService<P> {
    fn clone(&self) -> Self {
        Self {
            provider: Arc::clone(&self.provider),
            gate: self.gate.clone(),
            streams: self.streams.clone(),
        }
    }
}

impl<P> NamedService for RuleService<P> {
    const NAME: &'static str = SERVICE_NAME;
}

impl<P: RuleProvider> Service<http::Request<Body>> for RuleService<P> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/ruleprovider.RuleProvider/Evaluate" => {
                    let mut grpc = grpc(ProstCodec::default());
                    grpc.unary(Evaluate(service), request).await
                }
                "/ruleprovider.RuleProvider/EndpointCost" => {
                    grpc(CostCodec).unary(EndpointCost(service), request).await
                }
                "/ruleprovider.RuleProvider/WatchCosts" => {
                    let mut grpc = grpc(ProstCodec::default());
                    grpc.streaming(WatchCosts(service), request).await
                }
                _ => Status::unimplemented("").into_http(),
            })
        })
    }
}

fn grpc<C: Codec>(codec: C) -> Grpc<C> {
    Grpc::new(codec).max_decoding_message_size(MAX_REQUEST_BYTES)
}

struct Evaluate<P>(RuleService<P>);

impl<P: RuleProvider> UnaryService<wire::EvaluateRequest> for Evaluate<P> {
    type Response = wire::EvaluateResponse;
    type Future = BoxFuture<Response<Self::Response>, Status>;

    fn call(&mut self, request: Request<wire::EvaluateRequest>) -> Self::Future {
        let RuleService { provider, gate, .. } = self.0.clone();
        let deadline = deadline::from_metadata(request.metadata());
        let request = request.into_inner();
        let (targets, nodes) = (
            request.targets.into_iter(),
            request.target_nodes.into_iter(),
        );
        let question = EvaluationRequest {
            targets: targets.map(|(n, t)| (n, reference(t))).collect(),
            target_nodes: nodes
                .map(|(name, node)| (name, Some(node).filter(|n| !n.is_empty())))
                .collect(),
            rule: request.rule.unwrap_or_default().into(),
            deadline,
        };
        Box::pin(async move {
            let answer = async { provider.evaluate(question).await };
            gate.pass("Evaluate", answer).await
        })
    }
}

struct EndpointCost<P>(RuleService<P>);

impl<P: RuleProvider> UnaryService<CostRequest> for EndpointCost<P> {
    type Response = CostAnswer;
    type Future = BoxFuture<Response<Self::Response>, Status>;

    fn call(&mut self, request: Request<CostRequest>) -> Self::Future {
        let RuleService { provider, gate, .. } = self.0.clone();
        let deadline = deadline::from_metadata(request.metadata());
        let question = CostRequest {
            deadline,
            ..request.into_inner()
        };
        Box::pin(async move {
            let answer = async { provider.endpoint_cost(question).await };
            gate.pass("EndpointCost", answer).await
        })
    }
}

pub(crate) struct AllocatorService<A> {
    pub(crate) allocator: Arc<A>,
    pub(crate) gate: ReadinessGate,
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
        self.gate.pass("Reserve", answer).await
    }

    async fn confirm(
        &self,
        request: Request<allocator::ConfirmRequest>,
    ) -> Result<Response<allocator::ConfirmResponse>, Status> {
        let answer = async {
            let done = self.allocator.confirm(request.into()).await;
            done.map(|()| allocator::ConfirmResponse {})
        };
        self.gate.pass("Confirm", answer).await
    }

    async fn release(
        &self,
        request: Request<allocator::ReleaseRequest>,
    ) -> Result<Response<allocator::ReleaseResponse>, Status> {
        let answer = async {
            let done = self.allocator.release(request.into()).await;
            done.map(|()| allocator::ReleaseResponse {})
        };
        self.gate.pass("Release", answer).await
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
