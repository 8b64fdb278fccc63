//! The parts that measure, as tasks of a provider's process.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use tautline_core::index::Kind;
use tautline_runtime::{admin::Readiness, tasks::Tasks, tls::FileChanges};
use tautline_sdk::Server;
use tokio_util::sync::CancellationToken;

use crate::{
    agents::Service,
    assign, fitting,
    identity::Identity,
    keys::{self, Keys},
    ledger::Tally,
    network::Network,
};

/// What readiness calls the wait for agents.
const AGENTS: &str = "agents";
/// How often what is too old is dropped, and pairs are counted.
const SWEEP: Duration = Duration::from_secs(10);
/// Instances swept under one lock.
const AT_ONCE: usize = 128;
/// Between two looks whether nodes are still the same.
const LOOK: Duration = Duration::from_secs(1);

/// Agents and what becomes of their reports.
#[derive(Clone, Debug)]
pub struct Measuring {
    pub network: Network,
    pub identity: Identity,
    pub keys: Keys,
    /// The file that the keys came from: they follow it.
    pub key_file: Option<PathBuf>,
}

impl Measuring {
    /// Serves agents beside the provider, from when the server is ready.
    pub fn serve(self, server: &mut Server, tasks: &mut Tasks) {
        let Self {
            network,
            identity,
            keys,
            key_file,
        } = self;
        let stop = tasks.stop_token();
        network.0.metrics.register(&mut server.registry);
        if identity.trust || identity.certificates || identity.tokens.is_some() {
            server.readiness.expect(AGENTS);
            let (net, end, ready) = (network.clone(), stop.clone(), server.readiness.clone());
            tasks.spawn("agents", async move {
                if agents(&net, &end, &ready).await {
                    ready.done(AGENTS);
                }
                // A task that ends ends the process.
                end.cancelled().await;
                Ok(())
            });
        }
        let service = Service::new(network.clone(), identity, keys.clone(), stop.clone());
        server.add_service(service);

        let (net, end) = (network.clone(), stop.clone());
        tasks.spawn("targets", async move {
            assign::follow(net, end).await;
            Ok(())
        });
        let (net, end) = (network.clone(), stop.clone());
        tasks.spawn("measurements", async move {
            sweep(net, end).await;
            Ok(())
        });
        let (net, end) = (network.clone(), stop.clone());
        tasks.spawn("measured nodes", async move {
            nodes(net, end).await;
            Ok(())
        });
        let (net, end, ready) = (network.clone(), stop.clone(), server.readiness.clone());
        tasks.spawn("fitting", async move {
            tokio::select! { () = end.cancelled() => return Ok(()), () = ready.wait() => {} }
            let fitting = tokio::task::spawn_blocking(move || fitting::run(&net, &end));
            fitting.await.context("the fitting thread")
        });
        if let Some(file) = key_file {
            tasks.spawn("echo key", follow_keys(network, keys, file, stop));
        }
    }
}

async fn tick(stop: &CancellationToken, every: Duration) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        () = tokio::time::sleep(every) => true,
    }
}

/// Waits until what the agents tell stands for the cluster, or for long enough;
/// false if told to stop. It counts once the rest is ready: before, no node is known.
async fn agents(network: &Network, stop: &CancellationToken, ready: &Readiness) -> bool {
    let last = tokio::time::Instant::now() + network.0.settings.agents_within;
    while tokio::time::Instant::now() < last {
        let rest = ready.missing().iter().all(|name| name == AGENTS);
        if rest && network.has_agents() {
            return true;
        }
        if !tick(stop, LOOK.min(network.0.settings.agents_within)).await {
            return false;
        }
    }
    true
}

async fn sweep(network: Network, stop: CancellationToken) {
    while tick(&stop, SWEEP).await {
        network.sweep();
        if let Some(fitted) = network.0.fitted.load().as_ref() {
            let age = fitted.age().as_secs_f64();
            network.0.metrics.fit_age_seconds.set(age);
        }
    }
}

