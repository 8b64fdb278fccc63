//! Metadata watches on the kinds that offers name: Cluster, NetworkService, and legacy Endpoints.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use dashmap::DashMap;
use futures::{StreamExt, future::BoxFuture};
use kube::{
    Api, Client, ResourceExt,
    api::DynamicObject,
    core::{GroupVersionKind, PartialObjectMeta, TypeMeta},
    discovery::pinned_kind,
};
use kube_runtime::{WatchStreamExt, watcher::watcher};
use tautline_api::convert;
use tautline_core::{
    index::{Kind, Object},
    model::{Offer, TargetKind, WatchedObject},
};
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    api_call::{ApiCallError, within},
    backoff::WatchBackoff,
    cluster_store::ClusterStore,
    error_text::error_text,
    watch::in_pages,
    watch_changes::{Change, Changes, refusal},
};

/// The maximum number of watched kinds: tenants choose them, and Tautline watches with its own
/// rights.
pub const MAX_KINDS: usize = 16;
/// The time between two discoveries, which keeps changing offers from causing a storm.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(250);
/// The time until a kind's discovery is retried; it doubles each time.
const FIRST_RETRY: Duration = Duration::from_secs(3);
const LONGEST_RETRY: Duration = Duration::from_secs(120);
const DEADLINE: Duration = Duration::from_secs(5);
const SETTLE_TIME: Duration = Duration::from_millis(100);

type Gvk = (String, String);
/// The keys that the offers of each namespace name, such as kinds, with the Unix time when the
/// oldest such offer was created.
pub(crate) type ByNamespace<'a, K = Gvk> = BTreeMap<&'a str, BTreeMap<K, i64>>;
type ObjectMetadata = PartialObjectMeta<DynamicObject>;

/// The time after which the objects of an absent kind are removed: the API server may lose a kind
/// for a moment.
const ABSENT_AFTER: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KindStatus {
    /// True if all objects of the kind are in the store, or it has none.
    listed: bool,
    missing: Option<String>,
}

/// The watched kinds, and the reasons why others are not watched. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct WatchedKinds(Arc<DashMap<Gvk, KindStatus>>, watch::Sender<()>);

impl WatchedKinds {
    /// The reason why a kind is not watched, if it is not.
    pub fn missing(&self, api_version: &str, kind: &str) -> Option<String> {
        let key = (api_version.to_owned(), kind.to_owned());
        self.0.get(&key)?.missing.clone()
    }

    /// Returns whether all objects of a kind are known, so that a missing object does not exist.
    pub fn listed(&self, api_version: &str, kind: &str) -> bool {
        let key = (api_version.to_owned(), kind.to_owned());
        self.0.get(&key).is_some_and(|s| s.listed)
    }

    /// Returns a receiver that is notified of every change of these states.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.1.subscribe()
    }

    fn set(&self, gvk: &Gvk, listed: bool, missing: Option<String>) {
        let now = KindStatus { listed, missing };
        let before = self.0.insert(gvk.clone(), now.clone());
        if before.unwrap_or_default() != now {
            self.1.send_replace(());
        }
    }
}

/// Watches the kinds that offers name, at most [`MAX_KINDS`], until `stop`. The future is boxed, so
/// that it is compiled here, not in each server.
pub fn watch_dynamic_kinds(
    client: Client,
    store: ClusterStore,
    kinds: WatchedKinds,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(watch_kinds(client, store, kinds, stop))
}

