use std::{net::SocketAddr, sync::Arc, time::Duration};

use hashbrown::HashMap;
use tautline_proto::latency::{Hello, Pair};

use super::pair::{CompactTime, DirectedPair, FRAME_TIMEOUT, REPORT_TIMEOUT, Reporter};

/// Pairs that an agent measures in turn: the lists of several replicas.
pub(super) const MAX_TARGETS: usize = 256;
/// Pairs that an agent measured for probes: as many as one probe has.
pub(super) const MAX_PROBED: usize = 512;
/// Lists grow by this step: with doubling they would be half empty.
pub(super) const GROWTH: usize = 8;

/// An instance of a node: a node after a reboot is another instance. Never reused.
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
    /// The node's UID and boot ID.
    pub name: Arc<str>,
    pub uid: Box<str>,
    pub boot: Box<str>,
    pub address: Option<SocketAddr>,
    pub nic_bits_per_second: Option<u64>,
    /// The current session; 0: not connected.
    pub(super) stream: u64,
    pub(super) reporter: Reporter,
    /// Kubernetes hears nothing of the node either.
    pub(super) node_is_down: bool,
    /// When it last reached a target again that was unreachable.
    pub(super) regained: Option<CompactTime>,
    pub(super) targets: Vec<(InstanceId, DirectedPair)>,
    pub(super) sources: Vec<InstanceId>,
}

pub(crate) type Directory = HashMap<Arc<str>, InstanceId>;

#[derive(Debug, Default)]
pub(crate) struct PairStore {
    next: u32,
    streams: u64,
    pub(super) instances: HashMap<InstanceId, Instance>,
    names: HashMap<Arc<str>, InstanceId>,
    directory: Option<Arc<Directory>>,
    pub(super) joined: Vec<InstanceId>,
    pub(super) left: Vec<InstanceId>,
    pub(super) changed: Vec<(InstanceId, InstanceId)>,
    pub(super) dropped: Vec<(InstanceId, InstanceId)>,
    pub(super) regained: bool,
}

/// The target that makes room for another one of the same kind (in turn, or probed);
/// `None` while there is room. Of probed targets the one reported first; of those in turn
/// only one that its agent no longer reports.
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
    /// An agent has connected; returns its instance and the number of its session, which
    /// alone may report. Pairs of another instance of the node are dropped.
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
        self.names.insert(node, id);
        self.directory = None;
        self.joined.push(id);
        id
    }

    /// A session has ended. If the agent `closed` it, the agent is gone, and losses on the
    /// way to it do not count; if it fell silent, the node may be gone.
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

    /// Losses on the way to these nodes count although their agents are gone.
    pub fn set_down(&mut self, is_down: impl Fn(&str) -> bool) {
        for instance in self.instances.values_mut() {
            instance.node_is_down = is_down(&instance.node);
        }
    }

    /// Removes the instances of nodes (name, UID) that do not exist; returns them.
    pub fn retain_nodes(&mut self, exists: impl Fn(&str, &str) -> bool) -> Vec<InstanceId> {
        let all = self.instances.iter();
        let gone: Vec<InstanceId> = all
            .filter(|(_, i)| !exists(&i.node, &i.uid))
            .map(|(id, _)| *id)
            .collect();
        for id in &gone {
            self.remove(*id);
        }
        gone
    }

    pub(super) fn remove(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.remove(&id) else {
            return;
        };
        self.names.remove(&instance.node);
        self.directory = None;
        for (target, _) in &instance.targets {
            self.unlink(*target, id);
        }
        for source in &instance.sources {
            if let Some(source) = self.instances.get_mut(source) {
                source.targets.retain(|(to, _)| *to != id);
            }
        }
        self.left.push(id);
    }

    pub(super) fn unlink(&mut self, target: InstanceId, source: InstanceId) {
        if let Some(target) = self.instances.get_mut(&target)
            && let Ok(at) = target.sources.binary_search(&source)
        {
            target.sources.remove(at);
        }
    }

    /// Pairs that are not in the frame stay as they are. Returns the refusals.
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
        let mut new = DirectedPair::from_report(pair, before, now).ok_or(Refusal::Malformed)?;
        if before.is_none() && new.is_empty() {
            return Ok(());
        }
        let enters = before.is_none_or(|b| b.is_probed() != new.is_probed());
        let evicted = match enters {
            true => evicted(&source.targets, new.is_probed(), now)?,
            false => None,
        };
        if before.is_some_and(|before| new.is_regained(before)) {
            source.regained = Some(new.reported);
            self.regained = true;
        }
        let newly_changed = !std::mem::replace(&mut new.changed, true);
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
            self.dropped.push((from, evicted));
        }
        if newly_changed {
            self.changed.push((from, to));
        }
        Ok(())
    }

    pub fn directory(&mut self) -> Arc<Directory> {
        let names = &self.names;
        let copy = || Arc::new(names.iter().map(|(n, id)| (Arc::clone(n), *id)).collect());
        Arc::clone(self.directory.get_or_insert_with(copy))
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

    /// The start of its agent's last session; `None`: the agent left while its node is up.
    pub(super) fn answers_since(&self) -> Option<Duration> {
        let counts = self.reporter.connected || self.node_is_down;
        counts.then_some(self.reporter.since)
    }
}

fn reserve<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(GROWTH);
    }
}
