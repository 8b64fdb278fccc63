//! Metadata watches on the kinds that offers name: Cluster, NetworkService, and legacy Endpoints.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use dashmap::DashMap;
use futures::{StreamExt, future::select_all};
use kube::{
    Api, Client, ResourceExt,
    api::DynamicObject,
    core::{GroupVersionKind, PartialObjectMeta, TypeMeta},
    discovery::pinned_kind,
};
use kube_runtime::watcher::watcher;
use tautline_api::convert;
use tautline_core::{
    index::{Kind, Object},
    model::{Offer, TargetKind, WatchedObject},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
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
/// The kinds that the offers of each namespace name, with the Unix time when the oldest such offer
/// was created.
type ByNamespace<'a> = BTreeMap<&'a str, BTreeMap<Gvk, i64>>;
type ObjectMetadata = PartialObjectMeta<DynamicObject>;

/// The time after which the objects of an absent kind are removed: the API server may lose a kind
/// for a moment.
const ABSENT_AFTER: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default)]
struct KindStatus {
    /// True if all objects of the kind are in the store, or it has none.
    listed: bool,
    missing: Option<String>,
}

/// The watched kinds, and the reasons why others are not watched. Clones share the state.
#[derive(Clone, Debug)]
pub struct WatchedKinds(Arc<DashMap<Gvk, KindStatus>>, watch::Sender<()>);

impl Default for WatchedKinds {
    fn default() -> Self {
        Self(Arc::default(), watch::Sender::new(()))
    }
}

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
        let before = self.0.insert(
            gvk.clone(),
            KindStatus {
                listed,
                missing: missing.clone(),
            },
        );
        let before = before.unwrap_or_default();
        if (before.listed, before.missing) != (listed, missing) {
            self.1.send_replace(());
        }
    }
}

/// Watches the kinds that offers name, at most [`MAX_KINDS`], until `stop`.
pub async fn watch_dynamic_kinds(
    client: Client,
    store: ClusterStore,
    kinds: WatchedKinds,
    stop: CancellationToken,
) {
    let mut changes = store.changes_except_pods();
    let mut follower = DynamicWatcher {
        client,
        store,
        kinds,
        stop: stop.clone(),
        states: BTreeMap::new(),
        over_limit: BTreeSet::new(),
        next_pace: Instant::now(),
    };
    let mut last = None;
    loop {
        let now = *changes.borrow_and_update();
        if last.is_none_or(|last| now.changed(&last, &[Kind::Offer])) {
            follower.update_kinds().await;
            last = Some(now);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = follower.next_step() => {}
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(SETTLE_TIME) => {}
                }
            }
        }
    }
}

struct KindState {
    watch: Option<RunningWatch>,
    failures: u32,
    next_attempt: Instant,
    lost_at: Instant,
    absent: bool,
}

struct RunningWatch {
    task: JoinHandle<WatchEnd>,
    end: DropGuard,
}

/// The end of a watch: whether the objects had been listed, and why the watch ended.
type WatchEnd = (bool, String);

struct DynamicWatcher {
    client: Client,
    store: ClusterStore,
    kinds: WatchedKinds,
    stop: CancellationToken,
    states: BTreeMap<Gvk, KindState>,
    over_limit: BTreeSet<Gvk>,
    next_pace: Instant,
}

impl DynamicWatcher {
    async fn update_kinds(&mut self) {
        let snapshot = self.store.snapshot();
        let named = kinds_by_namespace(snapshot.offers().map(|e| &*e.offer));
        let (selected, beyond) = select_kinds(&named);
        let over: Vec<Gvk> = self.states.keys().cloned().collect();
        for gvk in over.into_iter().filter(|gvk| !selected.contains(gvk)) {
            let Some(KindState { watch, .. }) = self.states.remove(&gvk) else {
                continue;
            };
            if let Some(RunningWatch { task, end }) = watch {
                drop(end);
                _ = task.await;
            }
            self.store.reset_dynamic(&gvk.0, &gvk.1, Vec::new());
            self.kinds.0.remove(&gvk);
        }
        for gvk in self.over_limit.difference(&beyond) {
            self.kinds.0.remove(gvk);
        }
        for gvk in &beyond {
            self.kinds.set(gvk, false, Some(too_many()));
        }
        self.over_limit = beyond;
        let now = Instant::now();
        for gvk in selected {
            self.states.entry(gvk).or_insert(KindState {
                watch: None,
                failures: 0,
                next_attempt: now,
                lost_at: now,
                absent: false,
            });
        }
    }

