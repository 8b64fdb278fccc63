//! Assembles the latency agent of a node: binds its ports, and starts the tasks that measure,
//! answer other agents' echoes, and report to the providers.

use std::{net::SocketAddr, sync::Arc, thread};

use anyhow::{Context, Result, anyhow, bail};
use prometheus_client::registry::Registry;
use tautline_agent_link::{Dialer, Provider, Token, follow_replicas};
use tautline_proto::latency::Hello;
use tautline_runtime::{
    admin::{self, Readiness},
    tasks::Tasks,
    tls::ClientFiles,
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};

use crate::{
    echo::Echo,
    measure::{CONNECT_QUEUE_LENGTH, Inbox, MeasureTask, ProbeContext, Shared},
    metrics::Metrics,
    probe::Prober,
    stream::{self, StreamContext},
    tcp,
    throughput::{ThroughputInitiator, ThroughputResponder},
};

/// The greatest number of attempts to find a port that is free for both UDP and TCP, if the
/// listening port is 0.
const MAX_BIND_ATTEMPTS: usize = 16;

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the agent's node. The provider may require proof that the agent runs there.
    pub node: String,
    /// The id of the node's boot, as [`boot_id`] reads it.
    pub boot_id: String,
    /// The address at which other agents reach this agent; `None`: the listening address.
    pub advertise: Option<SocketAddr>,
    /// The listening address (UDP and TCP); port 0 picks a free port.
    pub listen: SocketAddr,
    /// The address of `/livez`, `/readyz` and `/metrics`; port 0 picks a free port.
    pub admin: SocketAddr,
    /// The speed of the node's network interface, in bits per second; 0 if it is unknown.
    pub nic_bits_per_second: u64,
    /// The providers that the agent reports to, with one stream for each address of their names.
    pub providers: Vec<Provider>,
    /// The CA and the client certificate for `https` providers, which need the CA.
    pub tls: ClientFiles,
    /// The token that proves the node to the providers. If `None`, a client certificate is the
    /// proof, or there is no proof.
    pub token: Option<Token>,
    /// True if the agent starts and serves bandwidth tests, which transfer data over TCP.
    pub throughput_tests: bool,
}

/// Returns the boot ID of the kernel, which is a new UUID at each boot.
pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let id = std::fs::read_to_string(path).context(path)?;
    Ok(id.trim().to_owned())
}

/// An agent whose ports are bound.
pub struct App {
    config: Config,
    shared: Arc<Shared>,
    hello: Hello,
    dialer: Dialer,
    listener: TcpListener,
    admin: TcpListener,
    registry: Registry,
    readiness: Readiness,
}

impl App {
    /// Binds the ports. Fails if a port is taken, a file does not load, or there is no address to
    /// advertise.
    pub async fn build(config: Config) -> Result<Self> {
        let mut registry = Registry::with_prefix("tautline");
        let (metrics, readiness) = (Metrics::default(), Readiness::default());
        metrics.register("", &mut registry);
        readiness.expect("echo");
        let dialer = Dialer::new(&config.providers, config.tls.clone(), config.token.clone())?;
        let (echo, listener) = bind(config.listen, &metrics).await?;
        let admin = admin::bind(config.admin).await?;
        let address = config.advertise.unwrap_or(listener.local_addr()?);
        if address.ip().is_unspecified() || address.port() == 0 {
            bail!("no address to advertise; start with --advertise IP:PORT or set POD_IP");
        }
        let hello = Hello {
            node: config.node.clone(),
            boot_id: config.boot_id.clone(),
            address: address.to_string(),
            nic_bits_per_second: config.nic_bits_per_second,
        };
        Ok(Self {
            config,
            shared: Arc::new(Shared::new(echo, metrics)),
            hello,
            dialer,
            listener,
            admin,
            registry,
            readiness,
        })
    }

    /// Returns the listening address (UDP and TCP), with the port that was picked.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Returns the address of `/livez`, `/readyz` and `/metrics`, with the port that was picked.
    pub fn admin_address(&self) -> Result<SocketAddr> {
        Ok(self.admin.local_addr()?)
    }

    /// Returns the agent's readiness, which is complete once the agent answers echoes.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Starts the thread and the tasks that measure. Fails if the system cannot start a thread.
    pub fn spawn(self, tasks: &mut Tasks) -> Result<()> {
        let stop = tasks.stop_token();
        let (replied, replies) = mpsc::unbounded_channel();
        let (connected, connects) = mpsc::channel(CONNECT_QUEUE_LENGTH);
        let (orders, order) = mpsc::channel(64);

        let (ended, end) = oneshot::channel();
        let (echo, until) = (Arc::clone(&self.shared.echo), stop.clone());
        let readiness = self.readiness.clone();
        thread::Builder::new()
            .name("echo".to_owned())
            .spawn(move || {
                readiness.done("echo");
                let served = echo.serve(&until, |reply| _ = replied.send(reply));
                _ = ended.send(served);
            })
            .context("no thread for the echo")?;
        tasks.spawn("echo", async move {
            let served = end.await.map_err(|_| anyhow!("the thread panicked"))?;
            served.context("the echo's socket")
        });

        let measuring = MeasureTask::new(Arc::clone(&self.shared), connected, fastrand::u64(..));
        let inbox = Inbox {
            orders: order,
            replies,
            connected: connects,
        };
        tasks.spawn("measure", measuring.run(inbox, stop.clone()));
        let sink = self.config.throughput_tests;
        let sink = sink.then(|| Arc::new(ThroughputResponder::new(Arc::clone(&self.shared.echo))));
        tasks.spawn("tcp", tcp::serve(self.listener, sink, stop.clone()));

        let agent = Arc::new(StreamContext {
            hello: self.hello,
            dialer: self.dialer,
            prober: Prober::new(Arc::clone(&self.shared)),
            shared: self.shared,
            source: ThroughputInitiator::new(self.config.throughput_tests),
            orders,
        });
        for (index, provider) in self.config.providers.into_iter().enumerate() {
            let (agent, to) = (Arc::clone(&agent), provider.clone());
            let task = follow_replicas(provider, stop.clone(), move |address, stop| {
                stream::follow(Arc::clone(&agent), to.clone(), (index, address), stop)
            });
            tasks.spawn("provider", task);
        }
        tasks.spawn("files", {
            let stop = stop.clone();
            async move { agent.dialer.follow(stop).await }
        });
        let nothing = |_| async { None };
        let registry = Arc::new(self.registry);
        tasks.spawn(
            "admin",
            admin::serve(self.admin, registry, self.readiness, nothing, stop),
        );
        Ok(())
    }
}

/// Binds UDP and TCP to the same port number.
async fn bind(listen: SocketAddr, metrics: &Metrics) -> Result<(Echo<ProbeContext>, TcpListener)> {
    let tries = if listen.port() == 0 {
        MAX_BIND_ATTEMPTS
    } else {
        1
    };
    let mut last = anyhow!("no port");
    for _ in 0..tries {
        let echo = Echo::bind(listen, metrics.clone())
            .with_context(|| format!("cannot listen on {listen} (UDP)"))?;
        match admin::bind(echo.address()?).await {
            Ok(listener) => return Ok((echo, listener)),
            Err(error) => last = error,
        }
    }
    Err(last)
}
