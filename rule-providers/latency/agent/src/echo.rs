//! The agent's UDP socket. One thread answers requests and receives replies; any task sends
//! requests.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use arc_swap::ArcSwap;
use nix::{
    errno::Errno,
    sys::{
        socket::{
            ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendto, setsockopt, sockopt,
        },
        time::TimeSpec,
    },
};
use parking_lot::Mutex;
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use tautline_latency_protocol::{
    Kind, PACKET_BYTES, Packet, PacketBytes, is_authentic, pair_key, signing_key,
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{ClockSample, Stepped},
    in_flight::{InFlight, LostRequest, ReplyOutcome},
    limit::{self, RequestDecision, RequestLimiter},
    metrics::Metrics,
};

/// The longest time that a read blocks before the thread checks whether it must stop.
const READ_TIMEOUT: Duration = Duration::from_millis(200);
/// The longest accepted round-trip time.
pub const MAX_ROUND_TRIP: Duration = Duration::from_secs(10);
/// A sample is rejected if sending its request took longer than this time and than a tenth of the
/// round-trip time: a preempted thread is off the CPU for milliseconds.
const MAX_SEND_TIME: Duration = Duration::from_micros(300);
/// The dwell that a responder sends if its clock was set while it held the packet.
const UNKNOWN_DWELL: Duration = Duration::from_nanos(u64::MAX);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectedSample {
    /// The real-time clock of this node or of the responder's node was set.
    Clock,
    /// The responder's dwell exceeds the elapsed time, or 99 % of it if that is above 100 ms.
    Dishonest,
    /// The round-trip time is 0 or above 10 s.
    Range,
    /// This process was preempted while it sent the request.
    Unsure,
}

#[derive(Debug)]
pub struct Reply<T> {
    pub what: T,
    pub sent: Instant,
    pub round_trip: Result<Duration, RejectedSample>,
}

#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("too many requests on their way")]
    TooMany,
    #[error("the provider has not named this agent yet")]
    Nameless,
    #[error(transparent)]
    Socket(#[from] Errno),
}

pub struct Echo<T> {
    socket: UdpSocket,
    /// True if the socket is an IPv6 socket, which needs mapped IPv4 addresses.
    wide: bool,
    session: u64,
    id: AtomicU64,
    keys: ArcSwap<Vec<hmac::Key>>,
    flights: Mutex<InFlight<T>>,
    metrics: Metrics,
}

