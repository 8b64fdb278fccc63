//! The pairs that each agent measures: targets that the model chose, and pairs that rules name.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::{ArcSwap, Guard};
use tokio_util::sync::CancellationToken;

use super::{
    demand::Demand,
    demanded_pairs::{Assignment, NODE_SLOTS, assign},
    measured_pairs::MeasuredPairs,
    metrics::NetworkMetrics,
    pair_store::InstanceId,
    sessions::{AgentSessions, TargetList},
    signals::Signals,
};

/// The pause after an update of the lists: changes within it are sent together.
const BATCH_PAUSE: Duration = Duration::from_millis(200);
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of targets in a list: as many as a node can measure within its budget.
const MAX_TARGETS: usize = 128;

pub(crate) type ChosenTargets = HashMap<InstanceId, Arc<[InstanceId]>>;

#[derive(Debug)]
pub(crate) struct TargetLists {
    pairs: Arc<MeasuredPairs>,
    demand: Arc<Demand>,
    sessions: Arc<AgentSessions>,
    signals: Arc<Signals>,
    metrics: NetworkMetrics,
    chosen: ArcSwap<ChosenTargets>,
    key_epoch: AtomicU64,
}

/// Returns the number of the current minute, which changes at all replicas at about the same time.
fn minute() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() / 60)
}

impl TargetLists {
    pub fn new(
        pairs: Arc<MeasuredPairs>,
        demand: Arc<Demand>,
        sessions: Arc<AgentSessions>,
        signals: Arc<Signals>,
        metrics: NetworkMetrics,
    ) -> Self {
        Self {
            pairs,
            demand,
            sessions,
            signals,
            metrics,
            chosen: ArcSwap::default(),
            key_epoch: AtomicU64::new(0),
        }
    }

    pub fn chosen(&self) -> Guard<Arc<ChosenTargets>> {
        self.chosen.load()
    }

    pub fn set_chosen(&self, chosen: ChosenTargets) {
        self.chosen.store(Arc::new(chosen));
        self.signals.assign.notify_one();
    }

    pub fn keys_changed(&self) {
        self.key_epoch.fetch_add(1, Ordering::Relaxed);
        self.signals.assign.notify_one();
    }

    #[cfg(test)]
    pub fn key_epoch(&self) -> u64 {
        self.key_epoch.load(Ordering::Relaxed)
    }

    pub async fn run(&self, stop: CancellationToken) {
        let (mut excess, mut last) = (0, minute());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.signals.assign.notified() => {}
                () = tokio::time::sleep(EXPIRY_CHECK_INTERVAL) => {
                    let expired = self.demand.expire();
                    // Excess pairs rotate each minute.
                    if !expired && (excess == 0 || last == minute()) {
                        continue;
                    }
                }
            }
            last = minute();
            let assignment = self.update(last);
            if assignment.excess > 0 && excess == 0 {
                tracing::warn!(
                    pairs = assignment.pairs,
                    excess = assignment.excess,
                    "active rules name more pairs than the agents can visit every 2 s; \
                     the rest is measured less often or estimated"
                );
            }
            excess = assignment.excess;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(BATCH_PAUSE) => {}
            }
        }
    }

    fn update(&self, minute: u64) -> Assignment<InstanceId> {
        let key_epoch = self.key_epoch.load(Ordering::Relaxed);
        let (demanded, refused): (Vec<(InstanceId, InstanceId)>, usize) = {
            let mut demand = self.demand.lock();
            demand.expire(self.pairs.now());
            let store = self.pairs.lock();
            let both = |(a, b)| store.id(a).zip(store.id(b));
            let pairs = demand.pairs(minute).filter_map(both).collect();
            (pairs, demand.refused())
        };
        let chosen = self.chosen.load();
        let open = self.sessions.lock();
        let connected = |id| open.contains_key(&id);
        let mut assignment = assign(demanded.into_iter(), NODE_SLOTS, connected);
        assignment.pairs += refused;
        assignment.excess += refused;
        let store = self.pairs.lock();
        let has_address = |id: &InstanceId| store.get(*id).is_some_and(|i| i.address.is_some());
        for (id, handle) in open.iter() {
            let targets = list(*id, &chosen, &assignment.targets, has_address);
            handle.targets.send_if_modified(|list| {
                let same = list.made && list.key_epoch == key_epoch && *list.targets == *targets;
                if !same {
                    *list = TargetList {
                        targets: targets.into(),
                        key_epoch,
                        made: true,
                    };
                }
                !same
            });
        }
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
    has_address: impl Fn(&InstanceId) -> bool,
) -> Vec<(InstanceId, bool)> {
    let demanded = demanded.get(&id).map(Vec::as_slice).unwrap_or_default();
    let named = demanded
        .iter()
        .filter(|t| has_address(t))
        .map(|t| (*t, true));
    let chosen = chosen.get(&id).map(|c| &**c).unwrap_or_default();
    let chosen = chosen
        .iter()
        .filter(|t| has_address(t) && !demanded.contains(t));
    named
        .chain(chosen.map(|t| (*t, false)))
        .take(MAX_TARGETS)
        .collect()
}
