mod cleanup;
mod key_rotation;
mod sleep;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use tautline_agent_link::AgentAuth;
use tautline_runtime::{admin::Readiness, cluster_store::ClusterStore, tasks::Tasks};
use tautline_sdk::Server;
use tokio_util::sync::CancellationToken;

use crate::{
    agents::{AgentService, keys::EchoKeys},
    fitting::{self, FitContext, FitSettings},
    network::Network,
};
use sleep::sleep;

const AGENTS: &str = "agents";
const READINESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The usual wait for agents, which reconnect within half a minute plus jitter.
pub const AGENTS_WITHIN: Duration = Duration::from_secs(45);

/// The service for agents: it receives their reports, sends them targets, and fits the model.
#[derive(Clone, Debug)]
pub struct Measuring {
    /// The store with the nodes of the cluster, the one that `network` uses.
    pub store: ClusterStore,
    /// The network that receives reports and estimates.
    pub network: Network,
    /// The accepted proofs of an agent's identity. Without any, readiness does not wait for agents.
    pub auth: AgentAuth,
    /// The keys of echoes, which agents receive.
    pub keys: EchoKeys,
    /// The file of `keys`, whose changes rotate them; with `None` they never change.
    pub key_file: Option<PathBuf>,
    /// The settings of predictions.
    pub fit: FitSettings,
    /// The longest wait for agents: the provider is ready once four fifths of the nodes have one,
    /// or after this time.
    pub agents_within: Duration,
}

impl Measuring {
    /// Adds the agents' service and metrics to the server, and starts all tasks.
    pub fn serve(self, server: &mut Server, tasks: &mut Tasks) {
        let Self {
            store,
            network,
            auth,
            keys,
            key_file,
            fit,
            agents_within,
        } = self;
        let stop = tasks.stop_token();
        network.metrics.register("", &mut server.registry);
        if auth.is_configured() {
            server.readiness.expect(AGENTS);
            let (net, end, ready) = (network.clone(), stop.clone(), server.readiness.clone());
            tasks.spawn("agents", async move {
                if wait_for_agents(&net, agents_within, &end, &ready).await {
                    ready.done(AGENTS);
                }
                // The end of a task ends the process.
                end.cancelled().await;
                Ok(())
            });
        }
        let service = AgentService::new(network.clone(), auth, keys.clone(), stop.clone());
        server.add_service(service);

        let (lists, end) = (network.lists.clone(), stop.clone());
        tasks.spawn("targets", async move {
            lists.run(end).await;
            Ok(())
        });
        let (net, end) = (network.clone(), stop.clone());
        tasks.spawn("measurements", async move {
            cleanup::sweep_pairs(net, end).await;
            Ok(())
        });
        let (net, nodes, end) = (network.clone(), store.clone(), stop.clone());
        tasks.spawn("measured nodes", async move {
            cleanup::follow_nodes(net, nodes, end).await;
            Ok(())
        });
        let context = FitContext::new(store, fit, &network);
        let (end, ready) = (stop.clone(), server.readiness.clone());
        tasks.spawn("fitting", async move {
            tokio::select! { () = end.cancelled() => return Ok(()), () = ready.wait() => {} }
            let thread = tokio::task::spawn_blocking(move || fitting::run(context, &end));
            thread.await.context("the fitting thread")
        });
        if let Some(file) = key_file {
            let rotation = key_rotation::follow_file(network.lists, keys, file, stop);
            tasks.spawn("echo key", rotation);
        }
    }
}

/// Waits until four fifths of the nodes have an agent, or for `within`; returns false if stopped.
/// Agents count once everything else is ready: before that, no node is known.
async fn wait_for_agents(
    network: &Network,
    within: Duration,
    stop: &CancellationToken,
    ready: &Readiness,
) -> bool {
    let last = tokio::time::Instant::now() + within;
    while tokio::time::Instant::now() < last {
        let rest = ready.missing().iter().all(|name| name == AGENTS);
        if rest && network.sessions.cover_cluster() {
            return true;
        }
        if !sleep(stop, READINESS_CHECK_INTERVAL.min(within)).await {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use tautline_core::{index::Object, model};
    use tautline_proto::latency::Hello;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn readiness_waits_for_agents_but_not_for_ever() {
        let (stop, ready) = (CancellationToken::new(), Readiness::default());
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
        let began = tokio::time::Instant::now();
        let _a = network.sessions.open(&hello("a")).unwrap();
        assert!(!network.sessions.cover_cluster(), "one of two");
        assert!(wait_for_agents(&network, AGENTS_WITHIN, &stop, &ready).await);
        assert!(began.elapsed() >= AGENTS_WITHIN);
        let again = tokio::time::Instant::now();
        let b = network.sessions.open(&hello("b")).unwrap();
        assert!(wait_for_agents(&network, AGENTS_WITHIN, &stop, &ready).await);
        assert_eq!(again.elapsed(), Duration::ZERO);
        stop.cancel();
        drop(b);
        assert!(!wait_for_agents(&network, AGENTS_WITHIN, &stop, &ready).await);
    }
}
