//! A network on loopback: UDP between nodes with delay, jitter and loss, set for
//! each pair while it runs, without privileges.
//!
//! Node i listens where it likes and gives the relay's socket R_i as its address.
//! What i's socket sends to R_j arrives at j's socket from R_i, half a round trip
//! later: each side sees the addresses that were given.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hint::spin_loop,
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use fastrand::Rng;
use nix::{
    errno::Errno,
    sys::{
        socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt},
        time::TimeSpec,
    },
};
use parking_lot::{Condvar, Mutex};

/// A thread that sleeps wakes up so late; the rest of a wait it spins.
const SPIN: Duration = Duration::from_micros(200);
/// Delays below are spun by whoever received: no other thread has to wake.
const AT_ONCE: Duration = Duration::from_micros(400);
const WAIT: Duration = Duration::from_millis(100);
/// A packet that goes on so long after it was due is late.
const LATE: Duration = Duration::from_micros(40);

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    round_trip: Duration,
    cut: bool,
}

#[derive(Debug)]
struct State {
    /// Where each node really listens.
    nodes: Vec<Option<SocketAddr>>,
    /// By pair, the lower number first.
    links: HashMap<(usize, usize), Link>,
    jitter: f64,
    loss: f64,
    rng: Rng,
}

/// A packet on its way: when it is due, its number, then the rest.
type Packet = (Instant, u64, Passage, Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Passage {
    arrived: Instant,
    /// From whose socket it goes on, and where.
    source: usize,
    node: usize,
    to: SocketAddr,
}

/// What the network really did.
#[derive(Debug, Default)]
struct Done {
    delivered: u64,
    late: u64,
    /// Of requests, the time they took, by what their replies have in common with
    /// them.
    there: HashMap<Vec<u8>, Duration>,
    /// Of requests with their replies, by pair, the lower number first.
    round_trips: HashMap<(usize, usize), Vec<Duration>>,
}

#[derive(Debug)]
struct Shared {
    sockets: Vec<UdpSocket>,
    state: Mutex<State>,
    queue: Mutex<(u64, BinaryHeap<Reverse<Packet>>)>,
    queued: Condvar,
    done: Mutex<Done>,
    stop: AtomicBool,
}

/// Runs until it is dropped.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// A network of `nodes` without delay; `seed` is of its jitter and loss.
    pub fn start(nodes: usize, seed: u64) -> io::Result<Self> {
        let socket = |_| {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.set_read_timeout(Some(WAIT))?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            Ok(socket)
        };
        let shared = Arc::new(Shared {
            sockets: (0..nodes).map(socket).collect::<io::Result<_>>()?,
            state: Mutex::new(State {
                nodes: vec![None; nodes],
                links: HashMap::new(),
                jitter: 0.0,
                loss: 0.0,
                rng: Rng::with_seed(seed),
            }),
            queue: Mutex::default(),
            queued: Condvar::new(),
            done: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let mut relay = Self {
            shared,
            threads: Vec::new(),
        };
        for node in 0..nodes {
            relay.thread(move |shared| shared.receive(node))?;
        }
        relay.thread(Shared::send)?;
        Ok(relay)
    }

    fn thread(&mut self, run: impl FnOnce(&Shared) + Send + 'static) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("relay".into());
        self.threads.push(thread.spawn(move || run(&shared))?);
        Ok(())
    }

    /// What node `node` is to give as its address.
    pub fn address(&self, node: usize) -> io::Result<SocketAddr> {
        self.shared.sockets[node].local_addr()
    }

    /// Where node `node` really listens.
    pub fn attach(&self, node: usize, real: SocketAddr) {
        self.shared.state.lock().nodes[node] = Some(real);
    }

    /// The round trip between two nodes, from now on.
    pub fn set_round_trip(&self, a: usize, b: usize, round_trip: Duration) {
        self.link(a, b, |link| link.round_trip = round_trip);
    }

    /// Whether nothing passes between two nodes, from now on.
    pub fn cut(&self, a: usize, b: usize, cut: bool) {
        self.link(a, b, |link| link.cut = cut);
    }

    /// Every one-way delay is off by up to this share of it, either way.
    pub fn set_jitter(&self, share: f64) {
        self.shared.state.lock().jitter = share;
    }

    /// This share of packets is lost, each way.
    pub fn set_loss(&self, share: f64) {
        self.shared.state.lock().loss = share;
    }

    /// The share of packets that this machine was too busy to deliver on time.
    pub fn late(&self) -> f64 {
        let done = self.shared.done.lock();
        done.late as f64 / done.delivered.max(1) as f64
    }

    /// How long requests and their replies between two nodes were really on their
    /// way, in the order of the replies: the latency agent's echoes, which have
    /// bytes 8 to 31 in common.
    pub fn round_trips(&self, a: usize, b: usize) -> Vec<Duration> {
        let done = self.shared.done.lock();
        let of = done.round_trips.get(&(a.min(b), a.max(b)));
        of.cloned().unwrap_or_default()
    }

    fn link(&self, a: usize, b: usize, change: impl FnOnce(&mut Link)) {
        let mut state = self.shared.state.lock();
        change(state.links.entry((a.min(b), a.max(b))).or_default());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.queued.notify_all();
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

impl State {
    /// From which node's socket a packet of `from` to node `to` goes on, where,
    /// and how long it takes; `None`: nowhere.
    fn route(&mut self, from: SocketAddr, to: usize) -> Option<(usize, SocketAddr, Duration)> {
        let source = self.nodes.iter().position(|node| *node == Some(from))?;
        let link = self.links.get(&(source.min(to), source.max(to)));
        let link = link.copied().unwrap_or_default();
        if link.cut || self.rng.f64() < self.loss {
            return None;
        }
        let jitter = 1.0 + self.jitter * (2.0 * self.rng.f64() - 1.0);
        Some((
            source,
            self.nodes[to]?,
            link.round_trip.mul_f64(jitter / 2.0),
        ))
    }
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn receive(&self, node: usize) {
        let mut buffer = [0; 2_048];
        while !self.stopped() {
            let (length, from, arrived) = match arrival(&self.sockets[node], &mut buffer) {
                Ok(Some(packet)) => packet,
                Ok(None) | Err(Errno::EAGAIN | Errno::EINTR) => continue,
                Err(_) => return,
            };
            let Some((source, to, delay)) = self.state.lock().route(from, node) else {
                continue;
            };
            let (due, bytes) = (arrived + delay, &buffer[..length]);
            let passage = Passage {
                arrived,
                source,
                node,
                to,
            };
            if delay < AT_ONCE {
                self.deliver(due, passage, bytes);
            } else {
                let mut queue = self.queue.lock();
                queue.0 += 1;
                let packet = (due, queue.0, passage, bytes.to_vec());
                queue.1.push(Reverse(packet));
                self.queued.notify_one();
            }
        }
    }

    fn send(&self) {
        while !self.stopped() {
            let mut queue = self.queue.lock();
            let left = queue.1.peek().map(|Reverse(first)| {
                let due = first.0;
                due.saturating_duration_since(Instant::now())
            });
            match left {
                Some(left) if left <= SPIN => {
                    let first = queue.1.pop();
                    drop(queue);
                    if let Some(Reverse((due, _, passage, bytes))) = first {
                        self.deliver(due, passage, &bytes);
                    }
                }
                left => {
                    let wait = left.map_or(WAIT, |left| (left - SPIN / 2).min(WAIT));
                    self.queued.wait_for(&mut queue, wait);
                }
            }
        }
    }

    fn deliver(&self, due: Instant, passage: Passage, bytes: &[u8]) {
        let mut now = Instant::now();
        while now < due {
            spin_loop();
            now = Instant::now();
        }
        // A full buffer loses a packet, as networks do.
        _ = self.sockets[passage.source].send_to(bytes, passage.to);
        self.done.lock().note(due, now, passage, bytes);
    }
}

impl Done {
    fn note(&mut self, due: Instant, now: Instant, passage: Passage, bytes: &[u8]) {
        self.delivered += 1;
        self.late += u64::from(now > due + LATE);
        let Some(common) = bytes.get(8..32) else {
            return;
        };
        let took = now - passage.arrived;
        if let Some(there) = self.there.remove(common) {
            let (a, b) = (passage.source, passage.node);
            let all = self.round_trips.entry((a.min(b), a.max(b))).or_default();
            all.push(there + took);
        } else {
            self.there.insert(common.to_owned(), took);
        }
    }
}

/// The next packet: its length, its sender, and when the kernel had it.
fn arrival(
    socket: &UdpSocket,
    buffer: &mut [u8],
) -> Result<Option<(usize, SocketAddr, Instant)>, Errno> {
    let mut space = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::empty();
    let packet =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let (now, real) = (Instant::now(), SystemTime::now());
    let stamp = packet.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
        _ => None,
    });
    let real = real.duration_since(UNIX_EPOCH).unwrap_or_default();
    let waited = stamp.map_or(Duration::ZERO, |stamp| real.saturating_sub(stamp));
    let from = packet
        .address
        .as_ref()
        .and_then(SockaddrStorage::as_sockaddr_in);
    let from = from.map(|from| SocketAddr::new(IpAddr::V4(from.ip()), from.port()));
    let arrived = now.checked_sub(waited.min(WAIT)).unwrap_or(now);
    Ok(from.map(|from| (packet.bytes, from, arrived)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(relay: &Relay, number: usize) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        relay.attach(number, socket.local_addr().unwrap());
        socket
    }

    #[test]
    fn packets_arrive_late_from_the_address_that_was_given() {
        let relay = Relay::start(2, 1).unwrap();
        let (a, b) = (node(&relay, 0), node(&relay, 1));
        relay.set_round_trip(1, 0, Duration::from_millis(40));
        let sent = Instant::now();
        a.send_to(b"there", relay.address(1).unwrap()).unwrap();
        let mut buffer = [0; 10];
        let (length, from) = b.recv_from(&mut buffer).unwrap();
        assert!(sent.elapsed() >= Duration::from_millis(20));
        assert_eq!(
            (&buffer[..length], from),
            (&b"there"[..], relay.address(0).unwrap())
        );
        b.send_to(b"back", from).unwrap();
        let (_, from) = a.recv_from(&mut buffer).unwrap();
        assert!(sent.elapsed() >= Duration::from_millis(40));
        assert_eq!(from, relay.address(1).unwrap());
        assert!((0.0..=1.0).contains(&relay.late()));
    }

    #[test]
    fn it_tells_what_it_really_did() {
        let relay = Relay::start(2, 1).unwrap();
        let (a, b) = (node(&relay, 0), node(&relay, 1));
        let round_trip = Duration::from_millis(2);
        relay.set_round_trip(0, 1, round_trip);
        let (sent, mut buffer) = (Instant::now(), [7; 40]);
        a.send_to(&buffer, relay.address(1).unwrap()).unwrap();
        let (_, from) = b.recv_from(&mut buffer).unwrap();
        b.send_to(&buffer, from).unwrap();
        a.recv_from(&mut buffer).unwrap();
        // It is noted right after it was sent.
        while relay.round_trips(1, 0).is_empty() {
            assert!(sent.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
        let did = relay.round_trips(1, 0)[0];
        assert!(did >= round_trip && did <= sent.elapsed(), "{did:?}");
    }

    #[test]
    fn a_cut_and_strangers_let_nothing_through() {
        let relay = Relay::start(3, 1).unwrap();
        let (a, b, c) = (node(&relay, 0), node(&relay, 1), node(&relay, 2));
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        relay.cut(0, 1, true);
        for socket in [&a, &stranger] {
            socket.send_to(b"no", relay.address(1).unwrap()).unwrap();
        }
        c.send_to(b"yes", relay.address(1).unwrap()).unwrap();
        let mut buffer = [0; 10];
        assert_eq!(b.recv_from(&mut buffer).unwrap().0, 3);
        relay.cut(0, 1, false);
        a.send_to(b"again", relay.address(1).unwrap()).unwrap();
        assert_eq!(b.recv_from(&mut buffer).unwrap().0, 5);
    }

    #[test]
    fn some_packets_are_lost() {
        let relay = Relay::start(2, 1).unwrap();
        let (a, b) = (node(&relay, 0), node(&relay, 1));
        relay.set_loss(0.5);
        for _ in 0..100 {
            a.send_to(b"maybe", relay.address(1).unwrap()).unwrap();
        }
        // One of these arrives, after all those.
        for _ in 0..64 {
            a.send_to(b"the last", relay.address(1).unwrap()).unwrap();
        }
        let (mut buffer, mut count) = ([0; 10], 0);
        while b.recv_from(&mut buffer).unwrap().0 == 5 {
            count += 1;
        }
        assert!((1..=99).contains(&count), "{count}");
    }
}
