//! Measurements that tests set, in place of agents.

use std::collections::HashMap;

use parking_lot::Mutex;
use tautline_rtt_model::Estimate;

use crate::measurement::Measurement;

type Pair = (String, String);

#[derive(Debug, Default)]
pub(crate) struct TestMeasurements {
    measurements: Mutex<HashMap<Pair, Measurement>>,
    estimates: Mutex<HashMap<Pair, Estimate>>,
    probes: Mutex<HashMap<Pair, Measurement>>,
    nics: Mutex<HashMap<String, u64>>,
    throughputs: Mutex<HashMap<Pair, Result<u64, String>>>,
}

fn pair(a: &str, b: &str) -> Pair {
    let (a, b) = (a.min(b), a.max(b));
    (a.to_owned(), b.to_owned())
}

impl TestMeasurements {
    pub fn set(&self, a: &str, b: &str, measurement: Measurement) {
        self.measurements.lock().insert(pair(a, b), measurement);
    }

    pub fn set_estimate(&self, a: &str, b: &str, estimate: Estimate) {
        self.estimates.lock().insert(pair(a, b), estimate);
    }

    /// The result of a probe of the pair.
    pub fn set_probe(&self, a: &str, b: &str, measurement: Measurement) {
        self.probes.lock().insert(pair(a, b), measurement);
    }

    pub fn set_nic(&self, node: &str, bits_per_second: u64) {
        self.nics.lock().insert(node.to_owned(), bits_per_second);
    }

    pub fn set_throughput(&self, a: &str, b: &str, result: Result<u64, String>) {
        self.throughputs.lock().insert(pair(a, b), result);
    }

    pub fn is_measuring(&self) -> bool {
        !self.measurements.lock().is_empty() || !self.estimates.lock().is_empty()
    }

    pub fn measurement(&self, a: &str, b: &str) -> Option<Measurement> {
        self.measurements.lock().get(&pair(a, b)).cloned()
    }

    pub fn estimate(&self, a: &str, b: &str) -> Option<Estimate> {
        self.estimates.lock().get(&pair(a, b)).copied()
    }

    pub fn nic(&self, node: &str) -> Option<u64> {
        self.nics.lock().get(node).copied()
    }

    pub fn throughput(&self, from: &str, to: &str) -> Option<Result<u64, String>> {
        self.throughputs.lock().get(&pair(from, to)).cloned()
    }

    /// Results of probes become measurements.
    pub fn probe(&self, peer: &str, nodes: &[&str]) -> Option<Vec<(String, Measurement)>> {
        let probes = self.probes.lock();
        let found = |node: &&str| {
            let measurement = probes.get(&pair(peer, node))?.clone();
            self.set(peer, node, measurement.clone());
            Some(((*node).to_owned(), measurement))
        };
        (!probes.is_empty()).then(|| nodes.iter().filter_map(found).collect())
    }
}
