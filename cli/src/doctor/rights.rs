//! The rights that the components' accounts need most, as `deploy/base` grants them.

use std::fmt;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use tautline_core::names::{CONTROLLER, GROUP};

use super::workload::{Role, Workload};

const EVENTS: &str = "events.k8s.io";
const LEASES: &str = "coordination.k8s.io";
const DRA: &str = "resource.k8s.io";

/// A right of an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    pub account: String,
    pub verb: &'static str,
    pub group: &'static str,
    /// With its subresource: `pods/eviction`.
    pub resource: &'static str,
    /// All namespaces if empty.
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
            Some((resource, sub)) => (resource, Some(sub.to_owned())),
            None => (self.resource, None),
        };
        let some = |text: &str| Some(text.to_owned()).filter(|t| !t.is_empty());
        SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(format!(
                    "system:serviceaccount:{own_namespace}:{}",
                    self.account
                )),
                groups: Some(vec![
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{own_namespace}"),
                    "system:authenticated".to_owned(),
                ]),
                resource_attributes: Some(ResourceAttributes {
                    group: some(self.group),
                    resource: some(resource),
                    subresource,
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

/// The rights that a workload needs; agents need none.
pub(crate) fn needed(workload: &Workload<'_>, namespace: &str) -> Vec<Right> {
    let everywhere = |verb, group, resource| Right {
        account: workload.account().to_owned(),
        verb,
        group,
        resource,
        namespace: String::new(),
        name: String::new(),
    };
    let own = |verb, group, resource, name: &str| Right {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..everywhere(verb, group, resource)
    };
    let lists = |group, resources: &[&'static str]| -> Vec<Right> {
        let list = |r: &&'static str| everywhere("list", group, *r);
        resources.iter().map(list).collect()
    };
    let constraints = || lists(GROUP, &["constraintpolicies", "constraintpolicyoffers"]);
    let slices = || everywhere("list", "discovery.k8s.io", "endpointslices");
    let mut all = Vec::new();
    match workload.role {
        Role::Extender => {
            all.extend(lists("", &["namespaces", "nodes", "pods", "services"]));
            all.extend(constraints());
            all.extend([
                slices(),
                everywhere("patch", "", "pods"),
                everywhere("create", EVENTS, "events"),
                own("get", LEASES, "leases", CONTROLLER),
            ]);
            if workload.has_flag("--bind") {
                all.push(everywhere("create", "", "pods/binding"));
            }
            if let Some(secret) = generated_secret(workload) {
                all.push(own("create", "", "secrets", ""));
                all.push(own("update", "", "secrets", secret));
            }
        }
        Role::Controller => {
            all.extend(lists("", &["namespaces", "nodes", "pods", "services"]));
            all.extend(constraints());
            all.extend([
                slices(),
                everywhere("create", "", "pods/eviction"),
                everywhere("list", "policy", "poddisruptionbudgets"),
                everywhere("create", GROUP, "constraintpolicybindings"),
                everywhere("patch", GROUP, "constraintpolicybindings/status"),
                everywhere("patch", GROUP, "constraintpolicyoffers/status"),
                everywhere("create", EVENTS, "events"),
                own("create", LEASES, "leases", ""),
                own("update", LEASES, "leases", CONTROLLER),
            ]);
            if workload.has_flag("--advertise-gate") {
                all.push(everywhere("patch", "", "nodes/status"));
            }
        }
        Role::Admission => {
            all.extend(lists("", &["namespaces", "pods", "services"]));
            all.extend(constraints());
            all.extend(lists(
                "tautline.io",
                &["mutationpolicies", "mutationpolicybindings"],
            ));
            all.push(everywhere(
                "create",
                "authorization.k8s.io",
                "subjectaccessreviews",
            ));
            if let Some(secret) = generated_secret(workload) {
                all.push(own("create", "", "secrets", ""));
                all.push(own("update", "", "secrets", secret));
                all.push(Right {
                    name: "tautline-own-resources".to_owned(),
                    ..everywhere(
                        "patch",
                        "admissionregistration.k8s.io",
                        "validatingwebhookconfigurations",
                    )
                });
            }
        }
        Role::GpuSlice => {
            all.extend(lists("", &["nodes", "pods"]));
            all.extend(lists(DRA, &["resourceslices", "resourceclaims"]));
            if let Some((namespace, name)) =
                workload.flag("--lease").and_then(|l| l.split_once('/'))
            {
                let lease = |verb, name: &str| Right {
                    namespace: namespace.to_owned(),
                    ..own(verb, LEASES, "leases", name)
                };
                all.extend([lease("create", ""), lease("update", name)]);
            }
        }
        Role::Latency => {
            all.extend(lists("", &["nodes", "pods", "configmaps"]));
            all.push(everywhere(
                "create",
                "authentication.k8s.io",
                "tokenreviews",
            ));
            let key = workload.flag("--echo-key-secret");
            if let Some((namespace, name)) = key.and_then(|k| k.split_once('/')) {
                all.push(Right {
                    namespace: namespace.to_owned(),
                    ..own("get", "", "secrets", name)
                });
            }
        }
        Role::Scripted => all.extend(lists(GROUP, &["costproviders", "ruleproviders"])),
        Role::LatencyAgent => {}
    }
    all
}

/// The Secret of the server's generated certificates.
pub(crate) fn generated_secret<'a>(workload: &Workload<'a>) -> Option<&'a str> {
    match (workload.role, workload.flag("--tls-cert")) {
        (Role::Extender, None) => workload.flag("--tls-secret"),
        (Role::Admission, None) => Some(
            workload
                .flag("--secret")
                .unwrap_or("tautline-admission-tls"),
        ),
        _ => None,
    }
}
