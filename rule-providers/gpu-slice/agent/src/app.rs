//! Builds the agent's parts, connects them, and starts them as tasks.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use kube::Client;
use prometheus_client::registry::Registry;
use tautline_agent_link::{Dialer, Provider, Token};
use tautline_runtime::{
    admin::{self, Readiness},
    cluster::Cluster,
    events::{Events, Queue},
    tasks::Tasks,
    tls::ClientFiles,
};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{
    cards::{Cards, CardsOutput},
    cdi::{CardSpecs, OwnSpecs},
    device_plugin::DevicePlugin,
    giver::Giver,
    limits::{self, DriverRoot, Mode, Settings, hami_core, smi::Timeslice, timeslices},
    metrics::{Metrics, PREFIX, StreamMetrics},
    mig::{Instances, Keeper},
    node::{NodeFacts, OwnNode},
    pods::Pods,
    reader::{self, ReaderCalls, ReaderConfig, Snapshot},
    stream::{StreamContext, follow_provider},
    usage::{self, UsageConfig, UseMetrics},
};

/// The name of the agent as the reporter of its Kubernetes events.
const REPORTER: &str = "tautline-gpu-agent";
/// The directory of administrators' CDI specs, which is read in addition to [`Config::cdi_dir`].
const STATIC_CDI_DIR: &str = "/etc/cdi";
const PROC: &str = "/proc";
/// The file in the run directory that lists the MIG instances that the agent has made.
const MIG_FILE: &str = "mig.json";

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the agent's node.
    pub node: String,
    /// The root directory of the host's files, where the driver is installed.
    pub driver_root: PathBuf,
    /// The kubelet's directory, usually `/var/lib/kubelet`.
    pub kubelet_dir: PathBuf,
    /// The directory, usually `/var/run/cdi`, where the agent writes CDI specs and finds those of
    /// the cards.
    pub cdi_dir: PathBuf,
    /// The mode of limits on nodes without the label `tautline.io/gpu-limits`.
    pub limits: Mode,
    /// The length of time slices in mode `timeslice`; `None` leaves the driver's.
    pub timeslice: Option<Timeslice>,
    /// The path of HAMi-core's library on the host; without it mode `hami-core` is refused.
    pub hami_core: Option<PathBuf>,
    /// The path of the program `tautline-nvml`; `None` means the one next to this executable.
    pub reader: Option<PathBuf>,
    /// The path of NVML's library for that program; `None` means the driver's.
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
    reader: ReaderConfig,
    driver: DriverRoot,
    dialer: Dialer,
    listener: TcpListener,
    readiness: Readiness,
}

/// The state that the tasks share.
struct Parts {
    config: Config,
    client: Client,
    readiness: Readiness,
    events: Arc<Events>,
    pods: Arc<Pods>,
    giver: Arc<Giver>,
    metrics: Metrics,
    used: UseMetrics,
    streams: StreamMetrics,
    stop: CancellationToken,
}

