//! Tracks pods in flight: filter has answered for them, and the watch does not show their node yet.
//!
//! After an answer of one node the pod counts as bound there. After an answer of several nodes its
//! node is unknown. A flight ends when the watch shows the pod bound, failed, deleted or replaced,
//! when kube-scheduler begins another attempt, or after a maximum time. Providers that count pods
//! get an event for each change: they may see a pod later than this index does.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Index,
    flight::{FlightChange, FlightEvent, InFlight},
    pod_bytes::{MAX_POD_BYTES, ORDINARY_BYTES, constraint_bytes, text},
};
use crate::model::{Pod, key};

/// The maximum number of pods in flight; further answers are not recorded.
const MAX_PODS_IN_FLIGHT: usize = 8192;
/// The maximum number of events that have not been taken; the oldest are dropped.
const MAX_EVENTS: usize = 8 * MAX_PODS_IN_FLIGHT;

/// The maximum size of all large pods of one namespace in flight; further large pods are not
/// recorded.
const MAX_LARGE_PODS_BYTES: usize = 1 << 20;

/// Returns the heap size in bytes of the parts of a pod that its author sets.
fn own_bytes(pod: &Pod) -> usize {
    let requests = pod.requests.iter().map(|(name, _)| text(name));
    let texts = pod.labels.bytes() + pod.annotations.bytes() + requests.sum::<usize>();
    texts + constraint_bytes(pod)
}

impl Index {
    /// Records filter's answer for the pod `posted`: with `node`, its only node, the pod counts as
    /// bound there. The answer is not recorded if the pod is bound already, or if too many pods are
    /// in flight. Returns whether the index changed.
    pub fn begin_flight(
        &mut self,
        now: Instant,
        posted: Pod,
        node: Option<&str>,
        counted_by: Vec<Arc<str>>,
    ) -> bool {
        self.put_flight(now, posted, node, counted_by, false)
    }

    /// Holds a place for a member of a group: the pod counts as bound to the node until
    /// [`Self::end_hold`], or until the watch shows it bound, deleted or replaced.
    pub fn begin_hold(
        &mut self,
        now: Instant,
        pod: Pod,
        node: &str,
        counted_by: Vec<Arc<str>>,
    ) -> bool {
        self.put_flight(now, pod, Some(node), counted_by, true)
    }

    /// Ends the hold of a pod, whose place is free again. Returns whether it was held.
    pub fn end_hold(&mut self, namespace: &str, name: &str) -> bool {
        let key = key(namespace, name);
        let is_held = self.current.in_flight.get(&key).is_some_and(|f| f.is_held);
        is_held && self.end_flight(&key)
    }

    fn put_flight(
        &mut self,
        now: Instant,
        posted: Pod,
        node: Option<&str>,
        counted_by: Vec<Arc<str>>,
        is_held: bool,
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
        let observed = [Some(&posted), known.map(|p| &**p)]
            .into_iter()
            .flatten()
            .filter_map(|p| p.placement.as_ref().map(|p| p.observed))
            .max_by_key(|o| o.resource_version);
        let mut pod = posted;
        // The constraints come from the watch.
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
        let in_flight = Arc::new(InFlight {
            pod: Arc::clone(&pod),
            counted_by,
            posted: observed.unwrap_or_default(),
            shown,
            answered: now,
            is_held,
        });
        self.current.in_flight.insert(&key, Arc::clone(&in_flight));
        if node.is_some() {
            self.tell(&in_flight.counted_by, FlightChange::Placed, &pod);
            self.put_pod(&key, Some(pod));
        }
        true
    }

    /// Returns whether another pod may be in flight. Pods of ordinary size are limited only in
    /// number.
    fn has_room_for(&self, pod: &Pod) -> bool {
        let flights = &self.current.in_flight;
        let bytes = own_bytes(pod);
        let is_large = |bytes: &usize| *bytes > ORDINARY_BYTES;
        if flights.len() >= MAX_PODS_IN_FLIGHT || bytes > MAX_POD_BYTES {
            return false;
        }
        if !is_large(&bytes) {
            return true;
        }
        let of_namespace = flights
            .values()
            .map(|flight| &flight.pod)
            .filter(|other| other.namespace == pod.namespace);
        let held: usize = of_namespace.map(|p| own_bytes(p)).filter(is_large).sum();
        held + bytes <= MAX_LARGE_PODS_BYTES
    }

    /// Ends a flight and restores the pod's state from the watch. Returns whether the pod was in
    /// flight.
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

    /// Returns the changes of pods in flight since the last call, oldest first.
    pub fn take_flight_events(&mut self) -> Vec<FlightEvent> {
        std::mem::take(&mut self.flight_events).into()
    }

    /// Ends the flight of the pod with this key, as kube-scheduler begins another attempt with it,
    /// and the flights whose time is over. Returns whether any flight ended.
    pub fn begin_attempt(&mut self, now: Instant, watched: Duration, key: &str) -> bool {
        let others = self.end_old_flights(now, watched);
        self.end_flight(key) || others
    }

    /// Ends the flights whose time is over; returns whether any flight ended. `watched` is the time
    /// for which a watch has shown every pod; zero while no watch runs.
    pub fn end_old_flights(&mut self, now: Instant, watched: Duration) -> bool {
        let flights = self.current.in_flight.iter();
        let old: Vec<String> = flights
            .filter(|(_, flight)| flight.until(watched) <= now)
            .map(|(key, _)| key.to_owned())
            .collect();
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
            // The watch is behind: it shows an earlier pod of this name.
            flight.shown = Some(Arc::new(new.clone()));
            return if flight.is_open() {
                new
            } else {
                (*flight.pod).clone()
            };
        }
        let is_bound = new.uid == flight.pod.uid && new.node.is_some() && !new.finished;
        let Some(flight) = self.current.in_flight.remove(key) else {
            return new;
        };
        if is_bound {
            let bound = Arc::new(new.clone());
            self.tell(&flight.counted_by, FlightChange::Bound, &bound);
        } else {
            self.tell(&flight.counted_by, FlightChange::Ended, &flight.pod);
        }
        new
    }

    /// Applies a deletion; returns whether the index still holds the pod in flight.
    pub(super) fn observe_flight_deletion(&mut self, key: &str) -> bool {
        match self.current.in_flight.get_mut(key) {
            // An earlier pod of this name was deleted.
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
