//! What policies are counted by.

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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Invoked {
    policy: String,
    end: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Fault {
    policy: String,
    kind: &'static str,
    ignored: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Counters {
    invocations: Family<Invoked, Counter>,
    faults: Family<Fault, Counter>,
    cost: Histogram,
    pub(super) in_force: Gauge,
    pub(super) unusable: Gauge,
}

impl Counters {
    pub(crate) fn register(r: &mut Registry) -> Self {
        let c = Self {
            invocations: Family::default(),
            faults: Family::default(),
            cost: Histogram::new(exponential_buckets(16.0, 4.0, 10)),
            in_force: Gauge::default(),
            unusable: Gauge::default(),
        };
        r.register(
            "mutation_invocations",
            "Invocations by policy and end: changed, unchanged, skipped, failed",
            c.invocations.clone(),
        );
        r.register(
            "mutation_faults",
            "Errors by policy and kind, and whether failurePolicy Ignore left them out",
            c.faults.clone(),
        );
        r.register(
            "mutation_cost_units",
            "Cost units of all expressions of a request",
            c.cost.clone(),
        );
        r.register(
            "mutation_policies_in_force",
            "Policies with a binding, both fit for use",
            c.in_force.clone(),
        );
        r.register(
            "mutation_objects_unusable",
            "Policies and bindings that cannot be used as they are now",
            c.unusable.clone(),
        );
        c
    }

    pub(super) fn count(&self, outcome: &Outcome) {
        for invocation in &outcome.invocations {
            let label = Invoked {
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
