//! The rule provider of `latency`, `{name: latency, request: 5ms, limit: 20ms}`,
//! and of `jitter` and `bandwidth`.
//!
//! It answers from configured tables of pairs of nodes and zones, from what agents
//! on the nodes measure, and from what is predicted of the rest. A pair without a
//! figure is unknown, and an unknown node cannot be used: a guess is never called
//! a fact.

mod agents;
mod assign;
mod bandwidth;
mod board;
mod compliance;
mod costs;
mod counts;
mod demand;
#[cfg(test)]
mod deployed;
mod figures;
mod fitting;
mod identity;
mod jitter;
mod judge;
mod keys;
mod ledger;
mod maps;
mod measuring;
mod memory;
mod metrics;
mod network;
mod places;
mod pods;
mod reading;
pub mod report;
mod reserved;
mod shortlist;
mod table;
mod tables;
mod tokens;
mod transfers;
mod verify;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tautline_core::TrustedNamespaces;
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
};

use demand::Asker;
use memory::{Memory, Quantity};
use reserved::Reservations;
use transfers::Transfers;
use verify::Verifier;

pub use counts::Counts;
pub use identity::Identity;
pub use keys::{KeyError, Keys};
pub use maps::{MapError, TableMaps};
pub use measuring::Measuring;
pub use network::{Network, PeerRow, RACK, Settings, TARGETS};
pub use places::ZONE;
pub use pods::Pods;
pub use reading::{Figure, Reading};
pub use table::{Bandwidth, BandwidthTable, PairTable, RoundTrip, Table, TableError, Unit};
pub use tables::Tables;
pub use tokens::{AUDIENCE, NODE_EXTRA, Review, Reviewed, Tokens};

/// ConfigMaps with this label (value `enabled`) hold tables.
pub const TABLE_LABEL: &str = "constraint.ciena.com/latency-table";
/// ConfigMaps with this label (value `enabled`) hold tables of bandwidth.
pub const BANDWIDTH_TABLE_LABEL: &str = "constraint.ciena.com/bandwidth-table";

/// The provider. Clones are one.
#[derive(Clone, Debug)]
pub struct Latency {
    feed: ClusterStore,
    pods: Pods,
    trusted: Arc<TrustedNamespaces>,
    tables: Arc<ArcSwap<Tables<RoundTrip>>>,
    bandwidth_tables: Arc<ArcSwap<Tables<Bandwidth>>>,
    reservations: Arc<Reservations>,
    transfers: Transfers,
    network: Network,
    verifier: Verifier,
    memory: Arc<Memory>,
    counts: Counts,
}

impl Latency {
    /// A provider that knows nodes, their zones and pods from `feed`, for bandwidth
    /// also offers and policies, and nothing measured.
    pub fn new(feed: ClusterStore) -> Self {
        let (network, counts) = (Network::default(), Counts::default());
        Self {
            feed,
            pods: Pods::default(),
            trusted: Arc::default(),
            tables: Arc::default(),
            bandwidth_tables: Arc::default(),
            reservations: Arc::default(),
            transfers: Transfers::default(),
            verifier: Verifier::new(network.clone(), counts.clone()),
            network,
            memory: Arc::default(),
            counts,
        }
    }

    /// Answers from measurements too.
    #[must_use]
    pub fn measuring(mut self, network: Network) -> Self {
        self.verifier = Verifier::new(network.clone(), self.counts.clone());
        self.network = network;
        self
    }

    /// Has pods in its feed only once they are wanted.
    #[must_use]
    pub fn with(mut self, pods: Pods) -> Self {
        self.pods = pods;
        self
    }

    /// Takes the offers of these namespaces at their word: their bindings reserve
    /// bandwidth, and have pairs measured, also where objects that are not pods are named
    /// like nodes, and there is no bound to the pairs of one namespace.
    #[must_use]
    pub fn trusting(mut self, trusted: TrustedNamespaces) -> Self {
        self.reservations = Arc::new(Reservations::new(trusted.clone()));
        self.trusted = Arc::new(trusted);
        self
    }

    /// The namespace for which pairs are measured.
    fn asker<'a>(&self, namespace: &'a str) -> Asker<'a> {
        Asker {
            namespace,
            trusted: self.trusted.contains(namespace),
        }
    }

    /// What is measured.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Replaces the tables of round-trip times. A [`Table`] counts for all namespaces.
    pub fn set_table(&self, tables: impl Into<Tables<RoundTrip>>) {
        let tables = tables.into();
        self.counts.rows_left_out("latency", tables.left_out);
        self.tables.store(Arc::new(tables));
    }

    /// Replaces the tables of bandwidth. A [`BandwidthTable`] counts for all namespaces.
    pub fn set_bandwidth_table(&self, tables: impl Into<Tables<Bandwidth>>) {
        let tables = tables.into();
        self.counts.rows_left_out(bandwidth::RULE, tables.left_out);
        self.bandwidth_tables.store(Arc::new(tables));
    }

    /// What the answers count, to be registered.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl RuleProvider for Latency {
    async fn endpoint_cost(&self, ask: CostRequest) -> Result<CostAnswer, ProviderError> {
        match ask.rule.name.as_str() {
            "jitter" => self.cost_of_jitter(ask),
            bandwidth::RULE => {
                self.pods.known(&self.feed, ask.deadline).await?;
                self.cost_of_bandwidth(ask)
            }
            _ => self.cost_of_latency(ask).await,
        }
    }

    async fn evaluate(&self, ask: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        if ask.rule.name == bandwidth::RULE || !pods::are_told(&ask) {
            self.pods.known(&self.feed, ask.deadline).await?;
        }
        match ask.rule.name.as_str() {
            "jitter" => self.judge(ask, Quantity::Jitter).await,
            bandwidth::RULE => self.judge_bandwidth(ask),
            _ => self.judge(ask, Quantity::Latency).await,
        }
    }
}

#[cfg(test)]
mod tests;
