//! What each agent is to measure: the targets that the model chose and the pairs
//! that rules name.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::{
    demand::{ROOM, Shares, minute, share},
    ledger::Id,
    network::Network,
};

/// Changes that come together are sent together.
const TOGETHER: Duration = Duration::from_millis(200);
/// How often what rules ask for is looked through, if nothing else happens.
const LOOK: Duration = Duration::from_secs(1);
/// The longest list: what a node may measure within its budget.
const MOST: usize = 128;

/// What one agent is to measure.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct List {
    /// Target, and whether an active rule names the pair.
    pub targets: Arc<[(Id, bool)]>,
    /// Another one: the keys are new.
    pub epoch: u64,
    /// Not before it has been made for the first time.
    pub made: bool,
}

/// Keeps the agents' lists right until told to stop.
pub(crate) async fn follow(network: Network, stop: CancellationToken) {
    let (mut excess, mut last) = (0, minute());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = network.0.assign.notified() => {}
            () = tokio::time::sleep(LOOK) => {
                let over = network.0.demand.lock().expire(network.now());
                // Who has room takes turns.
                if !over && (excess == 0 || last == minute()) {
                    continue;
                }
            }
        }
        last = minute();
        let now = network.assign(last);
        if now.excess > 0 && excess == 0 {
            tracing::warn!(
                pairs = now.pairs,
                excess = now.excess,
                "active rules name more pairs than the agents can visit every 2 s; \
                 the rest is measured less often or estimated"
            );
        }
        excess = now.excess;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(TOGETHER) => {}
        }
    }
}

impl Network {
    /// Makes all lists, and hands out those that have changed.
    pub(crate) fn assign(&self, minute: u64) -> Shares<Id> {
        let inner = &self.0;
        let epoch = inner.epoch.load(Ordering::Relaxed);
        let (demand, refused): (Vec<(Id, Id)>, usize) = {
            let mut demand = inner.demand.lock();
            demand.expire(self.now());
            let ledger = inner.ledger.lock();
            let both = |(a, b)| ledger.id(a).zip(ledger.id(b));
            let pairs = demand.pairs(minute).filter_map(both).collect();
            (pairs, demand.refused())
        };
        let chosen = inner.targets.load();
        let streams = inner.streams.lock();
        let there = |id| streams.contains_key(&id);
        let mut shares = share(demand.into_iter(), ROOM, there);
        shares.pairs += refused;
        shares.excess += refused;
        let ledger = inner.ledger.lock();
        let answers = |id: &Id| ledger.get(*id).is_some_and(|i| i.address.is_some());
        for (id, handle) in streams.iter() {
            let targets = list(*id, &chosen, &shares.of, answers);
            handle.list.send_if_modified(|list| {
                let same = list.made && list.epoch == epoch && *list.targets == *targets;
                if !same {
                    *list = List {
                        targets: targets.into(),
                        epoch,
                        made: true,
                    };
                }
                !same
            });
        }
        inner.metrics.demand.set(shares.pairs as i64);
        inner.metrics.excess.set(shares.excess as i64);
        shares
    }
}

/// One agent's list: what rules name comes first.
fn list(
    id: Id,
    chosen: &HashMap<Id, Arc<[Id]>>,
    demand: &BTreeMap<Id, Vec<Id>>,
    answers: impl Fn(&Id) -> bool,
) -> Vec<(Id, bool)> {
    let demand = demand.get(&id).map(Vec::as_slice).unwrap_or_default();
    let named = demand.iter().filter(|t| answers(t)).map(|t| (*t, true));
    let chosen = chosen.get(&id).map(|c| &**c).unwrap_or_default();
    let chosen = chosen.iter().filter(|t| answers(t) && !demand.contains(t));
    named
        .chain(chosen.map(|t| (*t, false)))
        .take(MOST)
        .collect()
}
