//! The measured network: the round-trip times that agents report, the estimates of all other pairs,
//! and the orders to measure more. [`Network`] joins its modules, each of which uses only earlier
//! ones: pair_store, measured_pairs, sessions, orders, probes and throughput, demanded_pairs,
//! demand, target_lists, estimates and view.

mod demand;
pub(crate) mod demanded_pairs;
pub(crate) mod estimates;
pub(crate) mod measured_pairs;
pub(crate) mod metrics;
mod orders;
pub(crate) mod pair_store;
mod probes;
pub(crate) mod sessions;
pub(crate) mod signals;
pub(crate) mod target_lists;
#[cfg(test)]
pub(crate) mod test_measurements;
mod throughput;
pub(crate) mod view;

use std::{sync::Arc, time::Duration};

use tautline_runtime::cluster_store::ClusterStore;

use crate::measurement::Measurement;
use demand::Demand;
use demanded_pairs::Requester;
use estimates::Estimates;
use measured_pairs::MeasuredPairs;
use metrics::NetworkMetrics;
use orders::Orders;
use probes::Probes;
use sessions::AgentSessions;
use signals::Signals;
use target_lists::TargetLists;
#[cfg(test)]
use test_measurements::TestMeasurements;
use throughput::ThroughputTests;
use view::NetworkView;
pub use view::PeerRow;

/// The measured and predicted round-trip times between nodes. Clones share them.
#[derive(Clone, Debug)]
pub struct Network {
    pub(crate) pairs: Arc<MeasuredPairs>,
    pub(crate) sessions: Arc<AgentSessions>,
    pub(crate) orders: Arc<Orders>,
    probes: Arc<Probes>,
    throughput: Arc<ThroughputTests>,
    pub(crate) demand: Arc<Demand>,
    pub(crate) lists: Arc<TargetLists>,
    pub(crate) estimates: Arc<Estimates>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) metrics: NetworkMetrics,
    #[cfg(test)]
    pub(crate) fixed: Arc<TestMeasurements>,
}

impl Default for Network {
    fn default() -> Self {
        Self::new(ClusterStore::default(), false)
    }
}

impl Network {
    /// Creates the network of the store's nodes, without measurements. `transfers` allows tests of
    /// bandwidth.
    pub fn new(store: ClusterStore, transfers: bool) -> Self {
        let (pairs, signals) = (Arc::<MeasuredPairs>::default(), Arc::<Signals>::default());
        let metrics = NetworkMetrics::default();
        let sessions = Arc::new(AgentSessions::new(
            store.clone(),
            Arc::clone(&pairs),
            Arc::clone(&signals),
            metrics.clone(),
        ));
        let orders = Arc::new(Orders::new(Arc::clone(&sessions)));
        let (clock, wake) = (Arc::clone(&pairs), Arc::clone(&signals));
        let demand = Arc::new(Demand::new(store, clock, wake));
        let lists = TargetLists::new(
            Arc::clone(&pairs),
            Arc::clone(&demand),
            Arc::clone(&sessions),
            Arc::clone(&signals),
            metrics.clone(),
        );
        let probes = Probes::new(Arc::clone(&pairs), Arc::clone(&orders), metrics.clone());
        let tests = ThroughputTests::new(transfers, Arc::clone(&pairs), Arc::clone(&orders));
        Self {
            pairs,
            sessions,
            orders,
            probes: Arc::new(probes),
            throughput: Arc::new(tests),
            demand,
            lists: Arc::new(lists),
            estimates: Arc::default(),
            signals,
            metrics,
            #[cfg(test)]
            fixed: Arc::default(),
        }
    }

    pub(crate) fn measurement(&self, a: &str, b: &str) -> Measurement {
        #[cfg(test)]
        if let Some(fixed) = self.fixed.measurement(a, b) {
            return fixed;
        }
        self.pairs.measurement(a, b)
    }

    pub(crate) fn view(&self) -> NetworkView {
        NetworkView::new(
            Arc::clone(&self.pairs),
            &self.estimates,
            #[cfg(test)]
            Arc::clone(&self.fixed),
        )
    }

    /// Returns the round-trip times between a node and all others. This takes some microseconds; at
    /// 5,000 nodes the first row of a node after a fit takes some 100 more.
    pub fn row(&self, peer: &str) -> PeerRow {
        self.view().row(peer)
    }

    pub(crate) fn demand(&self, requester: Requester<'_>, a: &str, b: &str, keep: Duration) {
        self.demand.add(requester, a, b, keep);
    }

    pub(crate) fn nic_bits_per_second(&self, node: &str) -> Option<u64> {
        #[cfg(test)]
        if let Some(fixed) = self.fixed.nic(node) {
            return Some(fixed);
        }
        self.pairs.nic_bits_per_second(node)
    }

    pub(crate) fn is_measuring(&self) -> bool {
        #[cfg(test)]
        if self.fixed.is_measuring() {
            return true;
        }
        self.sessions.is_measuring()
    }

    pub(crate) async fn probe(
        &self,
        peer: &str,
        nodes: &[&str],
        samples: u32,
        within: Duration,
    ) -> Vec<(String, Measurement)> {
        #[cfg(test)]
        if let Some(fixed) = self.fixed.probe(peer, nodes) {
            return fixed;
        }
        self.probes.probe(peer, nodes, samples, within).await
    }

    /// Measures the throughput by a transfer, in bits per second. Errors are texts for users.
    pub(crate) async fn throughput(
        &self,
        from: &str,
        to: &str,
        max_bytes: u64,
        within: Duration,
    ) -> Result<u64, String> {
        #[cfg(test)]
        if let Some(fixed) = self.fixed.throughput(from, to) {
            return fixed;
        }
        self.throughput.run(from, to, max_bytes, within).await
    }
}

#[cfg(test)]
mod tests {
    use tautline_rtt_model::Estimate;

    use super::*;
    use crate::measurement::RttStats;

    #[test]
    fn test_measurements_are_read() {
        let network = Network::default();
        assert_eq!(network.measurement("a", "b"), Measurement::Missing);
        assert!(!network.is_measuring());
        let measurement = Measurement::Fresh(RttStats::of(Duration::from_millis(1)));
        network.fixed.set("a", "b", measurement.clone());
        assert_eq!(network.measurement("b", "a"), measurement);
        let estimate = Estimate {
            micros: 5.0,
            low: 4.0,
            high: 6.0,
        };
        network.fixed.set_estimate("a", "b", estimate);
        assert_eq!(network.row("b").estimate("a"), Some(estimate));
        network.fixed.set_nic("a", 1);
        assert_eq!(network.nic_bits_per_second("a"), Some(1));
        assert!(network.is_measuring());
    }
}
