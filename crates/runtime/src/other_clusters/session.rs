//! The contact with one cluster: its heartbeat, and the watches on pods of its namespaces.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, core::DeserializeGuard};
use kube_runtime::{
    WatchStreamExt,
    watcher::{self, Event, watcher},
};
use parking_lot::Mutex;
use tautline_api::convert;
use tautline_core::{
    remote::{Fault, MAX_REMOTE_PODS, RemotePod, RemoteTable, Scope},
    text::sanitize,
};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep},
};

use super::{futures_by_key::FuturesByKey, secrets::Access};
use crate::{
    api_call::{ApiCallError, within},
    backoff::WatchBackoff,
    error_text::error_text,
    kubeconfig::{self, READ_TIMEOUT},
    watch::in_pages,
    watch_changes::{Change, Changes},
};

/// The time between two heartbeats. They notice a dead connection, of which a silent watch knows
/// nothing for a minute.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The deadline of a connection, and of a heartbeat.
const DEADLINE: Duration = Duration::from_secs(5);
/// The wait after a failed attempt; it doubles each time.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// The time after which the API server ends a watch, in seconds.
const WATCH_SECONDS: u32 = 60;
const _: () = assert!((WATCH_SECONDS as u64) < READ_TIMEOUT.as_secs());
/// The maximum number of pods of a namespace in memory. Up to it [`Fault::TooManyPods`] ends as soon
/// as pods are deleted.
const MAX_HELD_PODS: usize = 2 * MAX_REMOTE_PODS;
/// The maximum size of the labels of a namespace's pods in memory, in bytes.
const MAX_LABEL_BYTES: usize = 4 << 20;
/// The maximum number of namespaces of one cluster that are listed at a time.
const LISTS_AT_ONCE: usize = 2;
/// The number of pods in a page of a list.
const PAGE_SIZE: u32 = 50;
/// Selects pods that have not finished.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// The number of errors in a row, without an event between them, after which a watch has failed.
const MAX_WATCH_ERRORS: usize = 5;
/// The maximum length of an error in the log, in characters. Another API server writes it.
const MAX_ERROR_CHARS: usize = 500;
/// The time until a namespace with more pods is listed again.
const RECOUNT: Duration = Duration::from_secs(300);
/// The HTTP status code of an API server that has too much to do.
const TOO_MANY_REQUESTS: u16 = 429;

/// The pods of all clusters. It is locked for moments, never across an await.
pub(super) type Table = Arc<Mutex<RemoteTable>>;
/// The namespaces of a cluster.
pub(super) type Namespaces = BTreeSet<Arc<str>>;

/// The contact with one cluster.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) cluster: Arc<str>,
    pub(super) access: Arc<Access>,
    pub(super) table: Table,
}

/// The loss of a cluster or of one of its namespaces.
#[derive(Debug)]
struct Lost {
    fault: Fault,
    /// The cause, for the log.
    error: String,
}

impl Lost {
    fn new(code: Option<u16>, error: String) -> Self {
        let fault = match code {
            Some(401) => Fault::Unauthorized,
            Some(403) => Fault::Forbidden,
            _ => Fault::Unreachable,
        };
        let error = sanitize(&error, MAX_ERROR_CHARS).into_owned();
        Self { fault, error }
    }
}

impl From<ApiCallError> for Lost {
    fn from(error: ApiCallError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<watcher::Error> for Lost {
    fn from(error: watcher::Error) -> Self {
        let code = match &error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        };
        Self::new(code, error_text(&error))
    }
}

/// The wait after the next failed attempt, and the fault that is in the log.
struct Attempts {
    wait: Duration,
    logged: Option<Fault>,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            wait: FIRST_RETRY,
            logged: None,
        }
    }
}

impl Attempts {
    /// Counts a failed attempt, and returns whether its fault is not in the log yet. One that lasted
    /// was a success before.
    fn fail(&mut self, began: Instant, fault: Fault) -> bool {
        if began.elapsed() > LONGEST_RETRY {
            *self = Self::default();
        }
        self.logged.replace(fault) != Some(fault)
    }

    async fn wait(&mut self) {
        sleep(self.wait).await;
        self.wait = (self.wait * 2).min(LONGEST_RETRY);
    }
}

