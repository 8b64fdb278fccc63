//! The requests in flight. A reply is accepted once, from the requested address, within a second.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use hashbrown::HashMap;
use ring::hmac;

use tautline_latency_protocol::{Packet, PacketBytes, is_authentic};

/// A request without a reply is lost after this time.
pub const TIMEOUT: Duration = Duration::from_secs(1);
/// The time after a request was sent within which its late reply is recognised.
const LATE_REPLY_PERIOD: Duration = Duration::from_secs(10);
/// The greatest number of requests that may be sent within [`TIMEOUT`].
const MAX_WAITING_REQUESTS: usize = 16_384;

#[derive(Debug)]
struct InFlightRequest<T> {
    sent: Instant,
    unsure: Duration,
    key: Arc<hmac::Key>,
    what: Option<T>,
}

#[derive(Debug)]
pub enum ReplyOutcome<T> {
    Reply {
        what: T,
        sent: Instant,
        unsure: Duration,
    },
    Late,
    /// The reply belongs to no request in flight: it is a second reply or a replay.
    Unknown,
    Forged,
}

#[derive(Debug)]
pub struct LostRequest<T> {
    pub what: T,
    pub sent: Instant,
}

type Id = (SocketAddr, u64);

#[derive(Debug)]
pub struct InFlight<T> {
    session: u64,
    on_way: HashMap<Id, InFlightRequest<T>>,
    waiting: VecDeque<(Instant, Id)>,
    late: VecDeque<(Instant, Id)>,
    /// The last sequence number; all targets share one count.
    last: u64,
}

impl<T> InFlight<T> {
    pub fn new(session: u64) -> Self {
        Self {
            session,
            on_way: HashMap::new(),
            waiting: VecDeque::new(),
            late: VecDeque::new(),
            last: 0,
        }
    }

    pub fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING_REQUESTS
    }

    /// Returns the next sequence number. All targets share one count, because a responder with
    /// several addresses must not see a number twice.
    pub fn sequence(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub fn add(
        &mut self,
        (to, sequence): Id,
        sent: Instant,
        unsure: Duration,
        key: Arc<hmac::Key>,
        what: T,
    ) {
        self.waiting.push_back((sent, (to, sequence)));
        let flight = InFlightRequest {
            sent,
            unsure,
            key,
            what: Some(what),
        };
        self.on_way.insert((to, sequence), flight);
    }

    pub fn match_reply(
        &mut self,
        from: SocketAddr,
        packet: &Packet,
        bytes: &PacketBytes,
    ) -> ReplyOutcome<T> {
        let id = (from, packet.sequence);
        let Some(flight) = self.on_way.get(&id) else {
            return ReplyOutcome::Unknown;
        };
        if packet.session != self.session || !is_authentic(bytes, &flight.key) {
            return ReplyOutcome::Forged;
        }
        match self.on_way.remove(&id) {
            Some(InFlightRequest {
                what: Some(what),
                sent,
                unsure,
                ..
            }) => ReplyOutcome::Reply { what, sent, unsure },
            _ => ReplyOutcome::Late,
        }
    }

    pub fn expire(&mut self, now: Instant) -> Vec<LostRequest<T>> {
        let mut lost = Vec::new();
        let past = |queue: &VecDeque<(Instant, Id)>, after: Duration| {
            queue
                .front()
                .copied()
                .filter(|(sent, _)| *sent + after <= now)
        };
        while let Some((sent, id)) = past(&self.waiting, TIMEOUT) {
            self.waiting.pop_front();
            if let Some(flight) = self.on_way.get_mut(&id) {
                self.late.push_back((sent, id));
                lost.extend(flight.what.take().map(|what| LostRequest { what, sent }));
            }
        }
        while let Some((_, id)) = past(&self.late, LATE_REPLY_PERIOD) {
            self.late.pop_front();
            self.on_way.remove(&id);
        }
        lost
    }

    pub fn earliest(&self) -> Option<Instant> {
        self.waiting.front().map(|(sent, _)| *sent + TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use tautline_latency_protocol::Kind;

    use super::*;

    struct World {
        flights: InFlight<&'static str>,
        key: Arc<hmac::Key>,
        now: Instant,
    }

    fn world() -> World {
        World {
            flights: InFlight::new(7),
            key: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"k")),
            now: Instant::now(),
        }
    }

    impl World {
        fn request(&mut self, to: SocketAddr) -> u64 {
            let sequence = self.flights.sequence();
            let key = Arc::clone(&self.key);
            self.flights
                .add((to, sequence), self.now, Duration::ZERO, key, "it");
            sequence
        }

        fn reply(
            &mut self,
            from: SocketAddr,
            session: u64,
            sequence: u64,
        ) -> ReplyOutcome<&'static str> {
            let key = Arc::clone(&self.key);
            self.sealed(from, session, sequence, &key)
        }

        fn sealed(
            &mut self,
            from: SocketAddr,
            session: u64,
            sequence: u64,
            key: &hmac::Key,
        ) -> ReplyOutcome<&'static str> {
            let packet = Packet {
                kind: Kind::Reply,
                source: 1,
                session,
                sequence,
                dwell: Duration::ZERO,
            };
            self.flights.match_reply(from, &packet, &packet.seal(key))
        }
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn reply_counts_once_and_only_from_the_requested_address() {
        let mut w = world();
        let sequence = w.request(address(1));
        let other = hmac::Key::new(hmac::HMAC_SHA256, b"other");
        assert!(matches!(
            w.reply(address(2), 7, sequence),
            ReplyOutcome::Unknown
        ));
        assert!(matches!(
            w.reply(address(1), 8, sequence),
            ReplyOutcome::Forged
        ));
        assert!(matches!(
            w.sealed(address(1), 7, sequence, &other),
            ReplyOutcome::Forged
        ));
        assert!(matches!(
            w.reply(address(1), 7, sequence + 1),
            ReplyOutcome::Unknown
        ));
        assert!(matches!(
            w.reply(address(1), 7, sequence),
            ReplyOutcome::Reply { .. }
        ));
        assert!(matches!(
            w.reply(address(1), 7, sequence),
            ReplyOutcome::Unknown
        ));
        assert!(w.flights.expire(w.now + LATE_REPLY_PERIOD).is_empty());
    }

    #[test]
    fn a_late_reply_is_neither_a_sample_nor_a_forgery() {
        let mut w = world();
        let sequence = w.request(address(1));
        assert_eq!(w.flights.earliest(), Some(w.now + TIMEOUT));
        assert!(w.flights.expire(w.now + TIMEOUT / 2).is_empty());
        assert_eq!(w.flights.expire(w.now + TIMEOUT).len(), 1);
        assert!(w.flights.expire(w.now + TIMEOUT).is_empty());
        assert!(matches!(
            w.reply(address(1), 7, sequence),
            ReplyOutcome::Late
        ));
        assert!(matches!(
            w.reply(address(1), 7, sequence),
            ReplyOutcome::Unknown
        ));
        w.request(address(1));
        w.flights.expire(w.now + LATE_REPLY_PERIOD);
        assert!(w.flights.on_way.is_empty() && w.flights.late.is_empty());
    }
}
