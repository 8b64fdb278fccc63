use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tautline_core::TrustedNamespaces;
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{
    CostAnswer, CostChanges, CostRequest, Evaluation, EvaluationRequest, ProviderError,
    RuleProvider,
};

use crate::{
    network::Network,
    rules::{
        answer_metrics::AnswerMetrics,
        bandwidth::{Bandwidth as BandwidthRule, RULE as BANDWIDTH},
        context::RuleContext,
        evaluation, jitter_cost, latency_cost,
        pair_state::{PairStates, Quantity},
        pod_demand::{PodDemand, names_all_pod_nodes},
        verify::Verifier,
    },
    tables::{
        namespaces::Tables,
        table::{Bandwidth, RoundTrip},
    },
};

/// The interval at which watchers of costs are notified, as measurements change all the time.
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// The provider of the rules `latency`, `jitter` and `bandwidth`. Clones share their state.
#[derive(Clone, Debug)]
pub struct Latency {
    pub(crate) store: ClusterStore,
    pods: PodDemand,
    trusted: Arc<TrustedNamespaces>,
    pub(crate) tables: Arc<ArcSwap<Tables<RoundTrip>>>,
    pub(crate) bandwidth: Arc<BandwidthRule>,
    pub(crate) network: Network,
    verifier: Verifier,
    pub(crate) states: Arc<PairStates>,
    metrics: AnswerMetrics,
    changes: CostChanges,
}

impl Latency {
    /// Creates a provider without measurements. Nodes and pods come from `store`, and so do the
    /// offers and policies for bandwidth.
    pub fn new(store: ClusterStore) -> Self {
        let (network, metrics) = (Network::default(), AnswerMetrics::default());
        Self {
            store,
            pods: PodDemand::default(),
            trusted: Arc::default(),
            tables: Arc::default(),
            bandwidth: Arc::default(),
            verifier: Verifier::new(network.clone(), metrics.clone()),
            network,
            states: Arc::default(),
            metrics,
            changes: CostChanges::default(),
        }
    }

    /// Replaces the empty network with one that has measurements.
    #[must_use]
    pub fn with_network(mut self, network: Network) -> Self {
        self.verifier = Verifier::new(network.clone(), self.metrics.clone());
        self.network = network;
        self
    }

    /// Replaces the demand for pods, for a store that has pods only once they are requested.
    #[must_use]
    pub(crate) fn with_pods(mut self, pods: PodDemand) -> Self {
        self.pods = pods;
        self
    }

    /// Trusts these namespaces. Their bindings reserve bandwidth and demand measurements for
    /// objects of any kind that are named like nodes, and their number of demanded pairs is not
    /// bounded.
    #[must_use]
    pub fn with_trusted(mut self, trusted: TrustedNamespaces) -> Self {
        self.bandwidth = Arc::new(BandwidthRule::trusting(trusted.clone()));
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

    pub(crate) fn metrics(&self) -> &AnswerMetrics {
        &self.metrics
    }

    pub(crate) fn context(&self) -> RuleContext<'_> {
        RuleContext {
            store: &self.store,
            trusted: &self.trusted,
            tables: &self.tables,
            network: &self.network,
            metrics: &self.metrics,
        }
    }

    pub(crate) async fn evaluate_rtt(
        &self,
        request: EvaluationRequest,
        quantity: Quantity,
    ) -> Result<Evaluation, ProviderError> {
        evaluation::evaluate(
            self.context(),
            &self.verifier,
            &self.states,
            request,
            quantity,
        )
        .await
    }
}

impl RuleProvider for Latency {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        match request.rule.name.as_str() {
            "jitter" => jitter_cost::cost(self.context(), request),
            BANDWIDTH => {
                self.pods.listed(&self.store, request.deadline).await?;
                self.bandwidth.cost(self.context(), request)
            }
            _ => latency_cost::cost(self.context(), &self.verifier, request).await,
        }
    }

    fn changes(&self) -> Option<&CostChanges> {
        Some(&self.changes)
    }

    async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        if request.rule.name == BANDWIDTH || !names_all_pod_nodes(&request) {
            self.pods.listed(&self.store, request.deadline).await?;
        }
        match request.rule.name.as_str() {
            "jitter" => self.evaluate_rtt(request, Quantity::Jitter).await,
            BANDWIDTH => self.bandwidth.evaluate(self.context(), request),
            _ => self.evaluate_rtt(request, Quantity::Latency).await,
        }
    }
}

#[cfg(test)]
mod tests;
