//! Pods at an even rate, and the end of each when it has lived; the table of the
//! scripted provider.

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

/// The script's table changes so often.
const TABLE: Duration = Duration::from_secs(60);
/// Of twenty nodes the script refuses so many.
const REFUSED: usize = 6;
/// While so many pods wait no more are made: the machine cannot follow.
const MOST_PENDING: usize = 150;
const AGAIN: Duration = Duration::from_millis(500);
/// For one request; an API server that is started anew takes several.
const LIMIT: Duration = Duration::from_secs(10);

pub type SharedChecker = Arc<Mutex<Checker>>;

/// What came of the load.
#[derive(Default)]
pub struct LoadResult {
    pub pods: usize,
    /// Not made, because too many were waiting.
    pub held_back: usize,
}

/// Makes pods until the end.
pub async fn run(
    client: Client,
    judge: SharedChecker,
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
        if judge.lock().pending(Duration::ZERO).count() >= MOST_PENDING {
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

/// Again until the API server has it.
pub async fn create(client: &Client, kind: &Kind, name: &str) {
    let (path, pod) = ("/api/v1/namespaces/default/pods", kind.pod(name));
    loop {
        match tokio::time::timeout(LIMIT, post(client, path, &pod)).await {
            // 409: the answer to the request before was lost.
            Ok(Ok(response)) if matches!(response.status, 201 | 409) => return,
            _ => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Deletes pods that have lived, or all at once, until it is dropped.
pub async fn reap(client: Client, judge: SharedChecker, all: bool) {
    let pods: Api<Pod> = Api::default_namespaced(client);
    let gracefully = DeleteParams::default();
    loop {
        tokio::time::sleep(AGAIN / 2).await;
        let now = Instant::now();
        let over: Vec<String> = judge
            .lock()
            .pods
            .values()
            .filter(|p| !p.deleting && (all || p.until.is_some_and(|until| until <= now)))
            .map(|p| p.name.clone())
            .collect();
        for name in over {
            // The judge hears of it; what fails is tried again.
            let deleted = pods.delete(&name, &gracefully);
            _ = tokio::time::timeout(LIMIT, deleted).await;
        }
        judge.lock().truth.prune();
    }
}

/// Changes the table of the script until it is dropped.
pub async fn tables(client: Client, judge: SharedChecker, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let refused: BTreeSet<String> = random
            .choose_multiple(node_names(), REFUSED)
            .into_iter()
            .collect();
        let list: Vec<String> = refused.iter().cloned().collect();
        judge.lock().truth.record_table(refused);
        while !matches!(
            tokio::time::timeout(LIMIT, zones(&client, &list)).await,
            Ok(Ok(()))
        ) {
            tokio::time::sleep(AGAIN).await;
        }
        tokio::time::sleep(TABLE).await;
    }
}
