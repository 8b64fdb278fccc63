//! What an allocator has handed out and no watch shows yet. Pure: the caller
//! brings the time, and what a grant is.
//!
//! A reservation is held for a while. Confirmed, it lasts until the watch shows
//! the pod bound (its grant is then on record with the pod) or gone. One that
//! nobody confirms ends.
//!
//! One pod may have reservations on several nodes: a Binding to A whose answer
//! never came may still be written while the scheduler tries B, so both stay until
//! the watch shows the pod, or to their ends. Nothing is given back on a guess.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use tautline_proto::MAX_HOLD;

use crate::Rule;

/// Whose reservation it is: the same key, the same reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The pod's UID.
    pub uid: String,
    /// The node.
    pub node: String,
    /// The rule, with its values.
    pub rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not there any more from `until` on, unless confirmed. As many were asked
    /// for as `attempts` says and not released: each may be about to be bound.
    Held { until: Instant, attempts: u32 },
    /// The pod is bound, by the caller's word.
    Confirmed { since: Instant },
    /// And by the watch's: the grant counts with the pod. Remembered for callers
    /// that have not heard.
    Observed { until: Instant },
}

impl State {
    fn ended(self, now: Instant) -> bool {
        match self {
            Self::Held { until, .. } | Self::Observed { until } => now >= until,
            Self::Confirmed { .. } => false,
        }
    }
}

#[derive(Clone, Debug)]
struct Entry<G> {
    key: Key,
    grant: G,
    state: State,
}

/// The answer to [`Book::reserve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation<G> {
    /// Names it; no other reservation ever has the same.
    pub id: String,
    /// What was granted.
    pub grant: G,
    /// When it ends unless it is confirmed; `None`: it is.
    pub until: Option<Instant>,
}

/// A Confirm of what is not held, or not any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reservation {0} is not held: it has expired, was released, or never was")]
pub struct UnknownReservation(pub String);

/// How much is on the book.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationCounts {
    /// Held for a Confirm.
    pub held: usize,
    /// Confirmed, and not yet seen in the watch.
    pub confirmed: usize,
}

/// Reservations with their grants.
#[derive(Clone, Debug)]
pub struct Reservations<G> {
    prefix: String,
    next: u64,
    entries: HashMap<u64, Entry<G>>,
    nodes: HashMap<String, BTreeSet<u64>>,
    uids: HashMap<String, BTreeSet<u64>>,
}