async fn watch_kinds(
    client: Client,
    store: ClusterStore,
    kinds: WatchedKinds,
    stop: CancellationToken,
) {
    let mut changes = store.changes_except_pods();
    let watcher = DynamicWatcher {
        client,
        store,
        kinds,
        next_discovery: Arc::new(Mutex::new(Instant::now())),
    };
    let follow_offers = async {
        let (mut watches, mut over_limit) = (BTreeMap::new(), BTreeSet::new());
        let mut last = None;
        loop {
            let now = *changes.borrow_and_update();
            if last.is_none_or(|last| now.changed(&last, &[Kind::Offer])) {
                watcher.update_kinds(&mut watches, &mut over_limit).await;
                last = Some(now);
            }
            if changes.changed().await.is_err() {
                return;
            }
            sleep(SETTLE_TIME).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = follow_offers => {}
    }
}

/// The tasks that watch one kind each.
type Watches = BTreeMap<Gvk, AbortOnDropHandle<()>>;

/// The end of a watch: whether the objects had been listed, and why the watch ended.
type WatchEnd = (bool, String);

#[derive(Clone)]
struct DynamicWatcher {
    client: Client,
    store: ClusterStore,
    kinds: WatchedKinds,
    next_discovery: Arc<Mutex<Instant>>,
}

impl DynamicWatcher {
    async fn update_kinds(&self, watches: &mut Watches, over_limit: &mut BTreeSet<Gvk>) {
        let snapshot = self.store.snapshot();
        let named = kinds_by_namespace(snapshot.offers().map(|e| &*e.offer));
        let (selected, beyond) = select_in_turn(&named, MAX_KINDS);
        let named_no_more = watches.keys().filter(|gvk| !selected.contains(gvk));
        for gvk in named_no_more.cloned().collect::<Vec<_>>() {
            let Some(task) = watches.remove(&gvk) else {
                continue;
            };
            task.abort();
            _ = task.await;
            self.store.reset_dynamic(&gvk.0, &gvk.1, Vec::new());
            self.kinds.0.remove(&gvk);
        }
        for gvk in over_limit.difference(&beyond) {
            self.kinds.0.remove(gvk);
        }
        for gvk in &beyond {
            self.kinds.set(gvk, false, Some(too_many()));
        }
        *over_limit = beyond;
        for gvk in selected {
            watches.entry(gvk.clone()).or_insert_with(|| {
                AbortOnDropHandle::new(tokio::spawn(self.clone().watch_for_ever(gvk)))
            });
        }
    }

    /// Watches a kind, and tries again after its watch has ended.
    async fn watch_for_ever(self, gvk: Gvk) {
        let (api_version, kind) = &gvk;
        let (mut lost_at, mut failures, mut absent) = (Instant::now(), 0, false);
        loop {
            let (listed, why) = self.resolve_and_watch(&gvk).await;
            let now = Instant::now();
            if listed {
                (lost_at, failures, absent) = (now, 0, false);
            }
            let retry = retry_after(failures);
            failures = failures.saturating_add(1);
            if failures == 1 {
                tracing::warn!(%api_version, %kind, why, ?retry, "a kind cannot be watched");
            } else {
                tracing::debug!(%api_version, %kind, why, ?retry, "a kind cannot be watched");
            }
            self.kinds.set(&gvk, absent, Some(unavailable(&gvk)));
            let absent_at = lost_at + ABSENT_AFTER;
            if !absent && absent_at <= now + retry {
                sleep_until(absent_at).await;
                absent = true;
                self.store.reset_dynamic(api_version, kind, Vec::new());
                self.kinds.set(&gvk, true, Some(unavailable(&gvk)));
            }
            sleep_until(now + retry).await;
        }
    }

    async fn resolve_and_watch(&self, gvk: &Gvk) -> WatchEnd {
        {
            let mut next = self.next_discovery.lock().await;
            sleep_until(*next).await;
            *next = Instant::now() + DISCOVERY_INTERVAL;
        }
        let (api_version, kind) = gvk.clone();
        if api_version.is_empty() {
            return (false, "the target has no apiVersion".to_owned());
        }
        let named = match GroupVersionKind::try_from(TypeMeta { api_version, kind }) {
            Ok(named) => named,
            Err(error) => return (false, error.to_string()),
        };
        let client = &self.client;
        let why = match within(DEADLINE, pinned_kind(client, &named)).await {
            Ok((resource, _)) => {
                return self
                    .watch(Api::all_with(client.clone(), &resource), gvk)
                    .await;
            }
            Err(error @ ApiCallError::Timeout(_)) => error.to_string(),
            Err(error) => format!("the API server does not serve it: {error}"),
        };
        (false, why)
    }

    async fn watch(&self, api: Api<ObjectMetadata>, gvk: &Gvk) -> WatchEnd {
        let (store, kinds) = (&self.store, &self.kinds);
        let mut listed = false;
        let (api_version, kind): (Arc<str>, Arc<str>) =
            (gvk.0.as_str().into(), gvk.1.as_str().into());
        let object = |o: &ObjectMetadata| WatchedObject {
            api_version: Arc::clone(&api_version),
            kind: Arc::clone(&kind),
            namespace: o.namespace().unwrap_or_default().into(),
            name: o.name_any().into(),
            labels: convert::labels(o.metadata.labels.as_ref()),
        };
        let mut changes = Changes::default();
        let events = watcher(api, in_pages()).backoff(WatchBackoff::default());
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event.map(|event| changes.next(event, |o| object(&o))) {
                Ok(None) => {}
                Ok(Some(Change::Replaced(objects))) => {
                    store.reset_dynamic(&api_version, &kind, objects);
                    kinds.set(gvk, true, None);
                    listed = true;
                }
                Ok(Some(Change::Applied(object))) => store.apply(Object::Dynamic(object)),
                Ok(Some(Change::Deleted(object))) => {
                    store.delete(Kind::Dynamic, &Object::Dynamic(object).key());
                }
                Err(error) => {
                    if let Some(message) = refusal(&error) {
                        return (listed, message.to_owned());
                    }
                    let error = error_text(&error);
                    tracing::warn!(%kind, error, "watch restarts");
                    if !listed {
                        kinds.set(gvk, false, Some(unavailable(gvk)));
                    }
                }
            }
        }
        (listed, "the watch has ended".to_owned())
    }
}

