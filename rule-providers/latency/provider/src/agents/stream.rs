//! One agent's stream: who it is, then what it tells and is told.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

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

use super::{Service, Told, limit::Limit};
use crate::{
    identity::Shown,
    ledger::{Id, Ledger},
    network::{Order, Seat},
};

/// The most that an agent may take to say who it is, the check included.
const HELLO: Duration = Duration::from_secs(10);
/// A stream without messages for so long is ended.
const IDLE: Duration = Duration::from_secs(30);
/// An agent that takes no message for so long is left.
const TAKES: Duration = Duration::from_secs(10);
const LONGEST_NAME_BYTES: usize = 253;
const LONGEST_BOOT_BYTES: usize = 64;

pub(super) struct Stream {
    pub service: Service,
    pub inbound: Streaming<FromAgent>,
    /// Where the stream comes from, if that is known.
    pub remote: Option<SocketAddr>,
    pub outbound: mpsc::Sender<Told>,
}

impl Stream {
    /// Serves it until it ends; says why it did.
    pub async fn run(mut self, shown: Shown, stranger: OwnedSemaphorePermit) -> Status {
        // Boxed: what the check takes is given back before the long rest begins.
        let hello = match Box::pin(self.welcome(shown)).await {
            Ok(hello) => hello,
            Err(status) => return status,
        };
        drop(stranger);
        match self.service.network.seat(&hello) {
            Ok(mut seat) => {
                tracing::debug!(node = %hello.node, "agent connected");
                let ended = self.follow(&mut seat).await;
                tracing::debug!(node = %hello.node, reason = ended.message(), "agent gone");
                ended
            }
            Err(status) => status,
        }
    }

    /// The same, in time.
    async fn welcome(&mut self, shown: Shown) -> Result<Hello, Status> {
        let stop = self.service.stop.clone();
        tokio::select! {
            () = stop.cancelled() => Err(stopping()),
            hello = timeout(HELLO, self.hello(&shown)) => hello
                .unwrap_or_else(|_| Err(Status::deadline_exceeded("no Hello within 10 s"))),
        }
    }

    /// The first message, of an agent that has proved who it is.
    async fn hello(&mut self, shown: &Shown) -> Result<Hello, Status> {
        let first = self.inbound.message().await?.and_then(|m| m.what);
        let Some(from_agent::What::Hello(hello)) = first else {
            return Err(Status::invalid_argument(
                "the first message must be a Hello",
            ));
        };
        check(&hello, self.remote.map(|r| r.ip()))?;
        let admitted = self.service.identity.admit(shown, &hello.node).await;
        if let Err(status) = admitted {
            self.service.network.0.metrics.turned_away.inc();
            tracing::debug!(node = %hello.node, reason = status.message(), "agent refused");
            return Err(status);
        }
        Ok(hello)
    }

    async fn follow(&mut self, seat: &mut Seat) -> Status {
        let mut limit = Limit::new(Instant::now());
        // The next message is not read before this.
        let mut may_speak = Instant::now();
        let mut idle = Instant::now() + IDLE;
        let stop = self.service.stop.clone();
        loop {
            let next = async {
                sleep_until(may_speak).await;
                self.inbound.message().await
            };
            let message = tokio::select! {
                () = stop.cancelled() => return stopping(),
                () = sleep_until(idle) => return Status::deadline_exceeded("silent for 30 s"),
                changed = seat.list.changed() => match changed {
                    Ok(()) => self.targets(seat),
                    Err(_) => return replaced(),
                },
                order = seat.orders.recv() => match order {
                    Some(order) => self.order(seat, *order),
                    None => return replaced(),
                },
                next = next => {
                    let message = match next {
                        Ok(Some(message)) => message,
                        Ok(None) => {
                            seat.closed = true;
                            return Status::ok("");
                        }
                        Err(status) => {
                            seat.closed = true;
                            return status;
                        }
                    };
                    let wait = limit.note(Instant::now());
                    if !wait.is_zero() {
                        self.service.network.0.metrics.limited.inc();
                    }
                    may_speak = Instant::now() + wait;
                    idle = may_speak + IDLE;
                    if !self.take(seat, message) {
                        return replaced();
                    }
                    continue;
                }
            };
            let Some(message) = message else { continue };
            if let Err(status) = self.tell(message).await {
                return status;
            }
        }
    }

