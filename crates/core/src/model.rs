//! The cluster's objects, with only the fields that Tautline needs: 150,000 pods must fit in
//! 150 MB.

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tautline_types::ContainerKind;

use crate::{
    pod_rules::PodRules,
    remote::RemoteTarget,
    selector::{Expression, Labels, PodTerm, Selector},
};

/// Returns the key of a namespaced object: `namespace/name`.
pub fn key(namespace: &str, name: &str) -> String {
    [namespace, "/", name].concat()
}

/// Resource amounts in thousandths of the resource's unit, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(Arc<[(Box<str>, i64)]>);

impl Resources {
    pub(crate) fn amounts_mut(&mut self) -> &mut Arc<[(Box<str>, i64)]> {
        &mut self.0
    }

    /// Returns the amount of `name` in thousandths of its unit; 0 if absent.
    pub fn milli(&self, name: &str) -> i64 {
        self.0
            .binary_search_by(|(n, _)| (**n).cmp(name))
            .map_or(0, |i| self.0[i].1)
    }

    /// Returns all names and amounts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(n, v)| (&**n, *v))
    }
}

impl<N: Into<Box<str>>> FromIterator<(N, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (N, i64)>>(items: I) -> Self {
        let mut list: Vec<(Box<str>, i64)> =
            items.into_iter().map(|(n, v)| (n.into(), v)).collect();
        list.sort();
        list.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                first.1 = first.1.saturating_add(later.1);
            }
            same
        });
        Self(list.into())
    }
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's name.
    pub name: Arc<str>,
    /// The pod's UID.
    pub uid: Box<str>,
    /// The pod's creation time in Unix seconds; 0 if unknown.
    pub created_unix: i64,
    /// The pod's labels.
    pub labels: Labels,
    /// The annotations that record allocations, such as `tautline.io/` and GPU devices.
    pub annotations: Labels,
    /// The node that the pod is bound to.
    pub node: Option<Arc<str>>,
    /// The requests as kube-scheduler counts them: until a resize of a bound pod is done, they
    /// include the amounts that the kubelet has allocated.
    pub requests: Resources,
    /// True if the phase is Succeeded or Failed: the pod holds no resources.
    pub finished: bool,
    /// True if the phase is Failed.
    pub failed: bool,
    /// True if the condition Ready is True.
    pub ready: bool,
    /// True if the pod has a deletion timestamp.
    pub terminating: bool,
    /// A hash of the UID of the pod's controlling owner; 0 if it has no such owner.
    pub owner: u64,
    /// The ids of the pod's underlay allocations, from its finalizers.
    pub underlay: Box<[Box<str>]>,
    /// The terms of required inter-pod affinity and anti-affinity; only the latter once the pod is
    /// bound.
    pub pod_terms: Arc<[PodTerm]>,
    /// The constraints on the pod's node; `None` once the pod is bound.
    pub placement: Option<Box<NodeConstraints>>,
    /// The pod's topology spread and host ports; `None` if it has neither.
    pub rules: Option<Box<PodRules>>,
    /// True if the pod's constraints took more memory than the index allows and were replaced by
    /// stricter ones: no plan finds a node for the pod, and no plan puts another pod where this
    /// pod's anti-affinity might forbid it.
    pub reduced: bool,
}

impl Pod {
    /// Returns the names of the pod's ResourceClaims; empty once the pod is bound.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        let placement = self.placement.iter();
        placement.flat_map(|p| &p.claims).map(|name| &**name)
    }

    /// Returns whether the pod waits for a node.
    pub fn waits_for_node(&self) -> bool {
        self.node.is_none() && !self.finished && !self.terminating
    }

    /// Returns whether kube-scheduler's last attempt failed because of Tautline's reason codes.
    pub fn is_rejected(&self) -> bool {
        let waits = self.placement.as_ref().filter(|_| !self.finished);
        waits.is_some_and(|p| !p.rejected_by.is_empty())
    }
}

