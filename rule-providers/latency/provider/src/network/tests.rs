//! Networks whose measurements tests set, in place of agents.

use std::sync::atomic::{AtomicU64, Ordering};

use tautline_core::{index::Object, model};
use tautline_proto::latency::{Hello, Pair, State, Transferred};
use tautline_rtt_model::{Labels, Model, Options};

use super::{orders::Measure, *};

const SECOND: Duration = Duration::from_secs(1);

/// A network of these nodes that allows transfers.
pub(crate) fn network_of(nodes: &[&str]) -> Arc<Network> {
    let network = Network::new(ClusterStore::default(), true);
    for node in nodes {
        network.store.apply(Object::Node(model::Node {
            name: (*node).into(),
            uid: format!("uid-{node}").into(),
            ..model::Node::default()
        }));
    }
    network
}

/// An agent on a node, which lives as long as the test's runtime.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnsweringAgent {
    /// What its transfers reach.
    pub rate: Arc<AtomicU64>,
    probes: Arc<Mutex<HashMap<String, Measurement>>>,
}

impl AnsweringAgent {
    pub fn connect(network: &Arc<Network>, node: &str) -> Self {
        let agent = Self::default();
        let hello = Hello {
            nic_bits_per_second: network.nic_bits_per_second(node).unwrap_or(0),
            ..hello(node)
        };
        let mut session = network.open_session(&hello).unwrap();
        let (network, node, answers) = (Arc::clone(network), node.to_owned(), agent.clone());
        tokio::spawn(async move {
            while let Some(order) = session.orders.recv().await {
                let result = match order.what {
                    Measure::Probe { targets, .. } => {
                        for target in targets {
                            let name = network.pairs.lock().get(target).unwrap().node.to_string();
                            if let Some(result) = answers.probes.lock().get(&name) {
                                network.set(&node, &name, result.clone());
                            }
                        }
                        None
                    }
                    Measure::Transfer { .. } => Some(Transferred {
                        bits_per_second: answers.rate.load(Ordering::Relaxed),
                        ..Transferred::default()
                    }),
                };
                _ = order.answer.send(result);
            }
        });
        agent
    }

    /// Sets what its probes of a node find.
    pub fn finds(&self, node: &str, measurement: Measurement) {
        self.probes.lock().insert(node.to_owned(), measurement);
    }
}

pub(crate) fn hello(node: &str) -> Hello {
    Hello {
        node: node.into(),
        boot_id: "boot".into(),
        address: "10.0.0.1:5310".into(),
        nic_bits_per_second: 0,
    }
}

impl Network {
    fn instance(&self, node: &str) -> InstanceId {
        let mut pairs = self.pairs.lock();
        let known = pairs.id(node);
        let long_ago = self.now() - 3_000 * SECOND;
        let join = || pairs.join(&format!("uid-{node}"), &hello(node), long_ago).0;
        known.unwrap_or_else(join)
    }

    pub(crate) fn set_nic(&self, node: &str, nic_bits_per_second: u64) {
        let hello = Hello {
            nic_bits_per_second,
            ..hello(node)
        };
        let mut pairs = self.pairs.lock();
        pairs.join(&format!("uid-{node}"), &hello, self.now());
    }

    /// Sets what is measured between two nodes, by a report of the first one in the alphabet, and
    /// for directions that differ also by one of the other.
    pub(crate) fn set(&self, a: &str, b: &str, measurement: Measurement) {
        self.set_from(a.min(b), a.max(b), measurement);
    }

    /// Sets what the node `a` measures to `b`.
    fn set_from(&self, a: &str, b: &str, measurement: Measurement) {
        let (from, to) = (self.instance(a), self.instance(b));
        let now = self.now();
        let pair = |of: InstanceId| {
            let pairs = self.pairs.lock();
            let instance = pairs.get(of).unwrap();
            Pair {
                node: instance.node.to_string(),
                instance: instance.name.to_string(),
                ..Pair::default()
            }
        };
        let report = |from: InstanceId, pair: Pair, at: Duration| {
            let refused = self.pairs.lock().report(from, &[pair], at);
            assert!(refused.is_empty(), "{refused:?}");
        };
        let nanos = |time: Duration| (time.as_nanos() as u64).max(1);
        let (stats, state) = match measurement {
            Measurement::Fresh(stats) => (stats, State::Measured),
            Measurement::Stale(stats) => (stats, State::Stale),
            Measurement::Unreachable {
                since,
                rarely_probed,
            } => {
                let lost = Pair {
                    state: State::Unreachable.into(),
                    refresh_millis: if rarely_probed { 30_000 } else { 5_000 },
                    ..pair(to)
                };
                report(from, lost.clone(), now - since - SECOND / 2);
                return report(from, lost, now);
            }
            Measurement::Missing => panic!("a pair cannot be forgotten"),
        };
        let late = SECOND / 2 * u32::from(state == State::Stale);
        let mut windows: Vec<u64> = stats.windows.iter().map(|w| nanos(*w)).collect();
        if windows.is_empty() {
            windows.push(nanos(stats.median));
        }
        let measured = Pair {
            state: state.into(),
            window_nanos: windows,
            p50_nanos: nanos(stats.p50),
            p95_nanos: nanos(stats.p95),
            samples: stats.samples.max(1),
            age_millis: (stats.age + late).as_millis() as u32,
            refresh_millis: 60_000,
            connect: stats.connect,
            ..pair(to)
        };
        if stats.asymmetric {
            let half = Pair {
                window_nanos: measured.window_nanos.iter().map(|w| w / 2).collect(),
                p50_nanos: measured.p50_nanos / 2,
                node: pair(from).node,
                instance: pair(from).instance,
                ..measured.clone()
            };
            report(to, half, now);
        }
        report(from, measured, now);
    }

    /// Sets what a node measures to an address outside the cluster, which was added long ago.
    pub(crate) fn set_outside(&self, node: &str, place: &str, measurement: Measurement) {
        let address = {
            let mut pairs = self.pairs.lock();
            let id = pairs.id(place).unwrap();
            let address = pairs.get(id).unwrap().address.unwrap();
            pairs.remove_outside(place);
            address
        };
        let long_ago = self.now() - 3_000 * SECOND;
        self.pairs.lock().put_outside(place, address, long_ago);
        self.set_from(node, place, measurement);
    }

    /// Publishes a fit of one pair.
    pub(crate) fn set_estimate(&self, a: &str, b: &str, micros: f32) {
        let mut model = Model::new(Options::default());
        let ids = [a, b].map(|node| (self.instance(node), model.insert(node, Labels::default())));
        let [(_, from), (_, to)] = ids;
        model.observe(from, to, micros, None);
        let fit = PublishedFit::new(
            Arc::new(model.fit()),
            ids.into_iter().collect(),
            Instant::now(),
        );
        self.estimates.store(Some(Arc::new(fit)));
    }
}