    async fn tell(&self, message: to_agent::What) -> Result<(), Status> {
        let told = Box::new(Ok(ToAgent {
            what: Some(message),
        }));
        let taken = timeout(TAKES, self.outbound.send(told)).await;
        let silent = |_| Status::deadline_exceeded("the agent takes no messages");
        // One that has gone is found out by what it says no more.
        taken.map(|_| ()).map_err(silent)
    }

    /// Takes a message; false if another stream speaks for the node by now.
    fn take(&self, seat: &Seat, message: FromAgent) -> bool {
        let network = &self.service.network;
        let (pairs, answered) = match message.what {
            Some(from_agent::What::Report(Report { pairs, .. })) => (pairs, None),
            Some(from_agent::What::Probed(Probed { id, pairs })) => (pairs, Some((id, None))),
            Some(from_agent::What::Transferred(done)) => (Vec::new(), Some((done.id, Some(done)))),
            // Another Hello says nothing new.
            Some(from_agent::What::Hello(_)) | None => return true,
        };
        let now = network.now();
        let refused = {
            let mut ledger = network.0.ledger.lock();
            if !ledger.speaks(seat.id, seat.stream) {
                return false;
            }
            ledger.report(seat.id, &pairs, now)
        };
        network.heard(now);
        network.0.metrics.frames.inc();
        for refusal in refused {
            network.0.metrics.refuse(refusal);
        }
        if let Some((id, transferred)) = answered {
            network.answered(seat.id, id, transferred);
        }
        true
    }

    fn targets(&self, seat: &mut Seat) -> Option<to_agent::What> {
        let list = seat.list.borrow_and_update().clone();
        let own = {
            let ledger = self.service.network.0.ledger.lock();
            ledger.get(seat.id)?.name.clone()
        };
        let targets = self.places(list.targets.iter().copied());
        let told = hash(&targets, list.epoch);
        if std::mem::replace(&mut seat.told, told) == told {
            return None;
        }
        Some(to_agent::What::Targets(Targets {
            targets: self.keyed(&own, targets),
            echo_id: echo_id(&own),
            responder_keys: self.service.keys.of_responder(&own),
        }))
    }

