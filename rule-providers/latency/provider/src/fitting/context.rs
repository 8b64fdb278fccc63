use std::path::PathBuf;

use tautline_runtime::cluster_store::ClusterStore;

use crate::network::Network;

/// The default label that names the rack of a node.
pub const RACK: &str = "topology.kubernetes.io/rack";
/// The default number of nodes that each node measures, in addition to those that rules name.
pub const DEFAULT_TARGETS: usize = 32;

/// The settings of predictions and of the measurements for them.
#[derive(Clone, Debug)]
pub struct FitSettings {
    /// The label that names the rack of a node.
    pub rack_label: String,
    /// The number of nodes that each node measures, in addition to those that rules name.
    pub targets: usize,
    /// The file that preserves samples and coordinates over a restart; with `None` they are lost.
    pub state_file: Option<PathBuf>,
}

impl Default for FitSettings {
    fn default() -> Self {
        Self {
            rack_label: RACK.to_owned(),
            targets: DEFAULT_TARGETS,
            state_file: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FitContext {
    pub store: ClusterStore,
    pub settings: FitSettings,
    pub network: Network,
}

impl FitContext {
    pub fn new(store: ClusterStore, settings: FitSettings, network: &Network) -> Self {
        Self {
            store,
            settings,
            network: network.clone(),
        }
    }
}
