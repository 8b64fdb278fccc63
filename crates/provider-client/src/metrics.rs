use std::time::Duration;

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

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Call {
    pub rule: String,
    pub provider: String,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByProvider {
    pub rule: String,
    pub provider: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Skipped {
    pub rule: String,
    pub code: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByNamespace {
    pub namespace: String,
}

/// Metrics of the calls to providers. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    calls: Family<Call, Counter>,
    seconds: Family<ByProvider, Histogram, fn() -> Histogram>,
    ignored: Family<Skipped, Counter>,
    unexpected_nodes: Family<ByProvider, Counter>,
    streamed: Family<ByProvider, Counter>,
    streams: Gauge,
    stream_breaks: Counter,
    stream_questions: Gauge,
    over_budget: Family<ByNamespace, Counter>,
    second_calls: Counter,
    bound: LabelBound,
    pub(crate) open: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0005, 2.0, 12));
        Self {
            calls: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            ignored: Family::default(),
            unexpected_nodes: Family::default(),
            streamed: Family::default(),
            streams: Gauge::default(),
            stream_breaks: Counter::default(),
            stream_questions: Gauge::default(),
            over_budget: Family::default(),
            second_calls: Counter::default(),
            bound: LabelBound::for_providers(),
            open: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Registers them.
    pub fn register(&self, registry: &mut Registry) {
        let r = registry;
        r.register(
            "provider_calls",
            "Calls to rule providers by outcome",
            self.calls.clone(),
        );
        r.register(
            "provider_call_seconds",
            "Time of calls to rule providers",
            self.seconds.clone(),
        );
        r.register(
            "provider_rules_ignored",
            "Rules left out because no provider answered, by reason code",
            self.ignored.clone(),
        );
        r.register(
            "provider_unexpected_nodes",
            "Nodes in answers that were not requested or occurred twice",
            self.unexpected_nodes.clone(),
        );
        r.register(
            "provider_costs_streamed",
            "Costs that the provider had sent before kube-scheduler asked",
            self.streamed.clone(),
        );
        r.register(
            "provider_streams",
            "Open streams of costs to rule providers",
            self.streams.clone(),
        );
        r.register(
            "provider_stream_breaks",
            "Streams of costs that broke; their rules are asked for by calls meanwhile",
            self.stream_breaks.clone(),
        );
        r.register(
            "provider_stream_questions",
            "Questions that are open on streams of costs",
            self.stream_questions.clone(),
        );
        r.register(
            "provider_calls_over_budget",
            "Calls skipped because a namespace had used up its share of kube-scheduler's time",
            self.over_budget.clone(),
        );
        r.register(
            "provider_second_calls",
            "Calls at another address because the first one was silent",
            self.second_calls.clone(),
        );
        r.register(
            "provider_breakers_open",
            "Provider addresses with an open circuit breaker",
            self.open.clone(),
        );
    }

    /// Gives each metric with labels a series, for the reference of metrics.
    pub fn add_examples(&self) {
        _ = self.calls.get_or_create(&Default::default());
        _ = self.seconds.get_or_create(&Default::default());
        _ = self.ignored.get_or_create(&Default::default());
        _ = self.unexpected_nodes.get_or_create(&Default::default());
        _ = self.streamed.get_or_create(&Default::default());
        _ = self.over_budget.get_or_create(&Default::default());
    }

    fn by(&self, rule: &str, provider: &str) -> ByProvider {
        let (rule, provider) = self.bound.pair(rule, provider);
        ByProvider {
            rule: rule.into(),
            provider: provider.into(),
        }
    }

    pub(crate) fn call(&self, rule: &str, provider: &str, outcome: &'static str, took: Duration) {
        let by = self.by(rule, provider);
        self.seconds.get_or_create(&by).observe(took.as_secs_f64());
        let ByProvider { rule, provider } = by;
        self.calls
            .get_or_create(&Call {
                rule,
                provider,
                outcome,
            })
            .inc();
    }

    pub(crate) fn over_budget(&self, namespace: &str) {
        let by = ByNamespace {
            namespace: namespace.into(),
        };
        self.over_budget.get_or_create(&by).inc();
    }

    pub(crate) fn second_call(&self) {
        self.second_calls.inc();
    }

    pub(crate) fn ignored(&self, rule: &str, code: &'static str) {
        // A rule without a provider has no pair.
        let ByProvider { rule, .. } = self.by(rule, "");
        self.ignored.get_or_create(&Skipped { rule, code }).inc();
    }

    pub(crate) fn unexpected_nodes(&self, rule: &str, provider: &str, count: usize) {
        if count > 0 {
            let by = self.by(rule, provider);
            self.unexpected_nodes
                .get_or_create(&by)
                .inc_by(count as u64);
        }
    }

    pub(crate) fn streamed(&self, rule: &str, provider: &str) {
        let by = self.by(rule, provider);
        self.streamed.get_or_create(&by).inc();
    }

    pub(crate) fn stream_begun(&self) {
        self.streams.inc();
    }

    pub(crate) fn stream_broken(&self) {
        self.stream_breaks.inc();
    }

    pub(crate) fn stream_ended(&self) {
        self.streams.dec();
    }

    pub(crate) fn questions_opened(&self, change: i64) {
        self.stream_questions.inc_by(change);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use tautline_runtime::label_bound::{MAX_RULE_PROVIDERS, MAX_RULES, OTHER};

    use super::*;

    #[test]
    fn metrics_have_a_bounded_number_of_series() {
        let mut registry = Registry::default();
        let metrics = Metrics::default();
        metrics.register(&mut registry);
        metrics.streamed("latency", "net/prober");
        for i in 0..20_000 {
            let (rule, provider) = (format!("rule-{}", i % 400), format!("ns-{i}/p"));
            metrics.call(&rule, &provider, "OK", Duration::ZERO);
            metrics.streamed(&rule, &provider);
            metrics.ignored(&format!("unknown-{i}"), "NoProvider");
        }
        metrics.streamed("latency", "net/prober");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let series = |name: &str| text.lines().filter(|l| l.starts_with(name)).count();
        let most = MAX_RULE_PROVIDERS + MAX_RULES + 1;
        for name in [
            "provider_calls_total{",
            "provider_call_seconds_count{",
            "provider_costs_streamed_total{",
        ] {
            assert!(
                (2..=most).contains(&series(name)),
                "{name}: {}",
                series(name)
            );
        }
        let ignored = series("provider_rules_ignored_total{");
        assert!((2..=MAX_RULES + 1).contains(&ignored), "{ignored}");
        let other = format!("rule=\"{OTHER}\"");
        assert!(text.contains(&other), "{text}");
        let expected = "{rule=\"latency\",provider=\"net/prober\"} 2";
        assert!(text.contains(expected), "{text}");
    }
}
