use tautline_gpu_placement::{Names, RequestClass, policy};

/// The configuration of the provider.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// How nodes and cards are chosen.
    pub policy: policy::PolicyName,
    /// Names of the resources, labels and annotations that tell of GPUs.
    pub names: Names,
    /// The order in which equally good nodes are filled.
    pub order: NodeOrder,
    /// The distribution of requests to plan for; `None`: learned from the cluster.
    pub classes: Option<Vec<(RequestClass, f64)>>,
    /// A second annotation for a pod's cards, as indexes (`0-1`), for other runtimes.
    pub index_annotation: Option<String>,
}

/// The order in which nodes are filled, as far as the policy uses one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOrder {
    /// By a hash of their names, as nodes of one model often have similar names.
    #[default]
    Mixed,
    /// By their names, ascending.
    Named,
}
