//! What a provider's server counts.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Call {
    rpc: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Rpc {
    rpc: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    calls: Family<Call, Counter>,
    seconds: Family<Rpc, Histogram, fn() -> Histogram>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 14));
        let metrics = Self {
            calls: Family::default(),
            seconds: Family::new_with_constructor(seconds),
        };
        registry.register(
            "ruleprovider_calls",
            "Questions answered, by RPC and gRPC code",
            metrics.calls.clone(),
        );
        registry.register(
            "ruleprovider_call_seconds",
            "Time taken to answer",
            metrics.seconds.clone(),
        );
        metrics
    }

    pub(crate) fn observe(&self, rpc: &'static str, code: &'static str, took: Duration) {
        self.calls.get_or_create(&Call { rpc, code }).inc();
        self.seconds
            .get_or_create(&Rpc { rpc })
            .observe(took.as_secs_f64());
    }
}
