use std::{path::PathBuf, sync::Arc};

use tautline_runtime::cluster_store::ClusterStore;

use crate::network::{
    Network, estimates::Estimates, measured_pairs::MeasuredPairs, metrics::NetworkMetrics,
    signals::Signals, target_lists::TargetLists,
};

/// Default label of a node that names its rack.
pub const RACK: &str = "topology.kubernetes.io/rack";
/// Default number of nodes that each node measures in turn.
pub const TARGETS: usize = 32;

/// How round-trip times are predicted, and what is measured for that.
#[derive(Clone, Debug)]
pub struct FitSettings {
    /// Label of a node that names its rack.
    pub rack_label: String,
    /// Targets of each node, besides the pairs that rules name.
    pub targets: usize,
    /// File that keeps samples and coordinates over a restart; `None`: they are lost.
    pub state_file: Option<PathBuf>,
}

impl Default for FitSettings {
    fn default() -> Self {
        Self {
            rack_label: RACK.to_owned(),
            targets: TARGETS,
            state_file: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FitContext {
    pub store: ClusterStore,
    pub settings: FitSettings,
    pub pairs: Arc<MeasuredPairs>,
    pub estimates: Arc<Estimates>,
    pub lists: Arc<TargetLists>,
    pub signals: Arc<Signals>,
    pub metrics: NetworkMetrics,
}

impl FitContext {
    pub fn new(store: ClusterStore, settings: FitSettings, network: &Network) -> Self {
        Self {
            store,
            settings,
            pairs: Arc::clone(&network.pairs),
            estimates: Arc::clone(&network.estimates),
            lists: Arc::clone(&network.lists),
            signals: Arc::clone(&network.signals),
            metrics: network.metrics.clone(),
        }
    }
}
