//! Spans by OpenTelemetry, sent to a collector over OTLP (gRPC). Off by default: a span is then
//! `None`, and nothing is allocated.
//!
//! ```
//! use tautline_traces::{Caller, KeyValue, Span, Traces};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tautline_traces::TraceError> {
//! // On with a URL, or if OTEL_EXPORTER_OTLP_ENDPOINT has one.
//! let traces = Traces::start("my-provider", None)?;
//! let span = traces.span("measure", &Caller::default());
//! let work = async {
//!     // A span below `measure`.
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
    fmt,
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

/// The end of a process waits so long for the last spans.
const MAX_FLUSH: Duration = Duration::from_secs(3);

/// Invalid settings of traces; the text names the setting and the mend.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TraceError(String);

/// Where spans of a process go; off by default. Cheap to clone; clones share the queue.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Pipeline>>);

/// Who sent a request, and when it arrived.
#[derive(Clone, Debug, Default)]
pub struct Caller(Option<(Context, SystemTime)>);

impl Caller {
    /// A caller without a span counts as that of an earlier one.
    #[must_use]
    pub fn or(&self, earlier: &Span) -> Self {
        let has_span = |context: &Context| context.span().span_context().is_valid();
        Self(self.0.as_ref().map(|(own, at)| match has_span(own) {
            true => (own.clone(), *at),
            false => (earlier.context(), *at),
        }))
    }
}

struct Pipeline {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_on = self.0.is_some();
        f.debug_struct("Traces").field("is_on", &is_on).finish()
    }
}

impl Traces {
    /// On if `endpoint` or OpenTelemetry's environment variables name a collector. The variables
    /// have all other settings; `service` counts unless they name another one. Needs a tokio
    /// runtime. An unreachable collector is no error.
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

    /// Whether there is a collector.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The caller of a request that has arrived just now, by the request's headers.
    pub fn caller(&self, headers: &HeaderMap) -> Caller {
        let is_on = self.0.as_ref();
        Caller(is_on.map(|_| (headers::parent(headers), SystemTime::now())))
    }

    /// A span of the caller's request, or of work without one ([`Caller::default`]).
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

    /// Sends the spans that wait now.
    pub async fn flush(&self) {
        self.wait(|provider| _ = provider.force_flush()).await;
    }

    /// Sends the spans that wait, and ends; takes at most a few seconds.
    pub async fn end(self) {
        self.wait(|provider| _ = provider.shutdown_with_timeout(MAX_FLUSH))
            .await;
    }

    /// The SDK's calls block.
    async fn wait(&self, call: impl FnOnce(SdkTracerProvider) + Send + 'static) {
        let Some(pipeline) = &self.0 else {
            return;
        };
        let provider = pipeline.provider.clone();
        let called = tokio::task::spawn_blocking(move || call(provider));
        _ = tokio::time::timeout(2 * MAX_FLUSH, called).await;
    }
}

/// An attribute of several texts.
pub fn texts<'a>(key: &'static str, values: impl Iterator<Item = &'a str>) -> KeyValue {
    let values = values.map(|v| StringValue::from(v.to_owned())).collect();
    KeyValue::new(key, Value::Array(Array::String(values)))
}

/// An attribute of a count.
pub fn count(key: &'static str, value: usize) -> KeyValue {
    KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX))
}
