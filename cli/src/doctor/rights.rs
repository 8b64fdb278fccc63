//! The rights that the components' accounts need most, as `deploy/base` grants them.

use std::fmt;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use tautline_core::names::{CONTROLLER, GROUP};

use super::{
    checks::{DRIVER, is_dra},
    workload::{Role, Workload},
};

const ADMISSION: &str = "admissionregistration.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const DRA: &str = "resource.k8s.io";
const EVENTS: &str = "events.k8s.io";
const LEASES: &str = "coordination.k8s.io";
const POLICIES: [&str; 2] = ["constraintpolicies", "constraintpolicyoffers"];
const STATUS: [&str; 2] = [
    "constraintpolicybindings/status",
    "constraintpolicyoffers/status",
];
const WEBHOOKS: [&str; 1] = ["validatingwebhookconfigurations"];

/// A right of an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    pub account: String,
    pub verb: &'static str,
    pub group: &'static str,
    /// The resource with its subresource, such as `pods/eviction`.
    pub resource: &'static str,
    /// The namespace; empty for all namespaces.
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => Ok(()),
            ("", name) => write!(f, " {name}"),
            (namespace, "") => write!(f, " in {namespace}"),
            (namespace, name) => write!(f, " {namespace}/{name}"),
        }
    }
}

impl Right {
    pub(crate) fn review(&self, own_namespace: &str) -> SubjectAccessReview {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, sub)) => (resource, sub),
            None => (self.resource, ""),
        };
        let some = |text: &str| Some(text.to_owned()).filter(|t| !t.is_empty());
        let groups = [
            "system:serviceaccounts",
            &format!("system:serviceaccounts:{own_namespace}"),
            "system:authenticated",
        ];
        let user = format!("system:serviceaccount:{own_namespace}:{}", self.account);
        SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user),
                groups: Some(groups.map(str::to_owned).into()),
                resource_attributes: Some(ResourceAttributes {
                    group: some(self.group),
                    resource: some(resource),
                    subresource: some(subresource),
                    verb: some(self.verb),
                    namespace: some(&self.namespace),
                    name: some(&self.name),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        }
    }
}

/// Returns the rights that a workload needs; latency agents need no rights.
pub(crate) fn needed(workload: &Workload<'_>, own: &str) -> Vec<Right> {
    let mut rights = Vec::new();
    let mut add = |verb, group, resources: &[&'static str], object: (&str, &str)| {
        rights.extend(resources.iter().map(|resource| Right {
            account: workload.account().to_owned(),
            verb,
            group,
            resource,
            namespace: object.0.to_owned(),
            name: object.1.to_owned(),
        }));
    };
    let all = ("", "");
    let role = workload.role;
    if matches!(role, Role::Extender | Role::Controller | Role::Admission) {
        add("list", "", &["namespaces", "pods", "services"], all);
        add("list", GROUP, &POLICIES, all);
    }
    if matches!(role, Role::Extender | Role::Controller) {
        add("list", "", &["nodes"], all);
        add("list", "discovery.k8s.io", &["endpointslices"], all);
        add("create", EVENTS, &["events"], all);
    }
    if let Some(secret) = workload.generated_secret() {
        add("create", "", &["secrets"], (own, ""));
        add("update", "", &["secrets"], (own, secret));
        if role == Role::Admission {
            let name = "tautline-own-resources";
            add("patch", ADMISSION, &WEBHOOKS, ("", name));
        }
    }
    match role {
        Role::Extender => {
            add("patch", "", &["pods"], all);
            add("get", LEASES, &["leases"], (own, CONTROLLER));
            if workload.has_flag("--bind") {
                add("create", "", &["pods/binding"], all);
            }
        }
        Role::Controller => {
            add("create", "", &["pods/eviction"], all);
            add("list", "policy", &["poddisruptionbudgets"], all);
            let storage = ["persistentvolumeclaims", "persistentvolumes"];
            add("get", "", &storage, all);
            add("create", GROUP, &["constraintpolicybindings"], all);
            add("patch", GROUP, &STATUS, all);
            add("create", LEASES, &["leases"], (own, ""));
            add("update", LEASES, &["leases"], (own, CONTROLLER));
            if workload.has_flag("--advertise-gate") {
                add("patch", "", &["nodes/status"], all);
            }
        }
        Role::Admission => {
            let mutation = ["mutationpolicies", "mutationpolicybindings"];
            add("list", "tautline.io", &mutation, all);
            add("create", AUTHORIZATION, &["subjectaccessreviews"], all);
        }
        Role::GpuSlice => {
            add("list", "", &["nodes", "pods"], all);
            add("list", DRA, &["resourceslices", "resourceclaims"], all);
            if let Some((namespace, name)) = workload.object_flag("--lease") {
                add("create", LEASES, &["leases"], (namespace, ""));
                add("update", LEASES, &["leases"], (namespace, name));
            }
        }
        Role::Latency => {
            add("list", "", &["nodes", "pods", "configmaps"], all);
            add("list", GROUP, &["constraintpolicybindings"], all);
            add("create", "authentication.k8s.io", &["tokenreviews"], all);
            if let Some(secret) = workload.object_flag("--echo-key-secret") {
                add("get", "", &["secrets"], secret);
            }
        }
        Role::Scripted => add("list", GROUP, &["costproviders", "ruleproviders"], all),
        Role::GpuAgent => {
            add("patch", "", &["nodes"], all);
            add("list", "", &["pods"], all);
            if is_dra(workload) {
                for verb in ["list", "create", "patch", "delete"] {
                    add(verb, DRA, &["resourceslices"], all);
                }
                add("get", DRA, &["resourceclaims"], all);
                add("patch", DRA, &["resourceclaims/status"], all);
                let own_claims = "associated-node:patch";
                add(own_claims, DRA, &["resourceclaims/driver"], ("", DRIVER));
            }
        }
        Role::LatencyAgent => {}
    }
    rights
}
