//! Some agents, one provider, the relay between the agents.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use tautline_latency_agent::{App, Config};
use tautline_latency_protocol::{pair_key, signing_key};
use tautline_proto::latency::{Pair, Probe, Target, Targets, to_agent::What as Order};
use tautline_runtime::tasks::Tasks;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Mutex, MutexGuard},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{PATIENCE, eventually, provider::Provider, relay::Relay};

/// Times are measured: two cores hold one network.
static ALONE: Mutex<()> = Mutex::const_new(());

pub struct World {
    pub relay: Relay,
    pub provider: Provider,
    pub address: SocketAddr,
    pub agents: Vec<Agent>,
    probes: AtomicU64,
    pub stop: CancellationToken,
    _stop: DropGuard,
    _alone: MutexGuard<'static, ()>,
}

pub struct Agent {
    pub real: SocketAddr,
    pub admin: SocketAddr,
    _stop: Option<DropGuard>,
}

pub fn name(number: usize) -> String {
    format!("n{number}")
}

/// K_r of a node.
pub fn secret(number: usize) -> Vec<u8> {
    vec![number as u8 + 1; 32]
}

fn echo_id(number: usize) -> u64 {
    1_000 + number as u64
}

pub fn config(number: usize, providers: &[SocketAddr], advertise: SocketAddr) -> Config {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Config {
        node: name(number),
        boot_id: format!("boot-{number}"),
        advertise: Some(advertise),
        listen: any,
        admin: any,
        nic_bits_per_second: 0,
        providers: providers
            .iter()
            .map(|p| format!("http://{p}").parse().unwrap())
            .collect(),
        tls: Default::default(),
        token: None,
        throughput_tests: true,
    }
}

/// Runs an agent until the token is cancelled.
pub async fn launch(config: Config) -> Agent {
    let app = App::build(config).await.unwrap();
    let (real, admin) = (app.address().unwrap(), app.admin_address().unwrap());
    let mut tasks = Tasks::default();
    app.spawn(&mut tasks).unwrap();
    let stop = CancellationToken::new();
    let until = stop.clone();
    tokio::spawn(async move { tasks.run(until.cancelled_owned()).await.unwrap() });
    Agent {
        real,
        admin,
        _stop: Some(stop.drop_guard()),
    }
}

impl World {
    pub async fn start(agents: usize) -> Self {
        let world = Self::with(agents, agents).await;
        for number in 0..agents {
            world.connected(number).await;
            // Each has its keys before anybody asks it.
            world.targets(number, &[], &[]).await;
        }
        world
    }

    /// A network of `nodes`, the first `agents` of which run here.
    pub async fn with(nodes: usize, agents: usize) -> Self {
        let _alone = ALONE.lock().await;
        let stop = CancellationToken::new();
        let (provider, address) = Provider::start(stop.clone()).await;
        let relay = Relay::start(nodes, 42).unwrap();
        let mut world = Self {
            relay,
            provider,
            address,
            agents: Vec::new(),
            probes: AtomicU64::new(0),
            _stop: stop.clone().drop_guard(),
            stop,
            _alone,
        };
        for number in 0..agents {
            let advertise = world.relay.address(number).unwrap();
            let agent = launch(config(number, &[address], advertise)).await;
            world.relay.attach(number, agent.real);
            world.agents.push(agent);
        }
        world
    }

    /// What an agent's admin port says.
    pub async fn metrics(&self, number: usize) -> String {
        self.admin(number, "/metrics").await
    }

    /// A counter of an agent.
    pub async fn count(&self, number: usize, name: &str) -> u64 {
        let metrics = self.metrics(number).await;
        let name = format!("tautline_latency_agent_{name}_total ");
        let count = metrics.lines().find_map(|l| l.strip_prefix(&name));
        count.unwrap().parse().unwrap()
    }

    pub async fn admin(&self, number: usize, path: &str) -> String {
        let mut stream = TcpStream::connect(self.agents[number].admin).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    pub async fn connected(&self, number: usize) {
        let node = name(number);
        let check = async || {
            self.provider
                .heard(&node, |h| (h.reports > 0).then_some(()))
        };
        eventually("it reports", PATIENCE, check, || self.provider.state()).await;
    }

    pub fn target(&self, from: usize, to: usize, demand: bool) -> Target {
        let key = pair_key(&signing_key(secret(to)), echo_id(from));
        Target {
            node: name(to),
            instance: format!("boot-{to}"),
            address: self.relay.address(to).unwrap().to_string(),
            key: key.as_ref().to_vec(),
            demand,
            ..Target::default()
        }
    }

    pub fn list(&self, from: usize, base: &[usize], demand: &[usize]) -> Targets {
        let base = base.iter().map(|to| self.target(from, *to, false));
        let demand = demand.iter().map(|to| self.target(from, *to, true));
        Targets {
            targets: base.chain(demand).collect(),
            echo_id: echo_id(from),
            responder_keys: vec![secret(from)],
        }
    }

    /// Gives node `from` its targets.
    pub async fn targets(&self, from: usize, base: &[usize], demand: &[usize]) {
        let list = self.list(from, base, demand);
        self.provider.order(&name(from), Order::Targets(list)).await;
    }

    /// One live probe; gives the pairs of the answer and how long it took.
    pub async fn probe(
        &self,
        from: usize,
        targets: Vec<Target>,
        samples: u32,
        deadline: Duration,
    ) -> (Vec<Pair>, Duration) {
        let id = self.probes.fetch_add(1, Ordering::Relaxed) + 1;
        let probe = Probe {
            id,
            targets,
            samples,
            deadline_millis: deadline.as_millis() as u32,
        };
        let (node, start) = (name(from), Instant::now());
        self.provider.order(&node, Order::Probe(probe)).await;
        let check = async || self.provider.heard(&node, |h| h.probed.get(&id).cloned());
        let probed = eventually("the probe's answer", PATIENCE, check, || {
            self.provider.state()
        })
        .await;
        (probed.pairs, start.elapsed())
    }

    /// Waits for a report of a pair that suits.
    pub async fn until(
        &self,
        what: &str,
        limit: Duration,
        (from, to): (usize, usize),
        suits: impl Fn(&Pair) -> bool,
    ) -> Pair {
        let (from, to) = (name(from), name(to));
        let check = async || self.provider.pair(&from, &to).filter(&suits);
        eventually(what, limit, check, || self.provider.state()).await
    }
}
