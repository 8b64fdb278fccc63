//! The controller as a whole: validated configuration, bound port, tasks.

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
use tautline_core::names::{CONTROLLER, EXEMPT_NAMESPACES};
use tautline_pod_requeue::PodRequeue;
use tautline_provider_client::ProviderClient;
use tautline_runtime::{
    admin::{self, Readiness},
    cluster::Cluster,
    cluster_store::ClusterStore,
    dynamic_watch::{self, WatchedKinds},
    events::{self, Events},
    http,
    lease::{self, Term},
    tasks::Tasks,
    watch::{Watch, WatchMetrics},
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch::Sender},
};

use crate::{
    decisions::Decisions,
    gate,
    keeper::{BINDINGS, Inputs, Keeper},
    metrics::Metrics,
    release, store,
    violations::Violations,
};

/// The Lease that replicas lead by; an extender looks at it, too.
pub const LEASE: &str = CONTROLLER;

/// How the controller works.
#[derive(Clone, Debug)]
pub struct Config {
    pub admin: SocketAddr,
    pub lease: lease::LeaseConfig,
    /// Bindings of one offer; the tuples beyond are counted and not made.
    pub max_bindings: usize,
    /// Evaluations at one provider at once.
    pub provider_concurrency: usize,
    /// No binding is evaluated more often, whatever its offer says.
    pub shortest_period: Duration,
    /// Between two evictions of one offer.
    pub eviction_cool_down: Duration,
    /// Namespaces whose pods are never evicted.
    pub exempt_namespaces: BTreeSet<String>,
    /// Violations are not acted on: what would be done is told.
    pub dry_run: bool,
    /// Whether rejected pods are woken.
    pub wake: bool,
    /// Whether nodes are given the gate's resource.
    pub advertise_gate: bool,
    pub discovery: tautline_provider_client::ClientConfig,
}

impl Config {
    /// The defaults, in `namespace`, for a replica called `identity`.
    pub fn new(namespace: &str, identity: String) -> Self {
        Self {
            admin: (Ipv6Addr::UNSPECIFIED, 9090).into(),
            lease: lease::LeaseConfig::new(namespace, LEASE, identity),
            max_bindings: 10_000,
            provider_concurrency: 64,
            shortest_period: Duration::from_millis(500),
            eviction_cool_down: Duration::from_secs(120),
            exempt_namespaces: EXEMPT_NAMESPACES.map(str::to_owned).into(),
            dry_run: false,
            wake: true,
            advertise_gate: false,
            discovery: tautline_provider_client::ClientConfig {
                // Nobody's scheduling waits for an evaluation.
                deadline: Duration::from_secs(2),
                ..tautline_provider_client::ClientConfig::default()
            },
        }
    }
}

/// What the tasks share.
pub(crate) struct Shared {
    pub config: Config,
    pub feed: ClusterStore,
    pub client: Client,
    pub discovery: ProviderClient,
    pub metrics: Metrics,
    pub events: Arc<Events>,
    pub kinds: WatchedKinds,
    pub decisions: Decisions,
    pub readiness: Readiness,
}

/// A controller whose port is bound.
pub struct App {
    shared: Arc<Shared>,
    cluster: Cluster,
    queue: events::Queue,
    admin: TcpListener,
    registry: Registry,
    readiness: Readiness,
}

