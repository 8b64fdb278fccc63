//! The stream of one agent: its authentication, then reports from the agent, and targets and orders
//! to it.

use std::{net::SocketAddr, time::Duration};

use tautline_agent_link::{Credentials, RateLimit};
use tautline_core::planning::fnv1a_64;
use tautline_latency_protocol::echo_id;
use tautline_proto::latency::{
    FromAgent, Hello, Probe, Probed, Report, Target, Targets, Throughput, ToAgent, Transferred,
    from_agent, to_agent,
};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    time::{Instant, sleep_until, timeout},
};
use tonic::{Status, Streaming};

use super::{
    context::{Outgoing, StreamContext},
    hello,
};
use crate::network::{
    pair_store::{InstanceId, PairStore},
    sessions::{AgentSession, Order},
};

/// The time within which an agent must send its first message and prove its identity.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Stream {
    pub context: StreamContext,
    pub inbound: Streaming<FromAgent>,
    pub remote: Option<SocketAddr>,
    pub outbound: mpsc::Sender<Outgoing>,
}

impl Stream {
    pub async fn run(mut self, credentials: Credentials, permit: OwnedSemaphorePermit) -> Status {
        // The future is boxed to free its memory once the agent is authenticated.
        let hello = match Box::pin(self.authenticate(credentials)).await {
            Ok(hello) => hello,
            Err(status) => return status,
        };
        drop(permit);
        match self.context.network.sessions.open(&hello) {
            Ok(mut session) => {
                tracing::debug!(node = %hello.node, "agent connected");
                let ended = self.serve(&mut session).await;
                tracing::debug!(node = %hello.node, reason = ended.message(), "agent disconnected");
                ended
            }
            Err(status) => status,
        }
    }

    async fn authenticate(&mut self, credentials: Credentials) -> Result<Hello, Status> {
        let stop = self.context.stop.clone();
        tokio::select! {
            () = stop.cancelled() => Err(stopping()),
            hello = timeout(HELLO_TIMEOUT, self.hello(&credentials)) => hello
                .unwrap_or_else(|_| Err(Status::deadline_exceeded("no Hello within 10 s"))),
        }
    }

    async fn hello(&mut self, credentials: &Credentials) -> Result<Hello, Status> {
        let first = self.inbound.message().await?.and_then(|m| m.what);
        let Some(from_agent::What::Hello(hello)) = first else {
            return Err(Status::invalid_argument(
                "the first message must be a Hello",
            ));
        };
        hello::check(&hello, self.remote.map(|r| r.ip()))?;
        let admitted = self.context.auth.check(credentials, &hello.node).await;
        if let Err(status) = admitted {
            self.context.network.metrics.agents_refused.inc();
            tracing::debug!(node = %hello.node, reason = status.message(), "agent refused");
            return Err(status);
        }
        Ok(hello)
    }

    async fn serve(&mut self, session: &mut AgentSession) -> Status {
        let mut limit = RateLimit::new(Instant::now());
        // The rate limit: the next message is not read before this time.
        let mut read_at = Instant::now();
        let mut idle_at = Instant::now() + IDLE_TIMEOUT;
        let stop = self.context.stop.clone();
        loop {
            let next = async {
                sleep_until(read_at).await;
                self.inbound.message().await
            };
            let message = tokio::select! {
                () = stop.cancelled() => return stopping(),
                () = sleep_until(idle_at) => return Status::deadline_exceeded("silent for 30 s"),
                changed = session.targets.changed() => match changed {
                    Ok(()) => self.targets(session),
                    Err(_) => return replaced(),
                },
                order = session.orders.recv() => match order {
                    Some(order) => self.order(session, *order),
                    None => return replaced(),
                },
                next = next => {
                    let message = match next {
                        Ok(Some(message)) => message,
                        ended => {
                            session.closed_by_agent = true;
                            return ended.err().unwrap_or_else(|| Status::ok(""));
                        }
                    };
                    let wait = limit.record(Instant::now());
                    if !wait.is_zero() {
                        self.context.network.metrics.frames_limited.inc();
                    }
                    read_at = Instant::now() + wait;
                    idle_at = read_at + IDLE_TIMEOUT;
                    if !self.receive(session, message) {
                        return replaced();
                    }
                    continue;
                }
            };
            let Some(message) = message else { continue };
            if let Err(status) = self.send(message).await {
                return status;
            }
        }
    }

    async fn send(&self, message: to_agent::What) -> Result<(), Status> {
        let message = Box::new(Ok(ToAgent {
            what: Some(message),
        }));
        let sent = timeout(SEND_TIMEOUT, self.outbound.send(message)).await;
        let slow = |_| Status::deadline_exceeded("the agent takes no messages");
        sent.map(|_| ()).map_err(slow)
    }

