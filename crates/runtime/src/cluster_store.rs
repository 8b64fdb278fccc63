//! The store of the cluster's objects in a process: one writer at a time, many readers of
//! snapshots.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};
use tautline_core::{
    Index, Snapshot,
    index::{FlightEvent, Kind, Object},
    model::{Pod, WatchedObject, key},
};
use tokio::sync::watch;

/// The number of changes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions([u64; Kind::COUNT]);

impl Versions {
    /// Returns whether any of `kinds` has changed since `earlier`.
    pub fn changed(&self, earlier: &Self, kinds: &[Kind]) -> bool {
        kinds
            .iter()
            .any(|k| self.0[*k as usize] != earlier.0[*k as usize])
    }
}

/// The cluster's objects, as watches report them. Clones share the index; a read waits for at most
/// one short write.
#[derive(Clone, Debug, Default)]
pub struct ClusterStore(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    index: Mutex<Index>,
    /// The last snapshot. It is made on demand, since writes after a snapshot copy the shards they
    /// touch.
    now: ArcSwap<Snapshot>,
    /// The earlier snapshots of `now`. The next write frees them: that takes longer than making
    /// one, and would delay readers.
    outdated: Mutex<Vec<Arc<Snapshot>>>,
    /// True if the index has changed since `now`. It is written under the index lock.
    stale: AtomicBool,
    versions: watch::Sender<Versions>,
    /// The versions for watchers that ignore pods, which change thousands of times as often as
    /// other kinds.
    versions_except_pods: watch::Sender<Versions>,
    /// The kinds with a complete list, one bit each.
    listed: AtomicU16,
    pods_watch: Mutex<PodsWatch>,
    pods_wanted: Condvar,
    rejected: Mutex<BTreeMap<(Kind, String), String>>,
}

#[derive(Debug, Default)]
struct PodsWatch {
    since: Option<Instant>,
    /// The number of readers that wait for pods.
    waiting: usize,
}

impl ClusterStore {
    /// The current state of the cluster.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let Inner {
            index,
            now,
            outdated,
            stale,
            ..
        } = &*self.0;
        if stale.load(Ordering::Acquire) {
            let index = index.lock();
            if stale.load(Ordering::Acquire) {
                outdated.lock().push(now.swap(Arc::new(index.snapshot())));
                stale.store(false, Ordering::Release);
            }
        }
        now.load_full()
    }

    /// Calls [`Index::reduced_pods`].
    pub fn reduced_pods(&self) -> usize {
        self.0.index.lock().reduced_pods()
    }

    /// Returns a receiver that is notified of every change.
    pub fn changes(&self) -> watch::Receiver<Versions> {
        self.0.versions.subscribe()
    }

    /// Returns a receiver that is notified of every change except of pods, whose version stays 0.
    pub fn changes_except_pods(&self) -> watch::Receiver<Versions> {
        self.0.versions_except_pods.subscribe()
    }

    /// Returns whether a list of this kind is complete. Until then there may be more objects.
    pub fn listed(&self, kind: Kind) -> bool {
        self.0.listed.load(Ordering::Acquire) & (1 << kind as u16) != 0
    }

    /// Blocks the thread that changes pods for `time`, or until a reader wants pods.
    pub fn pause_pods(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut watch = self.0.pods_watch.lock();
        if watch.waiting > 0 {
            return;
        }
        self.0.pods_wanted.wait_until(&mut watch, until);
    }

    /// Returns a guard; until it is dropped, pods change without a pause.
    pub fn want_pods(&self) -> PodsWanted {
        self.0.pods_watch.lock().waiting += 1;
        self.0.pods_wanted.notify_all();
        PodsWanted(self.clone())
    }

    /// The start of the current watch on pods; `None` without one.
    pub fn pods_watched_since(&self) -> Option<Instant> {
        self.0.pods_watch.lock().since
    }

    fn pods_watched_for(&self, now: Instant) -> Duration {
        let since = self.pods_watched_since();
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Records the start of a watch on pods, or its end if `since` is `None`.
    pub fn watch_pods(&self, since: Option<Instant>) {
        self.0.pods_watch.lock().since = since;
    }

    /// Records that an object's current version is unusable; the last usable one stays.
    pub fn reject(&self, kind: Kind, key: &str, why: String) {
        self.0.rejected.lock().insert((kind, key.to_owned()), why);
        self.changed(kind);
    }

    /// The keys of the unusable objects of a kind, with the reasons.
    pub fn rejected(&self, kind: Kind) -> BTreeMap<String, String> {
        let refused = self.0.rejected.lock();
        let of_kind = refused.iter().filter(|((k, _), _)| *k == kind);
        of_kind
            .map(|((_, key), why)| (key.clone(), why.clone()))
            .collect()
    }

    /// Records that the object with this key is usable or gone.
    pub fn accept(&self, kind: Kind, key: &str) {
        let mut refused = self.0.rejected.lock();
        if refused.is_empty() {
            return;
        }
        let was = refused.remove(&(kind, key.to_owned()));
        drop(refused);
        if was.is_some() {
            self.changed(kind);
        }
    }

    /// Adds or replaces an object.
    pub fn apply(&self, object: Object) {
        let kind = object.kind();
        self.write(kind, |index| index.apply(object));
    }

    /// Calls [`Index::begin_flight`].
    pub fn begin_flight(
        &self,
        now: Instant,
        posted: Pod,
        node: Option<&str>,
        counted_by: Vec<Arc<str>>,
    ) {
        self.write(Kind::Pod, |index| {
            index.begin_flight(now, posted, node, counted_by)
        });
    }

    /// Calls [`Index::begin_hold`] for each pod, in one write.
    pub fn begin_holds(&self, now: Instant, pods: Vec<(Pod, Arc<str>, Vec<Arc<str>>)>) {
        self.write(Kind::Pod, |index| {
            let held = pods
                .into_iter()
                .map(|(pod, node, counted_by)| index.begin_hold(now, pod, &node, counted_by));
            held.fold(false, |changed, one| changed | one)
        });
    }

    /// Calls [`Index::end_hold`] for each pod of a namespace, in one write.
    pub fn end_holds<'a>(&self, namespace: &str, names: impl IntoIterator<Item = &'a str>) {
        self.write(Kind::Pod, |index| {
            let ended = names
                .into_iter()
                .map(|name| index.end_hold(namespace, name));
            ended.fold(false, |changed, one| changed | one)
        });
    }

    /// Calls [`Index::begin_attempt`], and returns whether a flight has ended.
    pub fn begin_attempt(&self, now: Instant, namespace: &str, name: &str) -> bool {
        let (key, watched) = (key(namespace, name), self.pods_watched_for(now));
        self.write(Kind::Pod, |index| index.begin_attempt(now, watched, &key))
    }

    /// Calls [`Index::end_old_flights`].
    pub fn end_old_flights(&self, now: Instant) {
        let watched = self.pods_watched_for(now);
        self.write(Kind::Pod, |index| index.end_old_flights(now, watched));
    }

    /// Calls [`Index::take_flight_events`].
    pub fn take_flight_events(&self) -> Vec<FlightEvent> {
        self.0.index.lock().take_flight_events()
    }

    /// Replaces a pod with `new`, unless a watch has changed it since it was read.
    pub fn replace(&self, read: &Arc<Pod>, new: Pod) {
        self.write(Kind::Pod, |index| index.replace(read, new));
    }

    /// Removes an object by its [`Object::key`].
    pub fn delete(&self, kind: Kind, key: &str) {
        self.write(kind, |index| index.delete(kind, key));
    }

    /// Calls [`Index::gone_pods`].
    pub fn gone_pods(&self, mark: &mut u64) -> Vec<Box<str>> {
        self.0.index.lock().gone_pods(mark)
    }

    /// Starts to replace all objects of `kind`, one by one.
    pub fn begin_relist(&self, kind: Kind) -> Relist {
        Relist {
            store: self.clone(),
            kind,
            not_listed: self.0.index.lock().keys(kind).collect(),
            changed: false,
        }
    }

    /// Replaces all objects of `kind`.
    pub fn reset(&self, kind: Kind, objects: Vec<Object>) {
        self.0.listed.fetch_or(1 << kind as u16, Ordering::AcqRel);
        self.write(kind, |index| index.reset(kind, objects));
    }

    /// Replaces all objects of one dynamic kind.
    pub fn reset_dynamic(&self, api_version: &str, kind: &str, objects: Vec<WatchedObject>) {
        self.write(Kind::Dynamic, |index| {
            index.reset_dynamic(api_version, kind, objects)
        });
    }

    fn write(&self, kind: Kind, change: impl FnOnce(&mut Index) -> bool) -> bool {
        {
            let mut index = self.0.index.lock();
            if !change(&mut index) {
                return false;
            }
            self.0.stale.store(true, Ordering::Release);
        }
        self.changed(kind);
        true
    }

    fn changed(&self, kind: Kind) {
        let outdated = std::mem::take(&mut *self.0.outdated.lock());
        drop(outdated);
        let count = |versions: &mut Versions| versions.0[kind as usize] += 1;
        self.0.versions.send_modify(count);
        if kind != Kind::Pod {
            self.0.versions_except_pods.send_modify(count);
        }
    }
}

