//! The nodes that measure addresses outside the cluster: those that rules name with the address, and
//! a few others, from which the model predicts the rest.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use tautline_core::{Snapshot, planning::fnv1a_64};
use tokio::{
    net::lookup_host,
    time::{sleep, timeout},
};

use super::{
    Network,
    demanded_pairs::Requester,
    outside::{AllowedAddresses, NoFigure, OutsidePoints, host_and_port},
    pair_store::InstanceId,
    sessions::ListedTarget,
};
use crate::location::location;

/// The number of nodes that measure an address although no rule names their pair.
const SPREAD_NODES: usize = 8;
/// The maximum number of further nodes that measure an address, because rules name their pair.
const MAX_WANTED_NODES: usize = 400;
/// The maximum rate of connects to the ports of an IP address from the whole cluster, per second, unless
/// each node visits it at the longest interval.
const MAX_CONNECTS: u32 = 4;
/// The shortest and the longest interval at which a node visits an address.
const INTERVALS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(120));
const NAME_CHECK_INTERVAL: Duration = Duration::from_secs(5);
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A node with an agent: the hash of its name, its instance, and its zone.
pub(super) type AgentNode<'a> = (u64, InstanceId, Option<&'a str>);

/// An address outside the cluster, and the nodes that rules name with it.
pub(super) struct OutsideTarget {
    pub place: Arc<str>,
    pub id: InstanceId,
    pub address: SocketAddr,
    pub wanted: BTreeSet<InstanceId>,
}

impl Network {
    /// Allows agents to connect to these addresses outside the cluster.
    pub fn allow_outside(&self, allowed: AllowedAddresses) {
        *self.outside.lock() = OutsidePoints::new(allowed);
    }

    /// Records that a rule names the place of a peer. Returns the reason why the place has no figure,
    /// or none yet; `None` for a node.
    pub(crate) fn want_outside(&self, requester: Requester<'_>, place: &str) -> Option<NoFigure> {
        host_and_port(place)?;
        let (now, mut points) = (self.now(), self.outside.lock());
        match points.want(requester, place, |ip| self.is_inside(ip), now) {
            Ok(Some(address)) => self.measure_outside(place, address, now),
            Ok(None) => {}
            Err(reason) => return Some(reason),
        }
        Some(NoFigure::NotYet)
    }

    fn is_inside(&self, ip: IpAddr) -> bool {
        self.pairs.lock().has_agent_at(ip)
    }

    fn measure_outside(&self, place: &str, address: SocketAddr, now: Duration) {
        self.pairs.lock().put_outside(place, address, now);
        self.agents_changed.notify_one();
        self.lists_outdated.notify_one();
    }

    /// Removes the addresses that no rule names any more; returns true if there are any.
    pub(super) fn expire_outside(&self) -> bool {
        let mut points = self.outside.lock();
        let gone = points.expire(|ip| self.is_inside(ip), self.now());
        let mut pairs = self.pairs.lock();
        gone.iter().for_each(|place| pairs.remove_outside(place));
        !gone.is_empty()
    }

    /// Resolves the names that rules name, each once a minute; never ends.
    pub(crate) async fn resolve_names(&self) {
        loop {
            sleep(NAME_CHECK_INTERVAL).await;
            let due = self.outside.lock().due_names(self.now());
            let found = due.into_iter().map(async |name| {
                let addresses = timeout(LOOKUP_TIMEOUT, lookup_host(&*name)).await;
                let addresses = addresses.ok().and_then(Result::ok).map(Iterator::collect);
                (name, addresses)
            });
            for (name, addresses) in join_all(found).await {
                let (now, mut points) = (self.now(), self.outside.lock());
                match points.resolved(&name, addresses, |ip| self.is_inside(ip), now) {
                    Some(address) => self.measure_outside(&name, address, now),
                    None if points.is_unresolved(&name) => {
                        self.pairs.lock().remove_outside(&name);
                    }
                    None => {}
                }
            }
        }
    }
}

/// Returns the nodes with agents in the order in which addresses choose among them.
pub(super) fn agent_nodes<'a>(
    snapshot: &'a Snapshot,
    agents: impl Iterator<Item = (InstanceId, &'a str)>,
) -> Vec<AgentNode<'a>> {
    let node = |(id, name)| (fnv1a_64(&[name]), id, location(snapshot, name).zone);
    let mut nodes: Vec<AgentNode<'_>> = agents.map(node).collect();
    nodes.sort_unstable();
    nodes
}

/// Returns the addresses that each node visits.
pub(super) fn outside_lists(
    nodes: &[AgentNode<'_>],
    targets: &[OutsideTarget],
) -> HashMap<InstanceId, Vec<ListedTarget>> {
    let agents: BTreeSet<InstanceId> = nodes.iter().map(|(_, id, _)| *id).collect();
    let mut lists: HashMap<InstanceId, Vec<ListedTarget>> = HashMap::new();
    let visitors = targets.iter().map(|target| {
        let wanted = target.wanted.intersection(&agents).copied();
        let mut visitors: BTreeSet<InstanceId> = wanted.take(MAX_WANTED_NODES).collect();
        visitors.extend(spread(nodes, fnv1a_64(&[&target.place])));
        visitors
    });
    let visitors: Vec<BTreeSet<InstanceId>> = visitors.collect();
    let mut of_host: HashMap<IpAddr, u64> = HashMap::new();
    for (target, visitors) in targets.iter().zip(&visitors) {
        let ip = target.address.ip().to_canonical();
        *of_host.entry(ip).or_default() += visitors.len() as u64;
    }
    for (target, visitors) in targets.iter().zip(visitors) {
        let visits = of_host[&target.address.ip().to_canonical()];
        let interval = Duration::from_secs(visits) / MAX_CONNECTS;
        let listed = ListedTarget {
            id: target.id,
            address: target.address,
            demand: false,
            outside_interval: Some(interval.clamp(INTERVALS.0, INTERVALS.1)),
        };
        for visitor in visitors {
            lists.entry(visitor).or_default().push(listed);
        }
    }
    lists
}

/// Returns nodes of as many zones as there are, at most [`SPREAD_NODES`]: the first ones from a point
/// on the ring of hashes. So all replicas choose alike, and a node that comes or goes changes little.
fn spread(nodes: &[AgentNode<'_>], at: u64) -> Vec<InstanceId> {
    let start = nodes.partition_point(|(hash, ..)| *hash < at);
    let ring = || nodes[start..].iter().chain(&nodes[..start]);
    let mut of_zone: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    let turns = ring().map(|(_, id, zone)| {
        let turn = of_zone.entry(*zone).or_default();
        *turn += 1;
        (*turn, *id)
    });
    let mut turns: Vec<(usize, InstanceId)> = turns.collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns
        .into_iter()
        .take(SPREAD_NODES)
        .map(|(_, id)| id)
        .collect()
}

#[cfg(test)]
mod tests;
