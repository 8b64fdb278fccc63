//! The trace of a placement, at a collector.

use tautline_tests::{PATIENCE, eventually};

#[allow(dead_code)] // the extender's own tests use the rest
#[path = "../../scheduler-extender/tests/http/collector.rs"]
pub mod collector;

use collector::{Collector, Span};

const CALL: &str = "ruleprovider.RuleProvider/EndpointCost";

/// Waits for a trace that has the pod's filter and its bind to `node`, and below the filter a
/// call with the span of the provider `service`.
pub async fn wait_for_placement(collector: &Collector, pod: &str, node: &str, service: &str) {
    let arrived = async || is_complete(&collector.spans(), pod, node, service).then_some(());
    let state = async || format!("{:#?}", collector.spans());
    eventually(&format!("the trace of {pod}"), PATIENCE, arrived, state).await;
}

fn is_complete(spans: &[Span], pod: &str, node: &str, service: &str) -> bool {
    let attribute = |span: &Span, key: &str, value: &str| {
        span.attributes.get(key).is_some_and(|found| found == value)
    };
    let of_pod = |name: &'static str| {
        let is_it = move |s: &&Span| s.name == name && attribute(s, "k8s.pod.name", pod);
        spans.iter().filter(is_it)
    };
    let mut binds = of_pod("bind").filter(|bind| attribute(bind, "k8s.node.name", node));
    binds.any(|bind| {
        let joined = |span: &&Span| span.trace == bind.trace;
        // The caller's span, and below it the provider's.
        let is_answer = |call: &Span| {
            spans
                .iter()
                .any(|s| s.parent == call.id && s.name == CALL && s.service == service)
        };
        let is_answered = |filter: &Span| {
            let mut calls = spans
                .iter()
                .filter(|s| s.parent == filter.id && s.name == CALL);
            calls.any(is_answer)
        };
        of_pod("filter").filter(joined).any(is_answered)
    })
}