impl<G: Clone> Reservations<G> {
    /// An empty book. The prefix begins every id: give one that no other process
    /// has, or ever had, so that no id of theirs means anything here.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            next: 0,
            entries: HashMap::new(),
            nodes: HashMap::new(),
            uids: HashMap::new(),
        }
    }

    /// Holds what `grant` decides, which may look at the book. A key that has a
    /// reservation keeps it, with its id and its grant; being held it is held for
    /// `hold` from now if that is longer.
    ///
    /// # Errors
    /// What `grant` says; the book is then as before.
    pub fn reserve<E>(
        &mut self,
        now: Instant,
        key: Key,
        hold: Duration,
        grant: impl FnOnce(&Self) -> Result<G, E>,
    ) -> Result<Reservation<G>, E> {
        let same = |i: &&u64| self.entries.get(i).is_some_and(|e| e.key == key);
        let there = self
            .uids
            .get(&key.uid)
            .and_then(|all| all.iter().find(same).copied());
        if let Some(i) = there {
            match self.entries.get_mut(&i) {
                Some(entry) if !entry.state.ended(now) => {
                    if let State::Held { until, attempts } = &mut entry.state {
                        *until = (*until).max(now + hold);
                        *attempts = attempts.saturating_add(1);
                    }
                    return Ok(self.answer(i, self.entries[&i].clone()));
                }
                _ => {}
            }
        }
        let grant = grant(self)?;
        if let Some(i) = there {
            self.remove(i);
        }
        let i = self.next;
        self.next += 1;
        let state = State::Held {
            until: now + hold,
            attempts: 1,
        };
        self.nodes.entry(key.node.clone()).or_default().insert(i);
        self.uids.entry(key.uid.clone()).or_default().insert(i);
        let entry = Entry { key, grant, state };
        self.entries.insert(i, entry.clone());
        Ok(self.answer(i, entry))
    }

    /// The pod is bound: the reservation lasts until [`settle`](Self::settle).
    ///
    /// # Errors
    /// It is not held any more.
    pub fn confirm(&mut self, now: Instant, id: &str) -> Result<(), UnknownReservation> {
        let i = self.parse_id(id);
        let entry = i.and_then(|i| self.entries.get_mut(&i));
        match entry.filter(|e| !e.state.ended(now)) {
            None => Err(UnknownReservation(id.to_owned())),
            Some(entry) => {
                if let State::Held { .. } = entry.state {
                    entry.state = State::Confirmed { since: now };
                }
                Ok(())
            }
        }
    }

    /// The pod was not bound by this attempt; gives the node if the grant is free
    /// by that. One that was reserved more than once is free when all attempts
    /// have said so, or at its end: another of them may be about to be bound. What
    /// is confirmed stays, and what is not held is no error.
    pub fn release(&mut self, now: Instant, id: &str) -> Option<String> {
        let i = self.parse_id(id)?;
        let entry = self.entries.get_mut(&i)?;
        let ended = entry.state.ended(now);
        match &mut entry.state {
            State::Held { attempts, .. } if *attempts > 1 && !ended => {
                *attempts -= 1;
                None
            }
            State::Held { .. } => Some(self.remove(i)?.key.node),
            State::Confirmed { .. } | State::Observed { .. } => None,
        }
    }

    /// The watch shows the pod bound to a node, or (`None`) gone; gives the nodes
    /// whose grants that frees or leaves to the pod's own record. A bound pod is
    /// never bound elsewhere, so its other reservations end. Call it after the
    /// snapshot that shows it is in use: for a moment the grant then counts twice,
    /// and never not at all. A pod that is not known yet is not gone.
    pub fn observe_pod(
        &mut self,
        now: Instant,
        uid: &str,
        bound_to: Option<&str>,
    ) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        let all: Vec<u64> = self.uids.get(uid).into_iter().flatten().copied().collect();
        for i in all {
            let Some(entry) = self.entries.get_mut(&i) else {
                continue;
            };
            if !matches!(entry.state, State::Observed { .. }) {
                touched.insert(entry.key.node.clone());
            }
            let here = bound_to == Some(entry.key.node.as_str());
            if here && !entry.state.ended(now) {
                if !matches!(entry.state, State::Observed { .. }) {
                    let until = now + MAX_HOLD;
                    entry.state = State::Observed { until };
                }
            } else {
                self.remove(i);
            }
        }
        touched
    }

    /// Forgets what has ended; gives the nodes whose grants that frees.
    pub fn expire(&mut self, now: Instant) -> BTreeSet<String> {
        let ended = self.entries.iter().filter(|(_, e)| e.state.ended(now));
        let ended: Vec<u64> = ended.map(|(i, _)| *i).collect();
        let gone = ended.into_iter().filter_map(|i| self.remove(i));
        gone.filter(|e| !matches!(e.state, State::Observed { .. }))
            .map(|e| e.key.node)
            .collect()
    }

    /// What is granted on a node and not on record with a bound pod.
    pub fn grants_on_node<'a>(
        &'a self,
        now: Instant,
        node: &str,
    ) -> impl Iterator<Item = (&'a Key, &'a G)> + use<'a, G> {
        let here = self.nodes.get(node).into_iter().flatten();
        here.filter_map(|i| self.entries.get(i))
            .filter(move |e| !matches!(e.state, State::Observed { .. }) && !e.state.ended(now))
            .map(|e| (&e.key, &e.grant))
    }

    /// The nodes where something is granted to a pod and not on record with it.
    pub fn nodes_of_pod<'a>(
        &'a self,
        now: Instant,
        uid: &str,
    ) -> impl Iterator<Item = &'a str> + use<'a, G> {
        let own = self.uids.get(uid).into_iter().flatten();
        own.filter_map(|i| self.entries.get(i))
            .filter(move |e| !matches!(e.state, State::Observed { .. }) && !e.state.ended(now))
            .map(|e| e.key.node.as_str())
    }

    /// For a gauge.
    pub fn counts(&self, now: Instant) -> ReservationCounts {
        let mut counts = ReservationCounts::default();
        for entry in self.entries.values().filter(|e| !e.state.ended(now)) {
            match entry.state {
                State::Held { .. } => counts.held += 1,
                State::Confirmed { .. } => counts.confirmed += 1,
                State::Observed { .. } => {}
            }
        }
        counts
    }

    /// Pods whose reservations were confirmed at least `age` ago and never seen: a
    /// pod may come and go between two looks of a watch. The caller settles those
    /// that are not there any more.
    pub fn unobserved(&self, now: Instant, age: Duration) -> BTreeSet<String> {
        let old = |s: State| matches!(s, State::Confirmed { since } if now.saturating_duration_since(since) >= age);
        let unseen = self.entries.values().filter(|e| old(e.state));
        unseen.map(|e| e.key.uid.clone()).collect()
    }

    fn answer(&self, i: u64, entry: Entry<G>) -> Reservation<G> {
        Reservation {
            id: format!("{}-{i}", self.prefix),
            grant: entry.grant,
            until: match entry.state {
                State::Held { until, .. } => Some(until),
                State::Confirmed { .. } | State::Observed { .. } => None,
            },
        }
    }

    fn parse_id(&self, id: &str) -> Option<u64> {
        let digits = id.strip_prefix(&self.prefix)?.strip_prefix('-')?;
        let i = digits.parse().ok()?;
        // "+7" and "07" parse too.
        (digits == format!("{i}")).then_some(i)
    }

    fn remove(&mut self, i: u64) -> Option<Entry<G>> {
        let entry = self.entries.remove(&i)?;
        for (map, name) in [
            (&mut self.nodes, &entry.key.node),
            (&mut self.uids, &entry.key.uid),
        ] {
            if let Some(set) = map.get_mut(name) {
                set.remove(&i);
                if set.is_empty() {
                    map.remove(name);
                }
            }
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
