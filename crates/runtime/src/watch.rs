//! Watches that keep a [`ClusterStore`] in step with a cluster, and restart with backoff.

mod protobuf;

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Instant};

use anyhow::Result;
use futures::{Stream, StreamExt};
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Node, Pod, Service},
        discovery::v1::EndpointSlice,
        resource::v1::DeviceClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Resource, ResourceExt,
    core::{DeserializeGuard, error_boundary::InvalidObject},
};
use kube_runtime::{
    WatchStreamExt,
    watcher::{self, Event, watcher},
};
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use serde::de::DeserializeOwned;
use tautline_api::{
    ConstraintPolicy, ConstraintPolicyOffer,
    convert::Indexed,
    watched::{MalformedObject, Watchable},
};
use tautline_core::index::{Kind, Object};
use tokio_util::sync::CancellationToken;

use protobuf::WatchSignal;

use crate::{
    admin::Readiness,
    backoff::WatchBackoff,
    cluster::Cluster,
    cluster_store::ClusterStore,
    error_text::error_text,
    tasks::Tasks,
    watch_changes::{Change, Changes},
};

type Decoded<K> = Result<K, MalformedObject>;

/// Reports that the watch is not needed yet, so that readiness does not wait for it.
pub type NotNeeded = Box<dyn Fn() + Send>;

tautline_serve::metrics! {
    /// Metrics of the watches. Clones share them.
    pub struct WatchMetrics {
        events: Family<ByKind, Counter> => "watch_events",
            "Objects that a watch listed, or reported as added, changed or deleted";
        malformed: Family<ByKind, Counter> => "watch_malformed_objects",
            "Objects that a watch reported and that could not be used";
        errors: Family<ByKind, Counter> => "watch_errors", "Errors that restarted a watch";
        reduced_pods: Gauge => "watch_reduced_pods",
            "Pods whose affinity, tolerations and annotations take more memory than is kept of a \
             pod or its namespace: no plan finds a node for them, or for others next to them";
    }
    labels ByKind { kind: String }
}

/// Starts watches as tasks; `readiness` waits for the first list of each.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// The cluster to watch.
    pub cluster: &'a Cluster,
    /// The store to keep in step.
    pub store: &'a ClusterStore,
    /// The metrics of the watches.
    pub metrics: &'a WatchMetrics,
    /// The readiness that waits for the lists.
    pub readiness: &'a Readiness,
}

