use std::time::Duration;

use tautline_core::index::Kind;
use tautline_runtime::cluster_store::ClusterStore;
use tokio_util::sync::CancellationToken;

use super::sleep::sleep;
use crate::network::{Network, pair_store::PairCounts};

const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// The number of instances that are swept under one lock, for which requests wait.
const INSTANCES_PER_LOCK: usize = 128;
const NODE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The taint of a node whose kubelet has not reported for some 40 s.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

pub(super) async fn sweep_pairs(network: Network, stop: CancellationToken) {
    while sleep(&stop, SWEEP_INTERVAL).await {
        sweep(&network);
        if let Some(fit) = network.estimates.load().as_ref() {
            network.metrics.fit_age_seconds.set(fit.age().as_secs_f64());
        }
    }
}

fn sweep(network: &Network) {
    let ids = network.pairs.lock().ids();
    let mut all = PairCounts::default();
    for some in ids.chunks(INSTANCES_PER_LOCK) {
        let (counts, gone) = network.pairs.lock().sweep(some, network.pairs.now());
        network.sessions.close(&gone);
        all.fresh += counts.fresh;
        all.unreachable += counts.unreachable;
        all.stale += counts.stale;
        all.asymmetric += counts.asymmetric;
        all.connect += counts.connect;
    }
    network.metrics.set_pairs(all);
}

pub(super) async fn follow_nodes(network: Network, store: ClusterStore, stop: CancellationToken) {
    let mut changes = store.changes_except_pods();
    let mut last = None;
    loop {
        let now = *changes.borrow_and_update();
        if last.is_none_or(|last| now.changed(&last, &[Kind::Node])) {
            let nodes = store.snapshot();
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
            network.sessions.close(&gone);
            last = Some(now);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
        if !sleep(&stop, NODE_CHECK_INTERVAL).await {
            return;
        }
    }
}
