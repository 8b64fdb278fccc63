//! The fields of a node that [`crate::convert::node`] reads. Others are left out, above all images.

use k8s_openapi::api::core::v1 as corev1;
use prost::Message;

use super::{Amounts, Metadata, amounts, some};

#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
    #[prost(message, optional, tag = "3")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Spec {
    #[prost(bool, tag = "4")]
    unschedulable: bool,
    #[prost(message, repeated, tag = "5")]
    taints: Vec<Taint>,
}

#[derive(Clone, PartialEq, Message)]
struct Taint {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(string, tag = "3")]
    effect: String,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(btree_map = "string, message", tag = "1")]
    capacity: Amounts,
    #[prost(btree_map = "string, message", tag = "2")]
    allocatable: Amounts,
}

impl From<Node> for corev1::Node {
    fn from(of: Node) -> Self {
        let taint = |t: Taint| corev1::Taint {
            key: t.key,
            value: some(t.value),
            effect: t.effect,
            time_added: None,
        };
        Self {
            metadata: of.metadata.unwrap_or_default().into(),
            spec: of.spec.map(|s| corev1::NodeSpec {
                taints: Some(s.taints.into_iter().map(taint).collect()),
                unschedulable: Some(s.unschedulable),
                ..corev1::NodeSpec::default()
            }),
            status: of.status.map(|s| corev1::NodeStatus {
                allocatable: amounts(s.allocatable),
                capacity: amounts(s.capacity),
                ..corev1::NodeStatus::default()
            }),
        }
    }
}
