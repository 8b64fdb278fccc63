//! What the agents have told, pair by pair: synchronous, and with the time given
//! to it, as a duration since it began. Sparse: only pairs that were measured.

mod changes;
mod direction;
mod sweep;
mod way;

#[cfg(test)]
mod tests;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hashbrown::HashMap;
use tautline_proto::latency::{Hello, Pair};

use crate::reading::Reading;
pub(crate) use changes::Changes;
pub(crate) use sweep::Tally;
pub(crate) use way::KEPT;
use way::{QUIET, Source, TOLD_AGAIN, Way};

/// An agent may visit so many targets: what it is given by some replicas.
const MOST_TARGETS: usize = 256;
/// What it measured once, for probes: as many as one probe may name.
const MOST_PROBED: usize = 512;

/// Lists grow by so much: doubled ones of each instance would be half empty.
const ROOM: usize = 8;

/// An instance of a node: another boot is another one. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(u32);

/// Why a report, or a part of it, was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// No node of that name has such an instance (any more).
    UnknownInstance,
    /// A way from a node to itself.
    Itself,
    /// No round-trip times, or no state.
    Garbage,
    /// More targets than anyone gives to an agent.
    TooMany,
}

/// Who measures, and is measured.
#[derive(Debug)]
pub(crate) struct Instance {
    pub node: Arc<str>,
    /// The node's UID and boot ID.
    pub name: Arc<str>,
    pub uid: Box<str>,
    pub boot: Box<str>,
    /// Where it answers; `None` until its agent has come (again).
    pub address: Option<SocketAddr>,
    pub nic_bits_per_second: Option<u64>,
    /// The stream that speaks for it; 0 for none.
    stream: u64,
    source: Source,
    /// What it measured, by target.
    ways: Vec<(Id, Way)>,
    /// Who measured it.
    sources: Vec<Id>,
}

/// The names of the nodes that have an instance.
pub(crate) type Directory = HashMap<Arc<str>, Id>;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    next: u32,
    streams: u64,
    instances: HashMap<Id, Instance>,
    names: HashMap<Arc<str>, Id>,
    /// A copy of `names` for readers, until that changes.
    directory: Option<Arc<Directory>>,
    joined: Vec<Id>,
    left: Vec<Id>,
    changed: Vec<(Id, Id)>,
    dropped: Vec<(Id, Id)>,
}

/// Which way gives way to another that is visited, or was probed: none while there
/// is room; of those probed the one told of first, of those visited only one that
/// its agent does not tell of any more.
fn room(ways: &[(Id, Way)], probed: bool, now: Duration) -> Result<Option<Id>, Refusal> {
    let most = if probed { MOST_PROBED } else { MOST_TARGETS };
    let alike = || ways.iter().filter(|(_, way)| way.probed() == probed);
    if ways.len() < most || alike().count() < most {
        return Ok(None);
    }
    let least = alike().min_by_key(|(_, way)| way.told);
    let least = least.filter(|(_, way)| probed || way.told.time() + TOLD_AGAIN <= now);
    least.map(|(id, _)| Some(*id)).ok_or(Refusal::TooMany)
}

