//! The configuration of the provider.

use tautline_gpu_placement::{Names, RequestClass, policy};

/// The choice of nodes and cards.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The placement policy.
    pub policy: policy::PolicyName,
    /// Names of resources, labels and annotations.
    pub names: Names,
    /// The order in which nodes are filled.
    pub order: NodeOrder,
    /// The distribution of requests to plan for; `None`: learned from the cluster.
    pub classes: Option<Vec<(RequestClass, f64)>>,
    /// A second annotation for a pod's cards, as indexes (`0-1`), for runtimes that do not
    /// read Tautline's.
    pub index_annotation: Option<String>,
}

/// The order in which nodes are filled, as far as the policy uses one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOrder {
    /// By a hash of their names. Nodes of one model often have similar names; by hash they do
    /// not all come first.
    #[default]
    Mixed,
    /// By their names.
    Named,
}