impl App {
    /// Builds an agent and binds its admin port; fails if the port is taken or a file does not
    /// load.
    pub async fn build(cluster: Cluster, config: Config) -> Result<Self> {
        let library = config.library.as_deref();
        let reader = ReaderConfig::new(config.reader.clone(), &config.driver_root, library)
            .context("the path of this executable (or --nvml-reader)")?;
        let driver = DriverRoot::new(&config.driver_root).context("the path of this executable")?;
        let dialer = Dialer::new(&config.providers, config.tls.clone(), config.token.clone())?;
        if config.hami_core.is_some() {
            hami_core::prepare(&settings(&config))
                .with_context(|| format!("--hami-core: cannot write below {}", limits::RUN_DIR))?;
        }
        let readiness = Readiness::default();
        readiness.expect("node");
        Ok(Self {
            listener: admin::bind(config.admin).await?,
            config,
            cluster,
            reader,
            driver,
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
        let (snapshots, snapshot) = watch::channel(Snapshot::default());
        let (facts, fact) = watch::channel(None);
        let output = CardsOutput {
            inventory: watch::Sender::default(),
            given: watch::Sender::default(),
            entries: watch::Sender::default(),
            mode: watch::Sender::new(self.config.limits),
        };
        let (events, queue) = Events::new();
        let pods = Arc::default();
        let (reader_calls, calls) = ReaderCalls::new();
        let (keeper, instances) = Keeper::new(
            settings(&self.config).run_dir.join(MIG_FILE),
            reader_calls,
            snapshot.clone(),
            output.inventory.subscribe(),
            Arc::clone(&pods),
        );
        let parts = Parts {
            giver: Arc::new(giver(&self.config, &output, &events, (&pods, instances))),
            config: self.config,
            client: self.cluster.client().clone(),
            readiness: self.readiness,
            events,
            pods,
            metrics: Metrics::default(),
            used: UseMetrics::default(),
            streams: StreamMetrics::default(),
            stop: tasks.stop_token(),
        };
        parts.spawn_admin(self.listener, tasks);
        parts.spawn_node(facts, queue, &output, tasks);
        parts.spawn_use(self.dialer, snapshot.clone(), tasks);
        parts.spawn_giving(&fact, &output, tasks);
        if let Some(slice) = parts.config.timeslice {
            let (inventory, mode) = (output.inventory.subscribe(), output.mode.subscribe());
            let (followed, stop) = (
                timeslices::follow(self.driver, slice, inventory, mode),
                parts.stop.clone(),
            );
            let sliced = async move { _ = stop.run_until_cancelled(followed).await };
            done(tasks, "time slices", sliced);
        }
        let cards = Cards {
            snapshots: snapshot,
            facts: fact,
            own: keeper.own(),
            default_mode: parts.config.limits,
            output,
            metrics: parts.metrics,
        };
        done(tasks, "cards", cards.run(parts.stop.clone()));
        done(tasks, "mig", keeper.run(parts.stop.clone()));
        let read = async move {
            tokio::select! {
                () = reader::run(self.reader, snapshots, calls) => {}
                () = parts.stop.cancelled() => {}
            }
        };
        done(tasks, "reader", read);
    }
}

impl Parts {
    fn spawn_admin(&self, listener: TcpListener, tasks: &mut Tasks) {
        let mut registry = Registry::with_prefix("tautline");
        self.metrics
            .register("", registry.sub_registry_with_prefix(PREFIX));
        self.used.register("", &mut registry);
        self.events.register(&mut registry);
        self.streams.register("", &mut registry);
        let nothing = |_| async { None };
        let (registry, readiness) = (Arc::new(registry), self.readiness.clone());
        let served = admin::serve(listener, registry, readiness, nothing, self.stop.clone());
        tasks.spawn("admin", served);
    }

    fn spawn_node(
        &self,
        facts: watch::Sender<Option<NodeFacts>>,
        queue: Queue,
        output: &CardsOutput,
        tasks: &mut Tasks,
    ) {
        let (mut known, readiness) = (facts.subscribe(), self.readiness.clone());
        let stop = self.stop.clone();
        let ready = async move {
            tokio::select! {
                read = known.wait_for(Option::is_some) => if read.is_ok() {
                    readiness.done("node");
                },
                () = stop.cancelled() => return,
            }
            stop.cancelled().await;
        };
        done(tasks, "readiness", ready);
        let node = OwnNode {
            client: self.client.clone(),
            name: self.config.node.clone(),
            entries: output.entries.subscribe(),
            facts,
            pods: Arc::clone(&self.pods),
            events: Arc::clone(&self.events),
            metrics: self.metrics.clone(),
        };
        done(tasks, "node", node.run(self.stop.clone()));
        let written = queue.write(self.client.clone(), REPORTER, self.stop.clone());
        done(tasks, "events", written);
        let (pods, client) = (Arc::clone(&self.pods), self.client.clone());
        let (name, stop) = (self.config.node.clone(), self.stop.clone());
        let watched = async move { pods.watch(client, &name, stop).await };
        done(tasks, "pods", watched);
    }

    fn spawn_use(&self, dialer: Dialer, snapshot: watch::Receiver<Snapshot>, tasks: &mut Tasks) {
        let (uses, used) = watch::channel(None);
        let config = UsageConfig {
            proc: PROC.into(),
            driver_root: self.config.driver_root.clone(),
        };
        let sinks = (uses, self.used.clone());
        let pods = Arc::clone(&self.pods);
        let measured = usage::run(snapshot, config, pods, sinks, self.stop.clone());
        tasks.spawn("use", measured);
        let context = Arc::new(StreamContext {
            node: self.config.node.clone(),
            dialer,
            uses: used,
            streams: self.streams.open.clone(),
        });
        for provider in self.config.providers.clone() {
            let following = follow_provider(Arc::clone(&context), provider, self.stop.clone());
            tasks.spawn("provider", following);
        }
        let stop = self.stop.clone();
        tasks.spawn("files", async move { context.dialer.follow(stop).await });
    }

    fn spawn_giving(
        &self,
        facts: &watch::Receiver<Option<NodeFacts>>,
        output: &CardsOutput,
        tasks: &mut Tasks,
    ) {
        let kubelet = DevicePlugin {
            kubelet_dir: self.config.kubelet_dir.clone(),
            inventory: output.given.subscribe(),
            facts: facts.clone(),
            giver: Arc::clone(&self.giver),
            specs: OwnSpecs::new(self.config.cdi_dir.clone()),
            metrics: self.metrics.clone(),
        };
        done(tasks, "device plugin", kubelet.run(self.stop.clone()));
    }
}

/// Registers all metrics of the process, each with one series, for the metrics reference.
#[doc(hidden)]
pub fn example_metrics(registry: &mut Registry) {
    Metrics::example("", registry.sub_registry_with_prefix(PREFIX));
    UseMetrics::example("", registry);
    Events::new().0.register(registry);
    StreamMetrics::example("", registry);
}

fn giver(
    config: &Config,
    output: &CardsOutput,
    events: &Arc<Events>,
    (pods, instances): (&Arc<Pods>, Instances),
) -> Giver {
    let (mode, settings) = (output.mode.subscribe(), settings(config));
    let dirs = vec![STATIC_CDI_DIR.into(), config.cdi_dir.clone()];
    Giver {
        node: config.node.clone(),
        pods: Arc::clone(pods),
        inventory: output.given.subscribe(),
        specs: Arc::new(CardSpecs::new(dirs)),
        limits: Box::new(move |parts| limits::checked_edits(*mode.borrow(), &settings, parts)),
        events: Arc::clone(events),
        instances,
    }
}

fn settings(config: &Config) -> Settings {
    Settings {
        hami_core: config.hami_core.clone(),
        ..Settings::default()
    }
}

/// Spawns a task that cannot fail.
fn done(tasks: &mut Tasks, name: &str, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(name, async {
        task.await;
        Ok(())
    });
}
