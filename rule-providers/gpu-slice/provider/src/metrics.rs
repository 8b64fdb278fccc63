//! What the provider counts of itself.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use tautline_sdk::reservations::ReservationCounts;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

/// Gauges of the reservations.
#[derive(Clone, Debug, Default)]
pub struct Gauges {
    reservations: Family<ByState, Gauge>,
    claims: Family<ByState, Gauge>,
}

impl Gauges {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "gpu_reservations",
            "Cards picked for pods that the watch does not show bound: held for a Confirm, or confirmed",
            self.reservations.clone(),
        );
        registry.register(
            "gpu_claims",
            "Resource claims known, with devices and without",
            self.claims.clone(),
        );
        self.set(ReservationCounts::default(), (0, 0));
    }

    /// Reservations, and claims with devices and without.
    pub(crate) fn set(&self, counts: ReservationCounts, (allocated, free): (usize, usize)) {
        let set = |of: &Family<ByState, Gauge>, state, count| {
            let gauge = of.get_or_create(&ByState { state });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        };
        set(&self.reservations, "held", counts.held);
        set(&self.reservations, "confirmed", counts.confirmed);
        set(&self.claims, "allocated", allocated);
        set(&self.claims, "free", free);
    }
}