    /// Processes a message; returns false if another session has replaced this one.
    fn receive(&self, session: &AgentSession, message: FromAgent) -> bool {
        let network = &self.context.network;
        let (pairs, answer) = match message.what {
            Some(from_agent::What::Report(Report { pairs, .. })) => (pairs, None),
            Some(from_agent::What::Probed(Probed { id, pairs })) => (pairs, Some((id, None))),
            Some(from_agent::What::Transferred(done)) => (Vec::new(), Some((done.id, Some(done)))),
            Some(from_agent::What::Hello(_)) | None => return true,
        };
        let now = network.pairs.now();
        let refused = {
            let mut store = network.pairs.lock();
            if !store.is_current(session.id, session.stream) {
                return false;
            }
            store.report(session.id, &pairs, now)
        };
        network.sessions.frame_received(now);
        network.metrics.frames.inc();
        for refusal in refused {
            network.metrics.refuse_report(refusal);
        }
        if let Some((id, transferred)) = answer {
            network.orders.complete(session.id, id, transferred);
        }
        true
    }

    fn targets(&self, session: &mut AgentSession) -> Option<to_agent::What> {
        let list = session.targets.borrow_and_update().clone();
        let own = self.instance_name(session)?;
        let targets = self.targets_without_keys(list.targets.iter().copied());
        let hash = hash(&targets, list.key_epoch);
        if std::mem::replace(&mut session.sent_list, hash) == hash {
            return None;
        }
        Some(to_agent::What::Targets(Targets {
            targets: self.with_keys(&own, targets),
            echo_id: echo_id(&own),
            responder_keys: self.context.keys.responder_keys(&own),
        }))
    }

    fn order(&self, session: &AgentSession, order: Order) -> Option<to_agent::What> {
        let orders = &self.context.network.orders;
        let own = self.instance_name(session)?;
        let millis = |within: Duration| u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
        match order {
            Order::Probe {
                id,
                targets,
                samples,
                within,
            } => {
                let targets = self.targets_without_keys(targets.into_iter().map(|t| (t, false)));
                if targets.is_empty() {
                    orders.complete(session.id, id, None);
                    return None;
                }
                Some(to_agent::What::Probe(Probe {
                    id,
                    targets: self.with_keys(&own, targets),
                    samples,
                    deadline_millis: millis(within),
                }))
            }
            Order::Transfer {
                id,
                to,
                max_bytes,
                within,
            } => {
                let targets = self.targets_without_keys([(to, false)].into_iter());
                let target = self.with_keys(&own, targets).pop();
                if target.is_none() {
                    let gone = Transferred {
                        id,
                        error: "the other node's agent has gone".to_owned(),
                        ..Transferred::default()
                    };
                    orders.complete(session.id, id, Some(gone));
                    return None;
                }
                Some(to_agent::What::Throughput(Throughput {
                    id,
                    target,
                    max_bytes,
                    max_millis: millis(within),
                }))
            }
        }
    }

    fn instance_name(&self, session: &AgentSession) -> Option<std::sync::Arc<str>> {
        let store = self.context.network.pairs.lock();
        Some(store.get(session.id)?.name.clone())
    }

    fn targets_without_keys(
        &self,
        targets: impl Iterator<Item = (InstanceId, bool)>,
    ) -> Vec<Target> {
        let store = self.context.network.pairs.lock();
        targets
            .filter_map(|(id, demand)| target(&store, id, demand))
            .collect()
    }

    fn with_keys(&self, own: &str, mut targets: Vec<Target>) -> Vec<Target> {
        for target in &mut targets {
            target.key = self.context.keys.pair_key(own, &target.instance);
        }
        targets
    }
}

/// Returns a hash of the list and the key epoch, never 0.
fn hash(targets: &[Target], key_epoch: u64) -> u64 {
    let epoch = key_epoch.to_string();
    let mut parts = vec![epoch.as_str()];
    for target in targets {
        let demand = if target.demand { "demand" } else { "" };
        parts.extend([target.instance.as_str(), target.address.as_str(), demand]);
    }
    fnv1a_64(&parts).max(1)
}

fn target(store: &PairStore, id: InstanceId, demand: bool) -> Option<Target> {
    let instance = store.get(id)?;
    Some(Target {
        node: instance.node.as_ref().to_owned(),
        instance: instance.name.as_ref().to_owned(),
        address: instance.address?.to_string(),
        key: Vec::new(),
        demand,
    })
}

fn stopping() -> Status {
    Status::unavailable("the provider stops; connect again")
}

fn replaced() -> Status {
    Status::aborted(
        "another stream speaks for the node, or the node is not the same any more; connect again",
    )
}
