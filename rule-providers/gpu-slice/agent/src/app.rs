//! Builds the agent's parts, connects them, and starts them as tasks.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use prometheus_client::registry::Registry;
use tautline_agent_link::{Dialer, Provider, Token};
use tautline_runtime::{
    admin::{self, Readiness},
    cluster::Cluster,
    events::Events,
    tasks::Tasks,
    tls::ClientFiles,
};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    cards::{Cards, CardsOutput},
    cdi::{CardSpecs, OwnSpecs},
    device_plugin::{DevicePlugin, SOCKET_POLL_INTERVAL},
    dra::{Delivery, Driver, PreparedClaims, Publisher, Server, StatusWriter},
    giver::Giver,
    limits::{self, DriverRoot, Mode, Settings, hami_core, smi},
    metrics::{Metrics, PREFIX},
    mig::Keeper,
    node::OwnNode,
    pods::Pods,
    reader::{self, ReaderCalls, ReaderCommand, ReaderLimits, Snapshot},
    stream::{StreamContext, follow_provider},
    usage::{self, Processes, UseMetrics},
};

/// The name of the agent as the reporter of its Kubernetes events.
const REPORTER: &str = "tautline-gpu-agent";
/// The directory where the agent writes CDI specs and finds those of the cards.
const CDI_DIR: &str = "/var/run/cdi";
/// The directory of administrators' CDI specs, which is read in addition to [`CDI_DIR`].
const STATIC_CDI_DIR: &str = "/etc/cdi";
const PROC: &str = "/proc";
/// The file in the run directory that lists the MIG instances that the agent has made.
const MIG_FILE: &str = "mig.json";
/// The file in the run directory that lists the prepared claims.
const CLAIMS_FILE: &str = "claims.json";

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the agent's node.
    pub node: String,
    /// The root directory of the host's files, where the driver is installed.
    pub driver_root: PathBuf,
    /// The kubelet's directory, usually `/var/lib/kubelet`.
    pub kubelet_dir: PathBuf,
    /// The way in which containers get cards.
    pub delivery: Delivery,
    /// The time after which the pods of a faulty card are evicted, with DRA; `None` leaves them.
    pub evict_after: Option<Duration>,
    /// The mode of limits on nodes without the label `tautline.io/gpu-limits`.
    pub limits: Mode,
    /// The length of time slices in mode `timeslice`; `None` leaves the driver's.
    pub timeslice: Option<smi::Timeslice>,
    /// The path of HAMi-core's library on the host; without it mode `hami-core` is refused.
    pub hami_core: Option<PathBuf>,
    /// The path of NVML's library for `tautline-nvml`; `None` means the driver's.
    pub library: Option<PathBuf>,
    /// The address of `/livez`, `/readyz` and `/metrics`; port 0 picks a free port.
    pub admin: SocketAddr,
    /// The providers to which the agent reports use, on a stream to each address of their names.
    pub providers: Vec<Provider>,
    /// The CA and the client certificate for `https` providers, which need the CA.
    pub tls: ClientFiles,
    /// The token that proves the node to the providers; `None` if a client certificate proves it,
    /// or nothing does.
    pub token: Option<Token>,
}

/// An agent whose admin port is bound.
pub struct App {
    config: Config,
    cluster: Cluster,
    reader: ReaderCommand,
    driver: DriverRoot,
    limits: Settings,
    claims: PreparedClaims,
    dialer: Dialer,
    listener: TcpListener,
    readiness: Readiness,
}

impl App {
    /// Builds an agent and binds its admin port; fails if the port is taken or a file does not
    /// load.
    pub async fn build(cluster: Cluster, config: Config) -> Result<Self> {
        let reader = ReaderCommand::new(&config.driver_root, config.library.as_deref())
            .context("the path of this executable")?;
        let driver = DriverRoot::new(&config.driver_root).context("the path of this executable")?;
        let dialer = Dialer::new(&config.providers, config.tls.clone(), config.token.clone())?;
        let limits = Settings {
            run_dir: limits::RUN_DIR.into(),
            hami_core: config.hami_core.clone(),
        };
        if limits.hami_core.is_some() {
            hami_core::prepare(&limits)
                .with_context(|| format!("--hami-core: cannot write below {}", limits::RUN_DIR))?;
        }
        let file = limits.run_dir.join(CLAIMS_FILE);
        let claims = PreparedClaims::read(file.clone()).with_context(|| {
            let file = file.display();
            format!("{file}; delete it when no pod of the node has a GPU of a claim")
        })?;
        let readiness = Readiness::default();
        readiness.expect("node");
        Ok(Self {
            listener: admin::bind(config.admin).await?,
            config,
            cluster,
            reader,
            driver,
            limits,
            claims,
            dialer,
            readiness,
        })
    }

