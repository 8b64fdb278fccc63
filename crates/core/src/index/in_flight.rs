//! Pods in flight: filter has answered for them, and the watch does not show their node yet.
//!
//! After an answer of one node the pod counts as bound there. After an answer of several nodes its
//! node is unknown. Either ends when the watch shows the pod bound, failed, deleted or replaced,
//! when kube-scheduler begins another attempt, or by time. Providers that count pods are told:
//! they may see a pod later than this index does.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Index,
    pod_bytes::{ORDINARY_BYTES, POD_BYTES, constraint_bytes, text},
};
use crate::model::{Observed, Pod, key};

/// The longest time in flight: kube-scheduler's attempt has ended, or its bind hangs.
const MAX_IN_FLIGHT: Duration = Duration::from_secs(30);
/// A pod that a running watch has not shown by then does not exist.
const UNSEEN: Duration = Duration::from_secs(1);
/// The maximum number of pods in flight; further answers are not recorded.
const CAPACITY: usize = 8192;
/// The maximum number of events that nobody has taken; older ones are dropped.
const MAX_EVENTS: usize = 8 * CAPACITY;

/// The maximum size of all large pods of one namespace in flight; further ones are not recorded.
const LARGE_BYTES: usize = 1 << 20;

/// The heap bytes that the author of a pod fills.
fn own_bytes(pod: &Pod) -> usize {
    let requests = pod.requests.iter().map(|(name, _)| text(name));
    let texts = pod.labels.bytes() + pod.annotations.bytes() + requests.sum::<usize>();
    texts + constraint_bytes(pod)
}

/// A pod in flight.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// The pod; its node is the answer's, or the watch's. `None`: one of several nodes.
    pub pod: Arc<Pod>,
    /// Providers (`namespace/name` of the Service) that count the pod.
    pub counted_by: Vec<Arc<str>>,
    /// The version that filter answered: later ones may end the flight.
    posted: Observed,
    /// The pod of this name as the watch shows it, perhaps an earlier one; `None`: it shows none.
    shown: Option<Arc<Pod>>,
    answered: Instant,
}

/// News of a pod for the providers that count it.
#[derive(Clone, Debug)]
pub struct FlightEvent {
    /// The pod, with its node unless it ended.
    pub pod: Arc<Pod>,
    /// Providers (`namespace/name` of the Service) that count the pod.
    pub counted_by: Vec<Arc<str>>,
    /// The change.
    pub what: FlightChange,
}

/// A change of a pod in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlightChange {
    /// Filter has promised it the node.
    Placed,
    /// The watch shows it on the node.
    Bound,
    /// It does not go to the node.
    Ended,
}

impl InFlight {
    /// Whether it is not known yet which of the answer's nodes the pod goes to.
    pub fn is_open(&self) -> bool {
        self.pod.node.is_none()
    }

    /// The time since the answer.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.answered)
    }

    fn until(&self, watched: Duration) -> Instant {
        match !self.is_seen() && watched >= UNSEEN {
            true => self.answered + UNSEEN,
            false => self.answered + MAX_IN_FLIGHT,
        }
    }

    /// Whether the watch shows this pod, not an earlier one of its name.
    fn is_seen(&self) -> bool {
        let shown = self.shown.as_ref();
        shown.is_some_and(|shown| shown.uid == self.pod.uid)
    }

    /// The state of the pod in the index while the watch shows `new`; `None`: the flight has ended.
    fn merge(&self, new: &Pod) -> Option<Pod> {
        let unbound = new.placement.as_ref().filter(|_| new.node.is_none())?;
        if new.uid != self.pod.uid || new.finished || new.terminating {
            return None;
        }
        let Observed {
            resource_version,
            attempt,
        } = unbound.observed;
        let is_later = resource_version > self.posted.resource_version;
        if is_later && attempt != self.posted.attempt {
            return None;
        }
        let placement = new.placement.clone().filter(|_| self.is_open());
        Some(Pod {
            node: self.pod.node.clone(),
            placement,
            ..new.clone()
        })
    }
}

impl Index {
    /// Records filter's answer for a posted pod: with one node it counts as bound there. Returns
    /// whether anything changed: not if the pod is bound, or too many pods are in flight.
    pub fn begin_flight(
        &mut self,
        now: Instant,
        posted: Pod,
        node: Option<&str>,
        counted_by: Vec<Arc<str>>,
    ) -> bool {
        let key = key(&posted.namespace, &posted.name);
        let ended = self.end_flight(&key);
        let shown = self.current.pods.get(&key).cloned();
        let known = shown.as_ref().filter(|p| p.uid == posted.uid);
        if let Some(bound) = known.filter(|p| p.node.is_some()) {
            self.tell(&counted_by, FlightChange::Bound, bound);
            return ended;
        }
        // kube-scheduler's watch may be behind this one.
        let observed = [Some(&posted), known.map(|p| &**p)].into_iter().flatten();
        let observed = observed.filter_map(|p| p.placement.as_ref().map(|p| p.observed));
        let observed = observed.max_by_key(|o| o.resource_version);
        let mut pod = posted;
        // Its constraints are those that the watch shows.
        pod.placement = None;
        match node {
            Some(node) => pod.node = Some(node.into()),
            None => pod.pod_terms = Arc::default(),
        }
        self.take(&key, &mut pod);
        if !self.has_room_for(&pod) {
            return ended;
        }
        let pod = Arc::new(pod);
        let in_flight = InFlight {
            pod: Arc::clone(&pod),
            counted_by,
            posted: observed.unwrap_or_default(),
            shown,
            answered: now,
        };
        let in_flight = Arc::new(in_flight);
        self.current.in_flight.insert(&key, Arc::clone(&in_flight));
        if node.is_some() {
            self.tell(&in_flight.counted_by, FlightChange::Placed, &pod);
            self.put_pod(&key, Some(pod));
        }
        true
    }

