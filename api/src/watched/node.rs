//! Of a node: what [`crate::convert::node`] reads; above all no images.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{self as corev1, Taint},
    apimachinery::pkg::api::resource::Quantity,
};
use serde::Deserialize;

use super::Metadata;

#[derive(Deserialize)]
pub struct Decoded {
    metadata: Option<Metadata>,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Deserialize)]
struct Spec {
    taints: Option<Vec<Taint>>,
    unschedulable: Option<bool>,
}

#[derive(Deserialize)]
struct Status {
    allocatable: Option<BTreeMap<String, Quantity>>,
    capacity: Option<BTreeMap<String, Quantity>>,
}

impl From<Decoded> for corev1::Node {
    fn from(of: Decoded) -> Self {
        Self {
            metadata: of.metadata.unwrap_or_default().into(),
            spec: of.spec.map(|s| corev1::NodeSpec {
                taints: s.taints,
                unschedulable: s.unschedulable,
                ..corev1::NodeSpec::default()
            }),
            status: of.status.map(|s| corev1::NodeStatus {
                allocatable: s.allocatable,
                capacity: s.capacity,
                ..corev1::NodeStatus::default()
            }),
        }
    }
}
