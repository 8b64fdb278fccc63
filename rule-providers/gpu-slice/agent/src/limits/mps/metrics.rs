//! Metrics of the MPS daemons.

use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};

tautline_runtime::metrics! {
    /// The metrics of all daemons, by card; clones share all values.
    pub struct Metrics {
        up: Family<CardLabel, Gauge>
            => "gpu_mps_up", "1 while the card's MPS control daemon answers";
        clients: Family<CardLabel, Gauge>
            => "gpu_mps_clients", "Processes that use the card by MPS, at the last check";
        restarts: Family<CardLabel, Counter>
            => "gpu_mps_restarts", "Starts of the card's MPS control daemon after the first";
        lost: Family<CardLabel, Counter> => "gpu_mps_clients_lost",
            "Processes that were clients of an MPS server when it ended";
    }
    labels CardLabel { card: String }
}

impl Metrics {
    pub(super) fn of_card(&self, card: &str) -> CardMetrics {
        let label = CardLabel {
            card: card.to_owned(),
        };
        CardMetrics {
            up: self.up.get_or_create_owned(&label),
            clients: self.clients.get_or_create_owned(&label),
            restarts: self.restarts.get_or_create_owned(&label),
            lost: self.lost.get_or_create_owned(&label),
        }
    }
}

/// The metrics of one card's daemon.
#[derive(Clone, Debug)]
pub(super) struct CardMetrics {
    pub up: Gauge,
    pub clients: Gauge,
    pub restarts: Counter,
    pub lost: Counter,
}
