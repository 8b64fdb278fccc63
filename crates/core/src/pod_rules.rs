//! The rules of a pod that kube-scheduler applies before it calls the extender: topology spread and
//! host ports. Plans without kube-scheduler apply them.

use std::fmt;

use crate::selector::Selector;

/// The rules of one pod. Most pods have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodRules {
    /// The topology spread constraints with `whenUnsatisfiable: DoNotSchedule`; empty once the pod
    /// is bound.
    pub spread: Vec<SpreadConstraint>,
    /// The ports of the node that the pod's containers take.
    pub host_ports: Vec<HostPort>,
}

/// A topology spread constraint with `whenUnsatisfiable: DoNotSchedule`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpreadConstraint {
    /// The greatest difference between the pods of a domain and those of the emptiest domain.
    pub max_skew: i64,
    /// The node label whose values are the domains.
    pub topology_key: Box<str>,
    /// The selector of the counted pods, with the pod's values of `matchLabelKeys`; `None` selects
    /// no pod.
    pub selector: Option<Selector>,
    /// The number of domains below which the emptiest domain counts as empty.
    pub min_domains: usize,
    /// True if only the nodes that the pod's node selector and node affinity admit count.
    pub honors_affinity: bool,
    /// True if only the nodes whose taints the pod tolerates count.
    pub honors_taints: bool,
}

/// A port of the node that a container takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// The node's address; empty and `0.0.0.0` stand for all its addresses.
    pub address: Box<str>,
    /// The protocol, such as `TCP`.
    pub protocol: Box<str>,
    /// The port's number.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, self.protocol)
    }
}
