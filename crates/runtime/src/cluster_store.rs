//! The one writer of a process's index, and what readers hold of it.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tautline_core::{
    Index, Snapshot,
    index::{Kind, Object},
    model::{Offer, Pod, WatchedObject},
};
use tokio::sync::watch;

/// How often each kind has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions([u64; 7]);

impl Versions {
    /// Whether any of `kinds` has changed since `earlier`.
    pub fn changed(&self, earlier: &Self, kinds: &[Kind]) -> bool {
        kinds
            .iter()
            .any(|k| self.0[*k as usize] != earlier.0[*k as usize])
    }
}

/// An index that is kept in step from somewhere. Cheap to clone; all clones are
/// one. Writes are short and synchronous; a read waits for one write at most.
#[derive(Clone, Debug)]
pub struct ClusterStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    index: Mutex<Index>,
    /// The index as it was last read. Of what nobody reads no snapshot is made: the
    /// writes after one copy what they touch.
    now: ArcSwap<Snapshot>,
    /// The index has changed since. Set and cleared while the index is locked.
    stale: AtomicBool,
    versions: watch::Sender<Versions>,
    /// The same without pods, which change thousands of times for each other kind:
    /// who does not follow them is not to be woken by them.
    versions_except_pods: watch::Sender<Versions>,
    /// A bit for each kind that was listed to its end.
    listed: AtomicU8,
    pods_watch: Mutex<PodsWatch>,
    /// Offers that do not count yet, by key.
    pending_offers: watch::Sender<BTreeMap<String, Arc<Offer>>>,
    /// Objects that could not be used, and why.
    rejected: Mutex<BTreeMap<(Kind, String), String>>,
}

/// How it stands with the watch of pods.
#[derive(Debug, Default)]
struct PodsWatch {
    /// When it looks again, if it rests.
    quiet_until: Option<Instant>,
    /// Since when it is under way, if it is.
    since: Option<Instant>,
}

impl Default for ClusterStore {
    fn default() -> Self {
        Self(Arc::new(Inner {
            index: Mutex::default(),
            now: ArcSwap::default(),
            stale: AtomicBool::new(false),
            versions: watch::Sender::new(Versions::default()),
            versions_except_pods: watch::Sender::new(Versions::default()),
            listed: AtomicU8::new(0),
            pods_watch: Mutex::default(),
            pending_offers: watch::Sender::default(),
            rejected: Mutex::default(),
        }))
    }
}

