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
use tautline_core::Compliance;
use tautline_runtime::label_bound::LabelBound;

use crate::reconciler::Counts;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCompliance {
    compliance: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByBound {
    bound: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Evaluation {
    rule: String,
    provider: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByProvider {
    rule: String,
    provider: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    what: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    bindings: Family<ByCompliance, Gauge>,
    withheld: Family<ByBound, Gauge>,
    backing_off: Gauge,
    evaluations: Family<Evaluation, Counter>,
    evaluation_seconds: Family<ByProvider, Histogram, fn() -> Histogram>,
    bound: LabelBound,
    lag_seconds: Histogram,
    pub(crate) waiting: Gauge,
    writes: Family<Write, Counter>,
    evictions: Family<Outcome, Counter>,
    mediations: Family<Outcome, Counter>,
    releases: Family<Outcome, Counter>,
    pub(crate) leading: Gauge,
    pub(crate) open_reports: Gauge,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0005, 2.0, 12));
        let m = Self {
            bindings: Family::default(),
            withheld: Family::default(),
            backing_off: Gauge::default(),
            evaluations: Family::default(),
            evaluation_seconds: Family::new_with_constructor(seconds),
            bound: LabelBound::for_providers(),
            lag_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            waiting: Gauge::default(),
            writes: Family::default(),
            evictions: Family::default(),
            mediations: Family::default(),
            releases: Family::default(),
            leading: Gauge::default(),
            open_reports: Gauge::default(),
        };
        let r = registry.sub_registry_with_prefix("controller");
        r.register(
            "leading",
            "1 while this replica holds the Lease",
            m.leading.clone(),
        );
        r.register("bindings", "Bindings by compliance", m.bindings.clone());
        r.register(
            "bindings_withheld",
            "Bindings that offers call for and that are not made, by the bound that they would \
             exceed: of an offer, of a namespace, or of all offers",
            m.withheld.clone(),
        );
        r.register(
            "bindings_backing_off",
            "Bindings that are evaluated less often, as their state keeps changing",
            m.backing_off.clone(),
        );
        r.register(
            "evaluations",
            "Evaluated rules, by what came of it: a compliance or a reason code",
            m.evaluations.clone(),
        );
        r.register(
            "evaluation_seconds",
            "Time that a provider took to evaluate a rule of a binding",
            m.evaluation_seconds.clone(),
        );
        r.register(
            "lag_seconds",
            "How late evaluations began",
            m.lag_seconds.clone(),
        );
        r.register(
            "evaluations_waiting",
            "Bindings that are due and wait for their provider",
            m.waiting.clone(),
        );
        // Kinds of writes that have not happened count 0 instead of being absent.
        for what in ["create", "delete", "status", "offer-status"] {
            _ = m.writes.get_or_create(&Write {
                what,
                outcome: "ok",
            });
        }
        r.register(
            "writes",
            "Writes to the API server: bindings made and deleted, statuses",
            m.writes.clone(),
        );
        r.register(
            "evictions",
            "Evictions by outcome: done, or the reason code of why not",
            m.evictions.clone(),
        );
        r.register(
            "mediations",
            "Mitigations requested from the underlay, by outcome",
            m.mediations.clone(),
        );
        r.register(
            "underlay_releases",
            "Underlay allocations given back, by outcome",
            m.releases.clone(),
        );
        r.register(
            "open_reports",
            "1 while this replica writes Reports of OpenReports; 0 if it does not lead, or they are turned off or \
             not installed",
            m.open_reports.clone(),
        );
        m
    }

    /// Gives each metric with labels a series, for the reference of metrics.
    pub(crate) fn add_examples(&self) {
        _ = self.bindings.get_or_create(&Default::default());
        _ = self.withheld.get_or_create(&Default::default());
        _ = self.evaluations.get_or_create(&Default::default());
        _ = self.evaluation_seconds.get_or_create(&Default::default());
        _ = self.writes.get_or_create(&Default::default());
        _ = self.evictions.get_or_create(&Default::default());
        _ = self.mediations.get_or_create(&Default::default());
        _ = self.releases.get_or_create(&Default::default());
    }

    pub(crate) fn evaluated(
        &self,
        rule: &str,
        provider: &str,
        outcome: &'static str,
        took: Duration,
    ) {
        let (rule, provider) = self.bound.pair(rule, provider);
        let by = ByProvider {
            rule: rule.into(),
            provider: provider.into(),
        };
        self.evaluation_seconds
            .get_or_create(&by)
            .observe(took.as_secs_f64());
        let ByProvider { rule, provider } = by;
        let by = Evaluation {
            rule,
            provider,
            outcome,
        };
        self.evaluations.get_or_create(&by).inc();
    }

    pub(crate) fn lag(&self, lag: Duration) {
        self.lag_seconds.observe(lag.as_secs_f64());
    }

    pub(crate) fn counted(&self, counts: &Counts) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for (compliance, count) in Compliance::ALL.iter().zip(counts.bindings) {
            let by = ByCompliance {
                compliance: compliance.as_str(),
            };
            self.bindings.get_or_create(&by).set(number(count));
        }
        for (bound, count) in ["offer", "namespace", "total"]
            .into_iter()
            .zip(counts.withheld)
        {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.withheld.get_or_create(&ByBound { bound }).set(count);
        }
        self.backing_off.set(number(counts.backing_off));
    }

    pub(crate) fn wrote(&self, what: &'static str, ok: bool) {
        let outcome = if ok { "ok" } else { "failed" };
        self.writes.get_or_create(&Write { what, outcome }).inc();
    }

    pub(crate) fn eviction(&self, outcome: &'static str) {
        self.evictions.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn mediation(&self, outcome: &'static str) {
        self.mediations.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn release(&self, outcome: &'static str) {
        self.releases.get_or_create(&Outcome { outcome }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_rules_that_tenants_choose_are_bounded() {
        let metrics = Metrics::register(&mut Registry::default());
        for i in 0..5000 {
            let (rule, provider) = (format!("rule-{i}"), format!("tenant/p-{i}"));
            metrics.evaluated(&rule, &provider, "Compliant", Duration::ZERO);
        }
        let mut registry = Registry::default();
        registry.register("evaluations", "", metrics.evaluations.clone());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let series = text
            .lines()
            .filter(|l| l.starts_with("evaluations_total"))
            .count();
        assert!(series <= 1100, "{series}");
        assert!(text.contains("other"), "the rest counts together");
    }

    #[test]
    fn metrics_of_writes_begin_at_zero() {
        let mut registry = Registry::default();
        Metrics::register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for what in ["create", "delete", "status", "offer-status"] {
            let series = format!("controller_writes_total{{what=\"{what}\",outcome=\"ok\"}} 0");
            assert!(text.contains(&series), "{text}");
        }
    }
}
