//! Defines the Prometheus metrics of the calls and cost streams to rule providers, with a bounded
//! number of label values.

use std::time::Duration;

use prometheus_client::metrics::{
    counter::Counter,
    family::Family,
    gauge::Gauge,
    histogram::{Histogram, exponential_buckets},
};
use tautline_runtime::label_bound::LabelBound;

tautline_runtime::metrics! {
    /// Metrics of the calls to providers. Clones share them.
    pub struct Metrics {
        calls: Family<Call, Counter> => "provider_calls", "Calls to rule providers by outcome";
        seconds: Family<ByProvider, Histogram> = Family::new_with_constructor(call_seconds)
            => "provider_call_seconds", "Time of calls to rule providers";
        ignored: Family<Skipped, Counter> => "provider_rules_ignored",
            "Rules left out because no provider answered, by reason code";
        unexpected_nodes: Family<ByProvider, Counter> => "provider_unexpected_nodes",
            "Nodes in answers that were not requested or occurred twice";
        streamed: Family<ByProvider, Counter> => "provider_costs_streamed",
            "Costs that the provider had sent before kube-scheduler asked";
        pub(crate) streams: Gauge => "provider_streams", "Open streams of costs to rule providers";
        pub(crate) stream_breaks: Counter => "provider_stream_breaks",
            "Streams of costs that broke; their rules are asked for by calls meanwhile";
        pub(crate) stream_questions: Gauge
            => "provider_stream_questions", "Questions that are open on streams of costs";
        over_budget: Family<ByNamespace, Counter> => "provider_calls_over_budget",
            "Calls skipped because a namespace had used up its share of kube-scheduler's time";
        pub(crate) second_calls: Counter => "provider_second_calls",
            "Calls at another address because the first one was silent";
        pub(crate) open: Gauge => "provider_breakers_open",
            "Provider addresses with an open circuit breaker";
        bound: LabelBound = LabelBound::for_providers();
    }
    labels Call { rule: String, provider: String, outcome: &'static str }
    labels ByProvider { rule: String, provider: String }
    labels Skipped { rule: String, code: &'static str }
    labels ByNamespace { namespace: String }
}

fn call_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 12))
}

impl Metrics {
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
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use tautline_runtime::label_bound::{MAX_RULE_PROVIDERS, MAX_RULES, OTHER};

    use super::*;

    #[test]
    fn metrics_have_a_bounded_number_of_series() {
        let mut registry = Registry::default();
        let metrics = Metrics::default();
        metrics.register("", &mut registry);
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
