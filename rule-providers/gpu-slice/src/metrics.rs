//! What the provider counts of itself.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use tautline_sdk::reservations::Counts;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

/// Gauges of the reservations.
#[derive(Clone, Debug, Default)]
pub struct Gauges {
    reservations: Family<ByState, Gauge>,
}

impl Gauges {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "gpu_reservations",
            "Cards picked for pods that the watch does not show bound: held for a Confirm, or confirmed",
            self.reservations.clone(),
        );
        self.set(Counts::default());
    }

    pub(crate) fn set(&self, counts: Counts) {
        let held = [("held", counts.held), ("confirmed", counts.confirmed)];
        for (state, count) in held {
            let gauge = self.reservations.get_or_create(&ByState { state });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