async fn nodes(network: Network, stop: CancellationToken) {
    let mut changes = network.0.feed.changes_except_pods();
    let mut last = None;
    loop {
        let now = *changes.borrow_and_update();
        if last.is_none_or(|last| now.changed(&last, &[Kind::Node])) {
            network.keep_nodes();
            last = Some(now);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
        if !tick(&stop, LOOK).await {
            return;
        }
    }
}

async fn follow_keys(
    network: Network,
    keys: Keys,
    file: PathBuf,
    stop: CancellationToken,
) -> Result<()> {
    let mut changes = FileChanges::new(vec![file.clone()]);
    while changes.next(&stop).await {
        match keys.reload(&file) {
            Ok(()) => {
                Service::rekeyed(&network);
                if !tick(&stop, keys::SETTLING).await {
                    break;
                }
                keys.settle();
                Service::rekeyed(&network);
                if !tick(&stop, keys::SETTLING).await {
                    break;
                }
                keys.drop_old();
                Service::rekeyed(&network);
                tracing::info!(file = %file.display(), "echo key replaced");
            }
            Err(error) => tracing::warn!("{error}; keeping the old echo key"),
        }
    }
    Ok(())
}

impl Network {
    /// Whether four fifths of the nodes have an agent that is connected.
    fn has_agents(&self) -> bool {
        let nodes = self.0.feed.snapshot().node_count();
        let agents = self.agents();
        agents.saturating_mul(5) >= nodes.saturating_mul(4)
    }

    /// Drops what is too old, and counts the rest.
    pub(crate) fn sweep(&self) -> Tally {
        let ids = self.0.ledger.lock().ids();
        let mut all = Tally::default();
        for some in ids.chunks(AT_ONCE) {
            let (tally, gone) = self.0.ledger.lock().sweep(some, self.now());
            self.unseat(&gone);
            all.fresh += tally.fresh;
            all.unreachable += tally.unreachable;
            all.old += tally.old;
            all.apart += tally.apart;
            all.connect += tally.connect;
        }
        self.0.metrics.tally(all);
        all
    }

    /// Drops the instances whose nodes are not there any more.
    pub(crate) fn keep_nodes(&self) {
        let nodes = self.0.feed.snapshot();
        let same = |name: &str, uid: &str| nodes.node(name).is_some_and(|n| *n.uid == *uid);
        let gone = self.0.ledger.lock().keep(same);
        self.unseat(&gone);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::Settings;

    fn feed_of(nodes: &[&str]) -> tautline_runtime::cluster_store::ClusterStore {
        let feed = tautline_runtime::cluster_store::ClusterStore::default();
        for name in nodes {
            feed.apply(tautline_core::index::Object::Node(
                tautline_core::model::Node {
                    name: (*name).into(),
                    uid: (*name).into(),
                    ..tautline_core::model::Node::default()
                },
            ));
        }
        feed
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_for_its_agents_but_not_for_ever() {
        let (stop, ready) = (CancellationToken::new(), Readiness::default());
        ready.expect(AGENTS);
        let network = Network::new(feed_of(&["a", "b"]), Settings::default());
        let hello = |node: &str| tautline_proto::latency::Hello {
            node: node.into(),
            boot_id: "boot".into(),
            address: "10.0.0.1:5310".into(),
            nic_bits_per_second: 0,
        };
        let began = tokio::time::Instant::now();
        let _a = network.seat(&hello("a")).unwrap();
        assert!(!network.has_agents(), "one of two");
        assert!(agents(&network, &stop, &ready).await);
        assert!(began.elapsed() >= Settings::default().agents_within);
        let again = tokio::time::Instant::now();
        let b = network.seat(&hello("b")).unwrap();
        assert!(agents(&network, &stop, &ready).await);
        assert_eq!(again.elapsed(), Duration::ZERO);
        stop.cancel();
        drop(b);
        assert!(!agents(&network, &stop, &ready).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_echo_key_is_told_thrice_and_a_poor_one_never() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "0123456789abcdef").unwrap();
        let keys = Keys::from_file(&path).unwrap();
        let old = keys.between("i", "r");
        let (network, stop) = (Network::default(), CancellationToken::new());
        let follower = follow_keys(network.clone(), keys.clone(), path.clone(), stop.clone());
        let follower = tokio::spawn(follower);
        tokio::task::yield_now().await;

        std::fs::write(&path, "short").unwrap();
        tokio::time::sleep(keys::SETTLING).await;
        assert_eq!(network.0.epoch.load(Ordering::Relaxed), 0);

        std::fs::write(&path, "fedcba9876543210").unwrap();
        let epoch = async |wanted| {
            let deadline = tokio::time::Instant::now() + keys::SETTLING * 6;
            while network.0.epoch.load(Ordering::Relaxed) < wanted {
                assert!(tokio::time::Instant::now() < deadline, "not told");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        epoch(1).await;
        assert_eq!(keys.of_responder("r").len(), 2);
        assert_eq!(keys.between("i", "r"), old);
        epoch(2).await;
        assert_ne!(keys.between("i", "r"), old);
        epoch(3).await;
        assert_eq!(keys.of_responder("r").len(), 1, "the old one is out");
        stop.cancel();
        follower.await.unwrap().unwrap();
    }
}
