//! Defines the Prometheus metrics of mutation policies: invocations, errors, cost units and active
//! policies.

use prometheus_client::metrics::{
    counter::Counter,
    family::Family,
    gauge::Gauge,
    histogram::{Histogram, exponential_buckets},
};
use tautline_mutating_policy::Outcome;

tautline_runtime::metrics! {
    pub(crate) struct Counters {
        invocations: Family<InvocationLabel, Counter> => "mutation_invocations",
            "Invocations by policy and end: changed, unchanged, skipped, failed";
        faults: Family<Fault, Counter> => "mutation_faults",
            "Errors by policy and kind, and whether failurePolicy Ignore ignored them";
        cost: Histogram = Histogram::new(exponential_buckets(16.0, 4.0, 10))
            => "mutation_cost_units", "Cost units of all expressions of a request";
        pub(super) active: Gauge
            => "mutation_policies_in_force", "Valid policies with a valid binding";
        pub(super) unusable: Gauge => "mutation_objects_unusable",
            "Policies and bindings whose current version is invalid";
    }
    labels InvocationLabel { policy: String, end: &'static str }
    labels Fault { policy: String, kind: &'static str, ignored: bool }
}

impl Counters {
    pub(super) fn count(&self, outcome: &Outcome) {
        for invocation in &outcome.invocations {
            let label = InvocationLabel {
                policy: invocation.policy.to_string(),
                end: invocation.end.code(),
            };
            self.invocations.get_or_create(&label).inc();
        }
        for fault in &outcome.faults {
            let label = Fault {
                policy: fault.policy.to_string(),
                kind: fault.kind.code(),
                ignored: fault.ignored,
            };
            self.faults.get_or_create(&label).inc();
        }
        if !outcome.invocations.is_empty() {
            self.cost.observe(outcome.cost_units() as f64);
        }
    }
}