impl Watch<'_> {
    /// Watches every kind except pods.
    pub fn all_except_pods(&self, tasks: &mut Tasks) {
        self.nodes(tasks);
        self.services(tasks);
        self.endpoint_slices(tasks);
        self.rules(tasks);
        self.json::<Namespace>(tasks);
        // Clusters before Kubernetes 1.34 do not have the kind, and users of the console may be
        // denied it: readiness does not wait then, and no error is counted.
        self.json::<DeviceClass>(tasks);
    }

    /// Watches all pods.
    pub fn pods(&self, tasks: &mut Tasks) {
        self.protobuf::<Pod>(std::future::ready(()), tasks);
    }

    /// Watches all pods once the future that `wanted` returns completes, for processes that seldom
    /// need them. Readiness waits for the pods unless `wanted` calls its argument.
    pub fn pods_once<F: Future<Output = ()> + Send + 'static>(
        &self,
        wanted: impl FnOnce(NotNeeded) -> F,
        tasks: &mut Tasks,
    ) {
        let readiness = self.readiness.clone();
        let wanted = wanted(Box::new(move || readiness.done(&Pod::plural(&()))));
        self.protobuf::<Pod>(wanted, tasks);
    }

    /// Watches all nodes.
    pub fn nodes(&self, tasks: &mut Tasks) {
        self.protobuf::<Node>(std::future::ready(()), tasks);
    }

    /// Watches the Services of rule providers and underlay controllers.
    pub fn services(&self, tasks: &mut Tasks) {
        self.json::<Service>(tasks);
    }

    /// Watches all EndpointSlices.
    pub fn endpoint_slices(&self, tasks: &mut Tasks) {
        self.json::<EndpointSlice>(tasks);
    }

    /// Watches policies and offers.
    pub fn rules(&self, tasks: &mut Tasks) {
        self.json::<ConstraintPolicy>(tasks);
        self.json::<ConstraintPolicyOffer>(tasks);
    }

    /// Watches a kind in JSON: one with few objects or without protobuf.
    fn json<K>(&self, tasks: &mut Tasks)
    where
        K: Indexed + Resource<DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let mut on_event = self.event_handler::<K>();
        let (api, stop) = (Api::all(self.cluster.client().clone()), tasks.stop_token());
        let readiness = self.readiness.clone();
        tasks.spawn(&format!("watch {}", K::plural(&())), async move {
            let events = watcher(api, in_pages()).backoff(WatchBackoff::default());
            let mut events = std::pin::pin!(events);
            while let Some(event) = next(&mut events, &stop).await {
                if K::KIND == Kind::DeviceClass && event.as_ref().is_err_and(is_absent_or_denied) {
                    // The watch is tried again, since a starting API server gives this answer for a
                    // moment.
                    readiness.done(&K::plural(&()));
                    continue;
                }
                on_event(event.map(guarded).map_err(Into::into));
            }
            Ok(())
        });
    }

    /// Watches a kind in protobuf, once `wanted` completes: one that may change thousands of times a
    /// second.
    fn protobuf<K: Watchable + Indexed>(
        &self,
        wanted: impl Future<Output = ()> + Send + 'static,
        tasks: &mut Tasks,
    ) {
        let on_event = self.event_handler::<K>();
        let (cluster, stop) = (self.cluster.clone(), tasks.stop_token());
        let (store, readiness) = (self.store.clone(), self.readiness.clone());
        let on_signal = move |signal| match signal {
            WatchSignal::Pause(time) if K::KIND == Kind::Pod => store.pause_pods(time),
            WatchSignal::Pause(time) => std::thread::sleep(time),
            _ if K::KIND != Kind::Pod => {}
            WatchSignal::WatchStarted => store.watch_pods(Some(Instant::now())),
            WatchSignal::WatchEnded => store.watch_pods(None),
        };
        tasks.spawn(&format!("watch {}", K::plural(&())), async move {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = wanted => {}
            }
            if !readiness.missing().is_empty() {
                readiness.set(&K::plural(&()), false);
            }
            protobuf::run_on_own_thread(cluster, stop, on_event, on_signal).await
        });
    }

    fn event_handler<K>(&self) -> impl FnMut(Result<Event<Decoded<K>>>) + Send + use<K>
    where
        K: Indexed + Resource<DynamicType = ()> + Send + 'static,
    {
        let kind = K::KIND;
        let name = K::plural(&()).into_owned();
        self.readiness.expect(&name);
        let label = ByKind { kind: name.clone() };
        let (store, readiness) = (self.store.clone(), self.readiness.clone());
        let events = self.metrics.events.get_or_create_owned(&label);
        let malformed = self.metrics.malformed.get_or_create_owned(&label);
        let errors = self.metrics.errors.get_or_create_owned(&label);
        let reduced_pods = self.metrics.reduced_pods.clone();
        let mut relist = None;
        let mut unusable: Vec<String> = Vec::new();
        move |event| {
            let convert_counted = |decoded: &Decoded<K>| {
                events.inc();
                let object = match decoded {
                    Ok(object) => object.object().map_err(|error| error.to_string()),
                    Err(malformed) => Err(malformed.error.clone()),
                };
                match object {
                    Ok(object) => {
                        store.accept(kind, &key(decoded));
                        Ok(Some(object).filter(is_used))
                    }
                    Err(error) => {
                        malformed.inc();
                        let object = key(decoded);
                        tracing::warn!(kind = %name, %object, %error, "object cannot be used");
                        store.reject(kind, &object, error);
                        Err(())
                    }
                }
            };
            match event {
                Err(error) => {
                    errors.inc();
                    let error = error_text(error.as_ref());
                    tracing::warn!(kind = %name, error, "watch restarts");
                }
                Ok(Event::Init) => {
                    relist = Some(store.begin_relist(kind));
                    unusable.clear();
                }
                Ok(Event::InitApply(o)) => match (convert_counted(&o), &mut relist) {
                    (Ok(Some(object)), Some(relist)) => relist.add(object),
                    // A malformed update must not remove a limit: the last usable version stays.
                    (Err(()), Some(relist)) => {
                        relist.retain(&key(&o));
                        unusable.push(key(&o));
                    }
                    _ => {}
                },
                Ok(Event::InitDone) => {
                    for gone in store
                        .rejected(kind)
                        .into_keys()
                        .filter(|k| !unusable.contains(k))
                    {
                        store.accept(kind, &gone);
                    }
                    if let Some(relist) = relist.take() {
                        relist.commit();
                    }
                    readiness.done(&label.kind);
                }
                Ok(Event::Apply(o)) => match convert_counted(&o) {
                    Ok(Some(object)) => store.apply(object),
                    Ok(None) => store.delete(kind, &key(&o)),
                    Err(()) => {}
                },
                Ok(Event::Delete(o)) => {
                    events.inc();
                    store.accept(kind, &key(&o));
                    store.delete(kind, &key(&o));
                }
            }
            if kind == Kind::Pod {
                reduced_pods.set(i64::try_from(store.reduced_pods()).unwrap_or(i64::MAX));
            }
        }
    }
}