fn kinds_by_namespace<'a>(offers: impl Iterator<Item = &'a Offer>) -> ByNamespace<'a> {
    let mut named = ByNamespace::new();
    for offer in offers {
        let others = offer.targets.iter().filter(|t| t.kind != TargetKind::Pod);
        for (api_version, kind) in others.map(|t| t.selected_kind()) {
            let kinds = named.entry(&offer.namespace).or_default();
            let gvk = (api_version.to_owned(), kind.to_owned());
            let oldest = kinds.entry(gvk).or_insert(offer.created_unix);
            *oldest = offer.created_unix.min(*oldest);
        }
    }
    named
}

/// Returns the keys to watch, at most `limit`, and the others. Namespaces get one key each in turn,
/// the key of their oldest offer first: a tenant with many keys takes no place from others, and the
/// younger of two tenants takes no place from the older.
pub(crate) fn select_in_turn<K: Clone + Ord>(
    named: &ByNamespace<'_, K>,
    limit: usize,
) -> (BTreeSet<K>, BTreeSet<K>) {
    let mut ranks: BTreeMap<&K, (usize, i64)> = BTreeMap::new();
    for keys in named.values() {
        let mut by_age: Vec<(i64, &K)> = keys.iter().map(|(key, age)| (*age, key)).collect();
        by_age.sort_unstable();
        for (turn, (created, key)) in by_age.into_iter().enumerate() {
            let best = ranks.entry(key).or_insert((turn, created));
            *best = (turn, created).min(*best);
        }
    }
    let mut ranked: Vec<_> = ranks.into_iter().map(|(key, rank)| (rank, key)).collect();
    ranked.sort_unstable();
    let mut selected = ranked.into_iter().map(|(_, key)| key.clone());
    (selected.by_ref().take(limit).collect(), selected.collect())
}

fn retry_after(failures: u32) -> Duration {
    FIRST_RETRY
        .saturating_mul(2_u32.saturating_pow(failures))
        .min(LONGEST_RETRY)
}

/// The message for a kind that cannot be watched. It is the same for a missing kind and one without
/// permission, since offers must reveal nothing that their tenant may not read.
fn unavailable((api_version, kind): &Gvk) -> String {
    if api_version.is_empty() {
        return format!("a target of kind {kind} needs its apiVersion");
    }
    format!(
        "{api_version} {kind} cannot be watched: its CRD is missing, or Tautline has no right to \
         list and watch it; the log says which"
    )
}

fn too_many() -> String {
    format!(
        "offers of this cluster name more than {MAX_KINDS} kinds; each namespace gets as many as \
         the others, those of its oldest offers first, and this one is not among them: name fewer \
         kinds in this namespace"
    )
}

#[cfg(test)]
mod tests;
