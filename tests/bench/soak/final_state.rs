//! After the load: pods that stay pending, and reservations that stay.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::{
    cluster::Cluster,
    faults::Faults,
    kinds::{CARDS, GPU_NODES, Kind, WHOLE},
    load::{self, SharedChecker},
};

/// Time for pending pods to be placed.
const SETTLES: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(250);
/// The metric's lag.
const BEHIND: Duration = Duration::from_secs(2);
/// During the load a pod is stuck after this time with room for it.
pub const STUCK: Duration = Duration::from_secs(180);

pub struct FinalState {
    /// Pods that waited though nodes had room, with these nodes.
    pub stuck: Vec<String>,
    /// Reservations that stayed, and cards that could not be allocated again.
    pub leaked: Vec<String>,
}

/// Pending pods that fit a node.
pub fn stuck(checker: &SharedChecker, faults: &Faults, seed: u64, longer: Duration) -> Vec<String> {
    let checker = checker.lock();
    let one = |pod: &crate::checker::PodState| {
        let hosts = checker.hosts(pod.kind, seed, faults.clock());
        let waited = pod.since.elapsed();
        (!hosts.is_empty()).then(|| format!("{} waits {waited:.0?}, {hosts:?}", pod.name))
    };
    checker.pending(longer).filter_map(one).collect()
}

pub async fn run(
    cluster: &Cluster,
    checker: &SharedChecker,
    faults: &Faults,
    seed: u64,
) -> Result<FinalState> {
    eprintln!("the load has ended; waiting for the pods that wait ...");
    let none = || checker.lock().pending(Duration::ZERO).count() == 0;
    until(SETTLES, async || none()).await;
    let stuck = stuck(checker, faults, seed, Duration::ZERO);
    eprintln!("deleting all ...");
    let mut leaked = emptied(cluster, checker).await;
    eprintln!("giving every card once more ...");
    let whole = Kind::of(WHOLE).map_or(&crate::kinds::KINDS[0], |kind| kind);
    let cards = GPU_NODES * CARDS as usize;
    for i in 0..cards {
        load::create(&cluster.client, whole, &format!("again-{i}")).await;
    }
    let given = || {
        let checker = checker.lock();
        checker.pods.values().filter(|p| p.node.is_some()).count()
    };
    if !until(SETTLES, async || given() == cards).await {
        leaked.push(format!("{} of {cards} cards can be given again", given()));
    }
    leaked.extend(emptied(cluster, checker).await);
    Ok(FinalState { stuck, leaked })
}

/// Deletes all pods; returns leaked reservations.
async fn emptied(cluster: &Cluster, checker: &SharedChecker) -> Vec<String> {
    let reaping = load::reap(cluster.client.clone(), checker.clone(), true);
    let gone = until(SETTLES, async || checker.lock().pods.is_empty());
    let gone = tokio::select! {
        () = reaping => false,
        gone = gone => gone,
    };
    if !gone {
        return vec!["pods that were deleted are still there".into()];
    }
    let mut since = None::<Instant>;
    let free = until(SETTLES, async || {
        if cluster.reserved().await != Some(0.0) {
            since = None;
            return false;
        }
        since.get_or_insert_with(Instant::now).elapsed() >= BEHIND
    });
    match free.await {
        true => Vec::new(),
        false => vec![format!(
            "{:?} reservations without a pod",
            cluster.reserved().await
        )],
    }
}

async fn until(limit: Duration, mut check: impl AsyncFnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if check().await {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
}
