//! The extender's process: its bound ports and its tasks.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Result;
use hyper::Request;
use prometheus_client::registry::Registry;
use tautline_provider_client::ProviderClient;
use tautline_runtime::{
    admin::{self, Readiness},
    cluster::Cluster,
    cluster_store::ClusterStore,
    dynamic_watch::{self, WatchedKinds},
    events::{self, Queue},
    history::FigureHistory,
    http, other_clusters,
    tasks::Tasks,
    watch::{Watch, WatchMetrics},
};
use tokio::net::TcpListener;

use crate::{
    admin::admin_page,
    bind_locks::BindLocks,
    config::Config,
    events::OfferEvents,
    explain::History,
    groups::{self, Groups},
    in_flight::{self, FlightGauge},
    metrics::{Metrics, PREFIX},
    plans::PlanCache,
    requeue, server,
    serving::Serving,
    state::State,
};

const CERTIFICATE: &str = "certificate";

/// An extender whose ports are bound.
pub struct App {
    state: Arc<State>,
    cluster: Option<Cluster>,
    event_queue: Queue,
    listener: TcpListener,
    admin: TcpListener,
    serving: Serving,
    registry: Registry,
    readiness: Readiness,
}

impl App {
    /// Binds the ports; fails if an address is in use or a TLS file does not load. With a
    /// cluster, watches fill `store`, and the extender can bind and requeue pods. Without one,
    /// the caller fills `store`.
    pub async fn build(
        config: Config,
        store: ClusterStore,
        cluster: Option<Cluster>,
    ) -> Result<Self> {
        let mut registry = Registry::with_prefix("tautline");
        let metrics = Metrics::registered("", &mut registry);
        registry.register_collector(Box::new(FlightGauge(store.clone())));
        let port_metrics = http::PortMetrics::default();
        port_metrics.connections.register(PREFIX, &mut registry);
        port_metrics.register(PREFIX, &mut registry);
        let provider_metrics = tautline_provider_client::Metrics::default();
        provider_metrics.register("", &mut registry);
        let providers = ProviderClient::new(config.providers.clone(), provider_metrics)?;
        let readiness = Readiness::default();
        let client = cluster.as_ref().map(|c| c.client());
        let serving = Serving::new(config.certificate.as_ref(), client, &mut registry)?;
        if matches!(serving, Serving::Generated(_)) {
            readiness.expect(CERTIFICATE);
        }
        if config.bind && !config.authenticates_clients() {
            tracing::warn!(
                "--bind without --tls-client-ca or --require-client-cert: every client that \
                 reaches {} can have pods bound",
                config.listen
            );
        }
        let (events, event_queue) = events::Events::new();
        events.register(&mut registry);
        let (listener, admin) = (
            admin::bind(config.listen).await?,
            admin::bind(config.admin).await?,
        );
        let state = Arc::new(State {
            history: History::new(config.explain_bytes),
            waiting_pods: FigureHistory::new("waitingPods", "pods"),
            plans: PlanCache::default(),
            bind_locks: BindLocks::default(),
            groups: Groups::new(config.group_timeout, config.bind),
            port: http::Port::new(config.limits, config.max_body_bytes, port_metrics),
            config,
            store,
            client: cluster.as_ref().map(|c| c.client().clone()),
            providers,
            metrics,
            events: OfferEvents(events),
            recording: Arc::default(),
        });
        Ok(Self {
            state,
            cluster,
            event_queue,
            listener,
            admin,
            serving,
            registry,
            readiness,
        })
    }

    /// The address for kube-scheduler.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// The address of `/livez`, `/readyz`, `/metrics`, `/status`, `/explain`, `/what-if` and
    /// `/history`.
    pub fn admin_address(&self) -> Result<SocketAddr> {
        Ok(self.admin.local_addr()?)
    }

    /// The readiness, which is met once the watches have their first lists. Until then
    /// kube-scheduler's requests wait.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Serves both ports; with a cluster also watches it, sends events and requeues rejected pods.
    pub fn spawn(mut self, tasks: &mut Tasks) {
        let (state, stop) = (self.state, tasks.stop_token());
        if let Some(cluster) = self.cluster {
            let client = cluster.client().clone();
            let metrics = WatchMetrics::default();
            metrics.register("", &mut self.registry);
            let watch = Watch {
                cluster: &cluster,
                store: &state.store,
                metrics: &metrics,
                readiness: &self.readiness,
            };
            watch.all_except_pods(tasks);
            watch.pods(tasks);
            if let Some(namespace) = &state.config.cluster_secrets {
                other_clusters::spawn(
                    &client,
                    &state.store,
                    namespace,
                    &mut self.registry,
                    &self.readiness,
                    tasks,
                );
            }
            requeue::spawn(&state, &client, &mut self.registry, tasks);
            let (queue, events_client, events_stop) =
                (self.event_queue, client.clone(), stop.clone());
            tasks.spawn("events", async move {
                queue
                    .write(events_client, "tautline-extender", events_stop)
                    .await;
                Ok(())
            });
            let others = dynamic_watch::watch_dynamic_kinds(
                client,
                state.store.clone(),
                WatchedKinds::default(),
                stop.clone(),
            );
            tasks.spawn("other kinds", async move {
                others.await;
                Ok(())
            });
        }
        let groups = groups::follow(Arc::clone(&state), stop.clone());
        tasks.spawn("groups", async move {
            groups.await;
            Ok(())
        });
        let flights = in_flight::end_old_flights(Arc::clone(&state), stop.clone());
        tasks.spawn("pods in flight", flights);
        let (providers, tls_stop) = (state.providers.clone(), stop.clone());
        tasks.spawn("provider TLS", async move {
            providers.watch_tls_files(tls_stop).await;
            Ok(())
        });
        let (sampled, readiness) = (Arc::clone(&state), self.readiness.clone());
        tasks.spawn_until_stop("history", async move {
            readiness.wait().await;
            let count = || Some(sampled.count_waiting_pods());
            sampled.waiting_pods.sample(count).await;
        });
        let tls = self.serving.spawn(tasks);
        let (admin_state, readiness) = (Arc::clone(&state), self.readiness.clone());
        let what_if = server::handler(Arc::clone(&state), server::ADMIN_VERBS);
        let extra = move |request: Request<http::Body>| {
            let (state, what_if) = (Arc::clone(&admin_state), what_if.clone());
            let is_ready = readiness.missing().is_empty();
            async move {
                match request.uri().path() {
                    // Before the first sync every pod would look ungoverned.
                    "/what-if" if !is_ready => Some(http::retry_later(
                        "the extender is not ready; /readyz says why\n",
                    )),
                    "/what-if" => Some(what_if(request).await),
                    _ => admin_page(&state, request.uri()).await,
                }
            }
        };
        let registry = Arc::new(self.registry);
        tasks.spawn(
            "admin",
            admin::serve(
                self.admin,
                registry,
                self.readiness.clone(),
                extra,
                stop.clone(),
            ),
        );
        let (listener, readiness) = (self.listener, self.readiness);
        tasks.spawn("extender", async move {
            let tls = tokio::select! {
                tls = tls => tls?,
                () = stop.cancelled() => return Ok(()),
            };
            readiness.done(CERTIFICATE);
            // Before the first sync every pod would look ungoverned; until then the
            // scheduler's connections wait in the listen queue.
            tokio::select! {
                () = readiness.wait() => {}
                () = stop.cancelled() => return Ok(()),
            }
            let port = state.port.clone();
            http::serve(
                listener,
                tls,
                server::handler(state, server::SCHEDULER_VERBS),
                port,
                stop,
            )
            .await
        });
    }
}
