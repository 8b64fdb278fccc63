//! Defines the Prometheus metrics of the controller: bindings, evaluations, writes to the API
//! server, and actions on violations.

use std::time::Duration;

use prometheus_client::metrics::{
    counter::Counter,
    family::Family,
    gauge::Gauge,
    histogram::{Histogram, exponential_buckets},
};
use tautline_core::Compliance;
use tautline_runtime::label_bound::LabelBound;

use crate::reconciler::Counts;

/// The prefix of the metrics' names, for their registry.
pub(crate) const PREFIX: &str = "controller";

tautline_runtime::metrics! {
    pub(crate) struct Metrics {
        pub(crate) leading: Gauge => "leading", "1 while this replica holds the Lease";
        bindings: Family<ByCompliance, Gauge> => "bindings", "Bindings by compliance";
        withheld: Family<ByBound, Gauge> => "bindings_withheld",
            "Bindings that offers call for and that are not made, by the bound that they would \
             exceed: of an offer, of a namespace, or of all offers";
        backing_off: Gauge => "bindings_backing_off",
            "Bindings that are evaluated less often, as their state keeps changing";
        evaluations: Family<Evaluation, Counter> => "evaluations",
            "Evaluated rules, by what came of it: a compliance or a reason code";
        evaluation_seconds: Family<ByProvider, Histogram> = Family::new_with_constructor(seconds)
            => "evaluation_seconds", "Time that a provider took to evaluate a rule of a binding";
        pub(crate) lag_seconds: Histogram = Histogram::new(exponential_buckets(0.001, 2.0, 16))
            => "lag_seconds", "How late evaluations began";
        pub(crate) waiting: Gauge
            => "evaluations_waiting", "Bindings that are due and wait for their provider";
        writes: Family<Write, Counter> = no_writes()
            => "writes", "Writes to the API server: bindings made and deleted, statuses";
        evictions: Family<Outcome, Counter>
            => "evictions", "Evictions by outcome: done, or the reason code of why not";
        mediations: Family<Outcome, Counter>
            => "mediations", "Mitigations requested from the underlay, by outcome";
        releases: Family<Outcome, Counter>
            => "underlay_releases", "Underlay allocations given back, by outcome";
        pub(crate) open_reports: Gauge => "open_reports",
            "1 while this replica writes Reports of OpenReports; 0 if it does not lead, or they \
             are turned off or not installed";
        bound: LabelBound = LabelBound::for_providers();
    }
    labels ByCompliance { compliance: &'static str }
    labels ByBound { bound: &'static str }
    labels Evaluation { rule: String, provider: String, outcome: &'static str }
    labels ByProvider { rule: String, provider: String }
    labels Outcome { outcome: &'static str }
    labels Write { what: &'static str, outcome: &'static str }
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 12))
}

/// Returns the counts of writes. Kinds of writes that have not happened count 0 instead of being
/// absent.
fn no_writes() -> Family<Write, Counter> {
    let (writes, outcome) = (Family::default(), "ok");
    for what in ["create", "delete", "status", "offer-status"] {
        _ = writes.get_or_create(&Write { what, outcome });
    }
    writes
}

impl Metrics {
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

    pub(crate) fn counted(&self, counts: &Counts) {
        let number = |count: u128| i64::try_from(count).unwrap_or(i64::MAX);
        for (compliance, count) in Compliance::ALL.iter().zip(counts.bindings) {
            let by = ByCompliance {
                compliance: compliance.name(),
            };
            let bindings = self.bindings.get_or_create(&by);
            bindings.set(number(count as u128));
        }
        let bounds = ["offer", "namespace", "total"];
        for (bound, count) in bounds.into_iter().zip(counts.withheld) {
            let withheld = self.withheld.get_or_create(&ByBound { bound });
            withheld.set(number(count));
        }
        self.backing_off.set(number(counts.backing_off as u128));
    }

    /// Returns the number of bindings in violation; `None` before they are counted.
    pub(crate) fn violations(&self) -> Option<u64> {
        let compliance = Compliance::Violation.name();
        let bindings = self.bindings.get(&ByCompliance { compliance })?;
        u64::try_from(bindings.get()).ok()
    }

    pub(crate) fn wrote(&self, what: &'static str, ok: bool) {
        let outcome = if ok { "ok" } else { "failed" };
        self.writes.get_or_create(&Write { what, outcome }).inc();
    }

    /// Counts the outcome of an action, `Mediate` or `Evict`.
    pub(crate) fn acted(&self, action: &str, outcome: &'static str) {
        let outcomes = match action {
            "Evict" => &self.evictions,
            _ => &self.mediations,
        };
        outcomes.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn release(&self, outcome: &'static str) {
        self.releases.get_or_create(&Outcome { outcome }).inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn metrics_of_rules_that_tenants_choose_are_bounded() {
        let metrics = Metrics::default();
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
        Metrics::registered("", registry.sub_registry_with_prefix(PREFIX));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for what in ["create", "delete", "status", "offer-status"] {
            let series = format!("controller_writes_total{{what=\"{what}\",outcome=\"ok\"}} 0");
            assert!(text.contains(&series), "{text}");
        }
    }
}
