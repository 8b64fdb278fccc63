use std::sync::Arc;

use tautline_core::{index::Object, model};
use tautline_proto::latency::{Hello, Pair, State};
use tautline_runtime::cluster_store::ClusterStore;

use super::*;
use crate::network::sessions::{AgentSession, MAX_QUEUED_ORDERS};

const SHORT: Duration = Duration::from_millis(60);

/// A network with an agent on each of these nodes.
fn with(names: &[&str]) -> (Arc<Network>, Vec<AgentSession>) {
    let store = ClusterStore::default();
    let network = Network::new(store.clone(), false);
    let open = |name: &&str| {
        store.apply(Object::Node(model::Node {
            name: (*name).into(),
            uid: format!("uid-{name}").into(),
            ..model::Node::default()
        }));
        let hello = Hello {
            node: (*name).into(),
            boot_id: "boot".into(),
            address: "10.0.0.1:5310".into(),
            ..Hello::default()
        };
        network.open_session(&hello).unwrap()
    };
    let sessions = names.iter().map(open).collect();
    (network, sessions)
}

/// The targets of an agent's next probe.
fn ordered_nodes(session: &mut AgentSession) -> Option<Vec<InstanceId>> {
    match session.orders.try_recv().ok()?.what {
        Measure::Probe { targets, .. } => Some(targets),
        Measure::Transfer { .. } => None,
    }
}

#[tokio::test]
async fn nodes_without_agents_are_not_probed() {
    let (network, mut sessions) = with(&["a", "b", "c"]);
    let (c, b) = (sessions.pop().unwrap(), sessions[1].id);
    drop(c);
    network.probe("a", &["b", "c"], 1, SHORT).await;
    assert_eq!(ordered_nodes(&mut sessions[0]), Some(vec![b]));
    // No agent is left to probe: no order is sent.
    assert!(network.probe("a", &["c"], 1, SHORT).await.is_empty());
    assert_eq!(ordered_nodes(&mut sessions[0]), None);
}

#[tokio::test]
async fn pair_without_an_answer_is_paused_until_a_report() {
    let (network, mut sessions) = with(&["a", "b"]);
    let b = sessions[1].id;
    network.probe("a", &["b"], 1, SHORT).await;
    assert_eq!(ordered_nodes(&mut sessions[0]), Some(vec![b]));
    let at = network.now();
    network.probe("a", &["b"], 1, SHORT).await;
    network.probe("b", &["a"], 1, SHORT).await;
    assert_eq!(
        (
            ordered_nodes(&mut sessions[0]),
            ordered_nodes(&mut sessions[1])
        ),
        (None, None)
    );
    let paused = |now| {
        let store = network.pairs.lock();
        network.is_paused(&store, sessions[0].id, b, now)
    };
    assert!(paused(at) && !paused(at + UNANSWERED_PAUSE));
    let late = Pair {
        node: "b".into(),
        instance: "uid-b/boot".into(),
        state: State::Measured.into(),
        window_nanos: vec![9],
        p50_nanos: 9,
        p95_nanos: 9,
        samples: 1,
        ..Pair::default()
    };
    let refused = network
        .pairs
        .lock()
        .report(sessions[0].id, &[late], network.now());
    assert_eq!((refused.len(), paused(network.now())), (0, false));
    network.probe("a", &["b"], 1, SHORT).await;
    assert_eq!(ordered_nodes(&mut sessions[0]), Some(vec![b]));
}

#[tokio::test]
async fn nodes_probe_only_for_a_peer_without_an_agent() {
    let (network, mut sessions) = with(&["a", "b"]);
    let busy: Vec<_> = (0..MAX_QUEUED_ORDERS)
        .map(|_| network.order(sessions[0].id, transfer(sessions[1].id), SHORT))
        .collect();
    assert!(busy.iter().all(Option::is_some));
    network.probe("a", &["b"], 1, SHORT).await;
    assert_eq!(
        ordered_nodes(&mut sessions[1]),
        None,
        "a is there, and busy"
    );
    drop(busy);
    let a = sessions.remove(0).id;
    network.probe("a", &["b"], 1, SHORT).await;
    assert_eq!(ordered_nodes(&mut sessions[0]), Some(vec![a]));
}

impl Network {
    /// Orders a probe of any targets; returns whether it was answered.
    pub(crate) async fn order_probe(
        &self,
        of: &str,
        targets: Vec<InstanceId>,
        within: Duration,
    ) -> bool {
        let of = self.pairs.lock().id(of);
        let samples = 1;
        let what = Measure::Probe { targets, samples };
        match of.and_then(|of| self.order(of, what, within)) {
            Some(answer) => answer.await.is_ok(),
            None => false,
        }
    }
}

fn transfer(to: InstanceId) -> Measure {
    Measure::Transfer { to, max_bytes: 1 }
}
