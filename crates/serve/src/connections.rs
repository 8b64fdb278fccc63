//! Keeps account of a port's connections, and chooses the connections to close. It reads no clock:
//! the caller passes the time.
//!
//! A full port closes the idlest connection of the source address with the most connections, but no
//! connection whose request is being handled.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::limits::Limits;

/// The time in which a client should read a response, in milliseconds. A slower client may lose its
/// connection to a new one.
const STALLED_MILLIS: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    New,
    /// The headers of a request are arriving (HTTP/2: the preface).
    Head,
    Idle,
    Body,
    Work,
    Response,
    /// The response is complete and not yet flushed.
    Flush,
}

const PHASES: [Phase; 7] = [
    Phase::New,
    Phase::Head,
    Phase::Idle,
    Phase::Body,
    Phase::Work,
    Phase::Response,
    Phase::Flush,
];

/// The phase of a connection and the number of its HTTP/2 streams. The connection's task writes
/// them without a lock.
#[derive(Debug)]
pub struct Activity {
    /// The start of the phase in milliseconds, times 8, plus the phase.
    state: AtomicU64,
    streams: AtomicU32,
}

impl Activity {
    fn new(now: u64) -> Self {
        Self {
            state: AtomicU64::new(now << 3),
            streams: AtomicU32::new(0),
        }
    }

    pub fn phase(&self) -> Phase {
        self.state().0
    }

    fn state(&self) -> (Phase, u64) {
        let state = self.state.load(Relaxed);
        let phase = PHASES.get((state & 7) as usize).copied();
        (phase.unwrap_or(Phase::Work), state >> 3)
    }

    /// Enters a phase at the time `now`, in milliseconds.
    pub fn enter(&self, phase: Phase, now: u64) {
        self.state.store((now << 3) | phase as u64, Relaxed);
    }

    /// Enters a phase whose time counts from the start of the last phase.
    pub fn progress(&self, phase: Phase) {
        self.enter(phase, self.state().1);
    }

    pub fn open_stream(&self) {
        self.streams.fetch_add(1, Relaxed);
    }

    pub fn close_stream(&self, now: u64) {
        self.enter(Phase::Idle, now);
        self.streams.fetch_sub(1, Relaxed);
    }

    pub fn is_working(&self) -> bool {
        self.streams.load(Relaxed) > 0 || self.phase() == Phase::Work
    }

    /// Returns the rank of the connection: the lowest is closed first, `None` is not closed.
    fn rank(&self, now: u64) -> Option<(u8, u64)> {
        if self.streams.load(Relaxed) > 0 {
            return None;
        }
        let (phase, since) = self.state();
        match phase {
            Phase::New | Phase::Head | Phase::Idle => Some((0, since)),
            Phase::Body => Some((1, since)),
            Phase::Response | Phase::Flush if now.saturating_sub(since) >= STALLED_MILLIS => {
                Some((1, since))
            }
            Phase::Work | Phase::Response | Phase::Flush => None,
        }
    }

    /// Returns the reason to close the connection, if its phase has lasted too long. The reader of a body has its own deadline.
    fn overdue(&self, limits: &Limits, now: u64) -> Option<CloseReason> {
        if self.streams.load(Relaxed) > 0 {
            return None;
        }
        let (phase, since) = self.state();
        let (limit, reason) = match phase {
            Phase::New => (limits.first_byte, CloseReason::Silent),
            Phase::Head => (limits.head, CloseReason::SlowHeaders),
            Phase::Idle => (limits.idle?, CloseReason::Idle),
            Phase::Response | Phase::Flush => (limits.response, CloseReason::SlowReader),
            Phase::Body | Phase::Work => return None,
        };
        let waited = Duration::from_millis(now.saturating_sub(since));
        (waited >= limit).then_some(reason)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    Silent,
    SlowHeaders,
    Idle,
    SlowReader,
    MadeRoom,
    NoRoom,
    Handshake,
}

impl CloseReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "Silent",
            Self::SlowHeaders => "SlowHeaders",
            Self::Idle => "Idle",
            Self::SlowReader => "SlowReader",
            Self::MadeRoom => "MadeRoom",
            Self::NoRoom => "NoRoom",
            Self::Handshake => "Handshake",
        }
    }
}

