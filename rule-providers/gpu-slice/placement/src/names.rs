//! The names of the resources, labels and annotations that describe GPUs: those of NVIDIA, GKE,
//! CastSlice, the openb trace and Tautline.

use tautline_core::names::CARD_RECORDS;

use crate::node_inventory::{MEMORY_RESOURCE, MILLI_RESOURCE};

/// The pod annotation with the pod's cards by index or UUID, and their thousandths: `0:250`, or
/// `1,3` for whole cards.
pub const DEVICES_ANNOTATION: &str = CARD_RECORDS[0];
/// The node label with the number of units of a shared card.
pub const REPLICAS_LABEL: &str = "nvidia.com/gpu.replicas";

pub(crate) const WHOLE_RESOURCE: &str = "nvidia.com/gpu";
pub(crate) const SHARED_RESOURCES: [&str; 2] = ["nvidia.com/gpu-shared", "nvidia.com/gpu.shared"];
const INSTANCE_PREFIX: &str = "nvidia.com/mig-";
/// The resources, labels or annotations with the number of cards of a node whose cards are assigned
/// when a pod is bound.
pub(crate) const CARD_COUNTS: [&str; 2] = ["tautline.io/gpu-cards", "alibabacloud.com/gpu-count"];
/// The node annotation that lists the unhealthy cards, by index or UUID.
pub(crate) const UNHEALTHY_ANNOTATION: &str = "tautline.io/gpu-unhealthy";
/// The node labels with the product name of the cards; the first one present counts.
pub(crate) const PRODUCT_LABELS: [&str; 2] =
    ["nvidia.com/gpu.product", "alibabacloud.com/gpu-card-model"];
/// The GKE node label with the profile of the MIG instances that `nvidia.com/gpu` counts, such as
/// `1g.5gb`.
pub(crate) const PARTITION_LABEL: &str = "cloud.google.com/gke-gpu-partition-size";
/// The node label with the memory of each card in MiB.
pub(crate) const MEMORY_LABEL: &str = "nvidia.com/gpu.memory";
/// The pod annotation with the thousandths of each card.
pub(crate) const POD_MILLI_ANNOTATION: &str = "alibabacloud.com/gpu-milli";
/// The pod annotation with the number of cards.
pub(crate) const POD_COUNT_ANNOTATION: &str = "alibabacloud.com/gpu-count";
/// The pod annotations that name the pod's cards; the first one present counts. Only Tautline's has
/// thousandths; `0-1` are two indexes.
pub(crate) const POD_DEVICES_ANNOTATIONS: [&str; 2] = CARD_RECORDS;

/// Returns whether the resource stands for cards, shares of cards or MIG instances.
pub fn is_gpu(resource: &str) -> bool {
    [is_whole, is_shared, is_instance, is_of_agent]
        .iter()
        .any(|is| is(resource))
}

/// Returns whether nodes with an agent offer the resource: thousandths of cards, or memory of
/// cards.
pub fn is_of_agent(resource: &str) -> bool {
    [MILLI_RESOURCE, MEMORY_RESOURCE].contains(&resource)
}

/// Returns whether the resource stands for whole cards (`nvidia.com/gpu`).
pub fn is_whole(resource: &str) -> bool {
    resource == WHOLE_RESOURCE
}

/// Returns whether the resource stands for units of shared cards (`nvidia.com/gpu.shared`).
pub fn is_shared(resource: &str) -> bool {
    SHARED_RESOURCES.contains(&resource)
}

/// Returns whether the resource stands for MIG instances, such as `nvidia.com/mig-1g.5gb`.
pub fn is_instance(resource: &str) -> bool {
    let profile = resource.strip_prefix(INSTANCE_PREFIX);
    profile.is_some_and(|profile| !profile.is_empty())
}