    /// Returns whether another pod may be in flight. Those of ordinary size are counted only.
    fn has_room_for(&self, pod: &Pod) -> bool {
        let flights = &self.current.in_flight;
        let bytes = own_bytes(pod);
        let is_large = |bytes: &usize| *bytes > ORDINARY_BYTES;
        if flights.len() >= CAPACITY || bytes > POD_BYTES {
            return false;
        }
        if !is_large(&bytes) {
            return true;
        }
        let of_namespace = flights.values().map(|flight| &flight.pod);
        let of_namespace = of_namespace.filter(|other| other.namespace == pod.namespace);
        let held: usize = of_namespace.map(|p| own_bytes(p)).filter(is_large).sum();
        held + bytes <= LARGE_BYTES
    }

    /// Ends a flight; the pod is as the watch shows it. Returns whether the pod was in flight.
    fn end_flight(&mut self, key: &str) -> bool {
        let Some(ended) = self.current.in_flight.remove(key) else {
            return false;
        };
        if !ended.is_open() {
            self.tell(&ended.counted_by, FlightChange::Ended, &ended.pod);
            self.put_pod(key, ended.shown.clone());
        }
        true
    }

    fn tell(&mut self, counted_by: &[Arc<str>], what: FlightChange, pod: &Arc<Pod>) {
        if counted_by.is_empty() {
            return;
        }
        if self.flight_events.len() >= MAX_EVENTS {
            self.flight_events.pop_front();
        }
        self.flight_events.push_back(FlightEvent {
            pod: Arc::clone(pod),
            counted_by: counted_by.to_vec(),
            what,
        });
    }

    /// The news of pods in flight since the last call, oldest first.
    pub fn take_flight_events(&mut self) -> Vec<FlightEvent> {
        std::mem::take(&mut self.flight_events).into()
    }

    /// kube-scheduler begins another attempt with the pod of this key: ends its flight, and those
    /// whose time is over. Returns whether there were any.
    pub fn begin_attempt(&mut self, now: Instant, watched: Duration, key: &str) -> bool {
        let others = self.end_old_flights(now, watched);
        self.end_flight(key) || others
    }

    /// Ends the flights whose time is over; returns whether there were any. `watched`: for how long
    /// a watch has shown every pod; zero while there is none.
    pub fn end_old_flights(&mut self, now: Instant, watched: Duration) -> bool {
        let flights = self.current.in_flight.iter();
        let old = flights.filter(|(_, flight)| flight.until(watched) <= now);
        let old: Vec<String> = old.map(|(key, _)| key.to_owned()).collect();
        for key in &old {
            self.end_flight(key);
        }
        !old.is_empty()
    }

    /// Applies the watch's state of a pod in flight; returns the state for the index.
    pub(super) fn observe_flight(&mut self, key: &str, new: Pod) -> Pod {
        let Some(flight) = self.current.in_flight.get_mut(key) else {
            return new;
        };
        let flight = Arc::make_mut(flight);
        if let Some(merged) = flight.merge(&new) {
            flight.shown = Some(Arc::new(new));
            flight.pod = Arc::new(merged.clone());
            return merged;
        }
        if new.uid != flight.pod.uid && !flight.is_seen() {
            // An earlier pod of this name: the watch is behind.
            flight.shown = Some(Arc::new(new.clone()));
            return match flight.is_open() {
                true => new,
                false => (*flight.pod).clone(),
            };
        }
        let is_bound = new.uid == flight.pod.uid && new.node.is_some() && !new.finished;
        let Some(flight) = self.current.in_flight.remove(key) else {
            return new;
        };
        match is_bound {
            true => self.tell(
                &flight.counted_by,
                FlightChange::Bound,
                &Arc::new(new.clone()),
            ),
            false => self.tell(&flight.counted_by, FlightChange::Ended, &flight.pod),
        }
        new
    }

    /// Applies a deletion; returns whether the index still holds the pod in flight.
    pub(super) fn observe_flight_deletion(&mut self, key: &str) -> bool {
        match self.current.in_flight.get_mut(key) {
            // An earlier pod of this name.
            Some(flight) if !flight.is_seen() => {
                Arc::make_mut(flight).shown = None;
                !flight.is_open()
            }
            Some(_) => {
                if let Some(flight) = self.current.in_flight.remove(key) {
                    self.tell(&flight.counted_by, FlightChange::Ended, &flight.pod);
                }
                false
            }
            None => false,
        }
    }
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