impl<T> Echo<T> {
    pub fn bind(listen: SocketAddr, metrics: Metrics) -> io::Result<Self> {
        let socket = UdpSocket::bind(listen)?;
        socket.set_read_timeout(Some(READ_TIMEOUT))?;
        if let Err(error) = setsockopt(&socket, sockopt::ReceiveTimestampns, &true) {
            tracing::info!(%error, "no kernel receive time stamps; the wait in the socket is part of the time");
        }
        let mut session = [0; 8];
        SystemRandom::new()
            .fill(&mut session)
            .map_err(|_| io::Error::other("no random numbers"))?;
        let session = limit::session(SystemTime::now(), u64::from_be_bytes(session));
        Ok(Self {
            wide: socket.local_addr()?.is_ipv6(),
            socket,
            session,
            id: AtomicU64::new(0),
            keys: ArcSwap::default(),
            flights: Mutex::new(InFlight::new(session)),
            metrics,
        })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sets the responder keys, with the key in use first, and the echo id unless `id` is `None`.
    pub fn set_identity(&self, id: Option<u64>, keys: &[Vec<u8>]) {
        if let Some(id) = id {
            self.id.store(id, Ordering::Relaxed);
        }
        let keys = keys.iter().map(signing_key);
        self.keys.store(Arc::new(keys.collect()));
    }

    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Returns the pair key of the initiator `source` that passes the check `proves`.
    pub fn key_of(&self, source: u64, proves: impl Fn(&hmac::Key) -> bool) -> Option<hmac::Key> {
        let keys = self.keys.load();
        let mut keys = keys.iter().map(|key| signing_key(pair_key(key, source)));
        keys.find(proves)
    }

    /// Sends a request. [`Self::serve`] delivers its reply, and [`Self::expire`] reports its loss.
    pub fn send_request(
        &self,
        to: SocketAddr,
        key: &Arc<hmac::Key>,
        what: T,
    ) -> Result<(), SendError> {
        let source = self.id();
        if source == 0 {
            return Err(SendError::Nameless);
        }
        let mut flights = self.flights.lock();
        if flights.is_full() {
            return Err(SendError::TooMany);
        }
        let sequence = flights.sequence();
        let packet = Packet {
            kind: Kind::Request,
            source,
            session: self.session,
            sequence,
            dwell: Duration::ZERO,
        };
        let bytes = packet.seal(key);
        // The lock keeps the reply from being read before the request is recorded. It does not
        // change the reply's time, which is the kernel's stamp.
        let sent = Instant::now();
        // After any other error, such as no route, the request counts as lost.
        if let Err(error @ (Errno::EAGAIN | Errno::ENOBUFS)) = self.send(&bytes, to) {
            return Err(error.into());
        }
        let unsure = sent.elapsed();
        flights.add((to, sequence), sent, unsure, Arc::clone(key), what);
        self.metrics.sent.inc();
        Ok(())
    }

    pub fn expire(&self, now: Instant) -> Vec<LostRequest<T>> {
        let lost = self.flights.lock().expire(now);
        self.metrics.lost.inc_by(lost.len() as u64);
        lost
    }

    pub fn earliest(&self) -> Option<Instant> {
        self.flights.lock().earliest()
    }

    /// Answers requests and passes replies to `take` until stopped. It blocks, so it needs its own
    /// thread.
    pub fn serve(
        &self,
        stop: &CancellationToken,
        mut take: impl FnMut(Reply<T>),
    ) -> io::Result<()> {
        let mut buffer = [0; 2 * PACKET_BYTES];
        let mut empty = ClockSample::now();
        let mut sources = RequestLimiter::new(empty.mono);
        while !stop.is_cancelled() {
            let before = ClockSample::now();
            let received = match self.receive(&mut buffer, MsgFlags::MSG_DONTWAIT) {
                Err(Errno::EAGAIN) => {
                    // The socket was empty at this time.
                    empty = before;
                    self.receive(&mut buffer, MsgFlags::empty())
                }
                received => received,
            };
            let (length, from, stamp) = match received {
                Ok(received) => received,
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let now = ClockSample::now();
            let waited = stamp.map_or(Ok(Duration::ZERO), |stamp| now.waited(stamp, &empty));
            let Some((from, (packet, bytes))) =
                from.zip(Packet::parse(&buffer[..length.min(buffer.len())]).ok())
            else {
                self.metrics.malformed.inc();
                continue;
            };
            match packet.kind {
                Kind::Request => self.answer(from, &packet, bytes, &mut sources, now.mono, waited),
                Kind::Reply => {
                    if let Some(reply) = self.reply(from, &packet, bytes, now.mono, waited) {
                        take(reply);
                    }
                }
            }
        }
        Ok(())
    }

    fn answer(
        &self,
        from: SocketAddr,
        packet: &Packet,
        bytes: &PacketBytes,
        sources: &mut RequestLimiter,
        now: Instant,
        waited: Result<Duration, Stepped>,
    ) {
        let Some(key) = self.key_of(packet.source, |key| is_authentic(bytes, key)) else {
            self.metrics.forged.inc();
            return;
        };
        match sources.decide(packet.source, packet.session, packet.sequence, now) {
            RequestDecision::Answer => {}
            RequestDecision::Replayed => {
                self.metrics.replayed.inc();
                return;
            }
            RequestDecision::Limited => {
                self.metrics.limited.inc();
                return;
            }
        }
        let dwell = waited.map_or(UNKNOWN_DWELL, |waited| waited + now.elapsed());
        let reply = Packet {
            kind: Kind::Reply,
            dwell,
            ..*packet
        };
        // A full socket buffer loses the reply.
        if self.send(&reply.seal(&key), from).is_ok() {
            self.metrics.answered.inc();
        }
    }

    fn reply(
        &self,
        from: SocketAddr,
        packet: &Packet,
        bytes: &PacketBytes,
        now: Instant,
        waited: Result<Duration, Stepped>,
    ) -> Option<Reply<T>> {
        let landing = self.flights.lock().match_reply(from, packet, bytes);
        let (what, sent, unsure) = match landing {
            ReplyOutcome::Reply { what, sent, unsure } => (what, sent, unsure),
            ReplyOutcome::Late => {
                self.metrics.late.inc();
                return None;
            }
            ReplyOutcome::Unknown => {
                self.metrics.replayed.inc();
                return None;
            }
            ReplyOutcome::Forged => {
                self.metrics.forged.inc();
                return None;
            }
        };
        let until_now = now.saturating_duration_since(sent);
        let round_trip = round_trip(until_now, waited, packet.dwell, unsure);
        match round_trip {
            Ok(_) => {}
            Err(RejectedSample::Dishonest) => _ = self.metrics.dishonest.inc(),
            Err(_) => _ = self.metrics.refused.inc(),
        }
        Some(Reply {
            what,
            sent,
            round_trip,
        })
    }

    fn receive(
        &self,
        buffer: &mut [u8],
        flags: MsgFlags,
    ) -> Result<(usize, Option<SocketAddr>, Option<Duration>), Errno> {
        let mut space = nix::cmsg_space!(TimeSpec);
        let mut parts = [IoSliceMut::new(buffer)];
        let fd = self.socket.as_raw_fd();
        let message = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut space), flags)?;
        let stamp = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(stamp) => u64::try_from(stamp.tv_sec())
                .ok()
                .zip(u32::try_from(stamp.tv_nsec()).ok())
                .map(|(secs, nanos)| Duration::new(secs, nanos)),
            _ => None,
        });
        let from = message.address.as_ref().and_then(address);
        Ok((message.bytes, from, stamp))
    }

    fn send(&self, bytes: &PacketBytes, to: SocketAddr) -> Result<(), Errno> {
        let to = match to {
            SocketAddr::V4(v4) if self.wide => {
                SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into()
            }
            to => to,
        };
        let (fd, to) = (self.socket.as_raw_fd(), SockaddrStorage::from(to));
        sendto(fd, bytes, &to, MsgFlags::MSG_DONTWAIT).map(|_| ())
    }
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddrV4::new(v4.ip(), v4.port()).into());
    }
    let v6 = storage.as_sockaddr_in6()?;
    Some(SocketAddr::new(
        IpAddr::V6(v6.ip()).to_canonical(),
        v6.port(),
    ))
}

/// Returns the round-trip time: the time since the request was sent, less the reply's wait in the
/// socket and the responder's dwell.
fn round_trip(
    until_now: Duration,
    waited: Result<Duration, Stepped>,
    dwell: Duration,
    unsure: Duration,
) -> Result<Duration, RejectedSample> {
    let waited = waited.map_err(|Stepped| RejectedSample::Clock)?;
    if dwell == UNKNOWN_DWELL {
        return Err(RejectedSample::Clock);
    }
    let elapsed = until_now.checked_sub(waited).ok_or(RejectedSample::Clock)?;
    // A busy node may hold a request long, but not for nearly all of the time.
    let nearly_all = elapsed > Duration::from_millis(100) && dwell > elapsed / 100 * 99;
    if nearly_all || dwell > elapsed {
        return Err(RejectedSample::Dishonest);
    }
    let rtt = elapsed - dwell;
    if rtt.is_zero() || rtt > MAX_ROUND_TRIP {
        return Err(RejectedSample::Range);
    }
    if unsure > MAX_SEND_TIME.max(rtt / 10) {
        return Err(RejectedSample::Unsure);
    }
    Ok(rtt)
}

#[cfg(test)]
mod tests;
