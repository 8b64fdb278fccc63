use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use tautline_proto::gpu::CardUse;

tautline_runtime::metrics! {
    /// The metrics of the agents. Clones share all values.
    pub(crate) struct AgentMetrics {
        used: Family<OfCard, Gauge> => "gpu_used_bytes",
            "Memory in use of each card, as the node's agent reports it";
        /// The number of open streams.
        pub(crate) agents: Gauge => "gpu_agents", "Agents that are connected to this replica";
        /// The number of streams that were refused because their agents gave no proof of the node.
        pub(crate) refused: Counter
            => "gpu_agents_refused", "Streams of agents that were refused";
    }
    labels OfCard { node: String, card: String }
}

impl AgentMetrics {
    /// Replaces the use of a node's cards. Cards that are no longer reported are dropped.
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
