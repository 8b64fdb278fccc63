//! The store of the pairs that agents report; sparse and synchronous. All times are durations on
//! one clock.

mod pair;
mod read;

#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hashbrown::{HashMap, HashSet};
use tautline_proto::latency::{Hello, Pair};

pub(crate) use pair::PAIR_RETENTION;
use pair::{CompactTime, DirectedPair, FRAME_TIMEOUT, REPORT_TIMEOUT, Reporter};

/// The maximum number of pairs that an agent measures regularly: the lists of several replicas.
const MAX_TARGETS: usize = 256;
/// The maximum number of pairs that an agent measured for probes: as many as one probe has.
const MAX_PROBED: usize = 512;
/// The number of entries by which a full list grows; doubling would leave lists half empty.
const LIST_GROWTH_ENTRIES: usize = 8;

/// The ID of a node's instance, which is never reused. A reboot makes a new instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InstanceId(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    UnknownInstance,
    SameNode,
    Malformed,
    TooMany,
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub node: Arc<str>,
    /// The node's UID and boot ID, as `UID/BOOT`.
    pub name: Arc<str>,
    pub uid: Box<str>,
    pub boot: Box<str>,
    pub address: Option<SocketAddr>,
    pub nic_bits_per_second: Option<u64>,
    /// True for an address outside the cluster, which has no agent.
    pub is_outside: bool,
    /// The number of the agent's current session; 0 if the agent is not connected.
    stream: u64,
    reporter: Reporter,
    /// True if Kubernetes cannot reach the node either.
    node_is_down: bool,
    /// The time at which the node last reached a target that had been unreachable.
    regained: Option<CompactTime>,
    targets: Vec<(InstanceId, DirectedPair)>,
    sources: Vec<InstanceId>,
}

pub(crate) type Directory = HashMap<Arc<str>, InstanceId>;

#[derive(Debug, Default)]
pub(crate) struct PairStore {
    next: u32,
    streams: u64,
    instances: HashMap<InstanceId, Instance>,
    names: Arc<Directory>,
    changes: Changes,
}

/// The changes of the pair store since they were last taken.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub joined: Vec<InstanceId>,
    pub left: Vec<InstanceId>,
    pub reported: HashSet<(InstanceId, InstanceId)>,
    pub dropped: Vec<(InstanceId, InstanceId)>,
}

/// The number of pairs in each state. A pair that both nodes measure counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PairCounts {
    pub fresh: i64,
    pub unreachable: i64,
    pub stale: i64,
    pub asymmetric: i64,
    pub connect: i64,
}

/// Returns the target to remove for a new target of the same kind (measured regularly, or for
/// probes); `None` while there is room. It is the target whose last report is oldest. A target that
/// is measured regularly is only removed if its agent no longer reports it.
fn evicted(
    targets: &[(InstanceId, DirectedPair)],
    probed: bool,
    now: Duration,
) -> Result<Option<InstanceId>, Refusal> {
    let most = if probed { MAX_PROBED } else { MAX_TARGETS };
    let alike = || {
        targets
            .iter()
            .filter(|(_, pair)| pair.is_probed() == probed)
    };
    if targets.len() < most || alike().count() < most {
        return Ok(None);
    }
    let oldest = alike().min_by_key(|(_, pair)| pair.reported);
    let oldest = oldest.filter(|(_, pair)| probed || pair.reported.time() + REPORT_TIMEOUT <= now);
    oldest.map(|(id, _)| Some(*id)).ok_or(Refusal::TooMany)
}

