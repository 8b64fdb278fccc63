//! Spans of calls: a channel that sends the headers of the caller's span, and the attributes of a
//! finished call.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tautline_core::{model::Service, providers::Address};
use tautline_traces::{KeyValue, Span, TraceHeaders};
use tonic::{body::Body, transport::Channel};

use crate::{CallError, pool::Connection, question::provider_name};

pub(crate) const ENDPOINT_COST: &str = "ruleprovider.RuleProvider/EndpointCost";
pub(crate) const EVALUATE: &str = "ruleprovider.RuleProvider/Evaluate";

/// A channel to a provider; its requests have the headers of the span of the call.
#[derive(Clone, Debug)]
pub(crate) struct TracedChannel {
    channel: Channel,
    headers: Option<TraceHeaders>,
}

impl TracedChannel {
    pub(crate) fn new(channel: Channel, headers: Option<TraceHeaders>) -> Self {
        Self { channel, headers }
    }
}

impl tower::Service<Request<Body>> for TracedChannel {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future = <Channel as tower::Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        tower::Service::poll_ready(&mut self.channel, cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(headers) = &self.headers {
            headers.insert(request.headers_mut());
        }
        tower::Service::call(&mut self.channel, request)
    }
}

/// Records the outcome of a call; `rule` may be empty.
pub(crate) fn record<T>(
    span: &Span,
    rpc: &'static str,
    (service, rule): (&Service, &str),
    result: &Result<(T, Arc<Connection>), CallError>,
) {
    span.record(|| {
        let (name, method) = rpc.split_once('/').unwrap_or((rpc, ""));
        let mut attributes = vec![
            KeyValue::new("rpc.system", "grpc"),
            KeyValue::new("rpc.service", name),
            KeyValue::new("rpc.method", method),
            KeyValue::new("tautline.provider", provider_name(service)),
        ];
        if !rule.is_empty() {
            attributes.push(KeyValue::new("tautline.rule", rule.to_owned()));
        }
        match result {
            Ok((_, by)) => attributes.push(address(&by.address)),
            Err(error) => attributes.push(KeyValue::new("error.type", error.code())),
        }
        attributes
    });
    if let Err(error) = result {
        span.fail(|| error.to_string());
    }
}

fn address(address: &Address) -> KeyValue {
    KeyValue::new("network.peer.address", address.to_string())
}
