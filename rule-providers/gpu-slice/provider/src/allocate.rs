//! Reserve, Confirm, Release: cards are picked and held while a pod is bound.

use std::{
    collections::BTreeMap,
    time::{Instant, SystemTime},
};

use tautline_gpu_placement::{
    Lane,
    inventory::Held,
    names::DEVICES,
    record::{self, Part},
};
use tautline_sdk::{
    Allocator, AllocatorError, ReservationRef, ReservationRequest, Reserved,
    reservations::{Key, Reservations},
};

use crate::{
    GpuSlice,
    cost::{self, Asking, Fit},
    ledger::Parts,
    need::Need,
    state::{Own, State},
};

/// What is held for a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grant {
    /// `namespace/name`.
    pod: Box<str>,
    cpu_milli: i64,
    memory_bytes: i64,
    /// Empty where a device plugin or the scheduler picks the device.
    parts: Vec<Part>,
}

/// What is held on a node for pods that the watch does not show there; not for the
/// pod of this UID.
pub(crate) fn held(
    book: &Reservations<Grant>,
    now: Instant,
    node: &str,
    except: &str,
) -> Vec<Held> {
    book.grants_on_node(now, node)
        .filter(|(key, _)| key.uid != except || except.is_empty())
        .map(|(_, grant)| Held {
            pod: grant.pod.clone(),
            cpu_milli: grant.cpu_milli,
            memory_bytes: grant.memory_bytes,
            parts: grant.parts.clone(),
        })
        .collect()
}

impl Allocator for GpuSlice {
    async fn reserve(&self, ask: ReservationRequest) -> Result<Reserved, AllocatorError> {
        self.reserve_at(Instant::now(), ask)
    }

    async fn confirm(&self, ask: ReservationRef) -> Result<(), AllocatorError> {
        self.confirm_at(Instant::now(), &ask.id)
    }

    async fn release(&self, ask: ReservationRef) -> Result<(), AllocatorError> {
        self.release_at(Instant::now(), &ask.id);
        Ok(())
    }
}

impl GpuSlice {
    pub(crate) fn reserve_at(
        &self,
        now: Instant,
        ask: ReservationRequest,
    ) -> Result<Reserved, AllocatorError> {
        let mut state = self.state.lock();
        state
            .reserves
            .send_if_modified(|reserves| !std::mem::replace(reserves, true));
        let need = Need::of(&state.ledger.names, &ask.rule, ask.details.as_ref())
            .map_err(|e| AllocatorError::BadRule(e.to_string()))?;
        let snapshot = state.sync(&self.feed, now);
        // By another rule: that one's grant is the pod's own, and no obstacle.
        let own = Own::reserved(&state, &ask.uid, now);
        let freed = own.freed(&mut state, &snapshot, &ask.node, now);
        let pod = format!("{}/{}", ask.workload.namespace, ask.workload.name);
        let key = Key {
            uid: ask.uid,
            node: ask.node.clone(),
            rule: ask.rule,
        };
        let State { ledger, book, .. } = &mut *state;
        let reservation = book.reserve(now, key, ask.hold, |_| {
            let Parts {
                names,
                nodes,
                board,
                ..
            } = ledger.parts();
            let refuse =
                |why: String| AllocatorError::Exhausted(format!("node {}: {why}", ask.node));
            let Some(entry) = nodes.get(ask.node.as_str()) else {
                return Err(refuse("not in the provider's view yet".into()));
            };
            let (entry, rooms) = match &freed {
                Some((entry, rooms)) => (entry, Some(&rooms[..])),
                None => (entry, None),
            };
            let at = match cost::fit(names, board, entry, &mut Asking::new(&need), rooms) {
                Fit::Yes { at, .. } => at,
                Fit::No(no) => return Err(refuse(format!("{}: {}", no.code, no.detail))),
            };
            let mut parts = Vec::new();
            if let Some(at) = at
                && let Some(pool) = entry.inventory.pools.get(at.pool)
                && pool.kind.lane == Lane::Milli
            {
                let mut room = entry.inventory.room(pool, 0);
                let taken = room.take(&at.shape, at.card.map(usize::from));
                let taken = taken.map_err(|short| refuse(format!("too little {short}")))?;
                parts.extend(taken.parts.iter().filter_map(|(card, milli)| {
                    let card = pool.cards.get(usize::from(*card))?.name.clone();
                    Some(Part {
                        card,
                        milli: *milli,
                    })
                }));
            }
            Ok(Grant {
                pod: pod.as_str().into(),
                cpu_milli: need.cpu_milli,
                memory_bytes: need.memory_bytes,
                parts,
            })
        })?;
        state.touched(now, &ask.node);
        let expires = reservation
            .until
            .map(|until| SystemTime::now() + until.saturating_duration_since(now));
        Ok(Reserved {
            id: reservation.id,
            annotations: self.annotations(&reservation.grant.parts),
            expires,
        })
    }

    pub(crate) fn confirm_at(&self, now: Instant, id: &str) -> Result<(), AllocatorError> {
        let mut state = self.state.lock();
        let confirmed = state.book.confirm(now, id);
        confirmed.map_err(|e| AllocatorError::Expired(e.to_string()))
    }

    pub(crate) fn release_at(&self, now: Instant, id: &str) {
        let mut state = self.state.lock();
        if let Some(node) = state.book.release(now, id) {
            state.touched(now, &node);
        }
    }

    /// What a pod is told of its cards; nothing where it has none of ours.
    fn annotations(&self, parts: &[Part]) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        if !parts.is_empty() {
            all.insert(DEVICES.to_owned(), record::format(parts));
            if let Some(name) = &self.also_record {
                all.insert(name.clone(), record::format_indexes(parts));
            }
        }
        all
    }
}

#[cfg(test)]
#[path = "allocate_tests.rs"]
mod tests;
