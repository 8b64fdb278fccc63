//! Defines the Prometheus metrics of the extender: requests, outcomes of pods, rejected nodes,
//! binds, and calls to the underlay.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::{
    counter::Counter,
    family::Family,
    gauge::Gauge,
    histogram::{Histogram, exponential_buckets},
};
use tautline_runtime::label_bound::LabelBound;

use crate::status::LastRequest;

/// The prefix of the metrics of the port and of its certificate.
pub(crate) const PREFIX: &str = "extender_";

tautline_runtime::metrics! {
    pub(crate) struct Metrics {
        requests: Family<Request, Counter>
            => "extender_requests", "Requests by verb and HTTP status";
        seconds: Family<Verb, Histogram> = Family::new_with_constructor(seconds)
            => "extender_request_seconds", "Duration of requests by verb";
        last: Family<Verb, Gauge> => "extender_last_request_timestamp_seconds",
            "End of the last request by verb, in Unix time";
        pods: Family<Outcome, Counter> => "extender_pods",
            "Filtered pods by outcome: ungoverned, exempt, placeable, rejected or unsettled";
        pub(crate) single_node_answers: Counter => "extender_single_node_answers",
            "Answers of filter with one node, which kube-scheduler takes without scoring";
        pub(crate) displaced_plans: Counter => "extender_displaced_plans",
            "Plans of filter that gave their memory to later ones before prioritize and bind could \
             use them; prioritize then plans again";
        placement_waits: Family<Outcome, Histogram> = Family::new_with_constructor(seconds)
            => "extender_placement_wait_seconds",
            "Waits of filter for the nodes of earlier pods that this one depends on, by outcome: \
             known, retry (kube-scheduler tries again), or unknown (they are being bound for \
             over 2 s, and no longer waited for)";
        rejected_nodes: Family<Reason, Counter> => "extender_rejected_nodes",
            "Rejected nodes by reason code; further codes of a rule with many are Other";
        binds: Family<Outcome, Counter> => "extender_binds", "Bindings by outcome";
        underlay_discovers: Family<Outcome, Counter> => "extender_underlay_discovers",
            "Discover of the underlay for pods without a usable node, by outcome";
        underlay_allocations: Family<Outcome, Counter> => "extender_underlay_allocations",
            "Underlay allocations at bind by outcome: allocated, refused, unanswered, expired; \
             released, or left (to the pod's finalizer)";
        groups: Family<Phase, Gauge> => "extender_groups",
            "Groups of pods by phase: waiting, queued, planning, no_room, held, writing or bound";
        group_plans: Family<Outcome, Histogram> = Family::new_with_constructor(seconds)
            => "extender_group_plan_seconds",
            "Duration of joint plans of groups, by outcome: planned or no_room";
        codes: LabelBound = LabelBound::for_codes();
    }
    labels Request { verb: &'static str, status: u16 }
    labels Verb { verb: &'static str }
    labels Reason { reason: String }
    labels Outcome { outcome: &'static str }
    labels Phase { phase: &'static str }
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.00005, 2.0, 18))
}

fn count(by_outcome: &Family<Outcome, Counter>, outcome: &'static str) {
    by_outcome.get_or_create(&Outcome { outcome }).inc();
}

impl Metrics {
    pub(crate) fn request(&self, verb: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&Request { verb, status }).inc();
        self.seconds
            .get_or_create(&Verb { verb })
            .observe(took.as_secs_f64());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since_1970.unwrap_or_default().as_secs();
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
        count(&self.pods, outcome);
    }

    pub(crate) fn placement_wait(&self, outcome: &'static str, took: Duration) {
        let waits = self.placement_waits.get_or_create(&Outcome { outcome });
        waits.observe(took.as_secs_f64());
    }

    pub(crate) fn groups(&self, phase: &'static str, count: usize) {
        let groups = self.groups.get_or_create(&Phase { phase });
        groups.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn group_plan(&self, outcome: &'static str, took: Duration) {
        let plans = self.group_plans.get_or_create(&Outcome { outcome });
        plans.observe(took.as_secs_f64());
    }

    pub(crate) fn bind(&self, outcome: &'static str) {
        count(&self.binds, outcome);
    }

    pub(crate) fn underlay_discover(&self, outcome: &'static str) {
        count(&self.underlay_discovers, outcome);
    }

    pub(crate) fn underlay_allocation(&self, outcome: &'static str) {
        count(&self.underlay_allocations, outcome);
    }

    /// Counts rejected nodes by their reason, `RULE/Code`.
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
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use tautline_runtime::label_bound::MAX_CODES_PER_RULE;

    use super::*;

    #[test]
    fn rejected_nodes_bounds_its_series() {
        let mut registry = Registry::default();
        let metrics = Metrics::registered("", &mut registry);
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
