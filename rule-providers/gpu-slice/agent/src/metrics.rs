//! The agent's own metrics.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tautline_gpu_placement::node_inventory::NodeInventory;

/// From 0.5 ms to 8 s: a container waits up to 5 s for its pod's record.
const SECONDS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.1, 1.0, 5.0, 8.0];

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WayLabel {
    way: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabel {
    resource: &'static str,
}

/// How a container's cards are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Kubelet,
    Nri,
}

impl Way {
    fn label(self) -> WayLabel {
        let way = match self {
            Self::Kubelet => "kubelet",
            Self::Nri => "nri",
        };
        WayLabel { way }
    }
}

/// Since the process started. Clones share all values.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    cards: Family<StateLabel, Gauge>,
    given: Family<WayLabel, Counter>,
    refused: Family<ReasonLabel, Counter>,
    seconds: Family<WayLabel, Histogram>,
    registrations: Family<ResourceLabel, Counter>,
    /// 1 while the runtime calls the NRI plugin.
    pub nri: Gauge,
    /// Starts of `tautline-nvml` after the first.
    pub reader_restarts: Counter,
    /// Patches of the node that the API server refused.
    pub node_failures: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            cards: Family::default(),
            given: Family::default(),
            refused: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            registrations: Family::default(),
            nri: Gauge::default(),
            reader_restarts: Counter::default(),
            node_failures: Counter::default(),
        }
    }
}

impl Metrics {
    /// `registry` has the prefix `tautline`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("gpu_agent");
        registry.register(
            "cards",
            "Cards of the node: healthy, or with a fault",
            self.cards.clone(),
        );
        registry.register(
            "containers_given",
            "Requests of the runtime (nri) or the kubelet for a container's cards that were granted",
            self.given.clone(),
        );
        registry.register(
            "containers_refused",
            "Requests for a container's cards that were refused, by reason",
            self.refused.clone(),
        );
        registry.register(
            "give_seconds",
            "Time that a container's start waited for the agent",
            self.seconds.clone(),
        );
        registry.register(
            "kubelet_registrations",
            "Registrations with the kubelet, by resource",
            self.registrations.clone(),
        );
        registry.register(
            "nri_attached",
            "1 if the container runtime calls the agent by NRI",
            self.nri.clone(),
        );
        registry.register(
            "reader_restarts",
            "Restarts of the process that reads NVML",
            self.reader_restarts.clone(),
        );
        registry.register(
            "node_write_failures",
            "Writes of the node's labels and annotation that failed",
            self.node_failures.clone(),
        );
    }

    /// Gives each metric with labels a series, for the reference of metrics.
    pub fn add_examples(&self) {
        _ = self.cards.get_or_create(&Default::default());
        _ = self.given.get_or_create(&Default::default());
        _ = self.refused.get_or_create(&Default::default());
        _ = self.seconds.get_or_create(&Default::default());
        _ = self.registrations.get_or_create(&Default::default());
    }

    pub fn see_cards(&self, inventory: &NodeInventory) {
        let faulty = inventory.cards.iter().filter(|c| c.fault.is_some()).count();
        let healthy = inventory.cards.len() - faulty;
        for (state, count) in [("healthy", healthy), ("faulty", faulty)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.cards.get_or_create(&StateLabel { state }).set(count);
        }
    }

    pub fn given(&self, way: Way, took: Duration) {
        self.given.get_or_create(&way.label()).inc();
        self.took(way, took);
    }

    /// `reason` is a stable code.
    pub fn refused(&self, way: Way, reason: &'static str, took: Duration) {
        self.refused.get_or_create(&ReasonLabel { reason }).inc();
        self.took(way, took);
    }

    pub fn registered(&self, resource: &'static str) {
        self.registrations
            .get_or_create(&ResourceLabel { resource })
            .inc();
    }

    fn took(&self, way: Way, took: Duration) {
        self.seconds
            .get_or_create(&way.label())
            .observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use tautline_gpu_placement::node_inventory::InventoryCard;

    use super::*;

    #[test]
    fn names_begin_with_the_agent() {
        let (metrics, mut registry) = (Metrics::default(), Registry::with_prefix("tautline"));
        metrics.register(&mut registry);
        let card = |fault: Option<&str>| InventoryCard {
            fault: fault.map(str::to_owned),
            ..InventoryCard::default()
        };
        metrics.see_cards(&NodeInventory {
            cards: vec![card(None), card(Some("Xid79")), card(None)],
            ..NodeInventory::default()
        });
        metrics.given(Way::Nri, Duration::from_millis(3));
        metrics.refused(Way::Kubelet, "NoRecord", Duration::from_secs(5));
        metrics.registered("tautline.io/gpu-milli");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"tautline_gpu_agent_cards{state="healthy"} 2"#,
            r#"tautline_gpu_agent_cards{state="faulty"} 1"#,
            r#"tautline_gpu_agent_containers_given_total{way="nri"} 1"#,
            r#"tautline_gpu_agent_containers_refused_total{reason="NoRecord"} 1"#,
            r#"tautline_gpu_agent_give_seconds_bucket{le="0.005",way="nri"} 1"#,
            r#"tautline_gpu_agent_kubelet_registrations_total{resource="tautline.io/gpu-milli"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
