//! The pods of this node, kept up to date by a watch.

pub(crate) mod entry;

use std::{collections::HashMap, fmt, sync::Arc};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, core::ApiResource};
use kube_runtime::{
    WatchStreamExt,
    watcher::{self, watcher},
};
use tautline_runtime::{
    backoff::WatchBackoff,
    error_text::error_text,
    watch_changes::{Change, Changes},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use entry::NodePod;
pub(crate) use entry::{PodEntry, has_nvidia_cards};

/// A pod of the node, by the name or the UID that the kubelet reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PodRef {
    Name { namespace: String, name: String },
    Uid(String),
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { namespace, name } => write!(f, "{namespace}/{name}"),
            Self::Uid(uid) => write!(f, "with UID {uid}"),
        }
    }
}

/// The pods of this node.
#[derive(Debug, Default)]
pub(crate) struct Pods(watch::Sender<Known>);

#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The pods by the UID that the API server gave them.
    pods: HashMap<Arc<str>, Arc<PodEntry>>,
    /// True once a watch has listed all pods.
    complete: bool,
}

impl Known {
    fn by_uid(&self, uid: &str) -> Option<Arc<PodEntry>> {
        let pod = self.pods.get(uid).filter(|pod| *pod.uid == *uid);
        pod.or_else(|| self.pods.values().find(|pod| *pod.uid == *uid))
            .cloned()
    }

    /// Returns the pod. A name does not mean a pod that is ending, since a new pod may take its
    /// name over.
    fn get(&self, pod: &PodRef) -> Option<Arc<PodEntry>> {
        match pod {
            PodRef::Uid(uid) => self.by_uid(uid),
            PodRef::Name { namespace, name } => {
                let is = |pod: &&Arc<PodEntry>| {
                    !pod.ending && *pod.name == **name && *pod.namespace == **namespace
                };
                self.pods.values().find(is).cloned()
            }
        }
    }

    fn apply(&mut self, change: Change<Option<PodEntry>>) {
        let keyed = |pod: PodEntry| (Arc::clone(&pod.api_uid), Arc::new(pod));
        match change {
            Change::Replaced(pods) => {
                self.pods = pods.into_iter().flatten().map(keyed).collect();
                self.complete = true;
            }
            Change::Applied(pod) => self.pods.extend(pod.map(keyed)),
            Change::Deleted(pod) => _ = pod.and_then(|pod| self.pods.remove(&pod.api_uid)),
        }
    }
}

