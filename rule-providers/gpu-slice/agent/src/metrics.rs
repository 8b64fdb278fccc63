//! The agent's own metrics.

use std::time::Duration;

use prometheus_client::metrics::{
    counter::Counter, family::Family, gauge::Gauge, histogram::Histogram,
};
use tautline_gpu_placement::node_inventory::NodeInventory;

/// The upper bounds of the histogram's buckets, in seconds; a container waits up to 5 s for its
/// pod's record.
const GIVE_SECONDS_BOUNDS: [f64; 10] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.1, 1.0, 5.0, 8.0];

/// The prefix of the metrics' names, for their registry.
pub(crate) const PREFIX: &str = "gpu_agent";

tautline_runtime::metrics! {
    /// The metrics of the agent since its process started; clones share all values.
    pub(crate) struct Metrics {
        cards: Family<StateLabel, Gauge> => "cards", "Cards of the node: healthy, or with a fault";
        given: Counter => "containers_given",
            "Requests of the kubelet for a container's cards that were granted";
        refused: Family<ReasonLabel, Counter> => "containers_refused",
            "Requests for a container's cards that were refused, by reason";
        seconds: Histogram = Histogram::new(GIVE_SECONDS_BOUNDS)
            => "give_seconds", "Time that a container's start waited for the agent";
        registrations: Family<ResourceLabel, Counter>
            => "kubelet_registrations", "Registrations with the kubelet, by resource";
        /// The number of starts of `tautline-nvml` after the first.
        pub reader_restarts: Counter
            => "reader_restarts", "Restarts of the process that reads NVML";
        /// The number of patches of the node that failed.
        pub node_failures: Counter => "node_write_failures",
            "Writes of the node's labels and annotation that failed";
        pub streams: Gauge => "streams", "Open streams to replicas of providers";
    }
    labels StateLabel { state: &'static str }
    labels ReasonLabel { reason: &'static str }
    labels ResourceLabel { resource: &'static str }
}

impl Metrics {
    pub fn see_cards(&self, inventory: &NodeInventory) {
        let faulty = inventory.cards.iter().filter(|c| c.fault.is_some()).count();
        let healthy = inventory.cards.len() - faulty;
        for (state, count) in [("healthy", healthy), ("faulty", faulty)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.cards.get_or_create(&StateLabel { state }).set(count);
        }
    }

    pub fn given(&self, took: Duration) {
        self.given.inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Counts a refusal; `reason` is a stable code.
    pub fn refused(&self, reason: &'static str, took: Duration) {
        self.refused.get_or_create(&ReasonLabel { reason }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    pub fn kubelet_registered(&self, resource: &'static str) {
        self.registrations
            .get_or_create(&ResourceLabel { resource })
            .inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use tautline_gpu_placement::node_inventory::InventoryCard;

    use super::*;

    #[test]
    fn names_begin_with_the_agent() {
        let (metrics, mut registry) = (Metrics::default(), Registry::with_prefix("tautline"));
        metrics.register("", registry.sub_registry_with_prefix(PREFIX));
        let card = |fault: Option<&str>| InventoryCard {
            fault: fault.map(str::to_owned),
            ..InventoryCard::default()
        };
        metrics.see_cards(&NodeInventory {
            cards: vec![card(None), card(Some("Xid79")), card(None)],
            ..NodeInventory::default()
        });
        metrics.given(Duration::from_millis(3));
        metrics.refused("NoRecord", Duration::from_secs(5));
        metrics.kubelet_registered("tautline.io/gpu-milli");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"tautline_gpu_agent_cards{state="healthy"} 2"#,
            r#"tautline_gpu_agent_cards{state="faulty"} 1"#,
            r#"tautline_gpu_agent_containers_given_total 1"#,
            r#"tautline_gpu_agent_containers_refused_total{reason="NoRecord"} 1"#,
            r#"tautline_gpu_agent_give_seconds_bucket{le="0.005"} 1"#,
            r#"tautline_gpu_agent_kubelet_registrations_total{resource="tautline.io/gpu-milli"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
