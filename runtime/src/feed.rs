//! The one writer of a process's index, and what readers hold of it.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tautline_core::{
    Index, Snapshot,
    index::{Kind, Object},
    model::Other,
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
/// one. Writes are short and synchronous; reads never wait.
#[derive(Clone, Debug)]
pub struct Feed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    index: Mutex<Index>,
    now: ArcSwap<Snapshot>,
    versions: watch::Sender<Versions>,
    /// Objects that could not be used, and why.
    refused: Mutex<BTreeMap<(Kind, String), String>>,
}

impl Default for Feed {
    fn default() -> Self {
        Self(Arc::new(Inner {
            index: Mutex::default(),
            now: ArcSwap::default(),
            versions: watch::Sender::new(Versions::default()),
            refused: Mutex::default(),
        }))
    }
}

impl Feed {
    /// The cluster at this moment.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.now.load_full()
    }

    /// Wakes when anything has changed.
    pub fn changes(&self) -> watch::Receiver<Versions> {
        self.0.versions.subscribe()
    }

    /// Notes that an object as it is now cannot be used; what was good of it stays.
    pub fn refuse(&self, kind: Kind, key: &str, why: String) {
        self.0.refused.lock().insert((kind, key.to_owned()), why);
        self.changed(kind);
    }

    /// The objects of a kind that cannot be used, by key, and why.
    pub fn refused(&self, kind: Kind) -> BTreeMap<String, String> {
        let refused = self.0.refused.lock();
        let of_kind = refused.iter().filter(|((k, _), _)| *k == kind);
        of_kind
            .map(|((_, key), why)| (key.clone(), why.clone()))
            .collect()
    }

    /// An object of this key can be used again, or is gone.
    pub fn accept(&self, kind: Kind, key: &str) {
        let was = self.0.refused.lock().remove(&(kind, key.to_owned()));
        if was.is_some() {
            self.changed(kind);
        }
    }

    pub fn apply(&self, object: Object) {
        let kind = object.kind();
        self.write(kind, |index| index.apply(object));
    }

    pub fn delete(&self, kind: Kind, key: &str) {
        self.write(kind, |index| index.delete(kind, key));
    }

    /// Makes `objects` all there is of `kind`.
    pub fn reset(&self, kind: Kind, objects: Vec<Object>) {
        self.write(kind, |index| index.reset(kind, objects));
    }

    /// Makes `objects` all there is of one kind of [`Other`].
    pub fn reset_others(&self, api_version: &str, kind: &str, objects: Vec<Other>) {
        self.write(Kind::Other, |index| {
            index.reset_others(api_version, kind, objects)
        });
    }

    fn write(&self, kind: Kind, change: impl FnOnce(&mut Index) -> bool) {
        {
            let mut index = self.0.index.lock();
            if !change(&mut index) {
                return;
            }
            // Under the lock, so that snapshots are published in order.
            self.0.now.store(Arc::new(index.snapshot()));
        }
        self.changed(kind);
    }

    fn changed(&self, kind: Kind) {
        self.0.versions.send_modify(|v| v.0[kind as usize] += 1);
    }
}