impl App {
    /// # Errors
    /// An address that is taken, or TLS files that do not load.
    pub async fn build(config: Config, cluster: Cluster) -> Result<Self> {
        let mut registry = Registry::with_prefix("tautline");
        let metrics = Metrics::register(&mut registry);
        let provider_metrics = tautline_provider_client::Metrics::default();
        provider_metrics.register(&mut registry);
        let (events, queue) = Events::new();
        events.register(&mut registry);
        let admin = admin::bind(config.admin).await?;
        let readiness = Readiness::default();
        readiness.expect(BINDINGS);
        let shared = Arc::new(Shared {
            discovery: ProviderClient::new(config.discovery.clone(), provider_metrics)?,
            config,
            feed: ClusterStore::default(),
            client: cluster.client().clone(),
            metrics,
            events,
            kinds: WatchedKinds::default(),
            decisions: Decisions::default(),
            readiness: readiness.clone(),
        });
        Ok(Self {
            shared,
            cluster,
            queue,
            admin,
            registry,
            readiness,
        })
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
        let (shared, stop) = (self.shared, tasks.stop_token());
        let client = shared.client.clone();
        let watch_metrics = WatchMetrics::default();
        watch_metrics.register(&mut self.registry);
        let watch = Watch {
            cluster: &self.cluster,
            store: &shared.feed,
            metrics: &watch_metrics,
            readiness: &self.readiness,
        };
        watch.pods(tasks);
        watch.all_except_pods(tasks);
        let follow = dynamic_watch::watch_dynamic_kinds(
            client.clone(),
            shared.feed.clone(),
            shared.kinds.clone(),
            stop.clone(),
        );
        tasks.spawn("other kinds", async move {
            follow.await;
            Ok(())
        });
        let (binding_events, bindings) = mpsc::channel(1024);
        tasks.spawn(
            "watch constraintpolicybindings",
            store::follow(client.clone(), binding_events, stop.clone()),
        );
        let (queue, events_client, events_stop) = (self.queue, client.clone(), stop.clone());
        tasks.spawn("events", async move {
            queue.write(events_client, CONTROLLER, events_stop).await;
            Ok(())
        });
        let (discovery, tls_stop) = (shared.discovery.clone(), stop.clone());
        tasks.spawn("provider TLS", async move {
            discovery.watch_tls_files(tls_stop).await;
            Ok(())
        });

        let leader: Sender<Option<Term>> = Sender::new(None);
        let (fresh_sender, fresh) = mpsc::unbounded_channel();
        let keeper = Keeper::new(Arc::clone(&shared), fresh_sender);
        let inputs = Inputs {
            bindings,
            leader: leader.subscribe(),
        };
        let keeper = keeper.run(inputs, stop.clone());
        tasks.spawn("bindings", async move {
            keeper.await;
            Ok(())
        });
        let violations = Violations {
            shared: Arc::clone(&shared),
        };
        let violations = violations.run(fresh, leader.subscribe(), stop.clone());
        tasks.spawn("violations", async move {
            violations.await;
            Ok(())
        });
        let releases = release::run(Arc::clone(&shared), leader.subscribe(), stop.clone());
        tasks.spawn("underlay releases", async move {
            releases.await;
            Ok(())
        });
        if shared.config.advertise_gate {
            let gate = gate::run(Arc::clone(&shared), leader.subscribe(), stop.clone());
            tasks.spawn("gate", async move {
                gate.await;
                Ok(())
            });
        }
        if shared.config.wake {
            let waking = PodRequeue {
                store: shared.feed.clone(),
                providers: shared.discovery.clone(),
                client: client.clone(),
                metrics: tautline_pod_requeue::Metrics::default(),
            };
            waking.metrics.register(&mut self.registry);
            let (term, wake_stop) = (leader.subscribe(), stop.clone());
            let leads = move || term.borrow().as_ref().is_some_and(Term::is_active);
            tasks.spawn("wake", async move {
                waking.run(leads, wake_stop).await;
                Ok(())
            });
        }
        let (lease, readiness) = (shared.config.lease.clone(), self.readiness.clone());
        let lease_stop = stop.clone();
        tasks.spawn("lease", async move {
            // A leader that does not know the cluster yet would do harm.
            tokio::select! {
                () = readiness.wait() => {}
                () = lease_stop.cancelled() => return Ok(()),
            }
            lease::run(client, lease, leader, lease_stop).await
        });
        let decisions = Arc::clone(&shared);
        let extra = move |request: Request<http::Body>| {
            let shared = Arc::clone(&decisions);
            async move {
                (request.uri().path() == "/decisions").then(|| decisions_page(&shared.decisions))
            }
        };
        let registry = Arc::new(self.registry);
        tasks.spawn(
            "admin",
            admin::serve(self.admin, registry, self.readiness, extra, stop),
        );
    }
}

fn decisions_page(decisions: &Decisions) -> http::HttpResponse {
    match serde_json::to_vec(&decisions.list()) {
        Ok(body) => http::respond(200, "application/json", body),
        Err(error) => http::text(500, format!("{error}\n")),
    }
}
