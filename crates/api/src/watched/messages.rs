//! The fields of pods and nodes that [`crate::convert`] reads. A test finds fields that are missing
//! here. Others are left out, above all the images of nodes.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1 as corev1,
    apimachinery::pkg::{api::resource::Quantity as ApiQuantity, apis::meta::v1 as metav1},
    jiff::Timestamp,
};
use prost::Message;
use serde::{Deserialize, Deserializer};

/// Declares types that have a part of the fields of a Kubernetes type, as
/// `Name => Whole { field: Type; }`, and decodes them from protobuf and from JSON. Each becomes
/// `Whole` by `From`: a field becomes the field of the same name, by the function after its `=>` if
/// there is one, and the fields that are left out get their defaults.
macro_rules! mirrors {
    (@value $value:expr) => { $value };
    (@value $value:expr, $how:expr) => { $how($value) };
    (
        @type $visibility:vis $name:ident => $whole:ty {
            $($(#[$of_field:meta])* $field:ident: $type:ty $(=> $how:expr)?;)*
        }
    ) => {
        #[derive(Clone, PartialEq, Message, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        $visibility struct $name {
            $($(#[$of_field])* #[serde(deserialize_with = "or_default")] $field: $type,)*
        }

        impl From<$name> for $whole {
            // A type may have all fields of the whole.
            #[allow(clippy::needless_update)]
            fn from(of: $name) -> Self {
                Self {
                    $($field: mirrors!(@value of.$field $(, $how)?),)*
                    ..Self::default()
                }
            }
        }
    };
    ($($visibility:vis $name:ident => $whole:ty { $($fields:tt)* })*) => {
        $(mirrors! { @type $visibility $name => $whole { $($fields)* } })*
    };
}

mirrors! {
    Metadata => metav1::ObjectMeta {
        #[prost(string, tag = "1")] name: String => some;
        #[prost(string, tag = "3")] namespace: String => some;
        #[prost(string, tag = "5")] uid: String => some;
        #[prost(string, tag = "6")] resource_version: String => some;
        #[prost(message, optional, tag = "8")] creation_timestamp: Option<Time> => part;
        #[prost(message, optional, tag = "9")] deletion_timestamp: Option<Time> => part;
        #[prost(btree_map = "string, string", tag = "11")] labels: BTreeMap<String, String> => Some;
        #[prost(btree_map = "string, string", tag = "12")] annotations: BTreeMap<String, String> => Some;
        #[prost(message, repeated, tag = "13")] owner_references: Vec<OwnerReference> => list;
        #[prost(string, repeated, tag = "14")] finalizers: Vec<String> => Some;
    }
    OwnerReference => metav1::OwnerReference {
        #[prost(string, tag = "1")] kind: String;
        #[prost(string, tag = "3")] name: String;
        #[prost(string, tag = "4")] uid: String;
        #[prost(string, tag = "5")] api_version: String;
        #[prost(bool, optional, tag = "6")] controller: Option<bool>;
    }
    LabelSelector => metav1::LabelSelector {
        #[prost(btree_map = "string, string", tag = "1")] match_labels: BTreeMap<String, String> => Some;
        #[prost(message, repeated, tag = "2")] match_expressions: Vec<LabelRequirement> => list;
    }
    LabelRequirement => metav1::LabelSelectorRequirement {
        #[prost(string, tag = "1")] key: String;
        #[prost(string, tag = "2")] operator: String;
        #[prost(string, repeated, tag = "3")] values: Vec<String> => Some;
    }

    pub Node => corev1::Node {
        #[prost(message, optional, tag = "1")] metadata: Option<Metadata> => part_or_default;
        #[prost(message, optional, tag = "2")] spec: Option<NodeSpec> => part;
        #[prost(message, optional, tag = "3")] status: Option<NodeStatus> => part;
    }
    NodeSpec => corev1::NodeSpec {
        #[prost(bool, tag = "4")] unschedulable: bool => Some;
        #[prost(message, repeated, tag = "5")] taints: Vec<Taint> => list;
    }
    Taint => corev1::Taint {
        #[prost(string, tag = "1")] key: String;
        #[prost(string, tag = "2")] value: String => some;
        #[prost(string, tag = "3")] effect: String;
    }
    NodeStatus => corev1::NodeStatus {
        #[prost(btree_map = "string, message", tag = "1")] capacity: Amounts => amounts;
        #[prost(btree_map = "string, message", tag = "2")] allocatable: Amounts => amounts;
    }

    pub Pod => corev1::Pod {
        #[prost(message, optional, tag = "1")] metadata: Option<Metadata> => part_or_default;
        #[prost(message, optional, tag = "2")] spec: Option<PodSpec> => part;
        #[prost(message, optional, tag = "3")] status: Option<PodStatus> => part;
    }
    PodSpec => corev1::PodSpec {
        #[prost(message, repeated, tag = "2")] containers: Vec<Container> => with_needs;
        #[prost(btree_map = "string, string", tag = "7")] node_selector: BTreeMap<String, String> => Some;
        #[prost(string, tag = "10")] node_name: String => some;
        #[prost(bool, tag = "11")] host_network: bool => Some;
        #[prost(message, optional, tag = "18")] affinity: Option<Affinity> => part;
        #[prost(string, tag = "19")] scheduler_name: String => some;
        #[prost(message, repeated, tag = "20")] init_containers: Vec<Container> => |all| Some(with_needs(all));
        #[prost(message, repeated, tag = "22")] tolerations: Vec<Toleration> => list;
        #[prost(int32, optional, tag = "25")] priority: Option<i32>;
        #[prost(btree_map = "string, message", tag = "32")] overhead: Amounts => amounts;
        #[prost(message, repeated, tag = "33")] topology_spread_constraints: Vec<Spread> => list;
        #[prost(message, repeated, tag = "38")] scheduling_gates: Vec<Gate> => list;
        #[prost(message, repeated, tag = "39")] resource_claims: Vec<Claim> => list;
        #[prost(message, optional, tag = "40")] resources: Option<Resources> => part;
        #[prost(message, optional, tag = "43")] scheduling_group: Option<SchedulingGroup> => part;
    }
    SchedulingGroup => corev1::PodSchedulingGroup {
        #[prost(string, optional, tag = "1")] pod_group_name: Option<String>;
    }
    Container => corev1::Container {
        #[prost(string, tag = "1")] name: String;
        #[prost(message, repeated, tag = "6")] ports: Vec<Port> => list;
        #[prost(message, optional, tag = "8")] resources: Option<Resources> => part;
        #[prost(string, optional, tag = "24")] restart_policy: Option<String>;
    }
    Port => corev1::ContainerPort {
        #[prost(int32, optional, tag = "2")] host_port: Option<i32>;
        #[prost(int32, tag = "3")] container_port: i32;
        #[prost(string, optional, tag = "4")] protocol: Option<String>;
        #[serde(rename = "hostIP")]
        #[prost(string, tag = "5")] host_ip: String => some;
    }
    Resources => corev1::ResourceRequirements {
        #[prost(btree_map = "string, message", tag = "1")] limits: Amounts => amounts;
        #[prost(btree_map = "string, message", tag = "2")] requests: Amounts => amounts;
    }
    Affinity => corev1::Affinity {
        #[prost(message, optional, tag = "1")] node_affinity: Option<NodeAffinity> => part;
        #[prost(message, optional, tag = "2")] pod_affinity: Option<PodAffinity> => part;
        #[prost(message, optional, tag = "3")] pod_anti_affinity: Option<PodAntiAffinity> => part;
    }
    NodeAffinity => corev1::NodeAffinity {
        #[prost(message, optional, tag = "1")]
        required_during_scheduling_ignored_during_execution: Option<NodeSelector> => part;
    }
    NodeSelector => corev1::NodeSelector {
        #[prost(message, repeated, tag = "1")] node_selector_terms: Vec<NodeTerm> => all;
    }
    NodeTerm => corev1::NodeSelectorTerm {
        #[prost(message, repeated, tag = "1")] match_expressions: Vec<NodeRequirement> => list;
        #[prost(message, repeated, tag = "2")] match_fields: Vec<NodeRequirement> => list;
    }
    NodeRequirement => corev1::NodeSelectorRequirement {
        #[prost(string, tag = "1")] key: String;
        #[prost(string, tag = "2")] operator: String;
        #[prost(string, repeated, tag = "3")] values: Vec<String> => Some;
    }
    PodAffinity => corev1::PodAffinity {
        #[prost(message, repeated, tag = "1")]
        required_during_scheduling_ignored_during_execution: Vec<PodTerm> => list;
    }
    PodAntiAffinity => corev1::PodAntiAffinity {
        #[prost(message, repeated, tag = "1")]
        required_during_scheduling_ignored_during_execution: Vec<PodTerm> => list;
    }
    PodTerm => corev1::PodAffinityTerm {
        #[prost(message, optional, tag = "1")] label_selector: Option<LabelSelector> => part;
        #[prost(string, repeated, tag = "2")] namespaces: Vec<String> => Some;
        #[prost(string, tag = "3")] topology_key: String;
        #[prost(message, optional, tag = "4")] namespace_selector: Option<LabelSelector> => part;
    }
    Spread => corev1::TopologySpreadConstraint {
        #[prost(int32, tag = "1")] max_skew: i32;
        #[prost(string, tag = "2")] topology_key: String;
        #[prost(string, tag = "3")] when_unsatisfiable: String;
        #[prost(message, optional, tag = "4")] label_selector: Option<LabelSelector> => part;
        #[prost(int32, optional, tag = "5")] min_domains: Option<i32>;
        #[prost(string, optional, tag = "6")] node_affinity_policy: Option<String>;
        #[prost(string, optional, tag = "7")] node_taints_policy: Option<String>;
        #[prost(string, repeated, tag = "8")] match_label_keys: Vec<String> => Some;
    }
    Toleration => corev1::Toleration {
        #[prost(string, tag = "1")] key: String => some;
        #[prost(string, tag = "2")] operator: String => some;
        #[prost(string, tag = "3")] value: String => some;
        #[prost(string, tag = "4")] effect: String => some;
    }
    Gate => corev1::PodSchedulingGate {
        #[prost(string, tag = "1")] name: String;
    }
    Claim => corev1::PodResourceClaim {
        #[prost(string, tag = "1")] name: String;
        #[prost(string, optional, tag = "3")] resource_claim_name: Option<String>;
        #[prost(string, optional, tag = "4")] resource_claim_template_name: Option<String>;
    }
    PodStatus => corev1::PodStatus {
        #[prost(string, tag = "1")] phase: String => some;
        #[prost(message, repeated, tag = "2")] conditions: Vec<Condition> => list;
        #[prost(message, repeated, tag = "8")] container_statuses: Vec<ContainerStatus> => list;
        #[prost(message, repeated, tag = "10")] init_container_statuses: Vec<ContainerStatus> => list;
        #[prost(message, repeated, tag = "15")] resource_claim_statuses: Vec<ClaimStatus> => list;
        #[prost(message, optional, tag = "18")] extended_resource_claim_status: Option<ExtendedClaim> => part;
        #[prost(btree_map = "string, message", tag = "19")] allocated_resources: Amounts => amounts;
        #[prost(message, optional, tag = "20")] resources: Option<Resources> => part;
    }
    ContainerStatus => corev1::ContainerStatus {
        #[prost(string, tag = "1")] name: String;
        #[prost(btree_map = "string, message", tag = "10")] allocated_resources: Amounts => amounts;
        #[prost(message, optional, tag = "11")] resources: Option<Resources> => part;
    }
    Condition => corev1::PodCondition {
        #[prost(string, tag = "1")] type_: String;
        #[prost(string, tag = "2")] status: String;
        #[prost(string, tag = "5")] reason: String => some;
        #[prost(string, tag = "6")] message: String => some;
    }
    ClaimStatus => corev1::PodResourceClaimStatus {
        #[prost(string, tag = "1")] name: String;
        #[prost(string, optional, tag = "2")] resource_claim_name: Option<String>;
    }
    ExtendedClaim => corev1::PodExtendedResourceClaimStatus {
        #[prost(string, tag = "2")] resource_claim_name: String;
    }
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(from = "metav1::Time")]
struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

impl From<metav1::Time> for Time {
    fn from(of: metav1::Time) -> Self {
        Self {
            seconds: of.0.as_second(),
        }
    }
}

impl From<Time> for metav1::Time {
    fn from(of: Time) -> Self {
        Self(Timestamp::from_second(of.seconds).unwrap_or_default())
    }
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(from = "ApiQuantity")]
struct Quantity {
    #[prost(string, tag = "1")]
    string: String,
}

impl From<ApiQuantity> for Quantity {
    fn from(of: ApiQuantity) -> Self {
        Self { string: of.0 }
    }
}

type Amounts = BTreeMap<String, Quantity>;

fn amounts(of: Amounts) -> Option<BTreeMap<String, ApiQuantity>> {
    let amounts = of.into_iter().map(|(n, q)| (n, ApiQuantity(q.string)));
    Some(amounts.collect()).filter(|m: &BTreeMap<_, _>| !m.is_empty())
}

/// Returns `None` for an empty text: Go writes an empty string where JSON leaves the field out.
pub(super) fn some(text: String) -> Option<String> {
    Some(text).filter(|t| !t.is_empty())
}

fn all<A, B: From<A>>(of: Vec<A>) -> Vec<B> {
    of.into_iter().map(B::from).collect()
}

fn list<A, B: From<A>>(of: Vec<A>) -> Option<Vec<B>> {
    Some(all(of))
}

/// Converts the containers that request anything or take a port of the node: in a pod of the largest
/// size, 20,000 others would take 20 MB as objects.
fn with_needs(of: Vec<Container>) -> Vec<corev1::Container> {
    let any = |r: &Resources| !r.requests.is_empty() || !r.limits.is_empty();
    let is_on_host = |port: &Port| port.host_port.is_some_and(|number| number != 0);
    let needs =
        |c: &Container| c.resources.as_ref().is_some_and(any) || c.ports.iter().any(is_on_host);
    all(of.into_iter().filter(needs).collect())
}

/// Converts a part that may be absent.
fn part<A, B: From<A>>(of: Option<A>) -> Option<B> {
    of.map(B::from)
}

/// Converts a part that is empty if it is absent.
fn part_or_default<A: Default, B: From<A>>(of: Option<A>) -> B {
    of.unwrap_or_default().into()
}

/// Decodes a null as the default.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
