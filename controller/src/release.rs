//! Decides which underlay allocations of terminating and finished pods are due to be released, and
//! when a failed release is repeated. A finalizer keeps the pod until then, so no allocation is
//! lost.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_core::{Snapshot, model::Pod};

use crate::clock::backoff;

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The maximum number of releases that are due at a time.
const MAX_RELEASES: usize = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Progress {
    /// True if the allocation is released and only the finalizer is left.
    released: bool,
    next: Option<Instant>,
    failures: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub pod: Arc<Pod>,
    pub id: Box<str>,
    pub released: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ReleaseOutcome {
    Done,
    FinalizerLeft,
    Failed,
}

/// The progress of every allocation, by the pod's UID and the allocation's id.
#[derive(Default)]
pub(crate) struct ReleaseQueue(HashMap<(Box<str>, Box<str>), Progress>);

impl ReleaseQueue {
    /// Returns up to [`MAX_RELEASES`] releases that are due. Those that have waited longest come
    /// first, so that a pod with very many allocations does not delay others forever.
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
            // The watch will report that the finalizer is gone.
            MAX_BACKOFF
        } else {
            progress.failures += 1;
            backoff(FIRST_BACKOFF, MAX_BACKOFF, progress.failures)
        };
        progress.next = Some(now + wait);
    }
}

#[cfg(test)]
mod tests {
    use tautline_core::{Index, index::Object};

    use super::*;

    struct World {
        index: Index,
        queue: ReleaseQueue,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            Self {
                index: Index::default(),
                queue: ReleaseQueue::default(),
                now: Instant::now(),
            }
        }

        fn pod(&mut self, name: &str, ids: &[&str], terminating: bool) {
            self.index.apply(Object::Pod(Pod {
                namespace: "shop".into(),
                name: name.into(),
                uid: format!("uid-of-{name}").into(),
                underlay: ids.iter().map(|id| (*id).into()).collect(),
                terminating,
                ..Pod::default()
            }));
        }

        fn due(&mut self) -> Vec<Release> {
            self.queue.due(&self.index.snapshot(), self.now)
        }

        fn due_ids(&mut self) -> Vec<String> {
            let mut ids: Vec<String> = self.due().iter().map(|r| r.id.to_string()).collect();
            ids.sort();
            ids
        }

        /// Every release that is due ends so.
        fn finish(&mut self, outcome: ReleaseOutcome) -> usize {
            let due = self.due();
            for release in &due {
                self.queue.finish(release, outcome, self.now);
            }
            due.len()
        }

        fn advance(&mut self, secs: u64) {
            self.now += Duration::from_secs(secs);
        }
    }

    #[test]
    fn release_begins_when_the_pod_goes() {
        let mut world = World::new();
        world.pod("web", &["a", "b"], false);
        assert!(world.due_ids().is_empty());
        world.pod("web", &["a", "b"], true);
        assert_eq!(world.due_ids(), ["a", "b"]);
    }

    #[test]
    fn release_begins_when_the_pod_has_finished() {
        let mut world = World::new();
        world.index.apply(Object::Pod(Pod {
            name: "job".into(),
            underlay: ["a".into()].into(),
            finished: true,
            ..Pod::default()
        }));
        assert_eq!(world.due_ids(), ["a"]);
    }

    #[test]
    fn release_that_fails_is_retried_with_a_doubling_wait() {
        let mut world = World::new();
        world.pod("web", &["a"], true);
        let mut waits = Vec::new();
        for _ in 0..9 {
            assert_eq!(world.finish(ReleaseOutcome::Failed), 1);
            let before = world.now;
            while world.due().is_empty() {
                world.advance(1);
            }
            waits.push((world.now - before).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn release_is_not_repeated_where_only_the_finalizer_is_left() {
        let mut world = World::new();
        world.pod("web", &["a"], true);
        assert!(!world.due()[0].released);
        world.finish(ReleaseOutcome::FinalizerLeft);
        world.advance(1);
        assert!(world.due()[0].released);
    }

    #[test]
    fn release_that_is_done_waits_for_the_watch() {
        let mut world = World::new();
        world.pod("web", &["a"], true);
        world.finish(ReleaseOutcome::Done);
        world.advance(59);
        assert!(world.due().is_empty());
        world.advance(1);
        assert!(world.due()[0].released, "the finalizer came back");
    }

    #[test]
    fn release_of_a_new_pod_of_the_name_starts_over() {
        let mut world = World::new();
        world.pod("web", &["a"], true);
        world.finish(ReleaseOutcome::Done);
        world.index.apply(Object::Pod(Pod {
            namespace: "shop".into(),
            name: "web".into(),
            uid: "second".into(),
            underlay: ["a".into()].into(),
            terminating: true,
            ..Pod::default()
        }));
        assert!(!world.due()[0].released);
    }

    #[test]
    fn release_forgets_pods_that_are_gone() {
        let mut world = World::new();
        world.pod("web", &["a"], true);
        world.finish(ReleaseOutcome::Failed);
        let key = tautline_core::model::key("shop", "web");
        world.index.delete(tautline_core::index::Kind::Pod, &key);
        world.due();
        assert!(world.queue.0.is_empty());
    }

    #[test]
    fn releases_are_limited_to_8_at_once() {
        let mut world = World::new();
        let ids: Vec<String> = (0..20).map(|i| format!("id-{i}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        world.pod("web", &ids, true);
        assert_eq!(world.due().len(), 8);
    }

    #[test]
    fn releases_come_in_the_order_of_their_deadlines() {
        let mut world = World::new();
        let ids: Vec<String> = (0..20).map(|i| format!("id-{i}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        world.pod("web", &ids, true);
        let pod = Arc::clone(&world.due()[0].pod);
        for (i, id) in ids.iter().enumerate() {
            let release = Release {
                pod: Arc::clone(&pod),
                id: (*id).into(),
                released: false,
            };
            // Every second from 0 to 19 once: 3 * 7 is 1 more than 20.
            let at = world.now + Duration::from_secs(i as u64 * 7 % 20);
            world.queue.finish(&release, ReleaseOutcome::Failed, at);
        }
        world.advance(30);
        let due = world.due();
        let order: Vec<&str> = due.iter().map(|release| &*release.id).collect();
        let first = [0, 3, 6, 9, 12, 15, 18, 1].map(|i| ids[i]);
        assert_eq!(order, first);
    }

    /// Hundreds that fail and are due again come after one that has waited longer.
    #[test]
    fn release_that_waits_gets_its_turn() {
        let mut world = World::new();
        let ids: Vec<String> = (0..200).map(|i| format!("id-{i}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        world.pod("many", &ids, true);
        world.pod("one", &["waits"], true);
        // 8 at once: 201 have had their turn after 26 rounds.
        let waits = |due: &[Release]| due.iter().any(|r| &*r.id == "waits");
        let released = (0..26).any(|_| {
            let due = world.due();
            for release in &due {
                let now = world.now;
                world.queue.finish(release, ReleaseOutcome::Failed, now);
            }
            world.advance(60);
            waits(&due)
        });
        assert!(released);
    }
}