impl ClusterStore {
    /// The cluster at this moment.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let Inner {
            index, now, stale, ..
        } = &*self.0;
        if stale.load(Ordering::Acquire) {
            let index = index.lock();
            if stale.load(Ordering::Acquire) {
                now.store(Arc::new(index.snapshot()));
                stale.store(false, Ordering::Release);
            }
        }
        now.load_full()
    }

    /// Wakes when anything has changed.
    pub fn changes(&self) -> watch::Receiver<Versions> {
        self.0.versions.subscribe()
    }

    /// Wakes when anything but a pod has changed; pods are at version 0 in it.
    pub fn changes_except_pods(&self) -> watch::Receiver<Versions> {
        self.0.versions_except_pods.subscribe()
    }

    /// Whether a list of this kind has come to its end: until then there may be more.
    pub fn listed(&self, kind: Kind) -> bool {
        self.0.listed.load(Ordering::Acquire) & (1 << kind as u8) != 0
    }

    /// Until then no pod changes here: its watch rests. Of a snapshot that is taken
    /// after this, the pods are those of then too.
    pub fn pods_quiet_until(&self) -> Option<Instant> {
        self.0.pods_watch.lock().quiet_until
    }

    /// Whoever writes pods writes none until then.
    pub fn set_pods_quiet(&self, until: Instant) {
        self.0.pods_watch.lock().quiet_until = Some(until);
    }

    /// Since when a watch brings what becomes of pods, without a break; `None`: none
    /// does now.
    pub fn pods_watched_since(&self) -> Option<Instant> {
        self.0.pods_watch.lock().since
    }

    /// A watch of pods has begun, or (`None`) has ended.
    pub fn watch_pods(&self, since: Option<Instant>) {
        self.0.pods_watch.lock().since = since;
    }

    /// Offers that do not count until the pods that they may select are known, by key.
    pub(crate) fn pending_offers(&self) -> &watch::Sender<BTreeMap<String, Arc<Offer>>> {
        &self.0.pending_offers
    }

    /// Waits for so long until no offer that `concerns` whoever asks waits to count; gives
    /// one that still does.
    pub async fn wait_for_pending_offers(
        &self,
        concerns: impl Fn(&Offer) -> bool,
        most: Duration,
    ) -> Result<(), Arc<Offer>> {
        let find = |waiting: &BTreeMap<String, Arc<Offer>>| {
            waiting.values().find(|offer| concerns(offer)).cloned()
        };
        // Hardly ever does any.
        let Some(one) = find(&self.0.pending_offers.borrow()) else {
            return Ok(());
        };
        let mut waiting = self.0.pending_offers.subscribe();
        let none = waiting.wait_for(|waiting| find(waiting).is_none());
        match tokio::time::timeout(most, none).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(one),
        }
    }

    /// Notes that an object as it is now cannot be used; what was good of it stays.
    pub fn reject(&self, kind: Kind, key: &str, why: String) {
        self.0.rejected.lock().insert((kind, key.to_owned()), why);
        self.changed(kind);
    }

    /// The objects of a kind that cannot be used, by key, and why.
    pub fn rejected(&self, kind: Kind) -> BTreeMap<String, String> {
        let refused = self.0.rejected.lock();
        let of_kind = refused.iter().filter(|((k, _), _)| *k == kind);
        of_kind
            .map(|((_, key), why)| (key.clone(), why.clone()))
            .collect()
    }

    /// An object of this key can be used again, or is gone.
    pub fn accept(&self, kind: Kind, key: &str) {
        let mut refused = self.0.rejected.lock();
        // Hardly ever is there any.
        if refused.is_empty() {
            return;
        }
        let was = refused.remove(&(kind, key.to_owned()));
        drop(refused);
        if was.is_some() {
            self.changed(kind);
        }
    }

    pub fn apply(&self, object: Object) {
        let kind = object.kind();
        self.write(kind, |index| index.apply(object));
    }

    /// Puts `new` in place of a pod as it was read. What a watch has brought since stays.
    pub fn replace(&self, read: &Arc<Pod>, new: Pod) {
        self.write(Kind::Pod, |index| index.replace(read, new));
    }

    pub fn delete(&self, kind: Kind, key: &str) {
        self.write(kind, |index| index.delete(kind, key));
    }

    /// Begins to take all there is of `kind`, object by object.
    pub fn begin_relist(&self, kind: Kind) -> Relist {
        Relist {
            store: self.clone(),
            kind,
            not_listed: self.0.index.lock().keys(kind).collect(),
            changed: false,
        }
    }

    /// Makes `objects` all there is of `kind`.
    pub fn reset(&self, kind: Kind, objects: Vec<Object>) {
        self.0.listed.fetch_or(1 << kind as u8, Ordering::AcqRel);
        self.write(kind, |index| index.reset(kind, objects));
    }

    /// Makes `objects` all there is of one kind of [`Other`].
    pub fn reset_dynamic(&self, api_version: &str, kind: &str, objects: Vec<WatchedObject>) {
        self.write(Kind::Dynamic, |index| {
            index.reset_dynamic(api_version, kind, objects)
        });
    }

    fn write(&self, kind: Kind, change: impl FnOnce(&mut Index) -> bool) {
        {
            let mut index = self.0.index.lock();
            if !change(&mut index) {
                return;
            }
            self.0.stale.store(true, Ordering::Release);
        }
        self.changed(kind);
    }

    fn changed(&self, kind: Kind) {
        let count = |versions: &mut Versions| versions.0[kind as usize] += 1;
        self.0.versions.send_modify(count);
        if kind != Kind::Pod {
            self.0.versions_except_pods.send_modify(count);
        }
    }
}

/// All there is of a kind, as a list brings it: each object counts at once, and
/// what the whole list has not brought is gone at its end. So a large cluster is
/// never held twice. Dropped before its end it takes nothing away.
#[derive(Debug)]
pub struct Relist {
    store: ClusterStore,
    kind: Kind,
    /// What was there before and has not come so far.
    not_listed: HashSet<Arc<str>>,
    changed: bool,
}

impl Relist {
    /// Takes an object of the kind. Readers see it at the end of the list, or with
    /// another change.
    pub fn add(&mut self, object: Object) {
        debug_assert_eq!(object.kind(), self.kind);
        self.not_listed.remove(&*object.key());
        self.changed |= self.store.0.index.lock().apply(object);
    }

    /// The list has an object of this key that cannot be used: what was good of it
    /// stays.
    pub fn retain(&mut self, key: &str) {
        self.not_listed.remove(key);
    }

    /// The list is complete. The first of a kind is a change, even if it is empty.
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
        let bit = 1 << self.kind as u8;
        self.store.0.listed.fetch_or(bit, Ordering::AcqRel);
        self.store.changed(self.kind);
    }
}

impl Drop for Relist {
    /// What came counts, even if the next list brings the same and changes nothing.
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
