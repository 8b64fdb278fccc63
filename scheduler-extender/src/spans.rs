//! Records rounds in spans: the pod, the nodes, and each rule's outcome.

use tautline_core::{
    constraints::PodIdentity,
    planning::{NodeVerdict, RuleOutcome},
};
use tautline_provider_client::{PlanningRound, RuleRecord};
use tautline_traces::{KeyValue, Span, count, texts};

use crate::plans::{PodPlan, reason_counts};

/// The maximum number of chosen nodes, of reasons and of rules in a span.
const MAX_LISTED: usize = 16;

/// Records the pod that a request is about.
pub(crate) fn pod(span: &Span, pod: &PodIdentity) {
    span.record(|| {
        [
            KeyValue::new("k8s.namespace.name", pod.namespace.clone()),
            KeyValue::new("k8s.pod.name", pod.name.clone()),
            KeyValue::new("k8s.pod.uid", pod.uid.clone()),
        ]
    });
}

/// Records the result of filter.
pub(crate) fn plan(span: &Span, plan: &PodPlan) {
    round(span, &plan.round);
    span.record(|| {
        let names = plan.answer.nodes.iter().map(|at| plan.nodes.name(*at));
        let chosen = texts("tautline.nodes.chosen", names.take(MAX_LISTED));
        let result = plan.underlay.as_ref();
        let underlay = result.map(|result| KeyValue::new("tautline.underlay", result.code));
        [chosen].into_iter().chain(underlay)
    });
}

/// Records the result of a round of rules.
pub(crate) fn round(span: &Span, round: &PlanningRound) {
    span.record(|| {
        let reasons = reasons(&round.plan.verdicts);
        let rules: Vec<String> = round.rules.iter().take(MAX_LISTED).map(outcome).collect();
        [
            count("tautline.nodes.posted", round.nodes.len()),
            count("tautline.nodes.usable", round.plan.usable().count()),
            texts("tautline.reasons", reasons.iter().map(String::as_str)),
            texts("tautline.rules", rules.iter().map(String::as_str)),
        ]
    });
}

/// The reasons of unusable nodes with the number of nodes, the most frequent first.
fn reasons(verdicts: &[NodeVerdict]) -> Vec<String> {
    let mut counts: Vec<_> = reason_counts(verdicts).into_iter().collect();
    counts.sort_by_key(|(_, nodes)| std::cmp::Reverse(*nodes));
    let lines = counts.iter().take(MAX_LISTED);
    lines
        .map(|(reason, nodes)| format!("{reason}: {nodes}"))
        .collect()
}

fn outcome(record: &RuleRecord) -> String {
    let outcome = match &record.outcome {
        RuleOutcome::Costs(_) if record.streamed.is_some() => "streamed",
        RuleOutcome::Costs(_) => "OK",
        RuleOutcome::Unavailable { code, .. } => code,
    };
    format!("{}/{}: {outcome}", record.offer, record.rule.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_the_most_frequent_come_first() {
        let unusable = |reason: &str| NodeVerdict::Unusable {
            reason: reason.into(),
            freeable: false,
        };
        let verdicts = ["b/Full", "a/OverLimit", "a/NoData", "b/Full"].map(unusable);
        let expected = ["b/Full: 2", "a/NoData: 1", "a/OverLimit: 1"];
        assert_eq!(reasons(&verdicts), expected);
        let many: Vec<_> = (0..99).map(|i| unusable(&format!("a/{i}"))).collect();
        assert_eq!(reasons(&many).len(), MAX_LISTED);
    }
}
