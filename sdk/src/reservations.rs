//! Stores the reservations of an allocator until the provider's watch shows them. It reads no
//! clock: the caller passes the time, and defines what a grant is.
//!
//! A reservation is held for a limited time. Once confirmed it lasts until the watch shows the
//! pod bound (then the pod's own record counts) or gone. A pod may have several: a Binding to node
//! A whose response was lost may still be written while kube-scheduler tries node B.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use tautline_sdk::{Rule, reservations::{Key, Reservations}};
//!
//! // Ids start with a prefix that is unique to this process.
//! let mut reservations = Reservations::new("replica-0-1764000000");
//! let (now, hold) = (Instant::now(), Duration::from_secs(10));
//! let key = Key { uid: "pod-uid".into(), node: "node-a".into(), rule: Rule::default() };
//!
//! let reserved = reservations.reserve(now, key, hold, |others| {
//!     let used = others.grants_on_node(now, "node-a").count();
//!     if used < 4 { Ok(used) } else { Err("node-a is full") }
//! })?;
//! reservations.confirm(now, &reserved.id).unwrap();
//! assert_eq!(reservations.counts(now).confirmed, 1);
//!
//! // The watch shows the pod bound to node-a.
//! reservations.observe_pod(now, "pod-uid", Some("node-a"));
//! assert_eq!(reservations.counts(now).confirmed, 0);
//! # Ok::<(), &str>(())
//! ```

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use tautline_proto::MAX_HOLD;

use crate::Rule;

/// The identity of a reservation: one key has one reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The pod's UID.
    pub uid: String,
    /// The node.
    pub node: String,
    /// The rule with its values.
    pub rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The reservation expires at `until` unless confirmed; any of `attempts` calls of Reserve may
    /// bind the pod.
    Held { until: Instant, attempts: u32 },
    /// The caller reported the pod bound.
    Confirmed { since: Instant },
    /// The watch showed the pod bound, so the pod's own record counts. The entry stays until
    /// `until` for late calls.
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

impl<G: Clone> Entry<G> {
    fn reservation(&self, prefix: &str, i: u64) -> Reservation<G> {
        Reservation {
            id: format!("{prefix}-{i}"),
            grant: self.grant.clone(),
            until: match self.state {
                State::Held { until, .. } => Some(until),
                State::Confirmed { .. } | State::Observed { .. } => None,
            },
        }
    }
}

/// The result of [`Reservations::reserve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation<G> {
    /// The id of the reservation; it is unique for all time.
    pub id: String,
    /// The grant.
    pub grant: G,
    /// The end of the reservation; `None` once it is confirmed.
    pub until: Option<Instant>,
}

/// The error of a Confirm whose reservation does not exist or has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reservation {0} is not held: it has expired, was released, or never was")]
pub struct UnknownReservation(pub String);

/// The numbers of reservations, for gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationCounts {
    /// The number of reservations that wait for a Confirm.
    pub held: usize,
    /// The number of confirmed reservations that the watch does not show yet.
    pub confirmed: usize,
}

/// Reservations with grants of type `G`; see the [module](self).
#[derive(Clone, Debug)]
pub struct Reservations<G> {
    prefix: String,
    next: u64,
    entries: HashMap<u64, Entry<G>>,
    nodes: HashMap<String, BTreeSet<u64>>,
    uids: HashMap<String, BTreeSet<u64>>,
}

impl<G: Clone> Reservations<G> {
    /// Makes an empty store. Every id starts with `prefix`, which no other process may ever have.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            next: 0,
            entries: HashMap::new(),
            nodes: HashMap::new(),
            uids: HashMap::new(),
        }
    }

    /// Reserves the result of `grant`, which may read the other reservations, for `hold` from now.
    /// An existing reservation of the key is returned, and extended unless confirmed.
    ///
    /// # Errors
    /// The error of `grant`; nothing has changed.
    pub fn reserve<E>(
        &mut self,
        now: Instant,
        key: Key,
        hold: Duration,
        grant: impl FnOnce(&Self) -> Result<G, E>,
    ) -> Result<Reservation<G>, E> {
        let same = |i: &&u64| self.entries.get(i).is_some_and(|e| e.key == key);
        let mut own = self.uids.get(&key.uid).into_iter().flatten();
        let there = own.find(same).copied();
        if let Some(i) = there
            && let Some(entry) = self.entries.get_mut(&i)
            && !entry.state.ended(now)
        {
            if let State::Held { until, attempts } = &mut entry.state {
                *until = (*until).max(now + hold);
                *attempts = attempts.saturating_add(1);
            }
            return Ok(entry.reservation(&self.prefix, i));
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
        let reservation = entry.reservation(&self.prefix, i);
        self.entries.insert(i, entry);
        Ok(reservation)
    }

    /// Confirms the reservation of a bound pod; it lasts until [`observe_pod`](Self::observe_pod).
    ///
    /// # Errors
    /// The reservation does not exist, or has ended.
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

    /// Releases the reservation of an attempt that did not bind the pod. Returns the node if the
    /// grant is free now; it is not while another call of Reserve may still bind the pod. Ignores
    /// confirmed reservations and unknown ids.
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

    /// Records that the watch shows the pod bound to a node, or gone (`None`); returns the nodes
    /// with changed grants. A bound pod never moves, so its other reservations end. Call this after
    /// readers see the new state: the grant then counts twice for a moment, but is never left out.
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
            let is_observed = matches!(entry.state, State::Observed { .. });
            if !is_observed {
                touched.insert(entry.key.node.clone());
            }
            if bound_to != Some(entry.key.node.as_str()) || entry.state.ended(now) {
                self.remove(i);
            } else if !is_observed {
                let until = now + MAX_HOLD;
                entry.state = State::Observed { until };
            }
        }
        touched
    }

    /// Removes expired reservations; returns the nodes with freed grants.
    pub fn expire(&mut self, now: Instant) -> BTreeSet<String> {
        let ended = self.entries.iter().filter(|(_, e)| e.state.ended(now));
        let ended: Vec<u64> = ended.map(|(i, _)| *i).collect();
        let gone = ended.into_iter().filter_map(|i| self.remove(i));
        gone.filter(|e| !matches!(e.state, State::Observed { .. }))
            .map(|e| e.key.node)
            .collect()
    }

    /// Returns the grants on a node that the watch does not show yet.
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

    /// Returns the nodes with grants of a pod that the watch does not show yet.
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

    /// Returns the current numbers of reservations.
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

    /// Returns the UIDs of pods confirmed at least `age` ago that the watch never showed: a pod may
    /// come and go between two lists. Call [`observe_pod`](Self::observe_pod) with `None` for the absent
    /// pods.
    pub fn unobserved(&self, now: Instant, age: Duration) -> BTreeSet<String> {
        let old = |s: State| matches!(s, State::Confirmed { since } if now.saturating_duration_since(since) >= age);
        let unseen = self.entries.values().filter(|e| old(e.state));
        unseen.map(|e| e.key.uid.clone()).collect()
    }

    fn parse_id(&self, id: &str) -> Option<u64> {
        let digits = id.strip_prefix(&self.prefix)?.strip_prefix('-')?;
        let i = digits.parse().ok()?;
        // parse() also accepts "+7" and "07".
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
mod simulation_tests;
#[cfg(test)]
mod tests;
