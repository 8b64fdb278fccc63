//! The fields of a pod that [`crate::convert`] reads. A test finds fields that are missing here.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1 as corev1, apimachinery::pkg::apis::meta::v1 as metav1};
use prost::Message;

use super::{Amounts, Metadata, amounts, some};

#[derive(Clone, PartialEq, Message)]
pub struct Pod {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
    #[prost(message, optional, tag = "3")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Spec {
    #[prost(message, repeated, tag = "2")]
    containers: Vec<Container>,
    #[prost(btree_map = "string, string", tag = "7")]
    node_selector: BTreeMap<String, String>,
    #[prost(string, tag = "10")]
    node_name: String,
    #[prost(message, optional, tag = "18")]
    affinity: Option<Affinity>,
    #[prost(string, tag = "19")]
    scheduler_name: String,
    #[prost(message, repeated, tag = "20")]
    init_containers: Vec<Container>,
    #[prost(message, repeated, tag = "22")]
    tolerations: Vec<Toleration>,
    #[prost(int32, optional, tag = "25")]
    priority: Option<i32>,
    #[prost(btree_map = "string, message", tag = "32")]
    overhead: Amounts,
    #[prost(message, repeated, tag = "38")]
    scheduling_gates: Vec<Gate>,
    #[prost(message, repeated, tag = "39")]
    resource_claims: Vec<Claim>,
    #[prost(message, optional, tag = "40")]
    resources: Option<Resources>,
}

#[derive(Clone, PartialEq, Message)]
struct Container {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "8")]
    resources: Option<Resources>,
    #[prost(string, optional, tag = "24")]
    restart_policy: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Resources {
    #[prost(btree_map = "string, message", tag = "1")]
    limits: Amounts,
    #[prost(btree_map = "string, message", tag = "2")]
    requests: Amounts,
}

#[derive(Clone, PartialEq, Message)]
struct Affinity {
    #[prost(message, optional, tag = "1")]
    node_affinity: Option<NodeAffinity>,
    #[prost(message, optional, tag = "2")]
    pod_affinity: Option<PodTerms>,
    #[prost(message, optional, tag = "3")]
    pod_anti_affinity: Option<PodTerms>,
}

/// A pod's affinity or anti-affinity to others.
#[derive(Clone, PartialEq, Message)]
struct PodTerms {
    #[prost(message, repeated, tag = "1")]
    required: Vec<PodTerm>,
}

