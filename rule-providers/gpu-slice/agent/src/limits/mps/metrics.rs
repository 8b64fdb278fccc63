//! Metrics of the MPS daemons.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CardLabel {
    card: String,
}

/// By card. Clones share all values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    up: Family<CardLabel, Gauge>,
    clients: Family<CardLabel, Gauge>,
    restarts: Family<CardLabel, Counter>,
    lost: Family<CardLabel, Counter>,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "gpu_mps_up",
            "1 while the card's MPS control daemon answers",
            self.up.clone(),
        );
        registry.register(
            "gpu_mps_clients",
            "Processes that use the card by MPS, at the last check",
            self.clients.clone(),
        );
        registry.register(
            "gpu_mps_restarts",
            "Starts of the card's MPS control daemon after the first",
            self.restarts.clone(),
        );
        registry.register(
            "gpu_mps_clients_lost",
            "Processes that were clients of an MPS server when it ended",
            self.lost.clone(),
        );
    }

    /// Gives each metric with labels a series, for the reference of metrics.
    pub fn add_examples(&self) {
        _ = self.up.get_or_create(&Default::default());
        _ = self.clients.get_or_create(&Default::default());
        _ = self.restarts.get_or_create(&Default::default());
        _ = self.lost.get_or_create(&Default::default());
    }

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

/// Those of one card.
#[derive(Clone, Debug)]
pub(super) struct CardMetrics {
    pub up: Gauge,
    pub clients: Gauge,
    pub restarts: Counter,
    pub lost: Counter,
}
