//! Cluster objects, reduced to what planning needs: 150,000 pods must fit in 150 MB.

use std::{sync::Arc, time::Duration};

use tautline_types::ContainerKind;

use crate::{
    pod_affinity::PodTerm,
    selector::{Expression, Labels, Selector},
};

/// The key of a namespaced object: `namespace/name`.
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

    /// The amount of `name` in thousandths of its unit; 0 if absent.
    pub fn milli(&self, name: &str) -> i64 {
        self.0
            .binary_search_by(|(n, _)| (**n).cmp(name))
            .map_or(0, |i| self.0[i].1)
    }

    /// All names and amounts, sorted by name.
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
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Box<str>,
    /// The pod's creation time in Unix seconds; 0 if unknown.
    pub created_unix: i64,
    /// Its labels.
    pub labels: Labels,
    /// The annotations that record allocations: `tautline.io/` and GPU devices.
    pub annotations: Labels,
    /// The node that it is bound to.
    pub node: Option<Arc<str>>,
    /// Requests as kube-scheduler counts them; of a bound pod also those that a resize has left.
    pub requests: Resources,
    /// Its phase is Succeeded or Failed: it holds no resources.
    pub finished: bool,
    /// Its condition Ready is True.
    pub ready: bool,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// Hash of the UID of its controlling owner; 0 without one.
    pub owner: u64,
    /// Ids of its underlay allocations, from its finalizers.
    pub underlay: Box<[Box<str>]>,
    /// Its required inter-pod affinity; once it is bound, only anti-affinity.
    pub pod_terms: Arc<[PodTerm]>,
    /// Constraints on its node; `None` once it is bound.
    pub placement: Option<Box<NodeConstraints>>,
    /// Its constraints take more memory than the index keeps of one pod, or of its namespace: no
    /// plan finds a node for it, and none puts a pod where it might keep it away.
    pub reduced: bool,
}

impl Pod {
    /// Names of its ResourceClaims; empty once it is bound.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        let placement = self.placement.iter();
        placement.flat_map(|p| &p.claims).map(|name| &**name)
    }

    /// Whether kube-scheduler's last attempt failed because of Tautline's reason codes.
    pub fn is_rejected(&self) -> bool {
        let waits = self.placement.as_ref().filter(|_| !self.finished);
        waits.is_some_and(|p| !p.rejected_by.is_empty())
    }
}

/// The parts of a pod's spec that restrict its node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeConstraints {
    /// `spec.schedulerName`.
    pub scheduler: String,
    /// `spec.priority`.
    pub priority: i32,
    /// It has scheduling gates.
    pub gated: bool,
    /// `spec.nodeSelector`: key and value.
    pub node_selector: Vec<(String, String)>,
    /// Terms of the required node affinity, of which one must match; empty without one.
    pub affinity: Vec<AffinityTerm>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// The annotations that providers may read; [`Pod::annotations`] has the allocations.
    pub annotations: Labels,
    /// Names of its ResourceClaims that exist.
    pub claims: Vec<Box<str>>,
    /// The containers' requests of extended resources; empty unless at least two request some.
    pub containers: Vec<ContainerRequests>,
    /// Rules that left no node, from the reason codes in kube-scheduler's message.
    pub rejected_by: Vec<Box<str>>,
    /// The version of the pod that was read.
    pub observed: Observed,
}

/// Containers with requests of extended resources that are kept of a pod.
pub const MAX_CONTAINERS: usize = 64;

/// The extended resources that a container requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequests {
    /// The container's time to run.
    pub kind: ContainerKind,
    /// Its requests.
    pub requests: Resources,
}

/// The version of an unbound pod. Versions compare as equal: the pod's other fields decide whether
/// it has changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed {
    /// `metadata.resourceVersion`; of one cluster the greater is later (KEP-5504). 0 if unknown.
    pub resource_version: u64,
    /// Hash of the condition PodScheduled: kube-scheduler changes it when an attempt fails.
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
    /// Expressions on labels other than `Gt` and `Lt`.
    pub labels: Vec<Expression>,
    /// Label key, `true` for `Gt` and `false` for `Lt`, and the bound.
    pub compare: Vec<(String, bool, i64)>,
    /// `matchFields` on `metadata.name`: `true` for `In` and `false` for `NotIn`, and the names.
    pub names: Vec<(bool, Vec<String>)>,
}

/// A pod's toleration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Toleration {
    /// `None` for every key.
    pub key: Option<String>,
    /// The taint's values that it tolerates.
    pub value: TolerationValue,
    /// `None` for every effect.
    pub effect: Option<String>,
}