/// Returns whether an object may be used: other Services than those of providers are left out.
fn is_used(object: &Object) -> bool {
    match object {
        Object::Service(service) => !service.rules.is_empty() || service.underlay,
        _ => true,
    }
}

fn key<K: Resource>(decoded: &Decoded<K>) -> String {
    let meta: &ObjectMeta = match decoded {
        Ok(object) => object.meta(),
        Err(malformed) => &malformed.metadata,
    };
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => [namespace, "/", name].concat(),
        None => name.to_owned(),
    }
}

/// Returns whether the first list failed because the cluster lacks the kind or denies it to the
/// caller.
fn is_absent_or_denied(error: &watcher::Error) -> bool {
    let watcher::Error::InitialListFailed(kube::Error::Api(status)) = error else {
        return false;
    };
    matches!(status.code, 403 | 404)
}

fn guarded<K>(event: Event<DeserializeGuard<K>>) -> Event<Decoded<K>> {
    let decoded = |guard: DeserializeGuard<K>| {
        guard.0.map_err(|invalid| MalformedObject {
            metadata: Box::new(invalid.metadata),
            error: invalid.error,
        })
    };
    match event {
        Event::Apply(o) => Event::Apply(decoded(o)),
        Event::Delete(o) => Event::Delete(decoded(o)),
        Event::Init => Event::Init,
        Event::InitApply(o) => Event::InitApply(decoded(o)),
        Event::InitDone => Event::InitDone,
    }
}

/// Returns a configuration that lists in pages, since objects may have up to 1.5 MB each.
pub fn in_pages() -> watcher::Config {
    watcher::Config::default().page_size(100)
}

/// Watches a kind with few objects; `reset` receives all of them after each change.
pub fn watch_list<K>(
    api: Api<DeserializeGuard<K>>,
    selector: Option<&str>,
    readiness: &Readiness,
    tasks: &mut Tasks,
    reset: impl Fn(Vec<Arc<K>>) + Send + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let mut name = K::plural(&()).into_owned();
    let mut config = in_pages();
    if let Some(selector) = selector {
        name += &format!(" ({selector})");
        config = config.labels(selector);
    }
    readiness.expect(&name);
    let readiness = readiness.clone();
    let stop = tasks.stop_token();
    tasks.spawn(&format!("watch {name}"), async move {
        let events = watcher(api, config).backoff(WatchBackoff::default());
        let mut events = std::pin::pin!(events);
        let (mut known, mut changes) = (BTreeMap::new(), Changes::default());
        while let Some(event) = next(&mut events, &stop).await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    let error = error_text(&error);
                    tracing::warn!(kind = %name, error, "watch restarts");
                    continue;
                }
            };
            let usable = |object: Result<K, InvalidObject>| match object {
                Ok(object) => Some(Arc::new(object)),
                Err(error) => {
                    tracing::warn!(kind = %name, error = %error.error, "object cannot be used");
                    None
                }
            };
            let keyed = |o: DeserializeGuard<K>| ((o.namespace(), o.name_any()), o.0);
            match changes.next(event, keyed) {
                None => continue,
                Some(Change::Replaced(list)) => {
                    let list = list.into_iter().filter_map(|(key, object)| {
                        let object = usable(object).or_else(|| known.get(&key).cloned());
                        object.map(|o| (key, o))
                    });
                    known = list.collect();
                }
                Some(Change::Applied((key, o))) => known.extend(usable(o).map(|o| (key, o))),
                Some(Change::Deleted((key, _))) => _ = known.remove(&key),
            }
            reset(known.values().cloned().collect());
            readiness.done(&name);
        }
        Ok(())
    });
}

async fn next<S: Stream + Unpin>(events: &mut S, stop: &CancellationToken) -> Option<S::Item> {
    tokio::select! {
        () = stop.cancelled() => None,
        event = events.next() => event,
    }
}
