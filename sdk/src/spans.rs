//! Records a span of each call of a rule, below the span that the caller's headers name.

use std::task::{Context, Poll};

use tautline_traces::{KeyValue, Scoped, Traces};
use tonic::{
    body::Body,
    codegen::{Service, http::Request},
};

const CALLS: [&str; 5] = [
    "ruleprovider.RuleProvider/EndpointCost",
    "ruleprovider.RuleProvider/Evaluate",
    "tautline.allocator.v1.Allocator/Reserve",
    "tautline.allocator.v1.Allocator/Confirm",
    "tautline.allocator.v1.Allocator/Release",
];

#[derive(Clone)]
pub(crate) struct TracedRoutes<S> {
    pub routes: S,
    pub traces: Traces,
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for TracedRoutes<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Scoped<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.routes.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path().strip_prefix('/');
        let call = CALLS.iter().find(|call| Some(**call) == path);
        let span = match call.filter(|_| self.traces.is_on()) {
            Some(call) => self
                .traces
                .span(call, &self.traces.caller(request.headers())),
            None => tautline_traces::Span::default(),
        };
        span.record(|| [KeyValue::new("rpc.system", "grpc")]);
        span.scope(self.routes.call(request))
    }
}