    /// An order as the agent needs it; one for nobody is answered here.
    fn order(&self, seat: &Seat, order: Order) -> Option<to_agent::What> {
        let network = &self.service.network;
        let own = network.0.ledger.lock().get(seat.id)?.name.clone();
        let millis = |within: Duration| u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
        match order {
            Order::Probe {
                id,
                targets,
                samples,
                within,
            } => {
                let targets = self.places(targets.into_iter().map(|t| (t, false)));
                if targets.is_empty() {
                    network.answered(seat.id, id, None);
                    return None;
                }
                Some(to_agent::What::Probe(Probe {
                    id,
                    targets: self.keyed(&own, targets),
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
                let target = self.places([(to, false)].into_iter());
                let target = self.keyed(&own, target).pop();
                if target.is_none() {
                    let gone = Transferred {
                        id,
                        error: "the other node's agent has gone".to_owned(),
                        ..Transferred::default()
                    };
                    network.answered(seat.id, id, Some(gone));
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

    /// Targets without their keys; those that have gone are left out.
    fn places(&self, targets: impl Iterator<Item = (Id, bool)>) -> Vec<Target> {
        let ledger = self.service.network.0.ledger.lock();
        targets
            .filter_map(|(id, demand)| target(&ledger, id, demand))
            .collect()
    }

    /// Targets as the agent needs them.
    fn keyed(&self, own: &str, mut targets: Vec<Target>) -> Vec<Target> {
        for target in &mut targets {
            target.key = self.service.keys.between(own, &target.instance);
        }
        targets
    }
}

/// Another for another list, and never 0.
fn hash(targets: &[Target], epoch: u64) -> u64 {
    let epoch = epoch.to_string();
    let mut parts = vec![epoch.as_str()];
    for target in targets {
        let demand = if target.demand { "demand" } else { "" };
        parts.extend([target.instance.as_str(), target.address.as_str(), demand]);
    }
    fnv1a_64(&parts).max(1)
}

fn target(ledger: &Ledger, id: Id, demand: bool) -> Option<Target> {
    let instance = ledger.get(id)?;
    Some(Target {
        node: instance.node.as_ref().to_owned(),
        instance: instance.name.as_ref().to_owned(),
        address: instance.address?.to_string(),
        key: Vec::new(),
        demand,
    })
}

fn check(hello: &Hello, remote: Option<IpAddr>) -> Result<(), Status> {
    let refuse = |field: &str, mend: &str| {
        let node: String = hello.node.chars().take(LONGEST_NAME_BYTES).collect();
        Err(Status::invalid_argument(format!(
            "Hello of node {node:?}, {field}: {mend}"
        )))
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    // Reports and logs show it, also where agents prove nothing.
    let shown = hello.node.bytes().all(|b| plain(b) || b == b'.');
    if hello.node.is_empty() || hello.node.len() > LONGEST_NAME_BYTES || !shown {
        let mend = "expected the name of a Node: up to 253 letters, digits, `-` and `.`";
        return refuse("node", mend);
    }
    let length = 1..=LONGEST_BOOT_BYTES;
    if !length.contains(&hello.boot_id.len()) || !hello.boot_id.bytes().all(plain) {
        return refuse(
            "bootId",
            "expected what /proc/sys/kernel/random/boot_id holds",
        );
    }
    let Ok(address) = hello.address.parse::<SocketAddr>() else {
        return refuse("address", "expected IP:PORT, such as 10.1.2.3:5310");
    };
    match unfit(address, remote) {
        Some(what) => {
            let mend = format!(
                "expected an address that other nodes reach, not {what}; give the agent \
                 its pod's (--advertise, POD_IP)"
            );
            refuse("address", &mend)
        }
        None => Ok(()),
    }
}

/// Why others' echoes must not go to an address. Loopback is for tests and trials:
/// it is believed from there only.
fn unfit(address: SocketAddr, remote: Option<IpAddr>) -> Option<&'static str> {
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

fn stopping() -> Status {
    Status::unavailable("the provider stops; connect again")
}

fn replaced() -> Status {
    Status::aborted(
        "another stream speaks for the node, or the node is not the same any more; connect again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_sent_only_where_a_node_may_be() {
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
            let said = check(&hello, from).map_err(|status| status.message().to_owned());
            let expected = match refused {
                Some(what) => Err(format!(
                    "Hello of node \"a\", address: expected an address that other nodes reach, \
                     not {what}; give the agent its pod's (--advertise, POD_IP)"
                )),
                None => Ok(()),
            };
            assert_eq!(said, expected, "{address} from {from:?}");
        }
    }

    #[test]
    fn hello_is_refused_unless_its_node_could_be_a_node() {
        for (node, valid) in [
            ("north-1.example", true),
            ("", false),
            ("a\u{1b}[2J", false),
            ("a\nb", false),
            ("a\u{202e}b", false),
            (&"a".repeat(254), false),
        ] {
            let hello = Hello {
                node: node.into(),
                boot_id: "boot".into(),
                address: "10.1.2.3:5310".into(),
                ..Hello::default()
            };
            assert_eq!(check(&hello, None).is_ok(), valid, "{node:?}");
        }
    }
}