    async fn next_step(&mut self) {
        let waiting = self.states.iter().filter(|(_, f)| f.watch.is_none());
        let attempt = waiting
            .min_by_key(|(_, f)| f.next_attempt)
            .map(|(gvk, f)| (gvk.clone(), f.next_attempt.max(self.next_pace)));
        let lost = self
            .states
            .values()
            .filter(|f| !f.absent && f.watch.is_none());
        let gone_at = lost.map(|f| f.lost_at + ABSENT_AFTER).min();
        let at = |at: Option<Instant>| async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            (gvk, (listed, why)) = next_ended(&mut self.states) => self.watch_ended(&gvk, listed, &why),
            () = at(gone_at) => self.drop_absent_kinds(),
            () = at(attempt.as_ref().map(|(_, at)| *at)) => {
                if let Some((gvk, _)) = attempt {
                    self.start_watch(&gvk);
                }
            }
        }
    }

    fn start_watch(&mut self, gvk: &Gvk) {
        self.next_pace = Instant::now() + DISCOVERY_INTERVAL;
        let Some(followed) = self.states.get_mut(gvk) else {
            return;
        };
        let token = self.stop.child_token();
        let end = token.clone().drop_guard();
        let (client, store) = (self.client.clone(), self.store.clone());
        let (kinds, gvk) = (self.kinds.clone(), gvk.clone());
        let task = tokio::spawn(async move {
            tokio::select! {
                () = token.cancelled() => (false, "it is not followed any more".to_owned()),
                ended = resolve_and_watch(&client, &store, &kinds, &gvk) => ended,
            }
        });
        followed.watch = Some(RunningWatch { task, end });
    }

    fn watch_ended(&mut self, gvk: &Gvk, listed: bool, why: &str) {
        let Some(followed) = self.states.get_mut(gvk) else {
            return;
        };
        let now = Instant::now();
        followed.watch = None;
        if listed {
            (followed.lost_at, followed.failures, followed.absent) = (now, 0, false);
        }
        let retry = retry_after(followed.failures);
        followed.failures = followed.failures.saturating_add(1);
        followed.next_attempt = now + retry;
        let (api_version, kind) = gvk;
        if followed.failures == 1 {
            tracing::warn!(%api_version, %kind, why, ?retry, "a kind cannot be watched");
        } else {
            tracing::debug!(%api_version, %kind, why, ?retry, "a kind cannot be watched");
        }
        let gone = followed.absent;
        self.kinds.set(gvk, gone, Some(unavailable(gvk)));
    }

    fn drop_absent_kinds(&mut self) {
        for (gvk, followed) in &mut self.states {
            if followed.watch.is_none()
                && !followed.absent
                && followed.lost_at.elapsed() >= ABSENT_AFTER
            {
                followed.absent = true;
                self.store.reset_dynamic(&gvk.0, &gvk.1, Vec::new());
                self.kinds.set(gvk, true, Some(unavailable(gvk)));
            }
        }
    }
}

