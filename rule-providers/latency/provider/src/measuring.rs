//! The tasks behind the service for agents: readiness, target lists, clean-up and fitting.

use std::{sync::Arc, time::Duration};

use tautline_agent_link::AgentAuth;
use tautline_core::index::Kind;
use tautline_runtime::{admin::Readiness, tasks::Tasks};
use tautline_sdk::Server;
use tokio::time::{sleep, timeout};

use crate::{
    agents::{AgentService, keys::EchoKeys},
    fitting,
    network::{Network, pair_store::PairCounts},
};

const AGENTS: &str = "agents";
const READINESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The usual wait for agents, which reconnect within half a minute plus jitter.
pub const AGENTS_WITHIN: Duration = Duration::from_secs(45);
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// The number of instances that are swept under one lock, for which requests wait.
const INSTANCES_PER_LOCK: usize = 128;
const NODE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The taint of a node whose kubelet has not reported for some 40 s.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The service for agents: it receives their reports, sends them targets, and fits the model.
#[derive(Clone, Debug)]
pub struct Measuring {
    /// The network that receives reports and estimates.
    pub network: Arc<Network>,
    /// The accepted proofs of an agent's identity. Without any, readiness does not wait for agents.
    pub auth: AgentAuth,
    /// The keys of echoes, which agents receive.
    pub keys: EchoKeys,
    /// The number of nodes that each node measures, in addition to those that rules name.
    pub targets: usize,
    /// The longest wait for agents: the provider is ready once four fifths of the nodes have one,
    /// or after this time.
    pub agents_within: Duration,
}

impl Measuring {
    /// Adds the agents' service and metrics to the server, and starts all tasks.
    pub fn serve(self, server: &mut Server, tasks: &mut Tasks) {
        let Self {
            network,
            auth,
            keys,
            targets,
            agents_within,
        } = self;
        let stop = tasks.stop_token();
        network.metrics.register("", &mut server.registry);
        if auth.is_configured() {
            server.readiness.expect(AGENTS);
            let (net, ready) = (Arc::clone(&network), server.readiness.clone());
            tasks.spawn_until_stop("agents", async move {
                wait_for_agents(&net, agents_within, &ready).await;
                ready.done(AGENTS);
                // The end of a task ends the process.
                std::future::pending::<()>().await
            });
        }
        let net = Arc::clone(&network);
        server.add_service(AgentService::new(net, auth, keys, stop.clone()));
        let net = Arc::clone(&network);
        tasks.spawn_until_stop("targets", async move { net.keep_lists().await });
        let net = Arc::clone(&network);
        tasks.spawn_until_stop("names outside", async move { net.resolve_names().await });
        let net = Arc::clone(&network);
        tasks.spawn_until_stop("measurements", async move {
            loop {
                sleep(SWEEP_INTERVAL).await;
                sweep(&net);
            }
        });
        let net = Arc::clone(&network);
        tasks.spawn_until_stop("measured nodes", async move { follow_nodes(&net).await });
        let (end, ready) = (stop, server.readiness.clone());
        tasks.spawn("fitting", async move {
            if end.run_until_cancelled(ready.wait()).await.is_some() {
                fitting::run(network, targets, &end).await;
            }
            Ok(())
        });
    }
}

/// Waits until four fifths of the nodes have an agent, or for `within`. Agents count once
/// everything else is ready: before that, no node is known.
async fn wait_for_agents(network: &Network, within: Duration, ready: &Readiness) {
    let is_ready = || {
        let rest = ready.missing().iter().all(|name| name == AGENTS);
        rest && network.agents_cover_cluster()
    };
    let wait = async {
        while !is_ready() {
            sleep(READINESS_CHECK_INTERVAL).await;
        }
    };
    _ = timeout(within, wait).await;
}

/// Removes expired pairs and instances, and sets the metrics of the pairs that are left.
fn sweep(network: &Network) {
    let ids = network.pairs.lock().ids();
    let mut all = PairCounts::default();
    for some in ids.chunks(INSTANCES_PER_LOCK) {
        let gone = network.pairs.lock().sweep(some, network.now(), &mut all);
        network.close_sessions(&gone);
    }
    network.metrics.set_pairs(all);
    if let Some(fit) = network.estimates.load().as_ref() {
        let age = fit.at.elapsed().as_secs_f64();
        network.metrics.fit_age_seconds.set(age);
    }
}

/// Removes the measurements of nodes that no longer exist, and marks the nodes that are down.
async fn follow_nodes(network: &Network) {
    let mut changes = network.store.changes_except_pods();
    let mut last = None;
    loop {
        let now = *changes.borrow_and_update();
        if last.is_none_or(|last| now.changed(&last, &[Kind::Node])) {
            let nodes = network.store.snapshot();
            let exists = |name: &str, uid: &str| nodes.node(name).is_some_and(|n| *n.uid == *uid);
            let is_down = |name: &str| {
                let taints = nodes.node(name).map(|n| n.taints.iter());
                taints.is_some_and(|mut all| all.any(|t| t.key == UNREACHABLE))
            };
            let gone = {
                let mut pairs = network.pairs.lock();
                pairs.set_down(is_down);
                pairs.retain_nodes(exists)
            };
            network.close_sessions(&gone);
            last = Some(now);
        }
        if changes.changed().await.is_err() {
            return;
        }
        sleep(NODE_CHECK_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use tautline_core::{index::Object, model};
    use tautline_proto::latency::Hello;
    use tautline_runtime::cluster_store::ClusterStore;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn readiness_waits_for_agents_but_not_for_ever() {
        let ready = Readiness::default();
        ready.expect(AGENTS);
        let store = ClusterStore::default();
        for name in ["a", "b"] {
            store.apply(Object::Node(model::Node {
                name: name.into(),
                uid: name.into(),
                ..model::Node::default()
            }));
        }
        let network = Network::new(store, false);
        let hello = |node: &str| Hello {
            node: node.into(),
            boot_id: "boot".into(),
            address: "10.0.0.1:5310".into(),
            nic_bits_per_second: 0,
        };
        let began = Instant::now();
        let _a = network.open_session(&hello("a")).unwrap();
        assert!(!network.agents_cover_cluster(), "one of two");
        wait_for_agents(&network, AGENTS_WITHIN, &ready).await;
        assert!(began.elapsed() >= AGENTS_WITHIN);
        let again = Instant::now();
        let _b = network.open_session(&hello("b")).unwrap();
        wait_for_agents(&network, AGENTS_WITHIN, &ready).await;
        assert_eq!(again.elapsed(), Duration::ZERO);
    }
}
