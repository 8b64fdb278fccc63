//! Agents that are sent away for a while, as most of thousands of streams have
//! nothing to say and each keeps some 30 KB: they measure on and come back by
//! themselves, or at once when they are woken.

#[cfg(test)]
mod tests;
mod wake;

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tautline_proto::latency::Park;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Network, Order, Seat, seat::MOST_ORDERS};
use crate::{keys::Keys, ledger::Id};
use wake::{Packet, Sockets, packet};

/// How long an agent stays away; itself it varies that by a fifth.
const AWAY: Duration = Duration::from_secs(30);
/// One that has measured nothing yet.
const SOON: Duration = Duration::from_secs(5);
/// Who is not back so long after it should be has gone.
const MISSED: Duration = Duration::from_secs(30);
/// When a wake is sent, since it was wanted.
const SENT: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_secs(1),
];
/// Who has not come so long after that is deaf: it is waited for, and not woken.
const DEAF: Duration = Duration::from_secs(3);
/// How long an agent that was wanted stays at the least.
pub(super) const STAYS: Duration = Duration::from_secs(60);
/// How often those who are late are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// Those who are away.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    parked: Mutex<HashMap<Id, Parked>>,
    /// Makes keys that nobody guesses.
    random: RandomState,
    wanted: Notify,
}

/// An agent that is away.
#[derive(Debug)]
pub(crate) struct Parked {
    /// What it was told to come back with.
    pub key: u64,
    /// The list of targets that it has.
    pub list: u64,
    /// It is back by then.
    until: Duration,
    /// An active rule has it measure.
    named: bool,
    /// Since when it is wanted, and how often it was told.
    woken: Option<(Duration, usize)>,
    /// What waits for it, since when.
    pub orders: Vec<(Duration, Box<Order>)>,
}

impl Parked {
    /// It was not only its time to come.
    pub fn is_wanted(&self) -> bool {
        self.named || self.woken.is_some()
    }

    /// Has it woken, if that is of use.
    fn want(&mut self, now: Duration) -> bool {
        let (_, sent) = *self.woken.get_or_insert((now, 0));
        sent <= SENT.len()
    }
}

impl Parking {
    /// Locked after the streams and before the ledger.
    pub fn lock(&self) -> MutexGuard<'_, HashMap<Id, Parked>> {
        self.parked.lock()
    }

    /// Has an agent woken and gives it the order when it comes; false if it is not
    /// away, does not come, or has too many already.
    pub fn order(&self, to: Id, order: Box<Order>, now: Duration) -> bool {
        let mut parked = self.lock();
        let Some(agent) = parked.get_mut(&to) else {
            return false;
        };
        let comes = agent.orders.len() < MOST_ORDERS && agent.want(now);
        if comes {
            agent.orders.push((now, order));
            self.wanted.notify_one();
        }
        comes
    }

    /// Has those woken that active rules name by now.
    pub fn named(&self, of: &BTreeMap<Id, Vec<Id>>, now: Duration) {
        for (id, agent) in self.lock().iter_mut() {
            agent.named = of.contains_key(id);
            if agent.named && agent.want(now) {
                self.wanted.notify_one();
            }
        }
    }
}

impl Network {
    /// Whether anybody is away.
    pub(crate) fn is_parking(&self) -> bool {
        !self.0.parking.lock().is_empty()
    }

    /// Sends an agent away, unless there are few streams, it is an older one, or
    /// something is wanted of it. Its stream is to end with this.
    pub(crate) fn park(&self, seat: &Seat) -> Option<Park> {
        let mut streams = self.0.streams.lock();
        let busy = !seat.orders.is_empty() || seat.list.has_changed().unwrap_or(true);
        let named = seat.list.borrow().targets.iter().any(|(_, named)| *named);
        let own = streams.get(&seat.id)?.stream == seat.stream;
        if streams.len() <= self.0.settings.streams || busy || named || !own || !seat.parks {
            return None;
        }
        let key = self.0.parking.random.hash_one(seat.stream).max(1);
        let (now, away) = (self.now(), if seat.measured { AWAY } else { SOON });
        streams.remove(&seat.id);
        let agent = Parked {
            key,
            list: seat.told,
            until: now + away.mul_f64(1.2),
            named: false,
            woken: None,
            orders: Vec::new(),
        };
        let mut parked = self.0.parking.lock();
        parked.insert(seat.id, agent);
        self.0.ledger.lock().park(seat.id, seat.stream);
        self.counted(&streams, &parked);
        Some(Park {
            seconds: u32::try_from(away.as_secs()).unwrap_or(u32::MAX),
            key,
        })
    }

    /// The wakes that are due, and when to look again. Lets those go who are late.
    fn due(&self, keys: &Keys, now: Duration) -> (Vec<(SocketAddr, Packet)>, Duration) {
        let streams = self.0.streams.lock();
        let mut parked = self.0.parking.lock();
        let mut ledger = self.0.ledger.lock();
        let (mut wakes, mut next) = (Vec::new(), LOOK);
        parked.retain(|id, agent| {
            let Some(instance) = ledger.get(*id) else {
                return false;
            };
            if now >= agent.until + MISSED {
                ledger.lost(*id);
                return false;
            }
            let Some((since, sent)) = &mut agent.woken else {
                return true;
            };
            let at = *since + SENT.get(*sent).copied().unwrap_or(DEAF);
            if *sent > SENT.len() {
                return true;
            }
            if now < at {
                next = next.min(at - now);
                return true;
            }
            if *sent < SENT.len() {
                let to = instance.address;
                wakes.extend(to.map(|to| (to, packet(keys, &instance.name, agent.key))));
            } else {
                agent.orders.clear();
                ledger.deaf(*id);
                self.0.metrics.unanswered.inc();
            }
            self.0.metrics.wakes.inc_by(u64::from(*sent == 0));
            *sent += 1;
            let at = *since + SENT.get(*sent).copied().unwrap_or(DEAF);
            next = next.min(at.saturating_sub(now));
            true
        });
        self.counted(&streams, &parked);
        (wakes, next)
    }
}

/// Wakes those who are wanted until told to stop.
pub(crate) async fn wake(network: Network, keys: Keys, stop: CancellationToken) {
    let mut sockets = Sockets::default();
    loop {
        let (wakes, next) = network.due(&keys, network.now());
        for (to, packet) in wakes {
            sockets.send(to, &packet);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = network.0.parking.wanted.notified() => {}
            () = tokio::time::sleep(next) => {}
        }
    }
}