async fn next_ended(followed: &mut BTreeMap<Gvk, KindState>) -> (Gvk, WatchEnd) {
    let watched = followed.iter_mut().filter_map(|(gvk, f)| {
        let watching = f.watch.as_mut()?;
        Some((gvk.clone(), &mut watching.task))
    });
    let (mut names, tasks): (Vec<Gvk>, Vec<_>) = watched.unzip();
    if tasks.is_empty() {
        return pending().await;
    }
    let (ended, at, _) = select_all(tasks).await;
    let ended = ended.unwrap_or_else(|error| (false, error.to_string()));
    (names.swap_remove(at), ended)
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

/// Returns the kinds to watch, and the kinds beyond [`MAX_KINDS`]. Namespaces get one kind each in
/// turn, the kind of their oldest offer first: a tenant with many kinds takes no place from others,
/// and the younger of two tenants takes no place from the older.
fn select_kinds(named: &ByNamespace<'_>) -> (BTreeSet<Gvk>, BTreeSet<Gvk>) {
    let mut ranks: BTreeMap<&Gvk, (usize, i64)> = BTreeMap::new();
    for kinds in named.values() {
        let mut by_age: Vec<(i64, &Gvk)> = kinds.iter().map(|(gvk, age)| (*age, gvk)).collect();
        by_age.sort_unstable();
        for (turn, (created, gvk)) in by_age.into_iter().enumerate() {
            let best = ranks.entry(gvk).or_insert((turn, created));
            *best = (turn, created).min(*best);
        }
    }
    let mut ranked: Vec<_> = ranks.into_iter().map(|(gvk, rank)| (rank, gvk)).collect();
    ranked.sort_unstable();
    let mut selected = ranked.into_iter().map(|(_, gvk)| gvk.clone());
    (
        selected.by_ref().take(MAX_KINDS).collect(),
        selected.collect(),
    )
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

async fn resolve_and_watch(
    client: &Client,
    store: &ClusterStore,
    kinds: &WatchedKinds,
    gvk: &Gvk,
) -> WatchEnd {
    match timeout(DEADLINE, resolve_api(client, gvk)).await {
        Ok(Ok(api)) => watch(api, store, kinds, gvk).await,
        Ok(Err(why)) => (false, why),
        Err(_) => {
            let why = format!("the API server did not answer within {DEADLINE:?}");
            (false, why)
        }
    }
}

async fn resolve_api(
    client: &Client,
    (api_version, kind): &Gvk,
) -> Result<Api<ObjectMetadata>, String> {
    if api_version.is_empty() {
        return Err("the target has no apiVersion".to_owned());
    }
    let types = TypeMeta {
        api_version: api_version.clone(),
        kind: kind.clone(),
    };
    let gvk = GroupVersionKind::try_from(&types).map_err(|e| e.to_string())?;
    match pinned_kind(client, &gvk).await {
        Ok((resource, _)) => Ok(Api::all_with(client.clone(), &resource)),
        Err(error) => Err(format!(
            "the API server does not serve it: {}",
            error_text(&error)
        )),
    }
}

async fn watch(
    api: Api<ObjectMetadata>,
    store: &ClusterStore,
    kinds: &WatchedKinds,
    gvk: &Gvk,
) -> WatchEnd {
    let (mut listed, mut failures) = (false, 0);
    let (api_version, kind): (Arc<str>, Arc<str>) = (gvk.0.as_str().into(), gvk.1.as_str().into());
    let object = |o: &ObjectMetadata| WatchedObject {
        api_version: Arc::clone(&api_version),
        kind: Arc::clone(&kind),
        namespace: o.namespace().unwrap_or_default().into(),
        name: o.name_any().into(),
        labels: convert::labels(o.metadata.labels.as_ref()),
    };
    let mut changes = Changes::default();
    let mut events = std::pin::pin!(watcher(api, in_pages()));
    while let Some(event) = events.next().await {
        match event.map(|event| changes.next(event, |o| object(&o))) {
            Ok(None) => {}
            Ok(Some(Change::Replaced(objects))) => {
                store.reset_dynamic(&api_version, &kind, objects);
                kinds.set(gvk, true, None);
                (listed, failures) = (true, 0);
            }
            Ok(Some(Change::Applied(object))) => {
                failures = 0;
                store.apply(Object::Dynamic(object));
            }
            Ok(Some(Change::Deleted(object))) => {
                failures = 0;
                store.delete(Kind::Dynamic, &Object::Dynamic(object).key());
            }
            Err(error) => {
                if let Some(message) = refusal(&error) {
                    return (listed, message.to_owned());
                }
                let retry = retry_after(failures);
                failures = failures.saturating_add(1);
                let error = error_text(&error);
                tracing::warn!(%kind, error, ?retry, "watch restarts");
                if !listed {
                    kinds.set(gvk, false, Some(unavailable(gvk)));
                }
                tokio::time::sleep(retry).await;
            }
        }
    }
    (listed, "the watch has ended".to_owned())
}

#[cfg(test)]
mod tests;