impl Pods {
    /// Watches the pods of the node.
    pub async fn watch(&self, client: Client, node: &str) {
        let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let kind = ApiResource::erase::<Pod>(&());
        let events = watcher(Api::<NodePod>::all_with(client, &kind), config)
            .backoff(WatchBackoff::default());
        let (mut events, mut changes) = (std::pin::pin!(events), Changes::default());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.see(changes.next(event, |pod| PodEntry::read(&pod))),
                Err(error) => {
                    let error = error_text(&error);
                    tracing::warn!(error, "the watch of pods restarts");
                }
            }
        }
    }

    fn see(&self, change: Option<Change<Option<PodEntry>>>) {
        if let Some(change) = change {
            self.0.send_modify(|known| known.apply(change));
        }
    }

    /// Returns all pods, in no order.
    pub fn all(&self) -> Vec<Arc<PodEntry>> {
        self.0.borrow().pods.values().cloned().collect()
    }

    /// Returns the pod with this UID, as the runtime and cgroups know it.
    pub fn by_uid(&self, uid: &str) -> Option<Arc<PodEntry>> {
        self.0.borrow().by_uid(uid)
    }

    /// Waits until `enough` accepts the pod, and returns it; at the deadline returns the pod as it
    /// is known then.
    pub async fn wait_for(
        &self,
        pod: &PodRef,
        deadline: Instant,
        enough: impl Fn(&PodEntry) -> bool,
    ) -> Option<Arc<PodEntry>> {
        let mut found = None;
        let mut known = self.0.subscribe();
        let waited = known.wait_for(|known| {
            found = known.get(pod);
            found.as_deref().is_some_and(&enough)
        });
        _ = timeout_at(deadline, waited).await;
        found
    }

    /// Returns whether all pods are known.
    pub fn are_known(&self) -> bool {
        self.0.borrow().complete
    }

    /// Returns whether a pod that has not ended requests cards of NVIDIA's device plugin; `None`
    /// until the pods are known.
    pub fn ask_nvidia(&self) -> Option<bool> {
        let known = self.0.borrow();
        let asks = |pod: &Arc<PodEntry>| pod.nvidia && !pod.ended;
        known.complete.then(|| known.pods.values().any(asks))
    }

    /// Returns a receiver that sees each change of the pods.
    pub fn changes(&self) -> watch::Receiver<Known> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    impl Pods {
        /// Creates a store with these pods.
        pub(crate) fn of(pods: impl IntoIterator<Item = PodEntry>) -> Arc<Self> {
            let store = Arc::new(Self::default());
            for pod in pods {
                store.put(pod);
            }
            store.0.send_modify(|known| known.complete = true);
            store
        }

        /// Adds or changes a pod.
        pub(crate) fn put(&self, pod: PodEntry) {
            let uid = Arc::clone(&pod.api_uid);
            self.0
                .send_modify(|known| _ = known.pods.insert(uid, Arc::new(pod)));
        }
    }

    fn pod(uid: &str, name: &str, record: Option<&str>, deleted: bool) -> Option<PodEntry> {
        let annotations = record.map(|r| json!({"tautline.io/gpu-devices": r}));
        let deletion = deleted.then_some("2026-01-01T00:00:00Z");
        let pod: NodePod = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop", "uid": uid,
                "annotations": annotations, "deletionTimestamp": deletion},
            "spec": {"containers": [{"name": "app"}]},
        }))
        .unwrap();
        PodEntry::read(&pod)
    }

    fn by_name(name: &str) -> PodRef {
        PodRef::Name {
            namespace: "shop".into(),
            name: name.into(),
        }
    }

    #[test]
    fn a_list_replaces_the_pods() {
        let pods = Pods::default();
        pods.see(Some(Change::Applied(pod("u1", "a", None, false))));
        assert!(pods.by_uid("u1").is_some() && !pods.are_known());
        pods.see(Some(Change::Replaced(vec![pod("u3", "c", None, false)])));
        assert!(pods.by_uid("u1").is_none() && pods.by_uid("u3").is_some());
        assert!(pods.are_known());
        pods.see(Some(Change::Deleted(pod("u3", "c", None, false))));
        assert!(pods.all().is_empty());
    }

    #[test]
    fn a_name_means_the_pod_that_does_not_end() {
        let pods = Pods::default();
        let apply = |pod| pods.see(Some(Change::Applied(pod)));
        apply(pod("old", "web-0", Some("GPU-a:250"), true));
        assert!(pods.0.borrow().get(&by_name("web-0")).is_none());
        apply(pod("new", "web-0", Some("GPU-b:250"), false));
        let found = pods.0.borrow().get(&by_name("web-0")).unwrap();
        assert_eq!(&*found.uid, "new");
        assert!(pods.by_uid("old").is_some());
    }

    #[test]
    fn pods_ask_nvidias_plugin_until_they_end() {
        let pods = Pods::default();
        assert_eq!(pods.ask_nvidia(), None);
        pods.see(Some(Change::Replaced(Vec::new())));
        assert_eq!(pods.ask_nvidia(), Some(false));
        let mut asking = PodEntry {
            nvidia: true,
            ..PodEntry::default()
        };
        pods.put(asking.clone());
        assert_eq!(pods.ask_nvidia(), Some(true));
        asking.ended = true;
        pods.put(asking);
        assert_eq!(pods.ask_nvidia(), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_sees_a_record_that_comes_late() {
        let pods = Arc::new(Pods::default());
        let late = Arc::clone(&pods);
        let task = tokio::spawn(async move {
            for record in [None, Some("GPU-a:250")] {
                tokio::time::sleep(Duration::from_secs(1)).await;
                late.see(Some(Change::Applied(pod("u1", "web-0", record, false))));
            }
        });
        let deadline = Instant::now() + Duration::from_secs(5);
        let enough = |pod: &PodEntry| pod.record.is_some();
        let found = pods.wait_for(&by_name("web-0"), deadline, enough).await;
        assert!(found.unwrap().record.is_some());
        assert_eq!(deadline - Instant::now(), Duration::from_secs(3));
        task.await.unwrap();
        let absent = pods.wait_for(&by_name("x"), deadline, enough).await;
        assert_eq!((absent, Instant::now()), (None, deadline));
        assert!(!pods.are_known());
    }
}
