//! The names of the resources, labels and annotations that describe GPUs. The defaults are those of
//! NVIDIA, CastSlice, the openb trace and Tautline.

use std::sync::Arc;

use crate::node_inventory::{MEMORY_RESOURCE, MILLI_RESOURCE};

/// The pod annotation with the pod's cards by index or UUID, and their thousandths: `0:250`, or
/// `1,3` for whole cards.
pub const DEVICES_ANNOTATION: &str = "tautline.io/gpu-devices";

/// Names of the resources, labels and annotations that describe GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub(crate) whole: Vec<Arc<str>>,
    pub(crate) shared: Vec<Arc<str>>,
    pub(crate) instances: Vec<Arc<str>>,
    /// Resources, labels or annotations with the number of cards of a node whose cards are assigned
    /// when a pod is bound.
    pub(crate) cards: Vec<Arc<str>>,
    /// Node annotation that lists the unhealthy cards, by index or UUID.
    pub(crate) unhealthy: Arc<str>,
    /// Node labels with the product name of the cards; the first one present counts.
    pub(crate) product: Vec<Arc<str>>,
    pub(crate) memory: Arc<str>,
    /// Node label with the number of units of a shared card.
    pub replicas: Arc<str>,
    pub(crate) pod_milli: Arc<str>,
    pub(crate) pod_count: Arc<str>,
    /// Pod annotations that name the pod's cards; the first one present counts. Only Tautline's has
    /// thousandths; `0-1` are two indexes.
    pub(crate) pod_devices: Vec<Arc<str>>,
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
    /// Returns whether the resource stands for cards, shares of cards or MIG instances.
    pub fn is_gpu(&self, resource: &str) -> bool {
        self.is_whole(resource)
            || self.is_shared(resource)
            || self.is_instance(resource)
            || Self::is_of_agent(resource)
    }

    /// Returns whether nodes with an agent offer the resource: thousandths of cards, or memory of
    /// cards.
    pub fn is_of_agent(resource: &str) -> bool {
        [MILLI_RESOURCE, MEMORY_RESOURCE].contains(&resource)
    }

    /// Returns whether the resource stands for whole cards, such as `nvidia.com/gpu`.
    pub fn is_whole(&self, resource: &str) -> bool {
        self.whole.iter().any(|n| **n == *resource)
    }

    /// Returns whether the resource stands for units of shared cards (`nvidia.com/gpu.shared`).
    pub fn is_shared(&self, resource: &str) -> bool {
        self.shared.iter().any(|n| **n == *resource)
    }

    /// Returns whether the resource stands for MIG instances, such as `nvidia.com/mig-1g.5gb`.
    pub fn is_instance(&self, resource: &str) -> bool {
        let of = |prefix: &Arc<str>| {
            let rest = resource.strip_prefix(&**prefix);
            rest.is_some_and(|r| !r.is_empty())
        };
        self.instances.iter().any(of)
    }
}
