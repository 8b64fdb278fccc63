//! The extender as a whole: validated configuration, bound ports, tasks.

use std::{
    collections::BTreeSet,
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use hyper::Request;
use kube::Client;
use prometheus_client::registry::Registry;
use tautline_core::{
    Snapshot,
    constraints::{self, PodIdentity},
    names::EXEMPT_NAMESPACES,
    trust::OWN_NAMESPACE,
};
use tautline_provider_client::ProviderClient;
use tautline_runtime::{
    admin::{self, Readiness},
    cluster::Cluster,
    cluster_store::ClusterStore,
    dynamic_watch::{self, WatchedKinds},
    events::{self, Queue},
    http,
    tasks::Tasks,
    tls::{ServerFiles, ServerTls},
    watch::{Watch, WatchMetrics},
};
use tokio::{net::TcpListener, sync::watch::Sender};

use crate::{
    events::Events,
    explain::{self, Explain},
    metrics::Metrics,
    plans::{Planned, Plans},
    server,
    underlay::Turns,
    waking,
};

/// How the extender serves.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    pub tls: Option<ServerFiles>,
    /// How many of the usable nodes go back to the scheduler; 0: all.
    pub shortlist: usize,
    /// Namespaces whose pods are never governed.
    pub exempt_namespaces: BTreeSet<String>,
    pub max_body_bytes: usize,
    /// Connections, and the memory of all requests together.
    pub limits: http::Limits,
    pub max_nodes: usize,
    /// Requests under way; more are refused.
    pub concurrency: usize,
    /// Below the scheduler's httpTimeout, 5 s unless configured.
    pub deadline: Duration,
    /// Memory for explanations.
    pub explain_bytes: usize,
    /// Whether the extender binds (`bindVerb`): who may call it may then bind any
    /// pod to any node.
    pub bind: bool,
    /// Whether rejected pods are woken where no controller runs (needs a cluster).
    pub wake: bool,
    /// Where the controller's Lease is.
    pub controller_namespace: String,
    pub discovery: tautline_provider_client::ClientConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: (Ipv6Addr::UNSPECIFIED, 8888).into(),
            admin: (Ipv6Addr::UNSPECIFIED, 9090).into(),
            tls: None,
            shortlist: 64,
            exempt_namespaces: EXEMPT_NAMESPACES.map(str::to_owned).into(),
            max_body_bytes: 32 << 20,
            limits: http::Limits::default(),
            max_nodes: 100_000,
            concurrency: 64,
            deadline: Duration::from_secs(4),
            explain_bytes: 32 << 20,
            bind: false,
            wake: true,
            controller_namespace: OWN_NAMESPACE.to_owned(),
            discovery: tautline_provider_client::ClientConfig {
                scheduler_share_percent: Some(5),
                ..tautline_provider_client::ClientConfig::default()
            },
        }
    }
}

impl Config {
    /// Whether only clients with a certificate get in.
    pub(crate) fn knows_clients(&self) -> bool {
        let asks = |files: &ServerFiles| files.client_ca.is_some();
        self.tls.as_ref().is_some_and(asks)
    }
}

/// What requests share.
pub struct State {
    pub(crate) config: Config,
    pub(crate) feed: ClusterStore,
    pub(crate) client: Option<Client>,
    pub(crate) discovery: ProviderClient,
    pub(crate) metrics: Metrics,
    pub(crate) port: http::Port,
    pub(crate) plans: Plans,
    pub(crate) turns: Turns,
    pub(crate) explain: Explain,
    pub(crate) events: Events,
    /// Whether a pod was left without a node, which may have to be woken.
    pub(crate) rejects: Sender<bool>,
}

impl State {
    /// A filter round is over: it serves prioritize, and explains itself.
    pub(crate) fn concluded(&self, round: &Arc<Planned>) {
        self.plans.keep(round);
        self.explain.push(round);
        let snapshot = self.feed.snapshot();
        self.events.round(&snapshot, &self.discovery, round);
        self.events.underlay(&snapshot, round);
    }

    /// Whether any of the pod's rules has a provider that reserves.
    pub(crate) fn has_allocator(&self, snapshot: &Snapshot, subject: &PodIdentity) -> bool {
        constraints::pod_constraints(snapshot, subject)
            .iter()
            .any(|constraints| {
                constraints.rules.iter().any(|rule| {
                    self.discovery
                        .provider(snapshot, &rule.name, &constraints.offer.namespace)
                        .is_some_and(|service| self.discovery.is_allocator(service))
                })
            })
    }
}

