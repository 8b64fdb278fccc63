//! A network on loopback: UDP between nodes with delay, jitter and loss, set for
//! each pair while it runs, without privileges.
//!
//! Node i listens on any port and advertises the relay's socket R_i. A packet from i's socket
//! to R_j arrives at j's socket from R_i, half a round trip later: each side sees the
//! advertised addresses.

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

/// A sleeping thread may wake up this late, so the rest of a wait is spun.
const SPIN_BELOW: Duration = Duration::from_micros(200);
/// The receiving thread spins shorter delays itself: no other thread has to wake.
const DELIVER_AT_ONCE: Duration = Duration::from_micros(400);
const WAIT: Duration = Duration::from_millis(100);
/// A packet delivered this long after it was due is late.
const LATE: Duration = Duration::from_micros(40);

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    round_trip: Duration,
    cut: bool,
}

#[derive(Debug)]
struct State {
    /// The real address of each node.
    nodes: Vec<Option<SocketAddr>>,
    /// By pair, the lower number first.
    links: HashMap<(usize, usize), Link>,
    jitter: f64,
    loss: f64,
    rng: Rng,
}

/// A packet on its way: when it is due, its number, then the rest.
type Packet = (Instant, u64, Transit, Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Transit {
    arrived: Instant,
    /// The node whose socket sends it on, and the target.
    source: usize,
    node: usize,
    to: SocketAddr,
}

/// The delays that packets really had.
#[derive(Debug, Default)]
struct Statistics {
    delivered: u64,
    late: u64,
    /// The time of requests, by the bytes that they share with their replies.
    outbound: HashMap<Vec<u8>, Duration>,
    /// The times of requests with their replies, by pair, the lower number first.
    round_trips: HashMap<(usize, usize), Vec<Duration>>,
}

#[derive(Debug)]
struct Shared {
    sockets: Vec<UdpSocket>,
    state: Mutex<State>,
    queue: Mutex<(u64, BinaryHeap<Reverse<Packet>>)>,
    queued: Condvar,
    statistics: Mutex<Statistics>,
    stop: AtomicBool,
}

/// Runs until it is dropped.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// A network of `nodes` without delay; `seed` is for jitter and loss.
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
            statistics: Mutex::default(),
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

    /// The address that node `node` advertises.
    pub fn address(&self, node: usize) -> io::Result<SocketAddr> {
        self.shared.sockets[node].local_addr()
    }

    /// Sets the real address of node `node`.
    pub fn attach(&self, node: usize, real: SocketAddr) {
        self.shared.state.lock().nodes[node] = Some(real);
    }

    /// The round trip between two nodes, from now on.
    pub fn set_round_trip(&self, a: usize, b: usize, round_trip: Duration) {
        self.link(a, b, |link| link.round_trip = round_trip);
    }

    /// Cuts or restores the link between two nodes.
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
    pub fn late_share(&self) -> f64 {
        let done = self.shared.statistics.lock();
        done.late as f64 / done.delivered.max(1) as f64
    }

    /// The real times of requests with their replies between two nodes, in the order of the
    /// replies. The latency agent's echoes share bytes 8 to 31.
    pub fn round_trips(&self, a: usize, b: usize) -> Vec<Duration> {
        let done = self.shared.statistics.lock();
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
    /// The node whose socket sends on a packet of `from` to node `to`, its target, and its
    /// delay; `None`: it is dropped.
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
            let (length, from, arrived) = match receive_packet(&self.sockets[node], &mut buffer) {
                Ok(Some(packet)) => packet,
                Ok(None) | Err(Errno::EAGAIN | Errno::EINTR) => continue,
                Err(_) => return,
            };
            let Some((source, to, delay)) = self.state.lock().route(from, node) else {
                continue;
            };
            let (due, bytes) = (arrived + delay, &buffer[..length]);
            let passage = Transit {
                arrived,
                source,
                node,
                to,
            };
            if delay < DELIVER_AT_ONCE {
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
                Some(left) if left <= SPIN_BELOW => {
                    let first = queue.1.pop();
                    drop(queue);
                    if let Some(Reverse((due, _, passage, bytes))) = first {
                        self.deliver(due, passage, &bytes);
                    }
                }
                left => {
                    let wait = left.map_or(WAIT, |left| (left - SPIN_BELOW / 2).min(WAIT));
                    self.queued.wait_for(&mut queue, wait);
                }
            }
        }
    }

    fn deliver(&self, due: Instant, passage: Transit, bytes: &[u8]) {
        let mut now = Instant::now();
        while now < due {
            spin_loop();
            now = Instant::now();
        }
        // A full buffer loses a packet, as networks do.
        _ = self.sockets[passage.source].send_to(bytes, passage.to);
        self.statistics.lock().record(due, now, passage, bytes);
    }
}

impl Statistics {
    fn record(&mut self, due: Instant, now: Instant, passage: Transit, bytes: &[u8]) {
        self.delivered += 1;
        self.late += u64::from(now > due + LATE);
        let Some(common) = bytes.get(8..32) else {
            return;
        };
        let took = now - passage.arrived;
        if let Some(there) = self.outbound.remove(common) {
            let (a, b) = (passage.source, passage.node);
            let all = self.round_trips.entry((a.min(b), a.max(b))).or_default();
            all.push(there + took);
        } else {
            self.outbound.insert(common.to_owned(), took);
        }
    }
}

/// The next packet: its length, its sender, and when the kernel received it.
fn receive_packet(
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
    fn relay_delays_packets_and_shows_the_given_address() {
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
        assert!((0.0..=1.0).contains(&relay.late_share()));
    }

    #[test]
    fn relay_reports_real_round_trips() {
        let relay = Relay::start(2, 1).unwrap();
        let (a, b) = (node(&relay, 0), node(&relay, 1));
        let round_trip = Duration::from_millis(2);
        relay.set_round_trip(0, 1, round_trip);
        let (sent, mut buffer) = (Instant::now(), [7; 40]);
        a.send_to(&buffer, relay.address(1).unwrap()).unwrap();
        let (_, from) = b.recv_from(&mut buffer).unwrap();
        b.send_to(&buffer, from).unwrap();
        a.recv_from(&mut buffer).unwrap();
        // The relay records a packet right after it sent it.
        while relay.round_trips(1, 0).is_empty() {
            assert!(sent.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
        let did = relay.round_trips(1, 0)[0];
        assert!(did >= round_trip && did <= sent.elapsed(), "{did:?}");
    }

    #[test]
    fn relay_drops_packets_of_cut_links_and_strangers() {
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
    fn relay_loses_a_share_of_packets() {
        let relay = Relay::start(2, 1).unwrap();
        let (a, b) = (node(&relay, 0), node(&relay, 1));
        relay.set_loss(0.5);
        for _ in 0..100 {
            a.send_to(b"maybe", relay.address(1).unwrap()).unwrap();
        }
        // At least one of these arrives, after all of those.
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
