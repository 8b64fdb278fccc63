//! Underlay allocations of pods that go: which are due to be released, and when a
//! failed release is repeated. The finalizer keeps the pod until then, so none is lost.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_core::{Snapshot, model::Pod};

const BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Releases at once.
const MAX_RELEASES: usize = 8;

/// The progress of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Progress {
    /// It is released; only the finalizer is left.
    released: bool,
    next: Option<Instant>,
    failures: u32,
}

/// An allocation to release.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub pod: Arc<Pod>,
    pub id: Box<str>,
    /// Only the finalizer is left.
    pub released: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ReleaseOutcome {
    /// Released, and the finalizer is removed.
    Done,
    /// Released; the finalizer could not be removed.
    FinalizerLeft,
    Failed,
}

/// The progress of every allocation, by pod UID and id.
#[derive(Default)]
pub(crate) struct ReleaseQueue(HashMap<(Box<str>, Box<str>), Progress>);

impl ReleaseQueue {
    /// The releases that are due, those that have waited longest first: a pod with very
    /// many allocations delays no other for ever.
    pub(crate) fn due(&mut self, snapshot: &Snapshot, now: Instant) -> Vec<Release> {
        let (mut all, mut due) = (HashMap::new(), Vec::new());
        for pod in snapshot.with_underlay_allocation() {
            for id in &pod.underlay {
                let key = (pod.uid.clone(), id.clone());
                let progress = self.0.get(&key).copied().unwrap_or_default();
                let leaves = pod.terminating || pod.finished;
                if leaves && progress.next.is_none_or(|at| at <= now) {
                    due.push((progress, Arc::clone(pod), id.clone()));
                }
                all.insert(key, progress);
            }
        }
        self.0 = all;
        due.sort_by_key(|(progress, ..)| progress.next);
        due.truncate(MAX_RELEASES);
        due.into_iter()
            .map(|(progress, pod, id)| Release {
                pod,
                id,
                released: progress.released,
            })
            .collect()
    }

    pub(crate) fn finish(&mut self, release: &Release, outcome: ReleaseOutcome, now: Instant) {
        let key = (release.pod.uid.clone(), release.id.clone());
        let progress = self.0.entry(key).or_default();
        progress.released = outcome != ReleaseOutcome::Failed;
        let wait = if outcome == ReleaseOutcome::Done {
            // The watch will report it.
            MAX_BACKOFF
        } else {
            let wait = BACKOFF * 2u32.saturating_pow(progress.failures.min(6));
            progress.failures += 1;
            wait.min(MAX_BACKOFF)
        };
        progress.next = Some(now + wait);
    }
}
