//! Of a pod: what [`crate::convert::pod`] reads.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        self as corev1, NodeAffinity, PodCondition, PodExtendedResourceClaimStatus,
        PodResourceClaim, PodResourceClaimStatus, PodSchedulingGate, ResourceRequirements,
        Toleration,
    },
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
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    scheduler_name: Option<String>,
    priority: Option<i32>,
    scheduling_gates: Option<Vec<PodSchedulingGate>>,
    node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<Affinity>,
    tolerations: Option<Vec<Toleration>>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    overhead: Option<BTreeMap<String, Quantity>>,
    resource_claims: Option<Vec<PodResourceClaim>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Affinity {
    node_affinity: Option<NodeAffinity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    restart_policy: Option<String>,
    resources: Option<ResourceRequirements>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    conditions: Option<Vec<PodCondition>>,
    resource_claim_statuses: Option<Vec<PodResourceClaimStatus>>,
    extended_resource_claim_status: Option<PodExtendedResourceClaimStatus>,
}

impl From<Decoded> for corev1::Pod {
    fn from(of: Decoded) -> Self {
        Self {
            metadata: of.metadata.unwrap_or_default().into(),
            spec: of.spec.map(Into::into),
            status: of.status.map(Into::into),
        }
    }
}

impl From<Spec> for corev1::PodSpec {
    fn from(of: Spec) -> Self {
        let containers = |list: Vec<Container>| list.into_iter().map(Into::into).collect();
        Self {
            node_name: of.node_name,
            scheduler_name: of.scheduler_name,
            priority: of.priority,
            scheduling_gates: of.scheduling_gates,
            node_selector: of.node_selector,
            affinity: of.affinity.map(|a| corev1::Affinity {
                node_affinity: a.node_affinity,
                ..corev1::Affinity::default()
            }),
            tolerations: of.tolerations,
            containers: of.containers.map(containers).unwrap_or_default(),
            init_containers: of.init_containers.map(containers),
            overhead: of.overhead,
            resource_claims: of.resource_claims,
            ..Self::default()
        }
    }
}

impl From<Container> for corev1::Container {
    fn from(of: Container) -> Self {
        Self {
            restart_policy: of.restart_policy,
            resources: of.resources,
            ..Self::default()
        }
    }
}

impl From<Status> for corev1::PodStatus {
    fn from(of: Status) -> Self {
        Self {
            phase: of.phase,
            conditions: of.conditions,
            resource_claim_statuses: of.resource_claim_statuses,
            extended_resource_claim_status: of.extended_resource_claim_status,
            ..Self::default()
        }
    }
}
