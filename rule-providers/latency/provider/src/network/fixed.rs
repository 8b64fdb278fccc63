//! What tests of the answers say is measured, without agents.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tautline_rtt_model::Estimate;

use super::Network;
use crate::reading::{Figure, Reading};

type Pair = (String, String);

#[derive(Debug, Default)]
pub(super) struct Fixed {
    readings: Mutex<HashMap<Pair, Reading>>,
    estimates: Mutex<HashMap<Pair, Estimate>>,
    probes: Mutex<HashMap<Pair, Reading>>,
    nics: Mutex<HashMap<String, u64>>,
    throughputs: Mutex<HashMap<Pair, Result<u64, String>>>,
}

fn pair(a: &str, b: &str) -> Pair {
    let (a, b) = (a.min(b), a.max(b));
    (a.to_owned(), b.to_owned())
}

impl Fixed {
    pub(super) fn any(&self) -> bool {
        !self.readings.lock().is_empty() || !self.estimates.lock().is_empty()
    }

    pub(super) fn reading(&self, a: &str, b: &str) -> Option<Reading> {
        self.readings.lock().get(&pair(a, b)).cloned()
    }

    pub(super) fn estimate(&self, a: &str, b: &str) -> Option<Estimate> {
        self.estimates.lock().get(&pair(a, b)).copied()
    }

    pub(super) fn nic(&self, node: &str) -> Option<u64> {
        self.nics.lock().get(node).copied()
    }

    pub(super) fn throughput(&self, from: &str, to: &str) -> Option<Result<u64, String>> {
        self.throughputs.lock().get(&pair(from, to)).cloned()
    }

    /// What probes find is known from then on.
    pub(super) fn probed(&self, peer: &str, nodes: &[&str]) -> Option<Vec<(String, Reading)>> {
        let probes = self.probes.lock();
        let found = |node: &&str| {
            let reading = probes.get(&pair(peer, node))?.clone();
            self.readings
                .lock()
                .insert(pair(peer, node), reading.clone());
            Some(((*node).to_owned(), reading))
        };
        (!probes.is_empty()).then(|| nodes.iter().filter_map(found).collect())
    }
}

impl Network {
    pub(crate) fn set_reading(&self, a: &str, b: &str, reading: Reading) {
        self.0.fixed.readings.lock().insert(pair(a, b), reading);
    }

    pub(crate) fn set_estimate(&self, a: &str, b: &str, estimate: Estimate) {
        self.0.fixed.estimates.lock().insert(pair(a, b), estimate);
    }

    /// What a probe of the pair finds.
    pub(crate) fn set_probe(&self, a: &str, b: &str, reading: Reading) {
        self.0.fixed.probes.lock().insert(pair(a, b), reading);
    }

    pub(crate) fn set_nic(&self, node: &str, bits_per_second: u64) {
        let mut nics = self.0.fixed.nics.lock();
        nics.insert(node.to_owned(), bits_per_second);
    }

    pub(crate) fn set_throughput(&self, a: &str, b: &str, found: Result<u64, String>) {
        self.0.fixed.throughputs.lock().insert(pair(a, b), found);
    }
}

impl Figure {
    /// A figure whose three windows all say the same.
    pub(crate) fn of(median: Duration) -> Self {
        Self {
            median,
            windows: [median; 3].into_iter().collect(),
            p50: median,
            p95: median * 2,
            samples: 60,
            ..Self::default()
        }
    }
}

#[test]
fn what_is_set_is_read() {
    let network = Network::default();
    assert_eq!(network.reading("a", "b"), Reading::Nothing);
    assert!(!network.is_measuring());
    let reading = Reading::Fresh(Figure::of(Duration::from_millis(1)));
    network.set_reading("a", "b", reading.clone());
    assert_eq!(network.reading("b", "a"), reading);
    let estimate = Estimate {
        micros: 5.0,
        low: 4.0,
        high: 6.0,
    };
    network.set_estimate("a", "b", estimate);
    assert_eq!(network.row("b").estimate("a"), Some(estimate));
    network.set_nic("a", 1);
    assert_eq!(network.nic_bits_per_second("a"), Some(1));
    network.set_throughput("a", "b", Ok(2));
    network.set_probe("a", "c", reading.clone());
    assert!(network.is_measuring());
}
