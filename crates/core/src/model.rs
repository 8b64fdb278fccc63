//! What planning needs of each cluster object, and no more: 150,000 pods must
//! fit in 150 MB.

use std::{sync::Arc, time::Duration};

use crate::selector::{Expression, Labels, Selector};

/// The key of a namespaced object.
pub fn key(namespace: &str, name: &str) -> String {
    [namespace, "/", name].concat()
}

/// Resource amounts in thousandths of the resource's unit, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(Arc<[(Box<str>, i64)]>);

impl Resources {
    /// For the index, which holds equal amounts once.
    pub(crate) fn amounts_mut(&mut self) -> &mut Arc<[(Box<str>, i64)]> {
        &mut self.0
    }

    /// The amount of `name` in thousandths; 0 if it is not listed.
    pub fn milli(&self, name: &str) -> i64 {
        self.0
            .binary_search_by(|(n, _)| (**n).cmp(name))
            .map_or(0, |i| self.0[i].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(n, v)| (&**n, *v))
    }
}

impl<N: Into<Box<str>>> FromIterator<(N, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (N, i64)>>(items: I) -> Self {
        let mut list: Vec<(Box<str>, i64)> =
            items.into_iter().map(|(n, v)| (n.into(), v)).collect();
        list.sort();
        list.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = kept.1.saturating_add(later.1);
            }
            same
        });
        Self(list.into())
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Box<str>,
    pub labels: Labels,
    /// Only those that record what a pod was given (`tautline.io/`, GPU devices).
    pub annotations: Labels,
    /// The node it is bound to.
    pub node: Option<Arc<str>>,
    /// Effective requests: containers, init containers and overhead.
    pub requests: Resources,
    /// Succeeded or failed: it holds nothing any more.
    pub finished: bool,
    /// Its condition Ready is True.
    pub ready: bool,
    /// It is being deleted.
    pub terminating: bool,
    /// What made it, as a fingerprint of the controlling owner's UID; 0: nothing.
    pub owner: u64,
    /// What the underlay allocated for it, by its finalizers.
    pub underlay: Box<[Box<str>]>,
    /// What restricts its placement; kept only until it is bound.
    pub placement: Option<Box<NodeConstraints>>,
}

impl Pod {
    /// Names of its resource claims, as long as it is not bound.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        let placement = self.placement.iter();
        placement.flat_map(|p| &p.claims).map(|name| &**name)
    }

    /// Whether it waits because rules left it no node, as the scheduler has it.
    pub fn is_rejected(&self) -> bool {
        let waits = self.placement.as_ref().filter(|_| !self.finished);
        waits.is_some_and(|p| !p.rejected_by.is_empty())
    }
}

/// What of a pod's spec restricts the nodes it may run on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeConstraints {
    pub scheduler: String,
    pub priority: i32,
    pub gated: bool,
    pub node_selector: Vec<(String, String)>,
    /// Terms of the required node affinity, any of which must hold; empty: none.
    pub affinity: Vec<AffinityTerm>,
    pub tolerations: Vec<Toleration>,
    /// Everything that providers are told of it; see the pod's own for the rest.
    pub annotations: Labels,
    /// Names of its resource claims, as far as they are made.
    pub claims: Vec<Box<str>>,
    /// Rules for which the scheduler found no node: those of its reason codes.
    pub rejected_by: Vec<Box<str>>,
}

/// One term of a required node affinity: all parts must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AffinityTerm {
    pub labels: Vec<Expression>,
    /// `Gt` (true) and `Lt` (false) on integer labels.
    pub compare: Vec<(String, bool, i64)>,
    /// Names that `matchFields` allows, each list for one expression.
    pub names: Vec<(bool, Vec<String>)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Toleration {
    /// `None` tolerates every key.
    pub key: Option<String>,
    /// `None`: operator Exists.
    pub value: Option<String>,
    /// `None`: every effect.
    pub effect: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub name: Arc<str>,
    /// Another UID is another node, whatever its name.
    pub uid: Box<str>,
    pub labels: Labels,
    pub annotations: Labels,
    pub allocatable: Resources,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

/// A Service, as far as it may lead to a rule provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub created_unix: i64,
    /// Rules it provides, by either label with the value `enabled`.
    pub rules: Vec<Box<str>>,
    pub priority: i64,
    pub tls_required: bool,
    /// It serves the Allocator beside the RuleProvider.
    pub allocator: bool,
    /// It serves the UnderlayController.
    pub underlay: bool,
    pub external_name: Option<String>,
    pub has_selector: bool,
    pub ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServicePort {
    pub name: String,
    pub port: u16,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointSlice {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// The Service it belongs to; empty if none.
    pub service: Arc<str>,
    pub labels: Labels,
    pub ports: Vec<ServicePort>,
    /// Addresses that are ready.
    pub ready: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub rules: Vec<Rule>,
}

/// A rule of a policy. Request and limit are texts that only its provider reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    pub name: Arc<str>,
    pub request: String,
    pub limit: String,
    pub weight: u32,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offer {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Box<str>,
    /// It is being deleted, and its bindings with it.
    pub terminating: bool,
    pub targets: Vec<Target>,
    pub policies: Vec<Arc<str>>,
    pub period: Duration,
    pub grace: Duration,
    pub violation_policy: ViolationPolicy,
    /// `None`: as the process that plans is configured.
    pub provider_unavailable: Option<ProviderUnavailable>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub name: Arc<str>,
    pub kind: TargetKind,
    pub api_version: String,
    /// `None` selects nothing, as everywhere in Kubernetes; an empty one all.
    pub selector: Option<Selector>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetKind {
    Pod,
    Endpoint,
    Cluster,
    NetworkService,
}

impl Target {
    /// The kind of the objects that it selects, with their API version.
    pub fn selected_kind(&self) -> (&str, &'static str) {
        match self.kind {
            TargetKind::Pod => ("v1", "Pod"),
            TargetKind::Endpoint => ("v1", "Endpoints"),
            TargetKind::Cluster => (&self.api_version, "Cluster"),
            TargetKind::NetworkService => (&self.api_version, "NetworkService"),
        }
    }
}

/// An object of a kind that is known by name and labels alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedObject {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    /// Empty: not namespaced.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub labels: Labels,
}

/// What is done about a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ViolationPolicy {
    #[default]
    Ignore,
    Mediate,
    Evict,
}

/// What a rule without a working provider means for planning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProviderUnavailable {
    /// The rule does not count.
    #[default]
    Ignore,
    /// No node is usable.
    Reject,
}
