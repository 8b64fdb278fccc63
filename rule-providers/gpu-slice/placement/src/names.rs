//! Names of resources, labels and annotations: those of NVIDIA, CastSlice, the openb trace and
//! Tautline. Those of other vendors come from configuration.

use std::sync::Arc;

/// The annotation that names the cards of a pod, by index or UUID, with thousandths: `0:250`, or
/// `1,3` for whole ones.
pub const DEVICES_ANNOTATION: &str = "tautline.io/gpu-devices";

/// The names that nodes and pods use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Resources of whole cards.
    pub whole: Vec<Arc<str>>,
    /// Resources of units of shared cards.
    pub shared: Vec<Arc<str>>,
    /// Prefixes of the resources of MIG instances.
    pub instances: Vec<Arc<str>>,
    /// Resource, label or annotation of a node with its number of cards, for nodes
    /// whose cards are handed out in thousandths when a pod is bound.
    pub cards: Vec<Arc<str>>,
    /// Node annotation that lists cards which are unhealthy, by index.
    pub unhealthy: Arc<str>,
    /// Labels of a card's product name, the first that is there.
    pub product: Vec<Arc<str>>,
    /// Label of a card's memory in MiB.
    pub memory: Arc<str>,
    /// Label of how many units a shared card has.
    pub replicas: Arc<str>,
    /// Pod annotation with the requested thousandths of each card.
    pub pod_milli: Arc<str>,
    /// Pod annotation with the requested number of cards.
    pub pod_count: Arc<str>,
    /// Pod annotations with the cards that it was given, the first that is there.
    /// Ours has cards with thousandths, others indexes alone (`0-1`).
    pub pod_devices: Vec<Arc<str>>,
}

impl Default for Names {
    fn default() -> Self {
        let list = |names: &[&str]| names.iter().map(|n| Arc::from(*n)).collect();
        Self {
            whole: list(&["nvidia.com/gpu"]),
            shared: list(&["nvidia.com/gpu-shared", "nvidia.com/gpu.shared"]),
            instances: list(&["nvidia.com/mig-"]),
            cards: list(&["tautline.io/gpu-cards", "alibabacloud.com/gpu-count"]),
            unhealthy: "tautline.io/gpu-unhealthy".into(),
            product: list(&["nvidia.com/gpu.product", "alibabacloud.com/gpu-card-model"]),
            memory: "nvidia.com/gpu.memory".into(),
            replicas: "nvidia.com/gpu.replicas".into(),
            pod_milli: "alibabacloud.com/gpu-milli".into(),
            pod_count: "alibabacloud.com/gpu-count".into(),
            pod_devices: list(&[DEVICES_ANNOTATION, "alibabacloud.com/gpu-index"]),
        }
    }
}

impl Names {
    /// Whether a resource is a GPU resource.
    pub fn is_gpu(&self, resource: &str) -> bool {
        self.is_whole(resource) || self.is_shared(resource) || self.is_instance(resource)
    }

    pub fn is_whole(&self, resource: &str) -> bool {
        self.whole.iter().any(|n| **n == *resource)
    }

    pub fn is_shared(&self, resource: &str) -> bool {
        self.shared.iter().any(|n| **n == *resource)
    }

    pub fn is_instance(&self, resource: &str) -> bool {
        let of = |prefix: &Arc<str>| {
            let rest = resource.strip_prefix(&**prefix);
            rest.is_some_and(|r| !r.is_empty())
        };
        self.instances.iter().any(of)
    }
}
