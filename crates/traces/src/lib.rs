//! Records OpenTelemetry spans, and sends them to a collector over OTLP (gRPC). Traces are off by
//! default: a span is then `None`, and nothing is allocated.
//!
//! ```
//! use tautline_traces::{Caller, KeyValue, Span, Traces};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tautline_traces::TraceError> {
//! // Traces are on with a URL here or in OTEL_EXPORTER_OTLP_ENDPOINT.
//! let traces = Traces::start("my-provider", None)?;
//! let span = traces.span("measure", &Caller::default());
//! let work = async {
//!     // This span is a child of `measure`.
//!     let call = Span::of_call("table.Table/Read");
//!     call.scope(async { 7 }).await
//! };
//! let answer = span.scope(work).await;
//! span.record(|| [KeyValue::new("answer", answer)]);
//! drop(span);
//! traces.end().await;
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod collector;
mod headers;
mod settings;
mod span;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::HeaderMap;
use opentelemetry::{
    Array, Context, StringValue, Value,
    trace::{SpanBuilder, SpanKind, TraceContextExt, TracerProvider},
};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

pub use opentelemetry::KeyValue;

pub use self::{
    headers::TraceHeaders,
    span::{Scoped, Span},
};

/// The time that the last spans have to reach the collector when a process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The error of an invalid setting of traces. Its text names the setting and the fix.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TraceError(String);

/// Starts the spans of a process and sends them to the collector; off by default. It is cheap to
/// clone, and clones share the queue.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<Arc<Pipeline>>);

/// The span of a request's caller, and the time at which the request arrived.
#[derive(Clone, Debug, Default)]
pub struct Caller(Option<(Context, SystemTime)>);

impl Caller {
    /// Returns the caller, with the span `earlier` if the request named no span.
    #[must_use]
    pub fn or(&self, earlier: &Span) -> Self {
        let has_span = |context: &Context| context.span().span_context().is_valid();
        Self(self.0.as_ref().map(|(own, at)| {
            if has_span(own) {
                (own.clone(), *at)
            } else {
                (earlier.context(), *at)
            }
        }))
    }
}

#[derive(Debug)]
struct Pipeline {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Traces {
    /// Turns traces on if `endpoint` or OpenTelemetry's environment variables name a collector. The
    /// variables have all other settings, and may name another service than `service`. The call
    /// needs a tokio runtime. An unreachable collector is no error.
    ///
    /// # Errors
    /// A setting is malformed, or not supported.
    pub fn start(service: &'static str, endpoint: Option<&str>) -> Result<Self, TraceError> {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some(settings) = settings::Settings::read(endpoint, env)? else {
            return Ok(Self::default());
        };
        tracing::info!(endpoint = %settings.endpoint, "traces are on");
        let provider = collector::provider(service, settings, env)?;
        let tracer = provider.tracer("tautline");
        Ok(Self(Some(Arc::new(Pipeline { provider, tracer }))))
    }

    /// Returns whether traces are on.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the caller of a request that has arrived just now, read from the request's headers.
    pub fn caller(&self, headers: &HeaderMap) -> Caller {
        let is_on = self.0.as_ref();
        Caller(is_on.map(|_| (headers::parent(headers), SystemTime::now())))
    }

    /// Starts a span for the caller's request, or for work without a request ([`Caller::default`]).
    pub fn span(&self, name: &'static str, caller: &Caller) -> Span {
        let Some(pipeline) = &self.0 else {
            return Span::default();
        };
        let builder = SpanBuilder::from_name(name);
        match &caller.0 {
            None => Span::start(&pipeline.tracer, builder, &Context::new()),
            Some((parent, at)) => {
                let builder = builder.with_kind(SpanKind::Server).with_start_time(*at);
                Span::start(&pipeline.tracer, builder, parent)
            }
        }
    }

    /// Sends the spans in the queue, and turns traces off. Takes at most a few seconds.
    pub async fn end(self) {
        let Some(pipeline) = self.0 else {
            return;
        };
        // The SDK's call blocks.
        let end = move || pipeline.provider.shutdown_with_timeout(FLUSH_TIMEOUT);
        let ended = tokio::task::spawn_blocking(end);
        _ = tokio::time::timeout(2 * FLUSH_TIMEOUT, ended).await;
    }
}

/// Returns an attribute whose value is a list of texts.
pub fn texts<'a>(key: &'static str, values: impl Iterator<Item = &'a str>) -> KeyValue {
    let values = values.map(|v| StringValue::from(v.to_owned())).collect();
    KeyValue::new(key, Value::Array(Array::String(values)))
}

/// Returns an attribute whose value is a count.
pub fn count(key: &'static str, value: usize) -> KeyValue {
    KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX))
}
