use prometheus_client::metrics::{family::Family, gauge::Gauge};
use tautline_sdk::reservations::ReservationCounts;

tautline_runtime::metrics! {
    pub(crate) struct Metrics {
        reservations: Family<ByState, Gauge> => "gpu_reservations",
            "Reservations of pods that the watch does not show bound, by state: held until \
             Confirm, or confirmed";
        claims: Family<ByState, Gauge> => "gpu_claims",
            "Resource claims, by state: allocated, or without devices";
    }
    labels ByState { state: &'static str }
}

impl Metrics {
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