/// The pods of a namespace that are in memory.
#[derive(Default)]
struct Held {
    /// The number of pods of the list that is under way or complete.
    listed: usize,
    /// The size of the labels of each pod, in bytes.
    label_bytes: HashMap<Arc<str>, usize>,
    /// The sum of these sizes.
    all_label_bytes: usize,
}

impl Held {
    fn put(&mut self, name: &Arc<str>, label_bytes: Option<usize>) {
        let earlier = match label_bytes {
            Some(bytes) => self.label_bytes.insert(Arc::clone(name), bytes),
            None => self.label_bytes.remove(name),
        };
        self.all_label_bytes -= earlier.unwrap_or_default();
        self.all_label_bytes += label_bytes.unwrap_or_default();
    }

    fn is_too_much(&self) -> bool {
        let pods = self.listed.max(self.label_bytes.len());
        pods > MAX_HELD_PODS || self.all_label_bytes > MAX_LABEL_BYTES
    }
}

/// Returns once the API server has answered.
async fn check(client: &Client) -> Result<(), Lost> {
    match within(DEADLINE, client.apiserver_version()).await {
        Err(error) if error.code() != Some(TOO_MANY_REQUESTS) => Err(error.into()),
        _ => Ok(()),
    }
}

impl Session {
    /// Keeps the table in step with these namespaces of the cluster, and connects again after each
    /// loss. It never ends.
    pub(super) async fn run(self, mut namespaces: watch::Receiver<Namespaces>) {
        let mut attempts = Attempts::default();
        loop {
            let began = Instant::now();
            let lost = match self.connect().await {
                Ok(client) => self.watch(&client, &mut namespaces).await,
                Err(lost) => lost,
            };
            self.table.lock().lost(&self.cluster, lost.fault);
            let (cluster, code, error) = (&self.cluster, lost.fault.code(), &lost.error);
            if attempts.fail(began, lost.fault) {
                tracing::warn!(%cluster, code, error, "another cluster is away");
            } else {
                tracing::debug!(%cluster, code, error, "another cluster is away");
            }
            attempts.wait().await;
        }
    }

    async fn connect(&self) -> Result<Client, Lost> {
        let client = kubeconfig::client(&self.access.kubeconfig, DEADLINE).await;
        let client = client.map_err(|error| Lost {
            fault: Fault::BadSecret,
            error: error_text(error.as_ref()),
        })?;
        check(&client).await?;
        tracing::info!(cluster = %self.cluster, "another cluster answers");
        Ok(client)
    }

    /// Watches the namespaces until the cluster is lost.
    async fn watch(&self, client: &Client, namespaces: &mut watch::Receiver<Namespaces>) -> Lost {
        tokio::select! {
            lost = self.send_heartbeats(client) => lost,
            lost = self.watch_namespaces(client, namespaces) => lost,
        }
    }

    async fn send_heartbeats(&self, client: &Client) -> Lost {
        loop {
            sleep(HEARTBEAT).await;
            if let Err(lost) = check(client).await {
                return lost;
            }
            let now = Instant::now().into_std();
            self.table.lock().alive(&self.cluster, now);
        }
    }

    async fn watch_namespaces(
        &self,
        client: &Client,
        namespaces: &mut watch::Receiver<Namespaces>,
    ) -> Lost {
        let mut watches = FuturesByKey::default();
        let lists = Arc::new(Semaphore::new(LISTS_AT_ONCE));
        loop {
            let wanted = namespaces.borrow_and_update().clone();
            watches.retain(|namespace| wanted.contains(namespace));
            for namespace in wanted {
                if !watches.contains(&namespace) {
                    let watch = self.clone();
                    let lists = Arc::clone(&lists);
                    let watch =
                        watch.watch_namespace(client.clone(), lists, Arc::clone(&namespace));
                    watches.start(namespace, Box::pin(watch));
                }
            }
            tokio::select! {
                changed = namespaces.changed() => {
                    if changed.is_err() {
                        let error = "no offer names the cluster".to_owned();
                        return Lost { fault: Fault::Connecting, error };
                    }
                }
                lost = watches.next() => return lost,
            }
        }
    }

