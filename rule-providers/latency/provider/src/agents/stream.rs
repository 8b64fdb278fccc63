//! The stream of one agent: its authentication, then reports from the agent, and targets and orders
//! to it.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream::Map};
use tautline_agent_link::{AgentAuth, Credentials, RateLimit};
use tautline_core::{dns, text};
use tautline_latency_protocol::echo_id;
use tautline_proto::latency::{
    FromAgent, Hello, Probe, Probed, Report, Target, Targets, Throughput, ToAgent, Transferred,
    from_agent, to_agent,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::keys::EchoKeys;
use crate::network::{
    Network,
    orders::{Measure, Order},
    pair_store::InstanceId,
    sessions::AgentSession,
};

/// The time within which an agent must send its first message and prove its identity.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of streams whose agents have not proved their identity yet.
const MAX_UNAUTHENTICATED_STREAMS: usize = 1024;
const MAX_UNSENT_MESSAGES: usize = 4;
const MAX_UNANSWERED_ORDERS: usize = 64;
const MAX_BOOT_ID_BYTES: usize = 64;

/// A message to an agent, or the status that ends its stream. It is boxed because a channel
/// allocates room for 32 messages.
type Outgoing = Box<Result<ToAgent, Status>>;

pub(super) type Messages = Map<ReceiverStream<Outgoing>, fn(Outgoing) -> Result<ToAgent, Status>>;

#[derive(Clone, Debug)]
pub(crate) struct AgentService {
    network: Arc<Network>,
    auth: Arc<AgentAuth>,
    keys: EchoKeys,
    stop: CancellationToken,
    unauthenticated: Arc<Semaphore>,
}

impl AgentService {
    pub fn new(
        network: Arc<Network>,
        auth: AgentAuth,
        keys: EchoKeys,
        stop: CancellationToken,
    ) -> Self {
        Self {
            network,
            auth: Arc::new(auth),
            keys,
            stop,
            unauthenticated: Arc::new(Semaphore::new(MAX_UNAUTHENTICATED_STREAMS)),
        }
    }

    /// Starts a stream, and returns the messages to its agent.
    pub(super) fn follow(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<Response<Messages>, Status> {
        let busy = |_| Status::resource_exhausted("too many agents connect at once; connect again");
        let permit = Arc::clone(&self.unauthenticated)
            .try_acquire_owned()
            .map_err(busy)?;
        let credentials = Credentials::of(&request);
        let (sender, messages) = mpsc::channel(MAX_UNSENT_MESSAGES);
        let stream = Stream {
            service: self.clone(),
            remote: request.remote_addr(),
            inbound: request.into_inner(),
            outbound: sender.clone(),
        };
        tokio::spawn(async move {
            let ended = stream.run(credentials, permit).await;
            // The reason is lost if the agent does not take its messages.
            _ = sender.try_send(Box::new(Err(ended)));
        });
        Ok(Response::new(ReceiverStream::new(messages).map(|m| *m)))
    }
}

struct Stream {
    service: AgentService,
    inbound: Streaming<FromAgent>,
    remote: Option<SocketAddr>,
    outbound: mpsc::Sender<Outgoing>,
}

impl Stream {
    async fn run(mut self, credentials: Credentials, permit: OwnedSemaphorePermit) -> Status {
        // The future is boxed to free its memory once the agent is authenticated.
        let hello = match Box::pin(self.authenticate(credentials)).await {
            Ok(hello) => hello,
            Err(status) => return status,
        };
        drop(permit);
        match self.service.network.open_session(&hello) {
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
        let stop = self.service.stop.clone();
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
        check(&hello, self.remote.map(|r| r.ip()))?;
        let admitted = self.service.auth.check(credentials, &hello.node).await;
        if let Err(status) = admitted {
            self.service.network.metrics.agents_refused.inc();
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
        let stop = self.service.stop.clone();
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
                        self.service.network.metrics.frames_limited.inc();
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
    fn receive(&self, session: &mut AgentSession, message: FromAgent) -> bool {
        let network = &self.service.network;
        let (pairs, answer) = match message.what {
            Some(from_agent::What::Report(Report { pairs })) => (pairs, None),
            Some(from_agent::What::Probed(Probed { id, pairs })) => (pairs, Some((id, None))),
            Some(from_agent::What::Transferred(done)) => (Vec::new(), Some((done.id, Some(done)))),
            Some(from_agent::What::Hello(_)) | None => return true,
        };
        let now = network.now();
        let refused = {
            let mut store = network.pairs.lock();
            if !store.is_current(session.id, session.stream) {
                return false;
            }
            store.report(session.id, &pairs, now)
        };
        network.metrics.frames.inc();
        for refusal in refused {
            network.metrics.refuse_report(refusal);
        }
        if let Some((id, result)) = answer
            && let Some(answer) = session.unanswered.remove(&id)
        {
            _ = answer.send(result);
        }
        true
    }

    fn targets(&self, session: &mut AgentSession) -> Option<to_agent::What> {
        let list = session.targets.borrow_and_update().clone()?;
        let targets = list.iter().map(|t| (t.id, t.demand, t.outside_interval));
        Some(to_agent::What::Targets(Targets {
            targets: self.with_keys(session, targets),
            echo_id: echo_id(&session.name),
            responder_keys: vec![self.service.keys.responder_key(&session.name)],
        }))
    }

    /// Returns the message of an order; `None` if it cannot be carried out, because its targets
    /// have no address or too many orders are unanswered.
    fn order(&self, session: &mut AgentSession, order: Order) -> Option<to_agent::What> {
        let deadline = u32::try_from(order.within.as_millis()).unwrap_or(u32::MAX);
        let id = session.last_order + 1;
        let message = match order.what {
            Measure::Probe { targets, samples } => {
                let targets = targets.into_iter().map(|to| (to, false, None));
                let targets = self.with_keys(session, targets);
                (!targets.is_empty()).then_some(to_agent::What::Probe(Probe {
                    id,
                    targets,
                    samples,
                    deadline_millis: deadline,
                }))
            }
            Measure::Transfer { to, max_bytes } => {
                let target = self
                    .with_keys(session, [(to, false, None)].into_iter())
                    .pop();
                target.map(|target| {
                    to_agent::What::Throughput(Throughput {
                        id,
                        target: Some(target),
                        max_bytes,
                        max_millis: deadline,
                    })
                })
            }
        };
        let unanswered = &mut session.unanswered;
        unanswered.retain(|_, answer| !answer.is_closed());
        if message.is_some() && unanswered.len() < MAX_UNANSWERED_ORDERS {
            session.last_order = id;
            unanswered.insert(id, order.answer);
            return message;
        }
        _ = order.answer.send(Some(Transferred {
            error: "the other node's agent has gone".to_owned(),
            ..Transferred::default()
        }));
        None
    }

    /// Returns the targets as messages have them, without those that have no address. Each comes with
    /// `true` if a rule names the pair, and with the interval of an address outside the cluster.
    fn with_keys(
        &self,
        session: &AgentSession,
        targets: impl Iterator<Item = (InstanceId, bool, Option<Duration>)>,
    ) -> Vec<Target> {
        let store = self.service.network.pairs.lock();
        let targets = targets.filter_map(|(id, demand, outside)| {
            let instance = store.get(id)?;
            Some(Target {
                node: instance.node.as_ref().to_owned(),
                instance: instance.name.as_ref().to_owned(),
                address: instance.address?.to_string(),
                key: Vec::new(),
                demand,
                outside: outside.is_some(),
                outside_millis: outside.map_or(0, |every| every.as_millis() as u32),
            })
        });
        let mut targets: Vec<Target> = targets.collect();
        drop(store);
        for target in targets.iter_mut().filter(|t| !t.outside) {
            target.key = self.service.keys.pair_key(&session.name, &target.instance);
        }
        targets
    }
}

fn stopping() -> Status {
    Status::unavailable("the provider stops; connect again")
}

fn replaced() -> Status {
    Status::aborted(
        "another stream speaks for the node, or the node is not the same any more; connect again",
    )
}

/// Checks the first message of an agent.
fn check(hello: &Hello, remote: Option<IpAddr>) -> Result<(), Status> {
    let refuse = |field: &str, expected: &str| {
        let node = text::shorten(&hello.node);
        Err(Status::invalid_argument(format!(
            "Hello of node {node:?}, {field}: {expected}"
        )))
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if !dns::is_subdomain(&hello.node) {
        let expected = "expected the name of a Node: up to 253 letters, digits, `-` and `.`";
        return refuse("node", expected);
    }
    let length = 1..=MAX_BOOT_ID_BYTES;
    if !length.contains(&hello.boot_id.len()) || !hello.boot_id.bytes().all(plain) {
        return refuse(
            "bootId",
            "expected what /proc/sys/kernel/random/boot_id holds",
        );
    }
    let Ok(address) = hello.address.parse::<SocketAddr>() else {
        return refuse("address", "expected IP:PORT, such as 10.1.2.3:5310");
    };
    match unusable(address, remote) {
        Some(what) => {
            let expected = format!(
                "expected an address that other nodes reach, not {what}; give the agent \
                 its pod's (--advertise, POD_IP)"
            );
            refuse("address", &expected)
        }
        None => Ok(()),
    }
}

/// Returns the reason why other agents must not send echoes to an address, or `None` if they may.
/// A loopback address is accepted only from a loopback address, for tests.
fn unusable(address: SocketAddr, remote: Option<IpAddr>) -> Option<&'static str> {
    let loopback = remote.is_some_and(|r| r.to_canonical().is_loopback());
    let (link_local, broadcast) = match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.is_broadcast()),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), false),
    };
    match address.ip().to_canonical() {
        _ if address.port() == 0 => Some("port 0"),
        ip if ip.is_unspecified() => Some("the unspecified one"),
        ip if ip.is_multicast() => Some("multicast"),
        ip if ip.is_loopback() && !loopback => Some("loopback"),
        _ if link_local => Some("link-local"),
        _ if broadcast => Some("broadcast"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_must_be_a_nodes() {
        let local: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let remote: IpAddr = "10.0.0.9".parse().unwrap();
        for (address, from, refused) in [
            ("10.1.2.3:5310", Some(remote), None),
            ("[fd00::1]:5310", None, None),
            ("[::ffff:10.1.2.3]:5310", Some(remote), None),
            ("10.1.2.3:0", Some(remote), Some("port 0")),
            ("0.0.0.0:5310", Some(local), Some("the unspecified one")),
            ("[::]:5310", Some(remote), Some("the unspecified one")),
            ("224.0.0.1:5310", Some(local), Some("multicast")),
            ("[ff02::1]:5310", Some(remote), Some("multicast")),
            ("169.254.169.254:80", Some(local), Some("link-local")),
            ("[::ffff:169.254.1.1]:80", Some(remote), Some("link-local")),
            ("[fe80::1]:5310", Some(remote), Some("link-local")),
            ("255.255.255.255:9", Some(remote), Some("broadcast")),
            ("127.0.0.1:5310", Some(remote), Some("loopback")),
            ("127.0.0.1:5310", None, Some("loopback")),
            ("[::ffff:127.9.9.9]:5310", Some(remote), Some("loopback")),
            ("[::1]:5310", Some(remote), Some("loopback")),
            ("127.0.0.1:5310", Some(local), None),
            ("[::1]:5310", Some(local), None),
        ] {
            let hello = Hello {
                node: "a".into(),
                boot_id: "boot".into(),
                address: address.into(),
                ..Hello::default()
            };
            let result = check(&hello, from).map_err(|status| status.message().to_owned());
            let expected = match refused {
                Some(what) => Err(format!(
                    "Hello of node \"a\", address: expected an address that other nodes reach, \
                     not {what}; give the agent its pod's (--advertise, POD_IP)"
                )),
                None => Ok(()),
            };
            assert_eq!(result, expected, "{address} from {from:?}");
        }
    }

    #[test]
    fn node_name_must_be_valid() {
        let hello = Hello {
            node: "a\nb".into(),
            boot_id: "boot".into(),
            address: "10.1.2.3:5310".into(),
            ..Hello::default()
        };
        let refused = check(&hello, None).unwrap_err();
        assert!(refused.message().contains(", node: expected"), "{refused}");
    }
}