    /// Returns the address of `/livez`, `/readyz` and `/metrics`, with the port that was picked.
    pub fn admin_address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Returns the readiness, which is complete once the agent has read its node.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Starts all tasks.
    pub fn spawn(self, tasks: &mut Tasks) {
        let (config, stop) = (self.config, tasks.stop_token());
        let client = self.cluster.client().clone();
        let (metrics, used) = (Metrics::default(), UseMetrics::default());
        let (events, queue) = Events::new();
        let pods: Arc<Pods> = Arc::default();
        let claims = Arc::new(self.claims);
        let (snapshots, snapshot) = watch::channel(Snapshot::default());
        let (facts, fact) = watch::channel(None);
        let output = CardsOutput {
            inventory: watch::Sender::default(),
            given: watch::Sender::default(),
            entries: watch::Sender::default(),
            mode: watch::Sender::new(config.limits),
        };

        let mut registry = Registry::with_prefix("tautline");
        metrics.register("", registry.sub_registry_with_prefix(PREFIX));
        used.register("", &mut registry);
        events.register(&mut registry);
        let (registry, nothing) = (Arc::new(registry), |_| async { None });
        let readiness = self.readiness.clone();
        let served = admin::serve(self.listener, registry, readiness, nothing, stop.clone());
        tasks.spawn("admin", served);
        let written = queue.write(client.clone(), REPORTER, stop.clone());
        tasks.spawn_until_stop("events", written);
        let (watched, of, name) = (Arc::clone(&pods), client.clone(), config.node.clone());
        tasks.spawn_until_stop("pods", async move { watched.watch(of, &name).await });
        let node = OwnNode {
            client: client.clone(),
            name: config.node.clone(),
            entries: output.entries.subscribe(),
            facts,
            pods: Arc::clone(&pods),
            events: Arc::clone(&events),
            metrics: metrics.clone(),
            readiness: self.readiness,
        };
        tasks.spawn_until_stop("node", node.run(stop.clone()));

        let (reader_calls, calls) = ReaderCalls::new();
        let read = reader::run(self.reader, ReaderLimits::default(), snapshots, calls);
        tasks.spawn_until_stop("reader", read);
        let (keeper, instances) = Keeper::new(
            self.limits.run_dir.join(MIG_FILE),
            reader_calls,
            snapshot.clone(),
            output.inventory.subscribe(),
            Arc::clone(&pods),
            Arc::clone(&claims),
        );
        let own = keeper.own();
        tasks.spawn_until_stop("mig", keeper.run());
        if let Some(slice) = config.timeslice {
            let (inventory, mode) = (output.inventory.subscribe(), output.mode.subscribe());
            let sliced = smi::follow(self.driver, slice, inventory, mode);
            tasks.spawn_until_stop("time slices", sliced);
        }

        let giver = Arc::new(Giver {
            node: config.node.clone(),
            pods: Arc::clone(&pods),
            inventory: output.given.subscribe(),
            specs: Arc::new(CardSpecs(vec![STATIC_CDI_DIR.into(), CDI_DIR.into()])),
            mode: output.mode.subscribe(),
            limits: self.limits,
            events,
            instances,
            claims: Arc::clone(&claims),
        });
        let (uses, use_now) = watch::channel(None);
        let is_dra = config.delivery == Delivery::Dra;
        // Claims of an earlier delivery are unprepared when their pods end.
        if is_dra || !claims.all().is_empty() {
            let statuses = StatusWriter {
                client: client.clone(),
                node: config.node.clone(),
                claims: Arc::clone(&claims),
                pods: Arc::clone(&pods),
                inventory: output.inventory.subscribe(),
                mode: output.mode.subscribe(),
                uses: use_now.clone(),
            };
            tasks.spawn_until_stop("statuses of claims", statuses.run());
            let driver = Driver {
                node: config.node.clone(),
                delivery: config.delivery,
                client: client.clone(),
                giver: Arc::clone(&giver),
                claims,
                specs: OwnSpecs::new(CDI_DIR.into()),
                metrics: metrics.clone(),
            };
            let server = Server {
                driver: Arc::new(driver),
                kubelet_dir: config.kubelet_dir.clone(),
            };
            tasks.spawn_until_stop("DRA driver", server.run());
        }
        if is_dra {
            let publisher = Publisher {
                client,
                node: config.node.clone(),
                given: output.given.subscribe(),
                snapshots: snapshot.clone(),
                facts: fact.clone(),
                pods: Arc::clone(&pods),
                evict_after: config.evict_after,
                metrics: metrics.clone(),
            };
            tasks.spawn_until_stop("ResourceSlices", publisher.run());
        } else {
            let plugin = DevicePlugin {
                kubelet_dir: config.kubelet_dir,
                inventory: output.given.subscribe(),
                giver,
                specs: OwnSpecs::new(CDI_DIR.into()),
                metrics: metrics.clone(),
            };
            tasks.spawn_until_stop("device plugin", plugin.run(SOCKET_POLL_INTERVAL));
        }

        let processes = Processes::new(PROC.into(), config.driver_root);
        let measured = usage::run(snapshot.clone(), processes, pods, uses, used);
        let until = stop.clone();
        tasks.spawn("use", async move {
            let measured = until.run_until_cancelled(measured).await;
            measured.unwrap_or(Ok(()))
        });
        let context = Arc::new(StreamContext {
            node: config.node,
            dialer: self.dialer,
            uses: use_now,
            streams: metrics.streams.clone(),
        });
        for provider in config.providers {
            let following = follow_provider(Arc::clone(&context), provider, stop.clone());
            tasks.spawn("provider", following);
        }
        tasks.spawn("files", async move { context.dialer.follow(stop).await });

        let cards = Cards {
            snapshots: snapshot,
            facts: fact,
            own,
            default_mode: config.limits,
            delivery: config.delivery,
            output,
            metrics,
        };
        tasks.spawn_until_stop("cards", cards.run());
    }
}

/// Registers all metrics of the process, each with one series, for the metrics reference.
#[doc(hidden)]
pub fn example_metrics(registry: &mut Registry) {
    Metrics::example("", registry.sub_registry_with_prefix(PREFIX));
    UseMetrics::example("", registry);
    Events::new().0.register(registry);
}