#[derive(Debug, Default)]
pub struct Source {
    connections: AtomicUsize,
    pub bytes: AtomicI64,
}

/// Returns the address by which a connection counts. An IPv6 address counts by its /64, since a
/// host commonly has a whole /64.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

#[derive(Debug)]
struct Entry<T> {
    address: IpAddr,
    source: Arc<Source>,
    activity: Arc<Activity>,
    handle: T,
}

#[derive(Debug)]
pub struct Opened<T> {
    pub id: u64,
    pub activity: Arc<Activity>,
    pub source: Arc<Source>,
    pub closed: Option<T>,
}

/// The open connections of a port. Dropping a `T` closes its connection.
#[derive(Debug)]
pub struct Connections<T> {
    most: usize,
    most_per_source: usize,
    entries: HashMap<u64, Entry<T>>,
    sources: HashMap<IpAddr, Arc<Source>>,
    next: u64,
}

impl<T> Connections<T> {
    pub fn new(most: usize, most_per_source: usize) -> Self {
        Self {
            most: most.max(1),
            most_per_source: most_per_source.max(1),
            entries: HashMap::new(),
            sources: HashMap::new(),
            next: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a connection, and closes another one if there is no room. Returns `handle` if every
    /// connection that could make room has a request in progress.
    pub fn open(&mut self, address: IpAddr, now: u64, handle: T) -> Result<Opened<T>, T> {
        let address = source_of(address);
        let of_source = self.sources.get(&address).cloned();
        let from_source = of_source
            .as_ref()
            .map_or(0, |s| s.connections.load(Relaxed));
        let victim = if from_source >= self.most_per_source {
            Some(self.idlest(Some(address), now))
        } else if self.entries.len() >= self.most {
            Some(self.idlest(None, now))
        } else {
            None
        };
        let closed = match victim {
            None => None,
            Some(None) => return Err(handle),
            Some(Some(id)) => self.close(id),
        };
        let source = Arc::clone(self.sources.entry(address).or_default());
        source.connections.fetch_add(1, Relaxed);
        let (id, activity) = (self.next, Arc::new(Activity::new(now)));
        self.next += 1;
        let entry = Entry {
            address,
            source: Arc::clone(&source),
            activity: Arc::clone(&activity),
            handle,
        };
        self.entries.insert(id, entry);
        Ok(Opened {
            id,
            activity,
            source,
            closed,
        })
    }

    pub fn close(&mut self, id: u64) -> Option<T> {
        let entry = self.entries.remove(&id)?;
        if entry.source.connections.fetch_sub(1, Relaxed) == 1 {
            self.sources.remove(&entry.address);
        }
        Some(entry.handle)
    }

    /// Removes the connection to close when file descriptors run out.
    pub fn shed(&mut self, now: u64) -> Option<T> {
        self.idlest(None, now).and_then(|id| self.close(id))
    }

    pub fn overdue(&mut self, limits: &Limits, now: u64) -> Vec<(T, CloseReason)> {
        let due =
            |(id, entry): (&u64, &Entry<T>)| Some((*id, entry.activity.overdue(limits, now)?));
        let due: Vec<(u64, CloseReason)> = self.entries.iter().filter_map(due).collect();
        due.into_iter()
            .filter_map(|(id, reason)| Some((self.close(id)?, reason)))
            .collect()
    }

    fn idlest(&self, of: Option<IpAddr>, now: u64) -> Option<u64> {
        let entries = self.entries.iter();
        entries
            .filter(|(_, entry)| of.is_none_or(|address| entry.address == address))
            .filter_map(|(id, entry)| {
                let most = std::cmp::Reverse(entry.source.connections.load(Relaxed));
                Some(((most, entry.activity.rank(now)?, *id), *id))
            })
            .min()
            .map(|(_, id)| id)
    }
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
