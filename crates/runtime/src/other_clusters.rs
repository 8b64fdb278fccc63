//! Watches the pods of other clusters that offers name, by kubeconfigs in Secrets.
//!
//! ```text
//! Secrets ─┐                                         every 250 ms
//! offers ──┴──▶ a session of each cluster ──▶ RemoteTable ──▶ ClusterStore
//! ```

mod futures_by_key;
mod secrets;
mod session;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use tautline_core::{
    Snapshot,
    index::{Kind, Object},
    remote::{Fault, MAX_SCOPES, RemotePods, RemoteState, Scope},
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

pub use self::secrets::CLUSTER_LABEL;
use self::{
    futures_by_key::FuturesByKey,
    secrets::{Access, Clusters, clusters},
    session::{Namespaces, Session, Table},
};
use crate::{
    admin::Readiness,
    cluster_store::{ClusterStore, Versions},
    dynamic_watch::{ByNamespace, select_in_turn},
    tasks::Tasks,
    watch::watch_list,
};

/// The name of the task, and of the condition of readiness.
const NAME: &str = "other clusters";
/// The time between two updates of the store.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(250);
/// The longest time for which readiness waits for other clusters, 5 s after the list of offers.
const READY_WITHIN: Duration = Duration::from_secs(5);

tautline_serve::metrics! {
    /// Metrics of the contact with other clusters. Clones share them.
    pub struct OtherClusterMetrics {
        namespaces: Family<ByCluster, Gauge> => "other_cluster_state",
            "Namespaces of other clusters that offers name, by cluster with a Secret and state: \
             current, last_known (the cluster is away, and its grace lasts) or unavailable";
    }
    labels ByCluster { cluster: String, state: &'static str }
}

/// Starts the watches. `namespace` has the Secrets with kubeconfigs. `readiness` waits for the first
/// lists of pods, but only for some seconds: other clusters delay no start.
pub fn spawn(
    client: &Client,
    store: &ClusterStore,
    namespace: &str,
    registry: &mut Registry,
    readiness: &Readiness,
    tasks: &mut Tasks,
) {
    let (sender, secrets) = watch::channel(None);
    let api = Api::namespaced(client.clone(), namespace);
    // Without the right to read Secrets the process must serve, too.
    let unused = Readiness::default();
    watch_list::<Secret>(api, Some(CLUSTER_LABEL), &unused, tasks, move |all| {
        _ = sender.send_replace(Some(clusters(&all)));
    });
    let metrics = OtherClusterMetrics::registered("", registry);
    let watcher = OtherClusters::new(store, secrets, metrics, readiness);
    tasks.spawn_until_stop(NAME, watcher.run());
}

/// The session of a cluster.
struct Contact {
    access: Arc<Access>,
    namespaces: watch::Sender<Namespaces>,
}

struct OtherClusters {
    store: ClusterStore,
    versions: watch::Receiver<Versions>,
    /// The versions at the last update.
    updated: Versions,
    /// The Secrets; `None` before their first list.
    secrets: watch::Receiver<Option<Clusters>>,
    table: Table,
    /// The watched namespaces.
    watched: BTreeSet<Scope>,
    /// The namespaces that offers name, too, but that are not watched, with the reason.
    unwatched: BTreeMap<Scope, Fault>,
    contacts: BTreeMap<Arc<str>, Contact>,
    sessions: FuturesByKey<()>,
    metrics: OtherClusterMetrics,
    /// `None` once it waits for nothing here.
    readiness: Option<Readiness>,
    /// The time at which readiness waits no longer; `None` before the list of offers.
    ready_by: Option<Instant>,
}

impl OtherClusters {
    fn new(
        store: &ClusterStore,
        secrets: watch::Receiver<Option<Clusters>>,
        metrics: OtherClusterMetrics,
        readiness: &Readiness,
    ) -> Self {
        readiness.expect(NAME);
        Self {
            store: store.clone(),
            versions: store.changes_except_pods(),
            updated: Versions::default(),
            secrets,
            table: Table::default(),
            watched: BTreeSet::new(),
            unwatched: BTreeMap::new(),
            contacts: BTreeMap::new(),
            sessions: FuturesByKey::default(),
            metrics,
            readiness: Some(readiness.clone()),
            ready_by: None,
        }
    }

    async fn run(mut self) {
        let mut ticks = interval(PUBLISH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // The sessions come first: each sees an update before the next one, so a namespace that
            // is named again soon is listed again.
            tokio::select! {
                biased;
                () = self.sessions.next() => {}
                _ = ticks.tick() => self.tick(),
            }
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        // This is read before the offers: all of them are in the update below then.
        let are_offers_listed = self.store.listed(Kind::Offer);
        let is_first = are_offers_listed && self.ready_by.is_none();
        let versions = *self.versions.borrow_and_update();
        let are_offers_changed = versions.changed(&self.updated, &[Kind::Offer]);
        let are_secrets_changed = self.secrets.has_changed().unwrap_or_default();
        let is_update = is_first || are_offers_changed || are_secrets_changed;
        if is_update {
            self.updated = versions;
            self.update();
        }
        if is_first {
            self.ready_by = Some(now + READY_WITHIN);
        }
        let is_published = self.publish(now);
        if is_update || is_published {
            self.count();
        }
        self.update_readiness(now);
    }

    /// Starts and ends sessions, by the offers and the Secrets.
    fn update(&mut self) {
        let clusters = self.secrets.borrow_and_update().clone();
        (self.watched, self.unwatched) = scopes(&self.store.snapshot(), clusters.as_ref());
        let shared = Arc::clone(&self.table);
        let mut table = shared.lock();
        let all = self.watched.iter().chain(self.unwatched.keys());
        for gone in table.want(&all.cloned().collect()) {
            self.store.delete(Kind::RemotePods, &gone.key());
        }
        for (scope, fault) in &self.unwatched {
            table.lost_scope(scope, *fault);
        }
        let clusters = clusters.unwrap_or_default();
        let mut wanted: BTreeMap<Arc<str>, Namespaces> = BTreeMap::new();
        for Scope { cluster, namespace } in &self.watched {
            let namespaces = wanted.entry(Arc::clone(cluster)).or_default();
            namespaces.insert(Arc::clone(namespace));
        }
        let mut earlier = std::mem::take(&mut self.contacts);
        for (cluster, namespaces) in wanted {
            let Some(Ok(settings)) = clusters.get(&cluster) else {
                // The Secrets are not listed yet.
                continue;
            };
            table.set_grace(&cluster, settings.grace);
            let known = earlier.remove(&cluster);
            let contact = match known.filter(|known| known.access == settings.access) {
                Some(known) => known,
                None => {
                    table.lost(&cluster, Fault::Connecting);
                    let session = Session {
                        cluster: Arc::clone(&cluster),
                        access: Arc::clone(&settings.access),
                        table: Arc::clone(&self.table),
                    };
                    let (sender, receiver) = watch::channel(Namespaces::new());
                    let session = Box::pin(session.run(receiver));
                    self.sessions.start(Arc::clone(&cluster), session);
                    Contact {
                        access: Arc::clone(&settings.access),
                        namespaces: sender,
                    }
                }
            };
            contact.namespaces.send_if_modified(|known| {
                let is_changed = *known != namespaces;
                *known = namespaces;
                is_changed
            });
            self.contacts.insert(cluster, contact);
        }
        let contacts = &self.contacts;
        self.sessions
            .retain(|cluster| contacts.contains_key(cluster));
    }

    /// Writes what has changed to the store, and returns whether anything has.
    fn publish(&mut self, now: Instant) -> bool {
        let is_waiting = self.ready_by.is_none_or(|by| now < by);
        let are_secrets_unknown = !is_waiting && self.secrets.borrow().is_none();
        let changed = {
            let mut table = self.table.lock();
            for scope in self.watched.iter().filter(|_| are_secrets_unknown) {
                table.lost_scope(scope, Fault::BadSecret);
            }
            table.changes(now.into_std())
        };
        if changed.is_empty() {
            return false;
        }
        let before = self.store.snapshot();
        for pods in changed {
            let Scope { cluster, namespace } = &pods.scope;
            let known = before.remote_pods(cluster, namespace);
            log(known.map(|known| known.fault()), &pods);
            self.store.apply(Object::RemotePods(pods));
        }
        true
    }

    /// Sets the metrics. Clusters without a Secret are left out, since tenants choose their names.
    fn count(&self) {
        let snapshot = self.store.snapshot();
        let known = self.secrets.borrow();
        let mut counts: BTreeMap<&Arc<str>, [i64; 3]> = BTreeMap::new();
        for Scope { cluster, namespace } in self.watched.iter().chain(self.unwatched.keys()) {
            let Some(pods) = snapshot.remote_pods(cluster, namespace) else {
                continue;
            };
            let state = match pods.state {
                RemoteState::Current => 0,
                RemoteState::LastKnown(_) => 1,
                RemoteState::Unavailable(_) => 2,
            };
            if known.as_ref().is_some_and(|all| all.contains_key(cluster)) {
                counts.entry(cluster).or_default()[state] += 1;
            }
        }
        self.metrics.namespaces.clear();
        for (cluster, counts) in counts {
            let states = ["current", "last_known", "unavailable"];
            for (state, count) in states.into_iter().zip(counts) {
                let cluster = cluster.to_string();
                let labels = ByCluster { cluster, state };
                self.metrics.namespaces.get_or_create(&labels).set(count);
            }
        }
    }

    fn update_readiness(&mut self, now: Instant) {
        let (Some(by), Some(readiness)) = (self.ready_by, &self.readiness) else {
            return;
        };
        let snapshot = self.store.snapshot();
        let is_listed = |Scope { cluster, namespace }: &Scope| {
            let pods = snapshot.remote_pods(cluster, namespace);
            pods.is_some_and(|pods| pods.fault() != Some(Fault::Connecting))
        };
        if by <= now || self.watched.iter().all(is_listed) {
            readiness.done(NAME);
            self.readiness = None;
        }
    }
}

/// Returns the namespaces of other clusters to watch, and those that are named and not watched, with
/// the reason. Only clusters with a usable Secret count for the limit; `None`: no Secret is known yet.
fn scopes(
    snapshot: &Snapshot,
    clusters: Option<&Clusters>,
) -> (BTreeSet<Scope>, BTreeMap<Scope, Fault>) {
    let mut named: ByNamespace<'_, Scope> = BTreeMap::new();
    let mut unwatched = BTreeMap::new();
    for offer in snapshot.offers().map(|entry| &*entry.offer) {
        for target in &offer.remote_targets {
            let scope = Scope {
                cluster: Arc::clone(&target.cluster),
                namespace: Arc::clone(&offer.namespace),
            };
            let fault = clusters.and_then(|clusters| match clusters.get(&target.cluster) {
                Some(settings) => settings.as_ref().err().copied(),
                None => Some(Fault::NoSecret),
            });
            if let Some(fault) = fault {
                unwatched.insert(scope, fault);
                continue;
            }
            let scopes = named.entry(&offer.namespace).or_default();
            let oldest = scopes.entry(scope).or_insert(offer.created_unix);
            *oldest = offer.created_unix.min(*oldest);
        }
    }
    let (watched, beyond) = select_in_turn(&named, MAX_SCOPES);
    unwatched.extend(beyond.into_iter().map(|s| (s, Fault::TooManyNamespaces)));
    (watched, unwatched)
}

/// Logs whether the pods may be used, if that has changed. `before` is the last fault; `None` of a new
/// namespace.
fn log(before: Option<Option<Fault>>, now: &RemotePods) {
    let Scope { cluster, namespace } = &now.scope;
    match (before, now.fault()) {
        (Some(Some(_)), None) => {
            tracing::info!(%cluster, %namespace, "pods of another cluster are known");
        }
        (_, None | Some(Fault::Connecting)) => {}
        (before, Some(fault)) if before == Some(Some(fault)) => {}
        (before, Some(fault)) => {
            let problem = fault.text(cluster);
            // Tenants choose the names, so these faults may be many.
            let is_of_tenant = matches!(fault, Fault::NoSecret | Fault::TooManyNamespaces);
            if is_of_tenant && before != Some(None) {
                tracing::debug!(%cluster, %namespace, problem, "pods of another cluster are unavailable");
                return;
            }
            tracing::warn!(%cluster, %namespace, problem, "pods of another cluster are unavailable");
        }
    }
}

#[cfg(test)]
mod tests;