/// A reader that waits for pods; see [`ClusterStore::want_pods`].
#[derive(Debug)]
pub struct PodsWanted(ClusterStore);

impl Drop for PodsWanted {
    fn drop(&mut self) {
        self.0.0.pods_watch.lock().waiting -= 1;
    }
}

/// A list in progress. Each object takes effect at once, so a large cluster is never in memory
/// twice. [`commit`](Self::commit) removes the objects that the list lacks; dropping removes
/// nothing.
#[derive(Debug)]
pub struct Relist {
    store: ClusterStore,
    kind: Kind,
    /// The keys of earlier objects that the list has not had so far.
    not_listed: HashSet<Arc<str>>,
    changed: bool,
}

impl Relist {
    /// Adds an object of the kind. Readers see it at the end of the list, or with another change.
    pub fn add(&mut self, object: Object) {
        debug_assert_eq!(object.kind(), self.kind);
        self.not_listed.remove(&*object.key());
        self.changed |= self.store.0.index.lock().apply(object);
    }

    /// Records that the list has an unusable object with this key, whose last usable version stays.
    pub fn retain(&mut self, key: &str) {
        self.not_listed.remove(key);
    }

    /// Ends a complete list. The first list of a kind counts as a change, even if it is empty.
    pub fn commit(mut self) {
        let changed = std::mem::take(&mut self.changed);
        {
            let mut index = self.store.0.index.lock();
            let gone = self.not_listed.iter();
            let deleted = gone.filter(|key| index.delete(self.kind, key)).count();
            if deleted == 0 && !changed && self.store.listed(self.kind) {
                return;
            }
            self.store.0.stale.store(true, Ordering::Release);
        }
        let bit = 1 << self.kind as u16;
        self.store.0.listed.fetch_or(bit, Ordering::AcqRel);
        self.store.changed(self.kind);
    }
}

impl Drop for Relist {
    /// Publishes the objects so far, since the next list may change nothing.
    fn drop(&mut self) {
        if self.changed {
            {
                let _index = self.store.0.index.lock();
                self.store.0.stale.store(true, Ordering::Release);
            }
            self.store.changed(self.kind);
        }
    }
}

#[cfg(test)]
mod tests;
