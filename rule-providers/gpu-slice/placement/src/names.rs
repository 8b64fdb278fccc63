//! Default names of NVIDIA, CastSlice, the openb trace and Tautline.

use std::sync::Arc;

/// A pod's cards by index or UUID, with thousandths: `0:250`, or `1,3` for whole ones.
pub const DEVICES_ANNOTATION: &str = "tautline.io/gpu-devices";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub whole: Vec<Arc<str>>,
    pub shared: Vec<Arc<str>>,
    pub instances: Vec<Arc<str>>,
    /// Number of cards of a node whose cards are assigned when a pod is bound.
    pub cards: Vec<Arc<str>>,
    /// Indexes of unhealthy cards.
    pub unhealthy: Arc<str>,
    /// Labels of the product name; the first one present counts.
    pub product: Vec<Arc<str>>,
    pub memory: Arc<str>,
    /// Label of the units of a shared card.
    pub replicas: Arc<str>,
    pub pod_milli: Arc<str>,
    pub pod_count: Arc<str>,
    /// The first one present counts. Only Tautline's has thousandths; `0-1` are indexes.
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