/// The parts of a pod's spec that restrict its node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeConstraints {
    /// The pod's `spec.schedulerName`.
    pub scheduler: String,
    /// The pod's `spec.priority`.
    pub priority: i32,
    /// True if the pod has scheduling gates.
    pub gated: bool,
    /// The keys and values of `spec.nodeSelector`.
    pub node_selector: Vec<(String, String)>,
    /// The terms of the required node affinity, one of which must match; empty if the pod has no
    /// such affinity.
    pub affinity: Vec<AffinityTerm>,
    /// The pod's `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// The annotations that providers may read; [`Pod::annotations`] records allocations.
    pub annotations: Labels,
    /// The names of the pod's ResourceClaims that exist.
    pub claims: Vec<Box<str>>,
    /// The containers' requests of extended resources; empty unless at least two request some.
    pub containers: Vec<ContainerRequests>,
    /// The rules that excluded nodes, from the reason codes in kube-scheduler's message.
    pub rejected_by: Vec<Box<str>>,
    /// The version of the pod from which the constraints were read.
    pub observed: Observed,
}

/// The maximum number of [`NodeConstraints::containers`]; one more entry means that the pod has too
/// many.
pub const MAX_CONTAINERS: usize = 64;

/// The extended resources that a container requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequests {
    /// The time at which the container runs.
    pub kind: ContainerKind,
    /// The container's requests.
    pub requests: Resources,
}

/// The version of an unbound pod. All versions compare as equal, so that the pod's other fields
/// decide whether it has changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed {
    /// The pod's `metadata.resourceVersion`; 0 if unknown. In one cluster a greater version is
    /// later (KEP-5504).
    pub resource_version: u64,
    /// A hash of the condition PodScheduled, which kube-scheduler changes when an attempt fails.
    pub attempt: u64,
}

impl PartialEq for Observed {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// One term of a required node affinity: all parts must match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AffinityTerm {
    /// The expressions on labels, except those with `Gt` and `Lt`.
    pub labels: Vec<Expression>,
    /// The expressions with `Gt` and `Lt`: label key, `true` for `Gt`, and bound.
    pub compare: Vec<(String, bool, i64)>,
    /// The `matchFields` on `metadata.name`: `true` for `In`, `false` for `NotIn`, and the names.
    pub names: Vec<(bool, Vec<String>)>,
}

/// A pod's toleration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Toleration {
    /// The taint's key; `None` tolerates every key.
    pub key: Option<String>,
    /// The values of the taint that are tolerated.
    pub value: TolerationValue,
    /// The taint's effect; `None` tolerates every effect.
    pub effect: Option<String>,
}

/// The values of a taint that a toleration accepts, by its operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TolerationValue {
    /// Every value: the operator Exists.
    #[default]
    Any,
    /// Exactly this value.
    Equal(String),
    /// Integers below this bound.
    Below(i64),
    /// Integers above this bound.
    Above(i64),
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// The node's name.
    pub name: Arc<str>,
    /// The node's UID; a later node of the same name has another one.
    pub uid: Box<str>,
    /// The node's labels.
    pub labels: Labels,
    /// The node's annotations.
    pub annotations: Labels,
    /// The node's `status.allocatable`, or its `status.capacity` if that is absent.
    pub allocatable: Resources,
    /// The node's `spec.taints`.
    pub taints: Vec<Taint>,
    /// True if the node is cordoned.
    pub unschedulable: bool,
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Namespace {
    /// The namespace's name.
    pub name: Arc<str>,
    /// The namespace's labels.
    pub labels: Labels,
}

/// A DeviceClass of Dynamic Resource Allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceClass {
    /// The name of the class.
    pub name: Arc<str>,
    /// The extended resource by which pods request the class's devices without a claim.
    pub extended_resource: Option<Arc<str>>,
}