/// An extender whose ports are bound.
pub struct App {
    state: Arc<State>,
    cluster: Option<Cluster>,
    queue: Queue,
    listener: TcpListener,
    admin: TcpListener,
    tls: Option<ServerTls>,
    registry: Registry,
    readiness: Readiness,
}

impl App {
    /// Binds the ports. With a cluster its watches feed `feed` and pods can be bound
    /// and woken; without one, `feed` is the caller's to fill.
    ///
    /// # Errors
    /// An address that is taken, or TLS files that do not load.
    pub async fn build(
        config: Config,
        feed: ClusterStore,
        cluster: Option<Cluster>,
    ) -> Result<Self> {
        let mut registry = Registry::with_prefix("tautline");
        let metrics = Metrics::register(&mut registry);
        let port_metrics = http::PortMetrics::default();
        port_metrics.register("extender_", &mut registry);
        let provider_metrics = tautline_provider_client::Metrics::default();
        provider_metrics.register(&mut registry);
        let discovery = ProviderClient::new(config.discovery.clone(), provider_metrics)?;
        let alpn = vec!["http/1.1"];
        let tls = match &config.tls {
            Some(files) => Some(ServerTls::load(ServerFiles {
                alpn,
                ..files.clone()
            })?),
            None => None,
        };
        if config.bind && !config.knows_clients() {
            tracing::warn!(
                "--bind without --tls-client-ca: every client that reaches {} can have pods bound",
                config.listen
            );
        }
        let (said, queue) = events::Events::new();
        said.register(&mut registry);
        let events = Events(said);
        let (listener, admin) = (
            admin::bind(config.listen).await?,
            admin::bind(config.admin).await?,
        );
        let state = Arc::new(State {
            explain: Explain::new(config.explain_bytes),
            plans: Plans::default(),
            turns: Turns::default(),
            port: http::Port::new(config.limits, config.max_body_bytes, port_metrics),
            config,
            feed,
            client: cluster.as_ref().map(|c| c.client().clone()),
            discovery,
            metrics,
            events,
            rejects: Sender::new(false),
        });
        let readiness = Readiness::default();
        Ok(Self {
            state,
            cluster,
            queue,
            listener,
            admin,
            tls,
            registry,
            readiness,
        })
    }

    /// Where the scheduler reaches it.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Where operators reach it.
    pub fn admin_address(&self) -> Result<SocketAddr> {
        Ok(self.admin.local_addr()?)
    }

    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Starts everything as tasks of a process.
    pub fn spawn(mut self, tasks: &mut Tasks) {
        let (state, stop) = (self.state, tasks.stop_token());
        if let Some(cluster) = self.cluster {
            let client = cluster.client().clone();
            let metrics = WatchMetrics::default();
            metrics.register(&mut self.registry);
            let watch = Watch {
                cluster: &cluster,
                store: &state.feed,
                metrics: &metrics,
                readiness: &self.readiness,
            };
            watch.infrastructure(tasks);
            waking::spawn(&state, &client, &watch, &mut self.registry, tasks);
            let (queue, events_client, events_stop) = (self.queue, client.clone(), stop.clone());
            tasks.spawn("events", async move {
                queue
                    .write(events_client, "tautline-extender", events_stop)
                    .await;
                Ok(())
            });
            let others = dynamic_watch::watch_dynamic_kinds(
                client,
                state.feed.clone(),
                WatchedKinds::default(),
                stop.clone(),
            );
            tasks.spawn("other kinds", async move {
                others.await;
                Ok(())
            });
        }
        let (discovery, tls_stop) = (state.discovery.clone(), stop.clone());
        tasks.spawn("provider TLS", async move {
            discovery.watch_tls_files(tls_stop).await;
            Ok(())
        });
        if let Some(tls) = self.tls.clone() {
            tasks.spawn("TLS", tls.watch_files(stop.clone()));
        }
        let explained = Arc::clone(&state);
        let extra = move |request: Request<http::Body>| {
            let state = Arc::clone(&explained);
            async move { explain::answer(&state, request.uri().path()).await }
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
        let (listener, tls, readiness) = (self.listener, self.tls, self.readiness);
        tasks.spawn("extender", async move {
            // Until the first sync every pod would look ungoverned; the
            // scheduler's connections wait in the listen queue for so long.
            tokio::select! {
                () = readiness.wait() => {}
                () = stop.cancelled() => return Ok(()),
            }
            let port = state.port.clone();
            http::serve(listener, tls, server::stack(state), port, stop).await
        });
    }
}
