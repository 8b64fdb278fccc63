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

#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    reservations: Family<ByState, Gauge>,
    claims: Family<ByState, Gauge>,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "gpu_reservations",
            "Reservations of pods that the watch does not show bound, by state: held until Confirm, or confirmed",
            self.reservations.clone(),
        );
        registry.register(
            "gpu_claims",
            "Resource claims, by state: allocated, or without devices",
            self.claims.clone(),
        );
        self.set(ReservationCounts::default(), (0, 0));
    }

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
