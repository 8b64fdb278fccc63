//! The controller's process: binds the admin port, and starts the tasks with their channels.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Result;
use hyper::Request;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tautline_core::names::CONTROLLER;
use tautline_pod_requeue::PodRequeue;
use tautline_provider_client::ProviderClient;
use tautline_runtime::{
    admin::{self, Readiness},
    cluster::Cluster,
    cluster_store::ClusterStore,
    dynamic_watch::{self, WatchedKinds},
    events::{self, Events},
    history::{FigureHistory, HISTORY_PATH},
    http,
    lease::{self, Term},
    other_clusters,
    tasks::Tasks,
    watch::{Watch, WatchMetrics},
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, watch::Sender},
};

use crate::{
    config::Config,
    decisions::Decisions,
    executor::{
        Context,
        bindings::{self, BINDINGS},
        gate, open_reports, release, violations, watch_bindings,
    },
    metrics::{Metrics, PREFIX},
};

/// The capacity of each channel of binding events.
const BINDING_EVENT_CAPACITY: usize = 1024;

/// A controller whose port is bound.
pub struct App {
    context: Arc<Context>,
    cluster: Cluster,
    queue: events::Queue,
    admin: TcpListener,
    registry: Registry,
}

impl App {
    /// Binds the admin port and creates the clients.
    ///
    /// # Errors
    /// Fails if the admin address is in use or a TLS file does not load.
    pub async fn build(config: Config, cluster: Cluster) -> Result<Self> {
        let mut registry = Registry::with_prefix("tautline");
        let metrics = Metrics::registered("", registry.sub_registry_with_prefix(PREFIX));
        let provider_metrics = tautline_provider_client::Metrics::default();
        provider_metrics.register("", &mut registry);
        let (events, queue) = Events::new();
        events.register(&mut registry);
        let admin = admin::bind(config.admin).await?;
        let readiness = Readiness::default();
        readiness.expect(BINDINGS);
        let context = Arc::new(Context {
            provider_client: ProviderClient::new(config.provider_client.clone(), provider_metrics)?,
            config,
            store: ClusterStore::default(),
            client: cluster.client().clone(),
            metrics,
            events,
            kinds: WatchedKinds::default(),
            decisions: Decisions::default(),
            readiness,
            violation_history: FigureHistory::new("violations", "bindings"),
            violations: Mutex::default(),
            eviction_turn: Semaphore::new(1),
            leader: Sender::new(None),
        });
        Ok(Self {
            context,
            cluster,
            queue,
            admin,
            registry,
        })
    }

    /// Returns the bound address of the admin port.
    pub fn admin_address(&self) -> Result<SocketAddr> {
        Ok(self.admin.local_addr()?)
    }

    /// Returns the readiness, which is reached once all initial lists are complete.
    pub fn readiness(&self) -> Readiness {
        self.context.readiness.clone()
    }

    /// Starts the watches, the election and the admin port.
    pub fn spawn(mut self, tasks: &mut Tasks) {
        let (context, stop) = (self.context, tasks.stop_token());
        let client = context.client.clone();
        let watch_metrics = WatchMetrics::default();
        watch_metrics.register("", &mut self.registry);
        let watch = Watch {
            cluster: &self.cluster,
            store: &context.store,
            metrics: &watch_metrics,
            readiness: &context.readiness,
        };
        watch.pods(tasks);
        watch.all_except_pods(tasks);
        if let Some(namespace) = &context.config.cluster_secrets {
            other_clusters::spawn(
                &client,
                &context.store,
                namespace,
                &mut self.registry,
                &context.readiness,
                tasks,
            );
        }
        let follow = dynamic_watch::watch_dynamic_kinds(
            client.clone(),
            context.store.clone(),
            context.kinds.clone(),
            stop.clone(),
        );
        spawn(tasks, "other kinds", follow);
        let (queue, events_client, events_stop) = (self.queue, client.clone(), stop.clone());
        spawn(tasks, "events", async move {
            queue.write(events_client, CONTROLLER, events_stop).await;
        });
        let providers = context.provider_client.clone();
        let run = providers.watch_tls_files(stop.clone());
        spawn(tasks, "provider TLS", run);

        let watch_bindings = |tasks: &mut Tasks, name| {
            let (events, bindings) = mpsc::channel(BINDING_EVENT_CAPACITY);
            tasks.spawn_until_stop(name, watch_bindings::run(client.clone(), events));
            bindings
        };
        let bindings = watch_bindings(tasks, "watch constraintpolicybindings");
        let run = bindings::run(Arc::clone(&context), bindings, stop.clone());
        spawn(tasks, "bindings", run);
        let run = violations::run(Arc::clone(&context), stop.clone());
        spawn(tasks, "violations", run);
        let run = release::run(Arc::clone(&context), stop.clone());
        spawn(tasks, "underlay releases", run);
        if context.config.advertise_gate {
            tasks.spawn_until_stop("gate", gate::run(Arc::clone(&context)));
        }
        if context.config.open_reports {
            let bindings = watch_bindings(tasks, "watch constraintpolicybindings for reports");
            let run = open_reports::run(Arc::clone(&context), bindings);
            tasks.spawn_until_stop("open reports", run);
        }
        let requeue = PodRequeue {
            store: context.store.clone(),
            providers: context.provider_client.clone(),
            client: client.clone(),
            metrics: tautline_pod_requeue::Metrics::default(),
        };
        requeue.metrics.register("", &mut self.registry);
        let (leader, requeue_stop) = (context.leader.subscribe(), stop.clone());
        let leads = move || leader.borrow().as_ref().is_some_and(Term::is_active);
        spawn(tasks, "pod requeue", requeue.run(leads, requeue_stop));
        let (lease, readiness) = (context.config.lease.clone(), context.readiness.clone());
        let (leader, lease_stop) = (context.leader.clone(), stop.clone());
        tasks.spawn("lease", async move {
            // A leader without complete lists could delete bindings that are still needed.
            tokio::select! {
                () = readiness.wait() => {}
                () = lease_stop.cancelled() => return Ok(()),
            }
            lease::run(client, lease, leader, lease_stop).await
        });
        let sampled = Arc::clone(&context);
        tasks.spawn_until_stop("history", async move {
            let count = || sampled.violations_of_leader();
            sampled.violation_history.sample(count).await;
        });
        let readiness = context.readiness.clone();
        let extra = move |request: Request<http::Body>| {
            let context = Arc::clone(&context);
            async move { admin_page(&context, request.uri().path()) }
        };
        let registry = Arc::new(self.registry);
        let run = admin::serve(self.admin, registry, readiness, extra, stop);
        tasks.spawn("admin", run);
    }
}

fn spawn(tasks: &mut Tasks, name: &str, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(name, async move {
        task.await;
        Ok(())
    });
}

/// Returns the page of a path on the admin port; `None`: there is no such page.
pub(crate) fn admin_page(context: &Context, path: &str) -> Option<http::HttpResponse> {
    match path {
        "/decisions" => Some(json(&context.decisions.list())),
        HISTORY_PATH => Some(json(&[context.violation_history.series()])),
        _ => None,
    }
}

fn json<T: Serialize>(page: &T) -> http::HttpResponse {
    match serde_json::to_vec(page) {
        Ok(body) => http::respond(200, "application/json", body),
        Err(error) => http::text(500, format!("{error}\n")),
    }
}
