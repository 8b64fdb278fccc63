//! Keeps the workloads that wait for an admission check, as a watch shows them.

use std::{collections::BTreeMap, sync::Arc};

use futures::StreamExt;
use kube::{Api, Client, ResourceExt, core::DynamicObject};
use kube_runtime::{WatchStreamExt, watcher::watcher};
use parking_lot::Mutex;
use tautline_runtime::{
    admin::Readiness,
    backoff::WatchBackoff,
    error_text::error_text,
    watch::in_pages,
    watch_changes::{Change, Changes},
};
use tokio::sync::Notify;

use super::{
    kueue::{Candidate, WORKLOAD, candidate, resource},
    machine::Key,
};

#[derive(Default)]
pub(super) struct Store {
    candidates: Mutex<BTreeMap<Key, Arc<Candidate>>>,
    changed: Notify,
}

impl Store {
    /// Completes after a change since the last call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the workloads with the clusters that they are nominated for.
    pub(super) fn waiting(&self) -> BTreeMap<Key, Vec<String>> {
        let candidates = self.candidates.lock();
        let waiting = candidates.iter();
        let waiting = waiting.map(|(key, of)| (key.clone(), of.nominated.clone()));
        waiting.collect()
    }

    pub(super) fn candidate(&self, key: &Key) -> Option<Arc<Candidate>> {
        self.candidates.lock().get(key).cloned()
    }

    /// Keeps the store in step with the cluster.
    pub(super) async fn watch(self: Arc<Self>, client: Client, readiness: Readiness) {
        let api: Api<DynamicObject> = Api::all_with(client, &resource(WORKLOAD));
        let events = watcher(api, in_pages()).backoff(WatchBackoff::default());
        let mut events = std::pin::pin!(events);
        let mut changes = Changes::default();
        // Workloads are read as they arrive, so that only those that wait take memory.
        let read = |workload: DynamicObject| (key(&workload), candidate(&workload));
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if let Some(change) = changes.next(event, read) {
                        self.apply(change);
                        readiness.done(WORKLOAD);
                    }
                }
                Err(error) => {
                    let error = error_text(&error);
                    tracing::warn!(kind = WORKLOAD, error, "watch restarts");
                }
            }
        }
    }

    fn apply(&self, change: Change<(Key, Option<Candidate>)>) {
        let mut candidates = self.candidates.lock();
        match change {
            Change::Replaced(all) => {
                let all = all.into_iter();
                *candidates = all
                    .filter_map(|(key, of)| Some((key, Arc::new(of?))))
                    .collect();
            }
            Change::Applied((key, Some(of))) => _ = candidates.insert(key, Arc::new(of)),
            Change::Applied((key, None)) | Change::Deleted((key, _)) => {
                _ = candidates.remove(&key);
            }
        }
        drop(candidates);
        self.changed.notify_one();
    }
}

fn key(workload: &DynamicObject) -> Key {
    Key {
        namespace: workload.namespace().unwrap_or_default(),
        name: workload.name_any(),
        uid: workload.uid().unwrap_or_default(),
    }
}
