//! Creates pods at an even rate and deletes them at their end; changes the table of the scripted
//! provider.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::DeleteParams};
use parking_lot::Mutex;
use tautline_tests::objects::post;
use tokio::task::JoinSet;

use crate::{
    checker::Checker,
    cluster::zones,
    kinds::{KINDS, Kind, node_names},
};

/// Time between changes of the script's table.
const TABLE: Duration = Duration::from_secs(60);
/// Number of the twenty nodes that the script refuses.
const REFUSED: usize = 6;
/// With this many pending pods no more are created: the machine cannot follow.
const MOST_PENDING: usize = 150;
const AGAIN: Duration = Duration::from_millis(500);
/// Time for one request; a restarting API server takes several seconds.
const LIMIT: Duration = Duration::from_secs(10);

pub type SharedChecker = Arc<Mutex<Checker>>;

/// The pods of the load.
#[derive(Default)]
pub struct LoadResult {
    pub pods: usize,
    /// Not created, because too many were pending.
    pub held_back: usize,
}

/// Creates pods until the end.
pub async fn run(
    client: Client,
    checker: SharedChecker,
    per_second: f64,
    seed: u64,
    length: Duration,
) -> LoadResult {
    let (mut made, mut tasks) = (LoadResult::default(), JoinSet::new());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut tick = tokio::time::interval(Duration::from_secs_f64(1.0 / per_second));
    let start = Instant::now();
    while start.elapsed() < length {
        tick.tick().await;
        while tasks.try_join_next().is_some() {}
        let kind = drawn(&mut random);
        if checker.lock().pending(Duration::ZERO).count() >= MOST_PENDING {
            made.held_back += 1;
            continue;
        }
        made.pods += 1;
        let (client, name) = (client.clone(), format!("{}-{}", kind.name, made.pods));
        tasks.spawn(async move { create(&client, kind, &name).await });
    }
    while tasks.join_next().await.is_some() {}
    made
}

fn drawn(random: &mut fastrand::Rng) -> &'static Kind {
    let mut drawn = random.usize(0..KINDS.iter().map(|k| k.share).sum());
    for kind in &KINDS {
        if drawn < kind.share {
            return kind;
        }
        drawn -= kind.share;
    }
    &KINDS[0]
}

/// Creates a pod, with retries until the API server has it.
pub async fn create(client: &Client, kind: &Kind, name: &str) {
    let (path, pod) = ("/api/v1/namespaces/default/pods", kind.pod(name));
    loop {
        match tokio::time::timeout(LIMIT, post(client, path, &pod)).await {
            // 409: the answer to the last request was lost.
            Ok(Ok(response)) if matches!(response.status, 201 | 409) => return,
            _ => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Deletes pods at their end, or all at once, until it is dropped.
pub async fn reap(client: Client, checker: SharedChecker, all: bool) {
    let pods: Api<Pod> = Api::default_namespaced(client);
    let gracefully = DeleteParams::default();
    loop {
        tokio::time::sleep(AGAIN / 2).await;
        let now = Instant::now();
        let over: Vec<String> = checker
            .lock()
            .pods
            .values()
            .filter(|p| !p.deleting && (all || p.until.is_some_and(|until| until <= now)))
            .map(|p| p.name.clone())
            .collect();
        for name in over {
            // The checker sees the event; a failed deletion is retried.
            let deleted = pods.delete(&name, &gracefully);
            _ = tokio::time::timeout(LIMIT, deleted).await;
        }
        checker.lock().expected.prune();
    }
}

/// Changes the table of the script until it is dropped.
pub async fn tables(client: Client, checker: SharedChecker, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let refused: BTreeSet<String> = random
            .choose_multiple(node_names(), REFUSED)
            .into_iter()
            .collect();
        let list: Vec<String> = refused.iter().cloned().collect();
        checker.lock().expected.record_table(refused);
        while !matches!(
            tokio::time::timeout(LIMIT, zones(&client, &list)).await,
            Ok(Ok(()))
        ) {
            tokio::time::sleep(AGAIN).await;
        }
        tokio::time::sleep(TABLE).await;
    }
}
