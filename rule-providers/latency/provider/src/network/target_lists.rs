//! The pairs that each agent measures: targets that the model chose, and pairs that rules name.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::sleep;

use super::{
    Network,
    demanded_pairs::{Assignment, NODE_SLOTS, assign},
    outside_lists::{OutsideTarget, agent_nodes, outside_lists},
    pair_store::InstanceId,
    sessions::{ListedTarget, TargetList},
};

/// The pause after an update of the lists: changes within it are sent together.
const BATCH_PAUSE: Duration = Duration::from_millis(200);
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of targets in a list: as many as a node can measure within its budget.
const MAX_TARGETS: usize = 128;

pub(crate) type ChosenTargets = HashMap<InstanceId, Box<[InstanceId]>>;

/// Returns the number of the current minute, which changes at all replicas at about the same time.
fn minute() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() / 60)
}

impl Network {
    pub(crate) fn set_chosen(&self, chosen: ChosenTargets) {
        self.chosen.store(Arc::new(chosen));
        self.lists_outdated.notify_one();
    }

    /// Keeps the lists of all agents up to date; never ends.
    pub(crate) async fn keep_lists(&self) {
        let (mut excess, mut last) = (0, minute());
        loop {
            tokio::select! {
                () = self.lists_outdated.notified() => {}
                () = sleep(EXPIRY_CHECK_INTERVAL) => {
                    let expired = self.demand.lock().expire(self.now()) | self.expire_outside();
                    // Excess pairs rotate each minute.
                    if !expired && (excess == 0 || last == minute()) {
                        continue;
                    }
                }
            }
            last = minute();
            let assignment = self.update_lists(last);
            if assignment.excess > 0 && excess == 0 {
                tracing::warn!(
                    pairs = assignment.pairs,
                    excess = assignment.excess,
                    "active rules name more pairs than the agents can visit every 2 s; \
                     the rest is measured less often or estimated"
                );
            }
            excess = assignment.excess;
            sleep(BATCH_PAUSE).await;
        }
    }

    pub(super) fn update_lists(&self, minute: u64) -> Assignment<InstanceId> {
        let places = self.outside.lock().places();
        let (mut demanded, mut outside, refused) = {
            let mut demand = self.demand.lock();
            demand.expire(self.now());
            let store = self.pairs.lock();
            let target = |place: Arc<str>| {
                let id = store.id(&place)?;
                Some(OutsideTarget {
                    address: store.get(id)?.address?,
                    wanted: BTreeSet::new(),
                    id,
                    place,
                })
            };
            let outside: Vec<_> = places.into_iter().filter_map(target).collect();
            let both = |(a, b)| store.id(a).zip(store.id(b));
            let pairs: Vec<_> = demand.pairs(minute).filter_map(both).collect();
            (pairs, outside, demand.refused())
        };
        let addresses = outside.len() as i64;
        demanded.retain(|(a, b)| {
            let ends = [(*a, *b), (*b, *a)];
            let found = ends.iter().find_map(|(place, node)| {
                let target = outside.iter_mut().find(|t| t.id == *place)?;
                Some(target.wanted.insert(*node))
            });
            found.is_none()
        });
        let snapshot = self.store.snapshot();
        let chosen = self.chosen.load();
        let open = self.sessions.lock();
        let connected = |id| open.contains_key(&id);
        let mut assignment = assign(demanded.into_iter(), NODE_SLOTS, connected);
        assignment.pairs += refused;
        assignment.excess += refused;
        let store = self.pairs.lock();
        let address = |id| store.get(id)?.address;
        let agents = open
            .keys()
            .filter_map(|id| Some((*id, &*store.get(*id)?.node)));
        let mut outside = match outside.is_empty() {
            true => HashMap::new(),
            false => outside_lists(&agent_nodes(&snapshot, agents), &outside),
        };
        for (id, handle) in open.iter() {
            let mut new = list(*id, &chosen, &assignment.targets, address);
            new.extend(outside.remove(id).unwrap_or_default());
            let new = Some(TargetList::from(new));
            handle.targets.send_if_modified(|list| {
                let changed = *list != new;
                if changed {
                    *list = new;
                }
                changed
            });
        }
        self.metrics.outside.set(addresses);
        self.metrics.demanded_pairs.set(assignment.pairs as i64);
        self.metrics.excess_pairs.set(assignment.excess as i64);
        assignment
    }
}

/// Returns one agent's list, in which demanded pairs come first.
fn list(
    id: InstanceId,
    chosen: &ChosenTargets,
    demanded: &BTreeMap<InstanceId, Vec<InstanceId>>,
    address: impl Fn(InstanceId) -> Option<SocketAddr>,
) -> Vec<ListedTarget> {
    let demanded = demanded.get(&id).map(Vec::as_slice).unwrap_or_default();
    let chosen = chosen.get(&id).map(|c| &**c).unwrap_or_default();
    let chosen = chosen.iter().filter(|t| !demanded.contains(t));
    let all = demanded.iter().map(|id| (id, true));
    let all = all.chain(chosen.map(|id| (id, false)));
    let listed = all.filter_map(|(id, demand)| {
        Some(ListedTarget {
            id: *id,
            address: address(*id)?,
            demand,
            outside_interval: None,
        })
    });
    listed.take(MAX_TARGETS).collect()
}
