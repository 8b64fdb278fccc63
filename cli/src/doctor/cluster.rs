//! The state of an installation, as far as it could be read.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration,
        },
        apps::v1::{DaemonSet, Deployment},
        coordination::v1::Lease,
        core::v1::{Node, Pod, Secret, Service},
        discovery::v1::EndpointSlice,
        resource::v1::{DeviceClass, ResourceSlice},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use kube::ResourceExt;
use tautline_api::{ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer, convert};
use tautline_core::{Index, Snapshot, TrustedNamespaces, index::Object, names::EXEMPT_NAMESPACES};

use super::{
    finding::Finding,
    rights::Right,
    workload::{Role, Workload},
};

/// The objects that were read from the cluster. `None` means that they could not be read, for the
/// reason in [`unread`](Self::unread).
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// Tautline's namespace.
    pub namespace: String,
    pub now: Timestamp,
    /// The version of this binary.
    pub version: String,
    /// The version of the API server.
    pub kubernetes: String,
    pub namespace_exists: Option<bool>,
    pub crds: Option<Vec<CustomResourceDefinition>>,
    /// The Deployments of Tautline's namespace, as are the DaemonSets, pods and Leases.
    pub deployments: Option<Vec<Deployment>>,
    pub daemon_sets: Option<Vec<DaemonSet>>,
    pub pods: Option<Vec<Pod>>,
    pub leases: Option<Vec<Lease>>,
    /// The Secrets that components name, `None` if one does not exist. One that could not be read
    /// has no entry.
    pub secrets: BTreeMap<String, Option<Secret>>,
    pub nodes: Option<Vec<Node>>,
    /// The Services of all namespaces.
    pub services: Option<Vec<Service>>,
    /// The EndpointSlices of providers, underlay controllers and webhooks.
    pub slices: Option<Vec<EndpointSlice>>,
    pub policies: Option<Vec<ConstraintPolicy>>,
    pub offers: Option<Vec<ConstraintPolicyOffer>>,
    pub bindings: Option<Vec<ConstraintPolicyBinding>>,
    /// The devices of the cluster, and their classes; not read without GPU agents.
    pub resource_slices: Option<Vec<ResourceSlice>>,
    pub device_classes: Option<Vec<DeviceClass>>,
    /// The pods of the namespaces with offers.
    pub workload_pods: Option<Vec<Pod>>,
    pub webhooks: Option<Vec<WebhookConfiguration>>,
    /// The rights of the components' accounts.
    pub rights: Option<Vec<(Right, bool)>>,
    /// The filter requests that each pod of the extender has answered.
    pub filter_requests: BTreeMap<String, Result<FilterRequests, String>>,
    /// The findings about objects that could not be read.
    pub unread: Vec<Finding>,
}

/// Filter requests of kube-scheduler at one pod of the extender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterRequests {
    pub count: u64,
    /// The time of the last request; `None` if there was no request, or the extender does not
    /// report it.
    pub last: Option<Timestamp>,
}

/// A mutating or a validating webhook configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebhookConfiguration {
    pub kind: &'static str,
    /// The configuration; a mutating one has these fields too.
    pub spec: ValidatingWebhookConfiguration,
}

impl WebhookConfiguration {
    pub(crate) fn object(&self) -> String {
        format!("{} {}", self.kind, self.spec.name_any())
    }

    /// Returns the webhooks with a Service.
    pub(crate) fn hooks(&self) -> impl Iterator<Item = (&ValidatingWebhook, &ServiceReference)> {
        let hooks = self.spec.webhooks.iter().flatten();
        hooks.filter_map(|hook| Some((hook, hook.client_config.service.as_ref()?)))
    }
}

/// The state, and the data that several checks derive from it.
pub(crate) struct State<'a> {
    pub cluster: &'a Cluster,
    pub workloads: Vec<Workload<'a>>,
    /// The Services, EndpointSlices, policies and offers.
    pub snapshot: Snapshot,
    /// The trusted namespaces, as configured for the extender.
    pub trusted: TrustedNamespaces,
}

impl<'a> State<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        let workloads = cluster.workloads();
        let extender = workloads.iter().find(|w| w.role == Role::Extender);
        let named = extender.and_then(|w| w.flag("--provider-namespaces"));
        let trusted = named.unwrap_or(&cluster.namespace);
        Self {
            cluster,
            trusted: trusted.split(',').map(str::trim).collect(),
            snapshot: cluster.snapshot(),
            workloads,
        }
    }

    pub(crate) fn of(&self, role: Role) -> impl Iterator<Item = &Workload<'a>> {
        self.workloads.iter().filter(move |w| w.role == role)
    }

    /// Returns whether the extender leaves the pods of a namespace alone.
    pub(crate) fn is_exempt(&self, namespace: &str) -> bool {
        let mut extenders = self.of(Role::Extender);
        match extenders.find_map(|w| w.flag("--exempt-namespaces")) {
            Some(list) => list.split(',').any(|n| n.trim() == namespace),
            None => EXEMPT_NAMESPACES.contains(&namespace) || namespace == self.cluster.namespace,
        }
    }

    /// Returns the command that applies the installation again.
    pub(crate) fn reapply(&self) -> String {
        let namespace = &self.cluster.namespace;
        match self.workloads.iter().find_map(|w| w.helm_release) {
            Some(release) => {
                format!("helm upgrade {release} deploy/chart -n {namespace} --reuse-values")
            }
            None => "kubectl apply --server-side -k deploy".to_owned(),
        }
    }

    /// Returns the command that shows a workload's log.
    pub(crate) fn logs(&self, workload: &Workload<'_>) -> String {
        let namespace = &self.cluster.namespace;
        format!("kubectl -n {namespace} logs {}", workload.kubectl())
    }

    /// Returns a Secret of Tautline's namespace as the object of a finding.
    pub(crate) fn secret(&self, name: &str) -> String {
        format!("Secret {}/{name}", self.cluster.namespace)
    }
}

impl Cluster {
    /// Returns the workloads that run Tautline's own processes.
    pub(crate) fn workloads(&self) -> Vec<Workload<'_>> {
        let deployments = self.deployments.iter().flatten();
        let daemon_sets = self.daemon_sets.iter().flatten();
        deployments
            .filter_map(Workload::of_deployment)
            .chain(daemon_sets.filter_map(Workload::of_daemon_set))
            .collect()
    }

    /// Makes a snapshot of the objects, without malformed policies and offers.
    fn snapshot(&self) -> Snapshot {
        let services = self.services.iter().flatten().map(convert::service);
        let slices = self.slices.iter().flatten().map(convert::endpoint_slice);
        let policies = self.policies.iter().flatten().flat_map(convert::policy);
        let offers = self.offers.iter().flatten().flat_map(convert::offer);
        let objects = services
            .map(Object::Service)
            .chain(slices.map(Object::EndpointSlice))
            .chain(policies.map(Object::Policy))
            .chain(offers.map(Object::Offer));
        let mut index = Index::default();
        for object in objects {
            index.apply(object);
        }
        index.snapshot()
    }
}
