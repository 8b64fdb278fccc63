//! The parts of a pod that decide about its node and that no watch of Tautline reads:
//! kube-scheduler applies them before it calls the extender. Plans without kube-scheduler read them.

use std::sync::Arc;

use crate::{host_ports::HostPort, topology_spread::SpreadConstraint, volumes::VolumeClaim};

/// The rules of one pod, bound or not. Most pods have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodRules {
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's name.
    pub name: Arc<str>,
    /// The topology spread constraints with `whenUnsatisfiable: DoNotSchedule`.
    pub spread: Vec<SpreadConstraint>,
    /// The ports of the node that the pod's containers take.
    pub host_ports: Vec<HostPort>,
    /// The names of the PersistentVolumeClaims that the pod's volumes use.
    pub claims: Vec<Arc<str>>,
    /// The claims that are made for the pod's ephemeral volumes.
    pub own_claims: Vec<VolumeClaim>,
}