    /// Watches a namespace until the whole cluster is lost.
    async fn watch_namespace(
        self,
        client: Client,
        lists: Arc<Semaphore>,
        namespace: Arc<str>,
    ) -> Lost {
        let scope = Scope {
            cluster: Arc::clone(&self.cluster),
            namespace,
        };
        let mut attempts = Attempts::default();
        loop {
            let began = Instant::now();
            let lost = self.list_and_watch(client.clone(), &lists, &scope).await;
            if lost.fault == Fault::Unauthorized {
                return lost;
            }
            self.table.lock().lost_scope(&scope, lost.fault);
            let Scope { cluster, namespace } = &scope;
            let (code, error) = (lost.fault.code(), &lost.error);
            if attempts.fail(began, lost.fault) {
                tracing::warn!(%cluster, %namespace, code, error, "pods cannot be watched");
            } else {
                tracing::debug!(%cluster, %namespace, code, error, "pods cannot be watched");
            }
            if lost.fault == Fault::TooManyPods {
                sleep(RECOUNT).await;
            } else {
                attempts.wait().await;
            }
        }
    }

    /// Lists and watches the pods of a namespace until a request is refused or fails.
    async fn list_and_watch(&self, client: Client, lists: &Semaphore, scope: &Scope) -> Lost {
        let pods: Api<DeserializeGuard<Pod>> = Api::namespaced(client, &scope.namespace);
        let mut listing = lists.acquire().await.ok();
        let config = in_pages().page_size(PAGE_SIZE).fields(UNFINISHED);
        let events = watcher(pods, config.timeout(WATCH_SECONDS)).backoff(WatchBackoff::default());
        let mut events = std::pin::pin!(events);
        let (mut changes, mut held, mut errors) = (Changes::default(), Held::default(), 0);
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                // Such a watch goes on or lists again by itself; if it goes on, no event says so.
                Err(
                    watcher::Error::WatchFailed(kube::Error::ReadEvents(_))
                    | watcher::Error::WatchError(_),
                ) if errors < MAX_WATCH_ERRORS => {
                    errors += 1;
                    continue;
                }
                // After other errors kube's watcher may go on without an event, too. A new one lists
                // first.
                Err(error) => return error.into(),
            };
            errors = 0;
            match event {
                Event::Init => held = Held::default(),
                Event::InitApply(_) => held.listed += 1,
                Event::InitDone => drop(listing.take()),
                Event::Apply(_) | Event::Delete(_) => {}
            }
            let change = changes.next(event, |pod: DeserializeGuard<Pod>| {
                let name: Arc<str> = pod.name_any().into();
                let pod = self.converted(pod, scope);
                held.put(&name, pod.as_ref().map(|pod| pod.labels.bytes()));
                (name, pod)
            });
            if held.is_too_much() {
                let error = format!(
                    "it has more than {MAX_HELD_PODS} pods, or labels of {MAX_LABEL_BYTES} bytes"
                );
                let fault = Fault::TooManyPods;
                return Lost { fault, error };
            }
            match change {
                None => {}
                Some(Change::Replaced(pods)) => {
                    let pods = pods.into_iter().filter_map(|(_, pod)| pod).collect();
                    let now = Instant::now().into_std();
                    self.table.lock().listed(scope, pods, now);
                }
                Some(Change::Applied((name, pod))) => self.table.lock().put(scope, &name, pod),
                Some(Change::Deleted((name, _))) => {
                    held.put(&name, None);
                    self.table.lock().put(scope, &name, None);
                }
            }
        }
        Lost::new(None, "the watch has ended".to_owned())
    }

    fn converted(&self, pod: DeserializeGuard<Pod>, scope: &Scope) -> Option<RemotePod> {
        match pod.0 {
            Ok(pod) => convert::remote_pod(&pod, &self.cluster, self.access.node_port),
            Err(error) => {
                let Scope { cluster, namespace } = scope;
                let pod = error.metadata.name.unwrap_or_default();
                let error = sanitize(&error.error, MAX_ERROR_CHARS);
                tracing::warn!(%cluster, %namespace, pod, %error, "a pod cannot be used");
                // Its last usable version stays.
                self.table.lock().pod(scope, &pod).cloned()
            }
        }
    }
}

#[cfg(test)]
mod tests;
