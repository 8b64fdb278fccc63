//! The facts of the reports: what is known about nodes and pairs.

use std::{sync::Arc, time::Instant};

use hashbrown::HashSet;
use tautline_agent_link::SilentAgents;
use tautline_core::Snapshot;
use tautline_sdk::Rule;

use super::model::{Basis, Direction, EffectiveRtt, End, Estimated, State};
use crate::{
    format::micros,
    location::{ZONE, location},
    measurement::Measurement,
    network::pair_store::Instance,
    provider::Latency,
    rules::{
        hysteresis::Bounds,
        pair_rtt::{Basis as RuleBasis, PairRtt, PeerRtts},
        pair_state::{ActivePair, Quantity},
    },
};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeZone {
    pub node: String,
    pub zone: Option<String>,
}

pub type RttFrom<'a> = &'a (dyn Fn(&str) -> EffectiveRtt + 'a);

pub trait ReportSource {
    fn nodes(&self) -> Vec<NodeZone>;
    fn end(&self, node: &str) -> Option<End>;
    /// Calls `visit` with the round-trip times to a node. The first look-up of a pair that is not
    /// measured is expensive.
    fn with_rtts_to(&self, to: &str, visit: &mut dyn FnMut(RttFrom<'_>));
    fn direction(&self, from: &str, to: &str) -> Direction;
    /// Returns the time of both directions combined, if there is a figure that is not too old.
    fn combined_micros(&self, a: &str, b: &str) -> Option<u64>;
    fn estimate(&self, a: &str, b: &str) -> Option<Estimated>;
    fn configured_micros(&self, from: &str, to: &str) -> Option<u64>;
    fn measured_with(&self, node: &str) -> Vec<Arc<str>>;
    /// Returns the pairs under active rules, in order.
    fn active_rules(&self) -> Vec<ActivePair>;
    fn silent_agents(&self) -> SilentAgents;
    fn effective_rtt(&self, from: &str, to: &str) -> EffectiveRtt {
        let mut rtt = EffectiveRtt::default();
        self.with_rtts_to(to, &mut |rtt_from| rtt = rtt_from(from));
        rtt
    }
}

impl ReportSource for Latency {
    fn nodes(&self) -> Vec<NodeZone> {
        let snapshot = self.network.store.snapshot();
        let mut places: Vec<NodeZone> = snapshot
            .nodes()
            .map(|n| NodeZone {
                node: n.name.to_string(),
                zone: n.labels.get(ZONE).map(str::to_owned),
            })
            .collect();
        places.sort_unstable();
        places
    }

    fn end(&self, node: &str) -> Option<End> {
        let snapshot = self.network.store.snapshot();
        let store = self.network.pairs.lock();
        let instance = store.id(node).and_then(|id| store.get(id));
        if instance.is_some_and(|i| i.is_outside) {
            return Some(End {
                node: node.to_owned(),
                outside: true,
                ..End::default()
            });
        }
        let known = snapshot.node(node)?;
        Some(End {
            node: node.to_owned(),
            zone: known.labels.get(ZONE).map(str::to_owned),
            uid: known.uid.to_string(),
            boot: instance.map(|i| i.boot.to_string()),
            agent: instance.is_some_and(Instance::has_agent),
            outside: false,
        })
    }

    fn with_rtts_to(&self, to: &str, visit: &mut dyn FnMut(RttFrom<'_>)) {
        let (snapshot, tables) = (self.network.store.snapshot(), self.tables.load());
        let row = self.network.row(to);
        let rtts = PeerRtts::new(location(&snapshot, to), tables.for_namespace(None), row);
        visit(&|from| effective(rtts.from(location(&snapshot, from))));
    }

    fn direction(&self, from: &str, to: &str) -> Direction {
        let direction = Direction {
            from: from.to_owned(),
            to: to.to_owned(),
            ..Direction::default()
        };
        let store = self.network.pairs.lock();
        let (Some(a), Some(b)) = (store.id(from), store.id(to)) else {
            return direction;
        };
        let (measurement, interval) = store.direction(a, b, self.network.now());
        drop(store);
        let (state, stats) = match measurement {
            Measurement::Missing => return direction,
            Measurement::Unreachable { since, .. } => {
                return Direction {
                    state: State::Unreachable,
                    unreachable_micros: Some(micros(since)),
                    refresh_micros: interval.map(micros),
                    ..direction
                };
            }
            Measurement::Fresh(stats) => (State::Measured, stats),
            Measurement::Stale(stats) => (State::Stale, stats),
        };
        Direction {
            state,
            median_micros: Some(micros(stats.median)),
            window_micros: stats.windows.iter().copied().map(micros).collect(),
            p50_micros: Some(micros(stats.p50)),
            p95_micros: Some(micros(stats.p95)),
            samples: stats.samples,
            age_micros: Some(micros(stats.age)),
            refresh_micros: interval.map(micros),
            by_connect: stats.connect,
            ..direction
        }
    }

    fn combined_micros(&self, a: &str, b: &str) -> Option<u64> {
        match self.network.measurement(a, b) {
            Measurement::Fresh(stats) | Measurement::Stale(stats) => Some(micros(stats.median)),
            Measurement::Unreachable { .. } | Measurement::Missing => None,
        }
    }

    fn estimate(&self, a: &str, b: &str) -> Option<Estimated> {
        self.network.row(b).estimate(a).map(|e| Estimated {
            rtt_micros: e.micros.round() as u64,
            low_micros: e.low.round() as u64,
            high_micros: e.high.round() as u64,
        })
    }

    fn configured_micros(&self, from: &str, to: &str) -> Option<u64> {
        let (snapshot, tables) = (self.network.store.snapshot(), self.tables.load());
        let rows = tables.for_namespace(None).rows_to(location(&snapshot, to));
        rows.from(location(&snapshot, from)).map(|row| row.value)
    }

    fn measured_with(&self, node: &str) -> Vec<Arc<str>> {
        let store = self.network.pairs.lock();
        let id = store.id(node);
        id.map(|id| store.measured_nodes(id)).unwrap_or_default()
    }

    fn active_rules(&self) -> Vec<ActivePair> {
        let snapshot = self.network.store.snapshot();
        let rules = rules_of_offers(&snapshot);
        let has_rule = |quantity: Quantity, bounds| rules.contains(&(quantity.rule(), bounds));
        let mut active = self.states.active(Instant::now(), has_rule);
        active.sort_unstable();
        active
    }

    fn silent_agents(&self) -> SilentAgents {
        let (snapshot, now) = (self.network.store.snapshot(), self.network.now());
        let store = self.network.pairs.lock();
        SilentAgents::new(snapshot.nodes().filter_map(|node| {
            let agent = store.id(&node.name).and_then(|id| store.get(id));
            let silent = match agent {
                Some(agent) => Some(agent.silence(now)?),
                None => None,
            };
            Some((&*node.name, silent))
        }))
    }
}

fn effective(rtt: PairRtt) -> EffectiveRtt {
    match rtt {
        PairRtt::SameNode => EffectiveRtt::new(Basis::Same, 0),
        PairRtt::Unreachable { .. } => EffectiveRtt {
            basis: Basis::Unreachable,
            rtt_micros: None,
        },
        PairRtt::Unknown => EffectiveRtt::default(),
        PairRtt::Rtt { micros, basis } => {
            let basis = match basis {
                RuleBasis::Configured => Basis::Configured,
                RuleBasis::Measured | RuleBasis::Verified | RuleBasis::Connect => Basis::Measured,
                RuleBasis::Estimated { .. } => Basis::Estimated,
                RuleBasis::Old { .. } => Basis::Old,
            };
            EffectiveRtt::new(basis, micros)
        }
    }
}

/// Returns the names and bounds of the rules of all offers.
fn rules_of_offers(snapshot: &Snapshot) -> HashSet<(&str, Bounds)> {
    let policies = snapshot.offers().flat_map(|entry| {
        let names = entry.offer.policies.iter();
        names.filter_map(|name| snapshot.policy(&entry.offer.namespace, name))
    });
    let rules = policies
        .flat_map(|policy| &policy.rules)
        .filter_map(|rule| {
            let bounds = Bounds::of_rule(&Rule {
                name: rule.name.to_string(),
                request: rule.request.clone(),
                limit: rule.limit.clone(),
            });
            Some((&*rule.name, bounds.ok()?))
        });
    rules.collect()
}

#[cfg(test)]
mod tests {
    use tautline_core::{index::Object, model};
    use tautline_proto::latency::{self, Hello, Pair};
    use tautline_runtime::cluster_store::ClusterStore;
    use tautline_sdk::{EvaluationRequest, Reference, RuleProvider};

    use super::*;
    use crate::{
        Table,
        network::Network,
        report::{MatrixReport, PairReport, TopReport},
    };

    /// Nodes a1 and a2 in zone a, b1 in zone b; agents on a1 and b1, which measured
    /// each other; and a table for zone a.
    fn provider() -> Latency {
        let store = ClusterStore::default();
        for (node, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
            store.apply(Object::Node(model::Node {
                name: node.into(),
                uid: format!("uid-{node}").into(),
                labels: [(ZONE, zone)].into_iter().collect(),
                ..model::Node::default()
            }));
        }
        let network = Network::new(store, false);
        let now = network.now();
        {
            let mut pairs = network.pairs.lock();
            let mut join = |node: &str| {
                let hello = Hello {
                    node: node.to_owned(),
                    boot_id: "boot".to_owned(),
                    ..Hello::default()
                };
                pairs.join(&format!("uid-{node}"), &hello, now).0
            };
            let [a1, b1] = ["a1", "b1"].map(&mut join);
            for (from, to, nanos) in [(a1, "b1", 12_000_000), (b1, "a1", 15_000_000)] {
                let pair = Pair {
                    node: to.to_owned(),
                    instance: format!("uid-{to}/boot"),
                    state: latency::State::Measured.into(),
                    window_nanos: vec![nanos; 3],
                    p50_nanos: nanos,
                    p95_nanos: nanos * 2,
                    samples: 60,
                    refresh_millis: 30_000,
                    ..Pair::default()
                };
                assert!(pairs.report(from, &[pair], now).is_empty());
            }
        }
        let trusted = tautline_core::TrustedNamespaces::all();
        let provider = Latency::with_network(network).with_trusted(trusted);
        let mut table = Table::default();
        table.add("a,a,200us").unwrap();
        provider.set_table(table);
        provider
    }

    #[tokio::test]
    async fn reports_show_measurements_and_active_rules() {
        let provider = provider();
        let pair = PairReport::of(&provider, "a1", "b1").unwrap();
        assert_eq!(pair.effective, EffectiveRtt::new(Basis::Measured, 15_000));
        assert_eq!(
            (pair.from.uid.as_str(), pair.from.boot.as_deref()),
            ("uid-a1", Some("boot"))
        );
        assert!(pair.from.agent && pair.to.agent);
        let [there, back] = pair.directions.as_slice() else {
            panic!("{pair:?}");
        };
        assert_eq!(
            (there.state, there.median_micros),
            (State::Measured, Some(12_000))
        );
        assert_eq!(
            (back.p95_micros, back.refresh_micros),
            (Some(30_000), Some(30_000_000))
        );
        assert_eq!(
            (pair.combined_micros, pair.apart),
            (Some(15_000), Some(0.25))
        );

        let other = PairReport::of(&provider, "a2", "a1").unwrap();
        assert_eq!(other.effective, EffectiveRtt::new(Basis::Configured, 200));
        assert_eq!(
            (other.from.agent, other.configured_micros),
            (false, Some(200))
        );
        let nothing = PairReport::of(&provider, "a2", "b1").unwrap();
        assert_eq!(nothing.effective, EffectiveRtt::default());

        let zones = MatrixReport::by_zone(&provider).unwrap();
        assert_eq!(zones.cells[0][1].measured_pairs, 1);
        assert_eq!(zones.cells[0][1].effective.rtt_micros, Some(15_000));
        assert_eq!(
            zones.cells[0][0].effective,
            EffectiveRtt::new(Basis::Configured, 200)
        );

        assert_eq!(TopReport::of(&provider, 9), TopReport::default());
        let rule = model::Rule {
            name: "latency".into(),
            request: "5ms".into(),
            limit: "20ms".into(),
            ..model::Rule::default()
        };
        provider.network.store.apply(Object::Policy(model::Policy {
            namespace: "shop".into(),
            name: "near".into(),
            rules: vec![rule],
        }));
        provider.network.store.apply(Object::Offer(model::Offer {
            namespace: "shop".into(),
            name: "o".into(),
            policies: vec!["near".into()],
            ..model::Offer::default()
        }));
        for targets in [["a1", "b1"], ["a1", "a2"]] {
            let target = |name: &str| {
                let reference = Reference {
                    kind: "Node".to_owned(),
                    name: name.to_owned(),
                    ..Reference::default()
                };
                (name.to_owned(), reference)
            };
            let evaluation_request = EvaluationRequest {
                targets: targets.into_iter().map(target).collect(),
                rule: Rule {
                    name: "latency".to_owned(),
                    request: "5ms".to_owned(),
                    limit: "20ms".to_owned(),
                },
                ..EvaluationRequest::default()
            };
            provider.evaluate(evaluation_request).await.unwrap();
        }
        let top = TopReport::of(&provider, 9);
        let rows: Vec<_> = top
            .pairs
            .iter()
            .map(|p| (p.to.as_str(), p.compliance.as_str()))
            .collect();
        assert_eq!(rows, [("b1", "Limit"), ("a2", "Compliant")]);
        assert_eq!(top.pairs[0].limit_share, Some(0.75));
        let pair = PairReport::of(&provider, "b1", "a1").unwrap();
        assert_eq!(pair.named_by[0].limit_micros, Some(20_000));

        let silent = |provider: &Latency| {
            let nodes = provider.silent_agents().nodes.into_iter();
            let known = nodes.map(|agent| (agent.node, agent.silent_seconds.is_some()));
            known.collect::<Vec<_>>()
        };
        assert_eq!(silent(&provider), [("a2".to_owned(), false)]);
        let (mut left, now) = (provider.network.pairs.lock(), provider.network.now());
        let id = left.id("b1").unwrap();
        // The sessions are numbered from 1.
        left.leave(id, 2, true, now);
        drop(left);
        let expected = [("b1".to_owned(), true), ("a2".to_owned(), false)];
        assert_eq!(silent(&provider), expected);
    }
}