/// A node's taint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Taint {
    /// The taint's key.
    pub key: String,
    /// The taint's value; may be empty.
    pub value: String,
    /// The taint's effect: `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// A Service: a rule provider, an underlay controller, or neither.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    /// The Service's namespace.
    pub namespace: Arc<str>,
    /// The Service's name.
    pub name: Arc<str>,
    /// The Service's creation time in Unix seconds.
    pub created_unix: i64,
    /// The rules that the Service provides, from its labels.
    pub rules: Vec<Box<str>>,
    /// The value of the annotation `constraint.ciena.com/priority`; 0 by default.
    pub priority: i64,
    /// True if calls must use TLS.
    pub tls_required: bool,
    /// True if the Service also serves the Allocator.
    pub allocator: bool,
    /// True if the Service serves the UnderlayController.
    pub underlay: bool,
    /// The host of a Service of type ExternalName.
    pub external_name: Option<String>,
    /// The labels of a Service of type ExternalName; other Services are selected by the labels of
    /// their EndpointSlices.
    pub external_labels: Labels,
    /// True if the Service has a pod selector.
    pub has_selector: bool,
    /// The ports in `spec.ports`.
    pub ports: Vec<ServicePort>,
}

impl Service {
    /// Returns `HOST:PORT` of a Service of type ExternalName that has a port.
    pub fn external_place(&self) -> Option<Arc<str>> {
        let host = self.external_name.as_deref()?.trim_end_matches('.');
        let port = self.ports.first()?.port;
        Some(format!("{host}:{port}").into())
    }
}

/// A port of a Service or an EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServicePort {
    /// The port's name; may be empty.
    pub name: String,
    /// The port's number.
    pub port: u16,
}

/// An EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointSlice {
    /// The slice's namespace.
    pub namespace: Arc<str>,
    /// The slice's name.
    pub name: Arc<str>,
    /// The Service that the slice belongs to; empty if the slice names no Service.
    pub service: Arc<str>,
    /// The slice's labels.
    pub labels: Labels,
    /// The slice's ports.
    pub ports: Vec<ServicePort>,
    /// The addresses of the ready endpoints.
    pub ready: Vec<String>,
    /// The places of the ready endpoints, sorted and without duplicates: the node of an endpoint
    /// that has one, and `HOST:PORT` of an endpoint outside the cluster.
    pub places: Vec<Arc<str>>,
}

/// A ConstraintPolicy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The policy's namespace.
    pub namespace: Arc<str>,
    /// The policy's name.
    pub name: Arc<str>,
    /// The policy's rules; if several share a name, only the first counts.
    pub rules: Vec<Rule>,
}

/// A rule of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The rule's name, by which its provider is found.
    pub name: Arc<str>,
    /// The wanted value: a text that only the provider interprets.
    pub request: String,
    /// The worst acceptable value, also a text for the provider; may be empty.
    pub limit: String,
    /// The rule's weight in the score, relative to the other rules of the offer.
    pub weight: u32,
    /// The nodes that the rule prefers; `None` for the default.
    pub prefer: Option<Prefer>,
}

/// The nodes that a rule prefers: WithinRequest (default), all within the request alike and of
/// those beyond it the nearest; Nearest, the nearest, whatever the request is. Where the provider
/// does not say which nodes are within the request, the nearest are preferred. A field of
/// Tautline, not of Turnbuckle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Prefer {
    /// Nodes within the request are equally good; beyond the request the nearest node is best.
    #[default]
    WithinRequest,
    /// The nearest node is best, whatever the request is.
    Nearest,
}

impl Prefer {
    /// Returns the value of the policy's field `prefer`.
    pub fn name(self) -> &'static str {
        match self {
            Self::WithinRequest => "WithinRequest",
            Self::Nearest => "Nearest",
        }
    }
}

