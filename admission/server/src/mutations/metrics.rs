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
use tautline_mutating_policy::Outcome;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InvocationLabel {
    policy: String,
    end: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Fault {
    policy: String,
    kind: &'static str,
    ignored: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Counters {
    invocations: Family<InvocationLabel, Counter>,
    faults: Family<Fault, Counter>,
    cost: Histogram,
    pub(super) active: Gauge,
    pub(super) unusable: Gauge,
}

impl Counters {
    pub(crate) fn register(r: &mut Registry) -> Self {
        let c = Self {
            invocations: Family::default(),
            faults: Family::default(),
            cost: Histogram::new(exponential_buckets(16.0, 4.0, 10)),
            active: Gauge::default(),
            unusable: Gauge::default(),
        };
        r.register(
            "mutation_invocations",
            "Invocations by policy and end: changed, unchanged, skipped, failed",
            c.invocations.clone(),
        );
        r.register(
            "mutation_faults",
            "Errors by policy and kind, and whether failurePolicy Ignore ignored them",
            c.faults.clone(),
        );
        r.register(
            "mutation_cost_units",
            "Cost units of all expressions of a request",
            c.cost.clone(),
        );
        r.register(
            "mutation_policies_in_force",
            "Valid policies with a valid binding",
            c.active.clone(),
        );
        r.register(
            "mutation_objects_unusable",
            "Policies and bindings whose current version is invalid",
            c.unusable.clone(),
        );
        c
    }

    /// Gives each metric with labels a series, for the reference of metrics.
    pub(crate) fn add_examples(&self) {
        _ = self.invocations.get_or_create(&Default::default());
        _ = self.faults.get_or_create(&Default::default());
    }

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