impl Ledger {
    /// An agent has come, or come again; says its instance and the number of its
    /// stream, from which alone it may report. What was known of another instance
    /// of the node is gone.
    pub fn join(&mut self, uid: &str, hello: &Hello, now: Duration) -> (Id, u64) {
        let id = self.instance(&hello.node, uid, &hello.boot_id, now);
        self.streams += 1;
        let stream = self.streams;
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.address = hello.address.parse().ok();
            let bits = hello.nic_bits_per_second;
            instance.nic_bits_per_second = (bits > 0).then_some(bits);
            instance.stream = stream;
            instance.source = Source {
                since: now,
                frame: now,
                open: true,
            };
        }
        (id, stream)
    }

    /// The instance of a node, new if it is another boot or another node.
    pub fn instance(&mut self, node: &str, uid: &str, boot: &str, now: Duration) -> Id {
        if let Some(id) = self.names.get(node).copied() {
            match self.instances.get(&id) {
                Some(known) if *known.uid == *uid && *known.boot == *boot => return id,
                _ => self.retire(id),
            }
        }
        let id = Id(self.next);
        self.next += 1;
        let node: Arc<str> = node.into();
        let instance = Instance {
            node: Arc::clone(&node),
            name: format!("{uid}/{boot}").into(),
            uid: uid.into(),
            boot: boot.into(),
            address: None,
            nic_bits_per_second: None,
            stream: 0,
            source: Source {
                since: now,
                frame: now,
                open: false,
            },
            ways: Vec::new(),
            sources: Vec::new(),
        };
        self.instances.insert(id, instance);
        self.names.insert(node, id);
        self.directory = None;
        self.joined.push(id);
        id
    }

    /// A stream has ended. Where it was `closed` the agent has gone, and what others
    /// lose on the way to it says nothing; where it fell silent, the node may have.
    pub fn leave(&mut self, id: Id, stream: u64, closed: bool, now: Duration) {
        if let Some(instance) = self.instances.get_mut(&id).filter(|i| i.stream == stream) {
            instance.stream = 0;
            let silent = now >= instance.source.frame + QUIET;
            instance.source.open &= silent || !closed;
        }
    }

    /// Whether a stream still speaks for its instance.
    pub fn speaks(&self, id: Id, stream: u64) -> bool {
        self.instances.get(&id).is_some_and(|i| i.stream == stream)
    }

    /// Drops the instances whose nodes (name, UID) are not there; says which.
    pub fn keep(&mut self, there: impl Fn(&str, &str) -> bool) -> Vec<Id> {
        let all = self.instances.iter();
        let gone: Vec<Id> = all
            .filter(|(_, i)| !there(&i.node, &i.uid))
            .map(|(id, _)| *id)
            .collect();
        for id in &gone {
            self.retire(*id);
        }
        gone
    }

    fn retire(&mut self, id: Id) {
        let Some(instance) = self.instances.remove(&id) else {
            return;
        };
        self.names.remove(&instance.node);
        self.directory = None;
        for (target, _) in &instance.ways {
            self.unlink(*target, id);
        }
        for source in &instance.sources {
            if let Some(source) = self.instances.get_mut(source) {
                source.ways.retain(|(to, _)| *to != id);
            }
        }
        self.left.push(id);
    }

    fn unlink(&mut self, target: Id, source: Id) {
        if let Some(target) = self.instances.get_mut(&target)
            && let Ok(at) = target.sources.binary_search(&source)
        {
            target.sources.remove(at);
        }
    }

    /// Takes a frame of an agent: all that it did not tell of still holds. Says
    /// what was refused.
    pub fn report(&mut self, from: Id, pairs: &[Pair], now: Duration) -> Vec<Refusal> {
        let mut refused = Vec::new();
        if let Some(instance) = self.instances.get_mut(&from) {
            instance.source.frame = now;
        }
        for pair in pairs {
            if let Err(refusal) = self.pair(from, pair, now) {
                refused.push(refusal);
            }
        }
        refused
    }

    fn pair(&mut self, from: Id, pair: &Pair, now: Duration) -> Result<(), Refusal> {
        let to = *self
            .names
            .get(pair.node.as_str())
            .ok_or(Refusal::UnknownInstance)?;
        if to == from {
            return Err(Refusal::Itself);
        }
        let known = self
            .instances
            .get(&to)
            .is_some_and(|i| *i.name == *pair.instance);
        let source = self.instances.get_mut(&from).filter(|_| known);
        let source = source.ok_or(Refusal::UnknownInstance)?;
        let at = source.ways.binary_search_by_key(&to, |w| w.0);
        let before = at.ok().map(|at| &source.ways[at].1);
        let mut way = Way::told(pair, before, now).ok_or(Refusal::Garbage)?;
        if before.is_none() && way.says_nothing() {
            return Ok(());
        }
        let enters = before.is_none_or(|b| b.probed() != way.probed());
        let least = match enters {
            true => room(&source.ways, way.probed(), now)?,
            false => None,
        };
        let new = !std::mem::replace(&mut way.changed, true);
        source.ways.retain(|w| Some(w.0) != least);
        match source.ways.binary_search_by_key(&to, |w| w.0) {
            Ok(at) => source.ways[at].1 = way,
            Err(at) => {
                make_room(&mut source.ways);
                source.ways.insert(at, (to, way));
                if let Some(target) = self.instances.get_mut(&to)
                    && let Err(at) = target.sources.binary_search(&from)
                {
                    make_room(&mut target.sources);
                    target.sources.insert(at, from);
                }
            }
        }
        if let Some(least) = least {
            self.unlink(least, from);
            self.dropped.push((from, least));
        }
        if new {
            self.changed.push((from, to));
        }
        Ok(())
    }

    fn way(&self, from: Id, to: Id) -> Option<&Way> {
        let ways = &self.instances.get(&from)?.ways;
        let at = ways.binary_search_by_key(&to, |w| w.0).ok()?;
        ways.get(at).map(|w| &w.1)
    }

    /// The targets that an instance has told of, in order.
    pub fn measured(&self, from: Id) -> Vec<Id> {
        let ways = self.instances.get(&from).map(|i| i.ways.as_slice());
        ways.unwrap_or_default().iter().map(|w| w.0).collect()
    }

    fn one_way(&self, from: Id, to: Id, now: Duration) -> Reading {
        let (Some(source), Some(target)) = (self.instances.get(&from), self.instances.get(&to))
        else {
            return Reading::Nothing;
        };
        let since = target.source.open.then_some(target.source.since);
        match self.way(from, to) {
            Some(way) => way.reading(source.source, since, now),
            None => Reading::Nothing,
        }
    }

    /// The way between two instances.
    pub fn reading(&self, a: Id, b: Id, now: Duration) -> Reading {
        let (there, back) = (self.one_way(a, b, now), self.one_way(b, a, now));
        match (&there, &back) {
            (Reading::Fresh(_), Reading::Unreachable { .. }) if self.outlives(a, b) => there,
            (Reading::Unreachable { .. }, Reading::Fresh(_)) if self.outlives(b, a) => back,
            _ => way::both(there, back),
        }
    }

    /// Whether the way has a sample from after the other direction was lost: an echo
    /// goes both ways, so that the network is not cut.
    fn outlives(&self, from: Id, to: Id) -> bool {
        let ways = self.way(from, to).zip(self.way(to, from));
        ways.is_some_and(|(fresh, lost)| fresh.sampled_after(lost))
    }

    /// The ways between an instance and all others that are known.
    pub fn row(&self, of: Id, now: Duration) -> Vec<(Id, Reading)> {
        let Some(instance) = self.instances.get(&of) else {
            return Vec::new();
        };
        let mut others: Vec<Id> = instance.ways.iter().map(|w| w.0).collect();
        others.extend(&instance.sources);
        others.sort_unstable();
        others.dedup();
        let reading = |other| (other, self.reading(of, other, now));
        others.into_iter().map(reading).collect()
    }

    /// Whether either end has told of the pair since then.
    pub fn told_since(&self, a: Id, b: Id, since: Duration) -> bool {
        let told = |from, to| self.way(from, to).is_some_and(|w| w.told.time() >= since);
        told(a, b) || told(b, a)
    }

    pub fn directory(&mut self) -> Arc<Directory> {
        let names = &self.names;
        let fresh = || Arc::new(names.iter().map(|(n, id)| (Arc::clone(n), *id)).collect());
        Arc::clone(self.directory.get_or_insert_with(fresh))
    }

    pub fn id(&self, node: &str) -> Option<Id> {
        self.names.get(node).copied()
    }

    pub fn get(&self, id: Id) -> Option<&Instance> {
        self.instances.get(&id)
    }

    pub fn ids(&self) -> Vec<Id> {
        self.instances.keys().copied().collect()
    }
}

fn make_room<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(ROOM);
    }
}