#[derive(Clone, PartialEq, Message)]
struct PodTerm {
    #[prost(message, optional, tag = "1")]
    label_selector: Option<LabelSelector>,
    #[prost(string, repeated, tag = "2")]
    namespaces: Vec<String>,
    #[prost(string, tag = "3")]
    topology_key: String,
    #[prost(message, optional, tag = "4")]
    namespace_selector: Option<LabelSelector>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelSelector {
    #[prost(btree_map = "string, string", tag = "1")]
    match_labels: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeAffinity {
    #[prost(message, optional, tag = "1")]
    required: Option<NodeSelector>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeSelector {
    #[prost(message, repeated, tag = "1")]
    terms: Vec<Term>,
}

#[derive(Clone, PartialEq, Message)]
struct Term {
    #[prost(message, repeated, tag = "1")]
    match_expressions: Vec<Requirement>,
    #[prost(message, repeated, tag = "2")]
    match_fields: Vec<Requirement>,
}

#[derive(Clone, PartialEq, Message)]
struct Requirement {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    operator: String,
    #[prost(string, repeated, tag = "3")]
    values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Toleration {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    operator: String,
    #[prost(string, tag = "3")]
    value: String,
    #[prost(string, tag = "4")]
    effect: String,
}

#[derive(Clone, PartialEq, Message)]
struct Gate {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Claim {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, optional, tag = "3")]
    resource_claim_name: Option<String>,
    #[prost(string, optional, tag = "4")]
    resource_claim_template_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "1")]
    phase: String,
    #[prost(message, repeated, tag = "2")]
    conditions: Vec<Condition>,
    #[prost(message, repeated, tag = "8")]
    container_statuses: Vec<ContainerStatus>,
    #[prost(message, repeated, tag = "10")]
    init_container_statuses: Vec<ContainerStatus>,
    #[prost(message, repeated, tag = "15")]
    resource_claim_statuses: Vec<ClaimStatus>,
    #[prost(message, optional, tag = "18")]
    extended_resource_claim_status: Option<ExtendedClaim>,
    #[prost(btree_map = "string, message", tag = "19")]
    allocated_resources: Amounts,
    #[prost(message, optional, tag = "20")]
    resources: Option<Resources>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerStatus {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(btree_map = "string, message", tag = "10")]
    allocated_resources: Amounts,
    #[prost(message, optional, tag = "11")]
    resources: Option<Resources>,
}

#[derive(Clone, PartialEq, Message)]
struct Condition {
    #[prost(string, tag = "1")]
    type_: String,
    #[prost(string, tag = "2")]
    status: String,
    #[prost(string, tag = "5")]
    reason: String,
    #[prost(string, tag = "6")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct ClaimStatus {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, optional, tag = "2")]
    resource_claim_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ExtendedClaim {
    #[prost(string, tag = "2")]
    resource_claim_name: String,
}

impl From<Pod> for corev1::Pod {
    fn from(of: Pod) -> Self {
        Self {
            metadata: of.metadata.unwrap_or_default().into(),
            spec: of.spec.map(Into::into),
            status: of.status.map(Into::into),
        }
    }
}

impl From<Spec> for corev1::PodSpec {
    fn from(of: Spec) -> Self {
        let gate = |g: Gate| corev1::PodSchedulingGate { name: g.name };
        let claim = |c: Claim| corev1::PodResourceClaim {
            name: c.name,
            resource_claim_name: c.resource_claim_name,
            resource_claim_template_name: c.resource_claim_template_name,
        };
        Self {
            containers: list(of.containers, Into::into),
            node_selector: Some(of.node_selector),
            node_name: some(of.node_name),
            affinity: of.affinity.map(|a| corev1::Affinity {
                node_affinity: a.node_affinity.map(Into::into),
                pod_affinity: a.pod_affinity.map(|a| corev1::PodAffinity {
                    required_during_scheduling_ignored_during_execution: required(a),
                    ..corev1::PodAffinity::default()
                }),
                pod_anti_affinity: a.pod_anti_affinity.map(|a| corev1::PodAntiAffinity {
                    required_during_scheduling_ignored_during_execution: required(a),
                    ..corev1::PodAntiAffinity::default()
                }),
            }),
            scheduler_name: some(of.scheduler_name),
            init_containers: Some(list(of.init_containers, Into::into)),
            tolerations: Some(list(of.tolerations, Into::into)),
            priority: of.priority,
            overhead: amounts(of.overhead),
            scheduling_gates: Some(list(of.scheduling_gates, gate)),
            resource_claims: Some(list(of.resource_claims, claim)),
            resources: of.resources.map(Into::into),
            ..Self::default()
        }
    }
}

impl From<Container> for corev1::Container {
    fn from(of: Container) -> Self {
        Self {
            name: of.name,
            restart_policy: of.restart_policy,
            resources: of.resources.map(Into::into),
            ..Self::default()
        }
    }
}

impl From<Resources> for corev1::ResourceRequirements {
    fn from(of: Resources) -> Self {
        Self {
            limits: amounts(of.limits),
            requests: amounts(of.requests),
            claims: None,
        }
    }
}

fn required(of: PodTerms) -> Option<Vec<corev1::PodAffinityTerm>> {
    let term = |t: PodTerm| corev1::PodAffinityTerm {
        label_selector: t.label_selector.map(Into::into),
        namespaces: Some(t.namespaces),
        topology_key: t.topology_key,
        namespace_selector: t.namespace_selector.map(Into::into),
        ..corev1::PodAffinityTerm::default()
    };
    Some(list(of.required, term))
}

impl From<LabelSelector> for metav1::LabelSelector {
    fn from(of: LabelSelector) -> Self {
        let requirement = |r: Requirement| metav1::LabelSelectorRequirement {
            key: r.key,
            operator: r.operator,
            values: Some(r.values),
        };
        Self {
            match_labels: Some(of.match_labels),
            match_expressions: Some(list(of.match_expressions, requirement)),
        }
    }
}

impl From<ContainerStatus> for corev1::ContainerStatus {
    fn from(of: ContainerStatus) -> Self {
        Self {
            name: of.name,
            allocated_resources: amounts(of.allocated_resources),
            resources: of.resources.map(Into::into),
            ..Self::default()
        }
    }
}

impl From<NodeAffinity> for corev1::NodeAffinity {
    fn from(of: NodeAffinity) -> Self {
        let requirement = |r: Requirement| corev1::NodeSelectorRequirement {
            key: r.key,
            operator: r.operator,
            values: Some(r.values),
        };
        let term = |t: Term| corev1::NodeSelectorTerm {
            match_expressions: Some(list(t.match_expressions, requirement)),
            match_fields: Some(list(t.match_fields, requirement)),
        };
        Self {
            required_during_scheduling_ignored_during_execution: of.required.map(|r| {
                corev1::NodeSelector {
                    node_selector_terms: list(r.terms, term),
                }
            }),
            preferred_during_scheduling_ignored_during_execution: None,
        }
    }
}

impl From<Toleration> for corev1::Toleration {
    fn from(of: Toleration) -> Self {
        Self {
            key: some(of.key),
            operator: some(of.operator),
            value: some(of.value),
            effect: some(of.effect),
            toleration_seconds: None,
        }
    }
}

impl From<Status> for corev1::PodStatus {
    fn from(of: Status) -> Self {
        let condition = |c: Condition| corev1::PodCondition {
            type_: c.type_,
            status: c.status,
            reason: some(c.reason),
            message: some(c.message),
            ..corev1::PodCondition::default()
        };
        let claim = |c: ClaimStatus| corev1::PodResourceClaimStatus {
            name: c.name,
            resource_claim_name: c.resource_claim_name,
        };
        let extended = |c: ExtendedClaim| corev1::PodExtendedResourceClaimStatus {
            resource_claim_name: c.resource_claim_name,
            ..corev1::PodExtendedResourceClaimStatus::default()
        };
        Self {
            phase: some(of.phase),
            conditions: Some(list(of.conditions, condition)),
            resource_claim_statuses: Some(list(of.resource_claim_statuses, claim)),
            extended_resource_claim_status: of.extended_resource_claim_status.map(extended),
            container_statuses: Some(list(of.container_statuses, Into::into)),
            init_container_statuses: Some(list(of.init_container_statuses, Into::into)),
            allocated_resources: amounts(of.allocated_resources),
            resources: of.resources.map(Into::into),
            ..Self::default()
        }
    }
}

fn list<A, B>(of: Vec<A>, into: impl FnMut(A) -> B) -> Vec<B> {
    of.into_iter().map(into).collect()
}
