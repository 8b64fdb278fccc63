//! Names that several crates, and the manifests in `deploy/`, must spell alike.

use crate::trust::OWN_NAMESPACE;

/// API group of policies, offers and bindings, and the domain of their labels and
/// annotations.
pub const GROUP: &str = "constraint.ciena.com";
/// API version of policies, offers and bindings.
pub const API_VERSION: &str = "constraint.ciena.com/v1alpha1";
/// The controller: its Lease, its field manager and the reporter of its events.
pub const CONTROLLER: &str = "tautline-controller";
/// Extended resource that a pod requests so that kube-scheduler calls the extender for it
/// (`managedResources` in the gated configurations). kube-scheduler also looks for it on
/// nodes unless its configuration sets `ignoredByScheduler`.
pub const GATE_RESOURCE: &str = "constraint.ciena.com/governed";
/// Namespaces that Tautline leaves alone by default: the cluster's own, and the one that
/// Tautline runs in, whose pods must start without it.
pub const EXEMPT_NAMESPACES: [&str; 2] = ["kube-system", OWN_NAMESPACE];
