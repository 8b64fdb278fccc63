//! Publishes each container's use of GPU cards as Prometheus metrics: memory in bytes, and
//! thousandths of a card's processors.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
};
use tautline_proto::gpu::Use;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct OfContainer {
    namespace: String,
    pod: String,
    container: String,
    card: String,
}

/// The memory in bytes and the thousandths of processors that containers use.
type Sums = BTreeMap<OfContainer, (u64, u32)>;

tautline_runtime::metrics! {
    /// The metrics of each container that uses a card now; clones share all values.
    pub(crate) struct UseMetrics {
        memory: Family<OfContainer, Gauge> => "gpu_memory_used_bytes",
            "Memory of a card that a container's processes have; outside of pods by command";
        sm: Family<OfContainer, Gauge> => "gpu_sm_milli",
            "Thousandths of a card's processors that a container's processes had lately";
        shown: Arc<Mutex<Sums>>;
    }
}

impl UseMetrics {
    /// Replaces all values, and removes those of containers that no longer use a card.
    pub(super) fn set(&self, used: Option<&Use>) {
        let mut sums = Sums::new();
        for of in used.map_or(&[][..], |used| &used.containers) {
            let labels = OfContainer {
                namespace: of.namespace.clone(),
                pod: of.pod.clone(),
                container: of.container.clone(),
                card: of.card.clone(),
            };
            // Unknown pods have no names, so their values are added up.
            let (memory, sm) = sums.entry(labels).or_default();
            *memory = memory.saturating_add(of.memory_bytes);
            *sm = sm.saturating_add(of.sm_milli).min(1000);
        }
        let mut shown = self.shown.lock();
        for gone in shown.keys().filter(|of| !sums.contains_key(of)) {
            self.memory.remove(gone);
            self.sm.remove(gone);
        }
        for (of, (memory, sm)) in &sums {
            let memory = i64::try_from(*memory).unwrap_or(i64::MAX);
            self.memory.get_or_create(of).set(memory);
            self.sm.get_or_create(of).set((*sm).into());
        }
        *shown = sums;
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use tautline_proto::gpu::ContainerUse;

    use super::*;

    fn container(pod: &str, memory_bytes: u64) -> ContainerUse {
        ContainerUse {
            namespace: "ml".into(),
            pod: pod.into(),
            container: "main".into(),
            card: "GPU-a".into(),
            memory_bytes,
            sm_milli: 250,
            ..ContainerUse::default()
        }
    }

    #[test]
    fn containers_that_are_gone_leave_no_series() {
        let (metrics, mut registry) = (UseMetrics::default(), Registry::with_prefix("tautline"));
        metrics.register("", &mut registry);
        let text = |containers: Vec<ContainerUse>| {
            let used = Use {
                containers,
                ..Use::default()
            };
            metrics.set(Some(&used));
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        let labels = r#"{namespace="ml",pod="a",container="main",card="GPU-a"}"#;
        let both = text(vec![container("a", 7), container("b", 8)]);
        assert!(
            both.contains(&format!("tautline_gpu_memory_used_bytes{labels} 7")),
            "{both}"
        );
        assert!(
            both.contains(&format!("tautline_gpu_sm_milli{labels} 250")),
            "{both}"
        );
        let one = text(vec![container("b", 9)]);
        assert!(
            !one.contains(r#"pod="a""#) && one.contains(r#"pod="b""#),
            "{one}"
        );
        metrics.set(None);
        let mut none = String::new();
        encode(&mut none, &registry).unwrap();
        assert!(!none.contains("pod="), "{none}");
    }
}
