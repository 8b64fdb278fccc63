//! Records a span of each call of a rule, below the span that the caller's headers name.

use std::future::Future;

use tautline_traces::{KeyValue, Scoped, Span, Traces};
use tonic::{body::Body, codegen::http::Request};

const CALLS: [&str; 5] = [
    "ruleprovider.RuleProvider/EndpointCost",
    "ruleprovider.RuleProvider/Evaluate",
    "tautline.allocator.v1.Allocator/Reserve",
    "tautline.allocator.v1.Allocator/Confirm",
    "tautline.allocator.v1.Allocator/Release",
];

pub(crate) fn traced<F: Future>(
    traces: Traces,
    routes: impl Fn(Request<Body>) -> F + Clone,
) -> impl Fn(Request<Body>) -> Scoped<F> + Clone {
    move |request| {
        let path = request.uri().path().strip_prefix('/');
        let call = CALLS.iter().find(|call| Some(**call) == path);
        let span = match call.filter(|_| traces.is_on()) {
            Some(call) => traces.span(call, &traces.caller(request.headers())),
            None => Span::default(),
        };
        span.record(|| [KeyValue::new("rpc.system", "grpc")]);
        span.scope(routes(request))
    }
}