impl PairStore {
    /// Records that an agent has connected. Returns its instance and the number of its session,
    /// which alone may report. Pairs of another instance of the node are dropped.
    pub fn join(&mut self, uid: &str, hello: &Hello, now: Duration) -> (InstanceId, u64) {
        let id = self.instance(&hello.node, uid, &hello.boot_id, now);
        self.streams += 1;
        let stream = self.streams;
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.address = hello.address.parse().ok();
            let bits = hello.nic_bits_per_second;
            instance.nic_bits_per_second = (bits > 0).then_some(bits);
            instance.stream = stream;
            instance.reporter = Reporter {
                since: now,
                last_frame: now,
                connected: true,
            };
        }
        (id, stream)
    }

    pub fn instance(&mut self, node: &str, uid: &str, boot: &str, now: Duration) -> InstanceId {
        if let Some(id) = self.names.get(node).copied() {
            match self.instances.get(&id) {
                Some(known) if *known.uid == *uid && *known.boot == *boot => return id,
                _ => self.remove(id),
            }
        }
        let id = InstanceId(self.next);
        self.next += 1;
        let node: Arc<str> = node.into();
        let instance = Instance {
            node: Arc::clone(&node),
            name: format!("{uid}/{boot}").into(),
            uid: uid.into(),
            boot: boot.into(),
            address: None,
            nic_bits_per_second: None,
            is_outside: false,
            stream: 0,
            reporter: Reporter {
                since: now,
                last_frame: now,
                connected: false,
            },
            node_is_down: false,
            regained: None,
            targets: Vec::new(),
            sources: Vec::new(),
        };
        self.instances.insert(id, instance);
        Arc::make_mut(&mut self.names).insert(node, id);
        self.changes.joined.push(id);
        id
    }

    /// Adds an address outside the cluster under the name of its place. Another address of the place
    /// is another instance, without pairs.
    pub fn put_outside(&mut self, place: &str, address: SocketAddr, now: Duration) {
        // The name of the instance has the place, as several places may have one address.
        let id = self.instance(place, place, &address.to_string(), now);
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.address = Some(address);
            instance.is_outside = true;
            instance.reporter.connected = true;
        }
    }

    pub fn remove_outside(&mut self, place: &str) {
        if let Some(id) = self.id(place) {
            self.remove(id);
        }
    }

    /// Returns whether an agent answers at the address.
    pub fn has_agent_at(&self, ip: IpAddr) -> bool {
        let mut agents = self.instances.values().filter(|i| !i.is_outside);
        agents.any(|i| i.address.is_some_and(|a| a.ip().to_canonical() == ip))
    }

    /// Records that a session has ended. If the agent `closed` it, the agent is gone, and losses of
    /// echoes to it do not count. If the agent fell silent, they count, as the node may be down.
    pub fn leave(&mut self, id: InstanceId, stream: u64, closed: bool, now: Duration) {
        if let Some(instance) = self.instances.get_mut(&id).filter(|i| i.stream == stream) {
            instance.stream = 0;
            let silent = now >= instance.reporter.last_frame + FRAME_TIMEOUT;
            instance.reporter.connected &= silent || !closed;
        }
    }

    pub fn is_current(&self, id: InstanceId, stream: u64) -> bool {
        self.instances.get(&id).is_some_and(|i| i.stream == stream)
    }

    /// Marks the nodes that are down. Losses of echoes to them count although their agents are
    /// gone.
    pub fn set_down(&mut self, is_down: impl Fn(&str) -> bool) {
        for instance in self.instances.values_mut() {
            instance.node_is_down = is_down(&instance.node);
        }
    }

    /// Removes and returns the instances whose node, by name and UID, does not exist.
    pub fn retain_nodes(&mut self, exists: impl Fn(&str, &str) -> bool) -> Vec<InstanceId> {
        let all = self.instances.iter();
        let gone: Vec<InstanceId> = all
            .filter(|(_, i)| !i.is_outside && !exists(&i.node, &i.uid))
            .map(|(id, _)| *id)
            .collect();
        for id in &gone {
            self.remove(*id);
        }
        gone
    }

    /// Removes the expired pairs of these instances, and the instances whose agents have been gone
    /// for [`PAIR_RETENTION`]. Counts the remaining pairs, and returns the removed instances.
    pub fn sweep(
        &mut self,
        ids: &[InstanceId],
        now: Duration,
        counts: &mut PairCounts,
    ) -> Vec<InstanceId> {
        let mut gone = Vec::new();
        for &id in ids {
            let Some(instance) = self.instances.get_mut(&id) else {
                continue;
            };
            let is_silent = instance.stream == 0 && !instance.is_outside;
            if is_silent && now >= instance.reporter.last_frame + PAIR_RETENTION {
                self.remove(id);
                gone.push(id);
                continue;
            }
            let targets = &mut instance.targets;
            let expired = targets.extract_if(.., |(_, pair)| pair.is_expired(now));
            let expired: Vec<InstanceId> = expired.map(|(to, _)| to).collect();
            // Probes of many pairs leave a large list behind.
            targets.shrink_to(targets.len() + LIST_GROWTH_ENTRIES);
            let sources = &mut instance.sources;
            sources.shrink_to(sources.len() + LIST_GROWTH_ENTRIES);
            for to in expired {
                self.unlink(to, id);
                self.changes.dropped.push((id, to));
            }
            self.count(id, now, counts);
        }
        gone
    }

    fn remove(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.remove(&id) else {
            return;
        };
        Arc::make_mut(&mut self.names).remove(&instance.node);
        for (target, _) in &instance.targets {
            self.unlink(*target, id);
        }
        for source in &instance.sources {
            if let Some(source) = self.instances.get_mut(source) {
                source.targets.retain(|(to, _)| *to != id);
            }
        }
        self.changes.left.push(id);
    }

    fn unlink(&mut self, target: InstanceId, source: InstanceId) {
        if let Some(target) = self.instances.get_mut(&target)
            && let Ok(at) = target.sources.binary_search(&source)
        {
            target.sources.remove(at);
        }
    }

    /// Stores the pairs of a report; other pairs do not change. Returns the refusals.
    pub fn report(&mut self, from: InstanceId, pairs: &[Pair], now: Duration) -> Vec<Refusal> {
        if let Some(instance) = self.instances.get_mut(&from) {
            instance.reporter.last_frame = now;
        }
        let taken = pairs.iter().map(|pair| self.report_pair(from, pair, now));
        taken.filter_map(Result::err).collect()
    }

    fn report_pair(&mut self, from: InstanceId, pair: &Pair, now: Duration) -> Result<(), Refusal> {
        let to = *self
            .names
            .get(pair.node.as_str())
            .ok_or(Refusal::UnknownInstance)?;
        if to == from {
            return Err(Refusal::SameNode);
        }
        let known = self
            .instances
            .get(&to)
            .is_some_and(|i| *i.name == *pair.instance);
        let source = self.instances.get_mut(&from).filter(|_| known);
        let source = source.ok_or(Refusal::UnknownInstance)?;
        let at = source.targets.binary_search_by_key(&to, |t| t.0);
        let before = at.ok().map(|at| &source.targets[at].1);
        let new = DirectedPair::from_report(pair, before, now).ok_or(Refusal::Malformed)?;
        if before.is_none() && new.is_empty() {
            return Ok(());
        }
        let enters = before.is_none_or(|b| b.is_probed() != new.is_probed());
        let evicted = if enters {
            evicted(&source.targets, new.is_probed(), now)?
        } else {
            None
        };
        if before.is_some_and(|before| new.is_regained(before)) {
            source.regained = Some(new.reported);
        }
        source.targets.retain(|t| Some(t.0) != evicted);
        match source.targets.binary_search_by_key(&to, |t| t.0) {
            Ok(at) => source.targets[at].1 = new,
            Err(at) => {
                reserve(&mut source.targets);
                source.targets.insert(at, (to, new));
                if let Some(target) = self.instances.get_mut(&to)
                    && let Err(at) = target.sources.binary_search(&from)
                {
                    reserve(&mut target.sources);
                    target.sources.insert(at, from);
                }
            }
        }
        if let Some(evicted) = evicted {
            self.unlink(evicted, from);
            self.changes.dropped.push((from, evicted));
        }
        self.changes.reported.insert((from, to));
        Ok(())
    }

    /// Returns the instances of all nodes by name, as they are now.
    pub fn directory(&self) -> Arc<Directory> {
        Arc::clone(&self.names)
    }

    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    pub fn mark_all_changed(&mut self) {
        let all = self.instances.iter();
        let pairs = all.flat_map(|(from, i)| i.targets.iter().map(|(to, _)| (*from, *to)));
        self.changes = Changes {
            joined: self.ids(),
            reported: pairs.collect(),
            ..Changes::default()
        };
    }

    pub fn id(&self, node: &str) -> Option<InstanceId> {
        self.names.get(node).copied()
    }

    pub fn get(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(&id)
    }

    pub fn ids(&self) -> Vec<InstanceId> {
        self.instances.keys().copied().collect()
    }
}

impl Instance {
    pub fn has_agent(&self) -> bool {
        self.stream != 0
    }

    /// Returns the time since the agent's last message; `None`: the agent is connected.
    pub fn silence(&self, now: Duration) -> Option<Duration> {
        (!self.has_agent()).then(|| now.saturating_sub(self.reporter.last_frame))
    }

    /// Returns the start of the agent's last session, or `None` if the agent left while its node is
    /// up.
    fn answers_since(&self) -> Option<Duration> {
        let counts = self.reporter.connected || self.node_is_down;
        counts.then_some(self.reporter.since)
    }
}

fn reserve<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(LIST_GROWTH_ENTRIES);
    }
}
