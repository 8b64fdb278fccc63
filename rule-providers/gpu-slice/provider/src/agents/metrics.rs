use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tautline_proto::gpu::CardUse;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCard {
    node: String,
    card: String,
}

/// Clones share all values.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentMetrics {
    used: Family<OfCard, Gauge>,
    /// Open streams.
    pub(crate) agents: Gauge,
    /// Streams that were refused, as their agents gave no proof of the node.
    pub(crate) refused: Counter,
}

impl AgentMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "gpu_used_bytes",
            "Memory in use of each card, as the node's agent reports it",
            self.used.clone(),
        );
        registry.register(
            "gpu_agents",
            "Agents that are connected to this replica",
            self.agents.clone(),
        );
        registry.register(
            "gpu_agents_refused",
            "Streams of agents that were refused",
            self.refused.clone(),
        );
    }

    /// Gives each metric with labels a series, for the reference of metrics.
    pub(crate) fn add_examples(&self) {
        _ = self.used.get_or_create(&Default::default());
    }

    /// Cards that are no longer reported are dropped.
    pub(crate) fn replace(&self, node: &str, old: &[CardUse], new: &[CardUse]) {
        let of = |of: &CardUse| OfCard {
            node: node.to_owned(),
            card: of.card.clone(),
        };
        for gone in old.iter().filter(|o| new.iter().all(|n| n.card != o.card)) {
            self.used.remove(&of(gone));
        }
        for card in new {
            let bytes = i64::try_from(card.memory_bytes).unwrap_or(i64::MAX);
            self.used.get_or_create(&of(card)).set(bytes);
        }
    }
}
