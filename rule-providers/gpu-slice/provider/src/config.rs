use tautline_gpu_placement::{RequestClass, policy};

/// The configuration of the provider.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The policy by which nodes and cards are chosen.
    pub policy: policy::PolicyName,
    /// The order in which equally good nodes are filled.
    pub order: NodeOrder,
    /// The distribution of requests to plan for; `None`: it is learned from the cluster.
    pub classes: Option<Vec<(RequestClass, f64)>>,
    /// The name of a second annotation, which has a pod's cards as indexes (`0-1`) for other
    /// runtimes.
    pub index_annotation: Option<String>,
}

/// The order in which nodes are filled, if the policy uses an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOrder {
    /// Nodes are ordered by a hash of their names, because nodes of one model often have similar
    /// names.
    #[default]
    Mixed,
    /// Nodes are ordered by their names, ascending.
    Named,
}
