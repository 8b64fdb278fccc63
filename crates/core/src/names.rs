//! Names that several crates and the manifests in `deploy/` share.

use crate::trust::OWN_NAMESPACE;

/// The API group of policies, offers and bindings, and the domain of their labels and annotations.
pub const GROUP: &str = "constraint.ciena.com";
/// The API version of policies, offers and bindings.
pub const API_VERSION: &str = "constraint.ciena.com/v1alpha1";
/// The name of the controller in its Lease, its field manager and its events.
pub const CONTROLLER: &str = "tautline-controller";
/// The extended resource that makes kube-scheduler call the extender for a pod
/// (`managedResources`). Nodes must offer it too, unless the configuration sets
/// `ignoredByScheduler`.
pub const GATE_RESOURCE: &str = "constraint.ciena.com/governed";
/// The namespaces that are exempt by default: `kube-system`, and Tautline's own, whose pods must
/// start before Tautline runs.
pub const EXEMPT_NAMESPACES: [&str; 2] = ["kube-system", OWN_NAMESPACE];
/// The `schedulerName` of pods that name no scheduler.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// The label of a namespace whose governed pods keep their scheduler; its value is `disabled`.
pub const SECOND_SCHEDULER_LABEL: &str = "tautline.io/second-scheduler";

/// The annotations of pods that record the cards that they hold: Tautline's, and the one of others
/// that is read.
pub const CARD_RECORDS: [&str; 2] = ["tautline.io/gpu-devices", "alibabacloud.com/gpu-index"];
