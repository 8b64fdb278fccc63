//! Defines the rule provider of `latency`, `jitter` and `bandwidth`, which passes each request to
//! the module of its rule.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tautline_core::TrustedNamespaces;
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{
    CostAnswer, CostChanges, CostRequest, Evaluation, EvaluationRequest, Peer, ProviderError,
    RuleProvider,
};

use crate::{
    location::row_name,
    network::Network,
    rules::{
        answer_metrics::AnswerMetrics,
        bandwidth::{Bandwidth as BandwidthRule, RULE as BANDWIDTH},
        context::RuleContext,
        evaluation, jitter_cost, latency_cost,
        pair_state::{PairStates, Quantity},
        pod_demand::{PodDemand, names_all_pod_nodes},
    },
    tables::{
        Tables,
        table::{Bandwidth, RoundTrip},
    },
};

/// The interval at which watchers of costs are notified, as measurements change all the time.
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// The provider of the rules `latency`, `jitter` and `bandwidth`. Clones share their state.
#[derive(Clone, Debug)]
pub struct Latency {
    /// The demand for pods, for a store that has pods only once they are requested.
    pub(crate) pods: PodDemand,
    trusted: Arc<TrustedNamespaces>,
    pub(crate) tables: Arc<ArcSwap<Tables<RoundTrip>>>,
    pub(crate) bandwidth: Arc<BandwidthRule>,
    pub(crate) network: Arc<Network>,
    pub(crate) states: Arc<PairStates>,
    pub(crate) metrics: AnswerMetrics,
    changes: CostChanges,
}

impl Latency {
    /// Creates a provider without measurements. Nodes and pods come from `store`, and so do the
    /// offers and policies for bandwidth.
    pub fn new(store: ClusterStore) -> Self {
        Self::with_network(Network::new(store, false))
    }

    /// Creates a provider with the measurements of a network, and its store.
    pub fn with_network(network: Arc<Network>) -> Self {
        let metrics = AnswerMetrics::default();
        Self {
            pods: PodDemand::default(),
            trusted: Arc::default(),
            tables: Arc::default(),
            bandwidth: Arc::default(),
            network,
            states: Arc::default(),
            metrics,
            changes: CostChanges::default(),
        }
    }

    /// Trusts these namespaces. Their bindings reserve bandwidth and demand measurements for
    /// objects of any kind that are named like nodes, and their number of demanded pairs is not
    /// bounded.
    #[must_use]
    pub fn with_trusted(mut self, trusted: TrustedNamespaces) -> Self {
        self.trusted = Arc::new(trusted);
        self
    }

    /// Replaces all round-trip times; a single [`crate::Table`] applies to all namespaces.
    pub fn set_table(&self, tables: impl Into<Tables<RoundTrip>>) {
        let tables = tables.into();
        self.metrics.set_rows_left_out("latency", tables.left_out);
        self.tables.store(Arc::new(tables));
        self.changes.changed_all();
    }

    /// Replaces all bandwidths; a single [`crate::BandwidthTable`] applies to all namespaces.
    pub fn set_bandwidth_table(&self, tables: impl Into<Tables<Bandwidth>>) {
        let tables = tables.into();
        self.metrics.set_rows_left_out(BANDWIDTH, tables.left_out);
        self.bandwidth.set_tables(tables);
    }

    /// Notifies watchers of costs regularly that the costs may have changed with the measurements.
    pub(crate) async fn tell_changes(self) {
        loop {
            tokio::time::sleep(CHANGE_INTERVAL).await;
            if self.changes.are_watched() {
                self.changes.changed_all();
            }
        }
    }

    pub(crate) fn context(&self) -> RuleContext<'_> {
        RuleContext {
            trusted: &self.trusted,
            tables: &self.tables,
            network: &self.network,
            metrics: &self.metrics,
        }
    }
}

impl RuleProvider for Latency {
    async fn endpoint_cost(&self, mut request: CostRequest) -> Result<CostAnswer, ProviderError> {
        match request.rule.name.as_str() {
            "jitter" => jitter_cost::cost(self.context(), request),
            BANDWIDTH => {
                let store = &self.network.store;
                self.pods.listed(store, request.deadline).await?;
                name_peers(&mut request.peers);
                self.bandwidth.cost(self.context(), request)
            }
            _ => latency_cost::cost(self.context(), request).await,
        }
    }

    fn changes(&self) -> Option<&CostChanges> {
        Some(&self.changes)
    }

    async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        if request.rule.name == BANDWIDTH || !names_all_pod_nodes(&request) {
            let store = &self.network.store;
            self.pods.listed(store, request.deadline).await?;
        }
        let quantity = match request.rule.name.as_str() {
            BANDWIDTH => return self.bandwidth.evaluate(self.context(), request),
            "jitter" => Quantity::Jitter,
            _ => Quantity::Latency,
        };
        evaluation::evaluate(self.context(), &self.states, request, quantity).await
    }
}

/// Replaces the places of peers that are Services or pods of other clusters by their [`row_name`],
/// a Service's once for a role: reservations of bandwidth and tables go by these.
fn name_peers(peers: &mut Vec<Peer>) {
    for peer in peers.iter_mut().filter(|p| p.node.is_some()) {
        if let Some(name) = row_name(&peer.reference) {
            peer.node = Some(name.to_owned());
        }
    }
    // The places of an endpoint are adjacent.
    peers.dedup();
}

#[cfg(test)]
mod tests;
