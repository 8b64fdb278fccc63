use std::{path::PathBuf, sync::Arc};

use tautline_runtime::cluster_store::ClusterStore;

use crate::network::{
    Network, estimates::Estimates, measured_pairs::MeasuredPairs, metrics::NetworkMetrics,
    signals::Signals, target_lists::TargetLists,
};

pub const RACK: &str = "topology.kubernetes.io/rack";
pub const TARGETS: usize = 32;

#[derive(Clone, Debug)]
pub struct FitSettings {
    pub rack_label: String,
    /// Targets of each node, besides the pairs that rules name.
    pub targets: usize,
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
