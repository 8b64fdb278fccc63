//! Reads and writes W3C trace context in the headers of requests.
//! <https://www.w3.org/TR/trace-context/>

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator},
    trace::{SpanContext, TraceContextExt},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;

const PARENT: HeaderName = HeaderName::from_static("traceparent");
const STATE: HeaderName = HeaderName::from_static("tracestate");
/// The maximum length of `tracestate`. A longer one is ignored, as the standard allows.
const MAX_STATE_BYTES: usize = 512;

/// The headers that name the current span to a server.
#[derive(Clone, Debug)]
pub struct TraceHeaders {
    parent: HeaderValue,
    state: Option<HeaderValue>,
}

impl TraceHeaders {
    /// Returns the headers that name the current span; `None` if there is no current span.
    pub fn current() -> Option<Self> {
        Context::map_current(|context| {
            let is_traced = context.has_active_span();
            is_traced.then(|| Self::of(context.span().span_context()))?
        })
    }

    fn of(span: &SpanContext) -> Option<Self> {
        if !span.is_valid() {
            return None;
        }
        let flags = u8::from(span.is_sampled());
        let parent = format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id());
        let state = span.trace_state().header();
        Some(Self {
            parent: parent.try_into().ok()?,
            state: Some(state)
                .filter(|s| !s.is_empty())
                .and_then(|s| s.try_into().ok()),
        })
    }

    /// Adds the headers to those of a request.
    pub fn insert(&self, headers: &mut HeaderMap) {
        headers.insert(PARENT, self.parent.clone());
        if let Some(state) = &self.state {
            headers.insert(STATE, state.clone());
        }
    }
}

/// Returns the span that a request's headers name. It is empty if they name no span or are
/// malformed.
pub(super) fn parent(headers: &HeaderMap) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Source(headers))
}

struct Source<'a>(&'a HeaderMap);

impl Extractor for Source<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let value = self.0.get(key)?.to_str().ok()?;
        (key != STATE || value.len() <= MAX_STATE_BYTES).then_some(value)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(parent_header: &'static str, state: &str) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        headers.insert(PARENT, HeaderValue::from_static(parent_header));
        headers.insert(STATE, state.parse().unwrap());
        let context = parent(&headers);
        let sent = TraceHeaders::of(context.span().span_context())?;
        let mut headers = HeaderMap::new();
        sent.insert(&mut headers);
        Some(headers)
    }

    #[test]
    fn headers_survive_a_round_trip() {
        for traced in [
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
        ] {
            let sent = round_trip(traced, "vendor=value").unwrap();
            assert_eq!(sent[&PARENT], traced);
            assert_eq!(sent[&STATE], "vendor=value");
        }
    }

    #[test]
    fn malformed_headers_name_no_span() {
        for odd in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert!(round_trip(odd, "").is_none(), "{odd}");
        }
        let traced = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let long = format!("vendor={}", "x".repeat(600));
        assert!(!round_trip(traced, &long).unwrap().contains_key(&STATE));
    }

    #[test]
    fn no_headers_without_a_span() {
        assert!(TraceHeaders::current().is_none());
    }
}
