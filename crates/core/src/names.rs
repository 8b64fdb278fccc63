//! Names that several crates, and the manifests in `deploy/`, must spell alike.

use crate::trust::OWN_NAMESPACE;

/// API group of policies, offers and bindings; domain of their labels and annotations.
pub const GROUP: &str = "constraint.ciena.com";
/// API version of policies, offers and bindings.
pub const API_VERSION: &str = "constraint.ciena.com/v1alpha1";
/// The controller: its Lease, its field manager and the reporter of its events.
pub const CONTROLLER: &str = "tautline-controller";
/// Extended resource that makes kube-scheduler call the extender for a pod (`managedResources`).
/// Nodes need it too, unless the configuration sets `ignoredByScheduler`.
pub const GATE_RESOURCE: &str = "constraint.ciena.com/governed";
/// Default exemptions: the cluster's namespace, and Tautline's, whose pods start without it.
pub const EXEMPT_NAMESPACES: [&str; 2] = ["kube-system", OWN_NAMESPACE];
/// `schedulerName` of pods that name no scheduler.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Label of a namespace whose governed pods keep their scheduler (`disabled`).
pub const SECOND_SCHEDULER_LABEL: &str = "tautline.io/second-scheduler";
