//! The state of an installation, as far as it could be read.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        coordination::v1::Lease,
        core::v1::{Node, Pod, Secret, Service},
        discovery::v1::EndpointSlice,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use tautline_api::{ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer, convert};
use tautline_core::{Index, Snapshot, TrustedNamespaces, index::Object, names::EXEMPT_NAMESPACES};

use super::{
    rights::Right,
    workload::{Role, Workload},
};

/// Objects read from the cluster. `None`: they could not be read, and [`unread`](Self::unread)
/// says why.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// Tautline's namespace.
    pub namespace: String,
    pub now: Timestamp,
    /// The version of this binary.
    pub version: String,
    pub namespace_exists: Option<bool>,
    pub crds: Option<Vec<CustomResourceDefinition>>,
    /// In Tautline's namespace, as all without another note.
    pub deployments: Option<Vec<Deployment>>,
    pub daemon_sets: Option<Vec<DaemonSet>>,
    pub pods: Option<Vec<Pod>>,
    pub leases: Option<Vec<Lease>>,
    /// Those that components name: absent if they could not be read.
    pub secrets: BTreeMap<String, Option<Secret>>,
    pub nodes: Option<Vec<Node>>,
    /// In all namespaces.
    pub services: Option<Vec<Service>>,
    /// Of providers, webhooks and the extender.
    pub slices: Option<Vec<EndpointSlice>>,
    pub policies: Option<Vec<ConstraintPolicy>>,
    pub offers: Option<Vec<ConstraintPolicyOffer>>,
    pub bindings: Option<Vec<ConstraintPolicyBinding>>,
    /// In the namespaces of offers.
    pub workload_pods: Option<Vec<Pod>>,
    pub webhooks: Option<Vec<WebhookConfiguration>>,
    /// The rights of the components' accounts.
    pub rights: Option<Vec<(Right, bool)>>,
    /// The filter requests that each pod of the extender has answered.
    pub filter_requests: BTreeMap<String, Result<FilterRequests, String>>,
    pub unread: Vec<Unread>,
}

/// Filter requests of kube-scheduler at one pod of the extender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterRequests {
    pub count: u64,
    /// `None` without one, and from an extender that does not say.
    pub last: Option<Timestamp>,
}

/// Objects that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unread {
    pub what: String,
    pub why: String,
    pub fix: String,
}

/// A mutating or a validating webhook configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebhookConfiguration {
    pub kind: &'static str,
    pub name: String,
    pub hooks: Vec<Webhook>,
}

/// A webhook.
#[derive(Clone, Debug, Default)]
pub(crate) struct Webhook {
    pub name: String,
    /// PEM; empty if there is none.
    pub ca_bundle: Vec<u8>,
    /// Namespace, name and port; `None` for a URL.
    pub service: Option<(String, String, i32)>,
    /// Its `failurePolicy` is Fail, and it has rules.
    pub fail: bool,
}

impl WebhookConfiguration {
    pub(crate) fn object(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

/// The state, and what several checks derive from it.
pub(crate) struct State<'a> {
    pub cluster: &'a Cluster,
    pub workloads: Vec<Workload<'a>>,
    /// Services, EndpointSlices, policies and offers.
    pub snapshot: Snapshot,
    /// As configured for the extender.
    pub trusted: TrustedNamespaces,
}

impl<'a> State<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        let workloads = cluster.workloads();
        let extender = workloads.iter().find(|w| w.role == Role::Extender);
        let named = extender.and_then(|w| w.flag("--provider-namespaces"));
        let trusted = match named {
            Some(list) => list.split(',').map(str::trim).collect(),
            None => TrustedNamespaces::new([&cluster.namespace]),
        };
        Self {
            cluster,
            workloads,
            snapshot: cluster.snapshot(),
            trusted,
        }
    }

    pub(crate) fn of(&self, role: Role) -> impl Iterator<Item = &Workload<'a>> {
        self.workloads.iter().filter(move |w| w.role == role)
    }

    /// Whether the extender leaves the pods of a namespace alone.
    pub(crate) fn is_exempt(&self, namespace: &str) -> bool {
        let flag = self
            .of(Role::Extender)
            .find_map(|w| w.flag("--exempt-namespaces"));
        match flag {
            Some(list) => list.split(',').any(|n| n.trim() == namespace),
            None => EXEMPT_NAMESPACES.contains(&namespace) || namespace == self.cluster.namespace,
        }
    }

    /// A command that applies the installation again.
    pub(crate) fn reapply(&self) -> String {
        let helm = self.workloads.iter().find_map(|w| w.helm_release);
        match helm {
            Some(release) => format!(
                "helm upgrade {release} deploy/chart -n {} --reuse-values",
                self.cluster.namespace
            ),
            None => "kubectl apply --server-side -k deploy".to_owned(),
        }
    }
}

impl Cluster {
    /// Tautline's own processes.
    pub(crate) fn workloads(&self) -> Vec<Workload<'_>> {
        let deployments = self.deployments.iter().flatten();
        let daemon_sets = self.daemon_sets.iter().flatten();
        deployments
            .filter_map(Workload::of_deployment)
            .chain(daemon_sets.filter_map(Workload::of_daemon_set))
            .collect()
    }

    /// Malformed policies and offers are left out.
    fn snapshot(&self) -> Snapshot {
        let mut index = Index::default();
        for service in self.services.iter().flatten() {
            index.apply(Object::Service(convert::service(service)));
        }
        for slice in self.slices.iter().flatten() {
            index.apply(Object::EndpointSlice(convert::endpoint_slice(slice)));
        }
        for policy in self.policies.iter().flatten() {
            if let Ok(policy) = convert::policy(policy) {
                index.apply(Object::Policy(policy));
            }
        }
        for offer in self.offers.iter().flatten() {
            if let Ok(offer) = convert::offer(offer) {
                index.apply(Object::Offer(offer));
            }
        }
        index.snapshot()
    }
}