/// The values of a taint that a toleration accepts, by its operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TolerationValue {
    /// Every value: the operator Exists.
    #[default]
    Any,
    /// This one.
    Equal(String),
    /// Integers below this one.
    Below(i64),
    /// Integers above this one.
    Above(i64),
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its UID: it differs for another node of the same name.
    pub uid: Box<str>,
    /// Its labels.
    pub labels: Labels,
    /// Its annotations.
    pub annotations: Labels,
    /// `status.allocatable`.
    pub allocatable: Resources,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// It is cordoned.
    pub unschedulable: bool,
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Namespace {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: Labels,
}

/// A DeviceClass of Dynamic Resource Allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceClass {
    /// The name of the class.
    pub name: Arc<str>,
    /// The resource by which pods request its devices without a claim.
    pub extended_resource: Option<Arc<str>>,
}

/// A node's taint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// A Service: a rule provider, an underlay controller, or neither.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its creation time in Unix seconds.
    pub created_unix: i64,
    /// The rules that it provides, from its labels.
    pub rules: Vec<Box<str>>,
    /// The annotation `constraint.ciena.com/priority`; default 0.
    pub priority: i64,
    /// Calls must use TLS.
    pub tls_required: bool,
    /// It also serves the Allocator.
    pub allocator: bool,
    /// It serves the UnderlayController.
    pub underlay: bool,
    /// The host of a Service of type ExternalName.
    pub external_name: Option<String>,
    /// It has a pod selector.
    pub has_selector: bool,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
}

/// A port of a Service or an EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServicePort {
    /// Its name; may be empty.
    pub name: String,
    /// Its number.
    pub port: u16,
}

/// An EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointSlice {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The Service that it belongs to; empty without one.
    pub service: Arc<str>,
    /// Its labels.
    pub labels: Labels,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Addresses that are ready.
    pub ready: Vec<String>,
}

/// A ConstraintPolicy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its rules; of several with one name the first counts.
    pub rules: Vec<Rule>,
}

/// A rule of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Its name, by which a provider is found.
    pub name: Arc<str>,
    /// The wanted value: a text that only the provider interprets.
    pub request: String,
    /// The worst acceptable value, likewise; may be empty.
    pub limit: String,
    /// Its weight in the score, relative to the other rules of the offer.
    pub weight: u32,
    /// The nodes that it prefers; `None` for the default.
    pub prefer: Option<Prefer>,
}

/// The nodes that a rule prefers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Prefer {
    /// The rule prefers nodes within the request, all alike; of those beyond it the nearest.
    #[default]
    WithinRequest,
    /// The nearest, whatever the request is.
    Nearest,
}

impl Prefer {
    /// The value of the policy's field.
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
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Box<str>,
    /// The offer's creation time in Unix seconds, 0 if unknown: the oldest offers have their shares first.
    pub created_unix: i64,
    /// It has a deletion timestamp; its bindings are deleted with it.
    pub terminating: bool,
    /// The objects that it constrains.
    pub targets: Vec<Target>,
    /// Names of its policies, in the same namespace.
    pub policies: Vec<Arc<str>>,
    /// Time between two evaluations of a binding.
    pub period: Duration,
    /// Time out of range until a binding counts as violated.
    pub grace: Duration,
    /// The action on a violation.
    pub violation_policy: ViolationPolicy,
    /// Names of the targets whose pods may be evicted.
    pub evict: Vec<Arc<str>>,
    /// Pods that end together may be evicted together.
    pub evict_groups: bool,
    /// The effect of a rule without a provider; `None` for the process' default.
    pub provider_unavailable: Option<ProviderUnavailable>,
}

/// A target of an offer.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its name: the role of the selected objects.
    pub name: Arc<str>,
    /// The kind of the selected objects.
    pub kind: TargetKind,
    /// Their API version, for kinds that Kubernetes does not define.
    pub api_version: String,
    /// An empty one selects every object of the kind.
    pub selector: Selector,
}

/// The kind of the objects that a target selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetKind {
    /// Pods.
    Pod,
    /// The endpoints of Services.
    Endpoint,
    /// A `Cluster` of the target's API version.
    Cluster,
    /// A `NetworkService` of the target's API version.
    NetworkService,
}

impl Target {
    /// API version and kind of the selected objects.
    pub fn selected_kind(&self) -> (&str, &'static str) {
        match self.kind {
            TargetKind::Pod => ("v1", "Pod"),
            TargetKind::Endpoint => ("v1", "Endpoints"),
            TargetKind::Cluster => (&self.api_version, "Cluster"),
            TargetKind::NetworkService => (&self.api_version, "NetworkService"),
        }
    }
}

/// An object of which only the metadata is watched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedObject {
    /// Its API version.
    pub api_version: Arc<str>,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its namespace; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: Labels,
}

/// The action on a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ViolationPolicy {
    /// Report it only.
    #[default]
    Ignore,
    /// Ask the underlay controller to mitigate it.
    Mediate,
    /// Evict a pod of the binding.
    Evict,
}

/// The effect on planning of a rule whose provider gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProviderUnavailable {
    /// The rule is left out.
    Ignore,
    /// No node is usable.
    Reject,
}