/// A ConstraintPolicyOffer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offer {
    /// The offer's namespace.
    pub namespace: Arc<str>,
    /// The offer's name.
    pub name: Arc<str>,
    /// The offer's UID.
    pub uid: Box<str>,
    /// The number of the offer's spec, which each change of it raises; 0 if unknown.
    pub generation: i64,
    /// The offer's creation time in Unix seconds, 0 if unknown; the oldest offers get their
    /// bindings first.
    pub created_unix: i64,
    /// True if the offer has a deletion timestamp; its bindings are deleted with it.
    pub terminating: bool,
    /// The targets of this cluster, which select the objects that the offer constrains.
    pub targets: Vec<Target>,
    /// The targets of other clusters.
    pub remote_targets: Vec<RemoteTarget>,
    /// The names of the offer's policies, in the same namespace.
    pub policies: Vec<Arc<str>>,
    /// The time between two evaluations of a binding.
    pub period: Duration,
    /// The time that a binding may be out of range before it counts as violated.
    pub grace: Duration,
    /// The action on a violation.
    pub violation_policy: ViolationPolicy,
    /// The names of the targets whose pods may be evicted.
    pub evict: Vec<Arc<str>>,
    /// True if pods that end together, such as those of a Job, may be evicted together.
    pub evict_groups: bool,
    /// The rule by which the offer's pods are placed together or not at all; `None` if they are
    /// placed one by one.
    pub group: Option<GroupRule>,
    /// The effect of a rule whose provider gives no answer; `None` for the process's default.
    pub provider_unavailable: Option<ProviderUnavailable>,
}

/// The rule by which an offer's pods form groups that are placed together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupRule {
    /// The label whose value names a pod's group; `None` for the labels of known controllers, else
    /// the pod's owner.
    pub by: Option<Arc<str>>,
    /// The number of pods that must be placed together; `None` for the number that their owner
    /// states.
    pub minimum: Option<u32>,
    /// The position of the target whose pods form groups: the offer's first target of kind Pod.
    pub of: usize,
    /// The position of the target that selects the other pods of a pod's own group (`peers:
    /// group`), with the selector of `of`; `None` if members are no peers of each other.
    pub peers: Option<usize>,
}

/// A target of an offer.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The target's name, which is the role of the selected objects.
    pub name: Arc<str>,
    /// The kind of the selected objects.
    pub kind: TargetKind,
    /// The API version of the selected objects, for kinds that Kubernetes does not define.
    pub api_version: String,
    /// The selector of the objects; an empty one selects every object of the kind.
    pub selector: Selector,
}

/// The kinds of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TargetKind {
    /// Pods.
    Pod,
    /// A `Cluster` of the target's API version.
    Cluster,
    /// The endpoints of Services.
    Endpoint,
    /// A `NetworkService` of the target's API version.
    NetworkService,
}

impl Target {
    /// Returns the API version and kind of the selected objects.
    pub fn selected_kind(&self) -> (&str, &'static str) {
        match self.kind {
            TargetKind::Pod => ("v1", "Pod"),
            TargetKind::Endpoint => ("v1", "Endpoints"),
            TargetKind::Cluster => (&self.api_version, "Cluster"),
            TargetKind::NetworkService => (&self.api_version, "NetworkService"),
        }
    }
}

/// An object whose metadata alone is watched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedObject {
    /// The object's API version.
    pub api_version: Arc<str>,
    /// The object's kind.
    pub kind: Arc<str>,
    /// The object's namespace; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// The object's name.
    pub name: Arc<str>,
    /// The object's labels.
    pub labels: Labels,
}

/// The action on a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ViolationPolicy {
    /// Tautline only reports the violation.
    #[default]
    Ignore,
    /// Tautline asks the underlay controller to mitigate the violation.
    Mediate,
    /// Tautline evicts a pod of the binding.
    Evict,
}

/// The effect of a rule without a working provider on placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ProviderUnavailable {
    /// Planning ignores the rule.
    Ignore,
    /// Every node is unusable.
    Reject,
}
