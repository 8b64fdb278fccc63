//! Defines the span type that records one piece of work in a trace, and the future that runs work
//! within a span.

use std::{
    borrow::Cow,
    future::Future,
    pin::Pin,
    task::{Poll, ready},
};

use opentelemetry::{
    Context, KeyValue,
    trace::{SpanBuilder, SpanKind, Status, TraceContextExt, Tracer},
};
use opentelemetry_sdk::trace::SdkTracer;
use pin_project_lite::pin_project;

/// A span; it is empty while traces are off. It ends when its last clone is dropped.
#[derive(Clone, Debug, Default)]
pub struct Span(Option<Context>);

impl Span {
    pub(super) fn start(tracer: &SdkTracer, builder: SpanBuilder, parent: &Context) -> Self {
        let span = tracer.build_with_context(builder, parent);
        // Child spans take the tracer from the context.
        let context = Context::new().with_value(tracer.clone()).with_span(span);
        Self(Some(context))
    }

    /// Returns the span whose work runs now. It is empty outside of [`Span::scope`].
    pub fn current() -> Self {
        Context::map_current(|context| Self(context.has_active_span().then(|| context.clone())))
    }

    /// Starts a span for a call to a server, as a child of the current span. It is empty if there
    /// is no current span.
    pub fn of_call(name: &'static str) -> Self {
        Context::map_current(|parent| {
            let Some(tracer) = parent.get::<SdkTracer>() else {
                return Self::default();
            };
            let builder = SpanBuilder::from_name(name).with_kind(SpanKind::Client);
            Self::start(tracer, builder, parent)
        })
    }

    /// Returns a reference to the span, for spans that are started later. It does not delay the end
    /// of the span.
    #[must_use]
    pub fn reference(&self) -> Self {
        let named = |context: &Context| {
            let span = context.span().span_context().clone();
            Context::new().with_remote_span_context(span)
        };
        Self(self.0.as_ref().map(named))
    }

    pub(super) fn context(&self) -> Context {
        self.0.clone().unwrap_or_default()
    }

    /// Adds attributes. They are computed only if the span will be sent: traces are on, and the
    /// span is in the sample.
    pub fn record<A: IntoIterator<Item = KeyValue>>(&self, attributes: impl FnOnce() -> A) {
        if let Some(context) = self.0.as_ref().filter(|c| c.span().is_recording()) {
            context.span().set_attributes(attributes());
        }
    }

    /// Marks the span's work as failed. The text is computed only if the span will be sent.
    pub fn fail<T: Into<Cow<'static, str>>>(&self, why: impl FnOnce() -> T) {
        if let Some(context) = self.0.as_ref().filter(|c| c.span().is_recording()) {
            context.span().set_status(Status::error(why()));
        }
    }

    /// Runs work in this span: spans of calls within the work are its children. Work that is
    /// dropped before its end counts as failed.
    pub fn scope<F: Future>(&self, work: F) -> Scoped<F> {
        Scoped {
            work,
            span: self.clone(),
        }
    }
}

pin_project! {
    /// The future of work that runs in a span, from [`Span::scope`].
    #[derive(Debug)]
    pub struct Scoped<F> {
        #[pin]
        work: F,
        span: Span,
    }

    impl<F> PinnedDrop for Scoped<F> {
        fn drop(this: Pin<&mut Self>) {
            this.project().span.fail(|| "cut off: the caller stopped waiting");
        }
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut std::task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _current = this.span.0.clone().map(Context::attach);
        let output = ready!(this.work.poll(task));
        // The work has ended, so its drop must not mark it as failed.
        *this.span = Span::default();
        Poll::Ready(output)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::Arc,
    };

    use opentelemetry::trace::{TraceId, TracerProvider};
    use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};
    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Sent(Arc<Mutex<Vec<SpanData>>>);

    impl opentelemetry_sdk::trace::SpanExporter for Sent {
        async fn export(&self, batch: Vec<SpanData>) -> opentelemetry_sdk::error::OTelSdkResult {
            self.0.lock().extend(batch);
            Ok(())
        }
    }

    /// The spans that `work` sends below a root span.
    async fn sent<F: Future>(work: impl FnOnce() -> F, polls: bool) -> Vec<SpanData> {
        let sent = Sent::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(sent.clone())
            .build();
        let tracer = provider.tracer("test");
        let root = Span::start(&tracer, SpanBuilder::from_name("root"), &Context::new());
        let mut scoped = Box::pin(root.scope(work()));
        if polls {
            let once = std::future::poll_fn(|task| Poll::Ready(scoped.as_mut().poll(task)));
            _ = once.await;
        }
        drop((scoped, root));
        sent.0.lock().clone()
    }

    #[tokio::test]
    async fn call_within_a_span_is_below_it() {
        let spans = sent(
            || async { Span::of_call("call").scope(ready(())).await },
            true,
        )
        .await;
        let [call, root] = &spans[..] else {
            panic!("{spans:?}")
        };
        assert_eq!((&*call.name, &*root.name), ("call", "root"));
        assert_eq!(call.parent_span_id, root.span_context.span_id());
        assert_eq!(call.span_context.trace_id(), root.span_context.trace_id());
        assert_ne!(root.span_context.trace_id(), TraceId::INVALID);
        assert_eq!(
            (&call.status, &root.status),
            (&Status::Unset, &Status::Unset)
        );
    }

    #[tokio::test]
    async fn work_that_is_dropped_unfinished_counts_as_failed() {
        let spans = sent(pending::<()>, true).await;
        let failed = Status::error("cut off: the caller stopped waiting");
        assert_eq!(spans[0].status, failed);
    }

    #[tokio::test]
    async fn span_that_is_off_runs_its_work_only() {
        let off = Span::default();
        assert_eq!(off.scope(async { 7 }).await, 7);
        off.record(|| -> [KeyValue; 0] { unreachable!("attributes of a span that is off") });
        off.fail(|| -> String { unreachable!("text of a span that is off") });
        let below = off.scope(async { Span::of_call("call") }).await;
        assert!(below.0.is_none() && Span::current().0.is_none());
        assert!(off.reference().0.is_none());
    }
}
