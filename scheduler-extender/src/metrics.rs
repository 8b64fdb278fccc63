use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tautline_runtime::label_bound::LabelBound;

use crate::status::LastRequest;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Request {
    verb: &'static str,
    status: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Verb {
    verb: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Reason {
    reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    requests: Family<Request, Counter>,
    seconds: Family<Verb, Histogram, fn() -> Histogram>,
    last: Family<Verb, Gauge>,
    pods: Family<Outcome, Counter>,
    pub(crate) single_node_answers: Counter,
    pub(crate) displaced_plans: Counter,
    placement_waits: Family<Outcome, Histogram, fn() -> Histogram>,
    rejected_nodes: Family<Reason, Counter>,
    codes: LabelBound,
    binds: Family<Outcome, Counter>,
    underlay_discovers: Family<Outcome, Counter>,
    underlay_allocations: Family<Outcome, Counter>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.00005, 2.0, 18));
        let m = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            last: Family::default(),
            pods: Family::default(),
            single_node_answers: Counter::default(),
            displaced_plans: Counter::default(),
            placement_waits: Family::new_with_constructor(seconds),
            rejected_nodes: Family::default(),
            codes: LabelBound::for_codes(),
            binds: Family::default(),
            underlay_discovers: Family::default(),
            underlay_allocations: Family::default(),
        };
        let r = registry;
        r.register(
            "extender_requests",
            "Requests by verb and HTTP status",
            m.requests.clone(),
        );
        r.register(
            "extender_request_seconds",
            "Duration of requests by verb",
            m.seconds.clone(),
        );
        r.register(
            "extender_last_request_timestamp_seconds",
            "End of the last request by verb, in Unix time",
            m.last.clone(),
        );
        r.register(
            "extender_pods",
            "Filtered pods by outcome: ungoverned, exempt, placeable, rejected or unsettled",
            m.pods.clone(),
        );
        r.register(
            "extender_single_node_answers",
            "Answers of filter with one node, which kube-scheduler takes without scoring",
            m.single_node_answers.clone(),
        );
        r.register(
            "extender_displaced_plans",
            "Plans of filter that gave their memory to later ones before prioritize and bind could \
             use them; prioritize then plans again",
            m.displaced_plans.clone(),
        );
        r.register(
            "extender_placement_wait_seconds",
            "Waits of filter for the nodes of earlier pods that this one depends on, by outcome: \
             known, retry (kube-scheduler tries again), or unknown (they are being bound for \
             over 2 s, and no longer waited for)",
            m.placement_waits.clone(),
        );
        r.register(
            "extender_rejected_nodes",
            "Rejected nodes by reason code; further codes of a rule with many are Other",
            m.rejected_nodes.clone(),
        );
        r.register("extender_binds", "Bindings by outcome", m.binds.clone());
        r.register(
            "extender_underlay_discovers",
            "Discover of the underlay for pods without a usable node, by outcome",
            m.underlay_discovers.clone(),
        );
        r.register(
            "extender_underlay_allocations",
            "Underlay allocations at bind by outcome: allocated, refused, unanswered, expired; \
             released, or left (to the pod's finalizer)",
            m.underlay_allocations.clone(),
        );
        m
    }

    /// Gives each metric with labels a series, for the reference of metrics.
    pub(crate) fn add_examples(&self) {
        _ = self.requests.get_or_create(&Default::default());
        _ = self.seconds.get_or_create(&Default::default());
        _ = self.last.get_or_create(&Default::default());
        _ = self.pods.get_or_create(&Default::default());
        _ = self.placement_waits.get_or_create(&Default::default());
        _ = self.rejected_nodes.get_or_create(&Default::default());
        _ = self.binds.get_or_create(&Default::default());
        _ = self.underlay_discovers.get_or_create(&Default::default());
        _ = self.underlay_allocations.get_or_create(&Default::default());
    }

    pub(crate) fn request(&self, verb: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&Request { verb, status }).inc();
        self.seconds
            .get_or_create(&Verb { verb })
            .observe(took.as_secs_f64());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        self.last
            .get_or_create(&Verb { verb })
            .set(i64::try_from(now).unwrap_or(i64::MAX));
    }

    /// The end of the last request of each verb, the newest first.
    pub(crate) fn last_requests(&self) -> Vec<LastRequest> {
        let last = |verb: &'static str| {
            let at_unix_seconds = self.last.get(&Verb { verb })?.get();
            Some(LastRequest {
                verb: verb.to_owned(),
                at_unix_seconds,
            })
        };
        let verbs = ["bind", "prioritize", "preempt", "filter"].into_iter();
        let mut all: Vec<LastRequest> = verbs.filter_map(last).collect();
        all.sort_by_key(|request| std::cmp::Reverse(request.at_unix_seconds));
        all
    }

    pub(crate) fn pod(&self, outcome: &'static str) {
        self.pods.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn placement_wait(&self, outcome: &'static str, took: Duration) {
        let waits = self.placement_waits.get_or_create(&Outcome { outcome });
        waits.observe(took.as_secs_f64());
    }

    pub(crate) fn bind(&self, outcome: &'static str) {
        self.binds.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn underlay_discover(&self, outcome: &'static str) {
        let label = Outcome { outcome };
        self.underlay_discovers.get_or_create(&label).inc();
    }

    pub(crate) fn underlay_allocation(&self, outcome: &'static str) {
        let label = Outcome { outcome };
        self.underlay_allocations.get_or_create(&label).inc();
    }

    /// `reason` is `RULE/Code`.
    pub(crate) fn rejected_nodes(&self, reason: &str, count: u64) {
        let (rule, code) = reason.rsplit_once('/').unwrap_or((reason, ""));
        let (rule, code) = self.codes.pair(rule, code);
        let reason = [rule, "/", code].concat();
        self.rejected_nodes
            .get_or_create(&Reason { reason })
            .inc_by(count);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use tautline_runtime::label_bound::MAX_CODES_PER_RULE;

    use super::*;

    #[test]
    fn rejected_nodes_bounds_its_series() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        for i in 0..60_000 {
            metrics.rejected_nodes(&format!("latency/Code{i}"), 1);
        }
        metrics.rejected_nodes("gpu-slice/GpuBusy", 3);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let series = text.lines().filter(|l| l.contains("reason=\"latency/"));
        assert_eq!(series.count(), MAX_CODES_PER_RULE + 1);
        assert!(text.contains("{reason=\"latency/Other\"} 59936"), "{text}");
        assert!(text.contains("{reason=\"gpu-slice/GpuBusy\"} 3"), "{text}");
    }
}
