//! A pod in flight, and the events about it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::model::{Observed, Pod};

/// The longest time in flight: afterwards kube-scheduler's attempt has ended, or its bind hangs.
pub(super) const MAX_FLIGHT_TIME: Duration = Duration::from_secs(30);
/// The longest time in flight of a pod that a running watch does not show: the pod does not exist.
pub(super) const MAX_UNSEEN_TIME: Duration = Duration::from_secs(1);
/// The longest time for which a place is held for a member of a group, if nobody ends the hold.
const MAX_HOLD_TIME: Duration = Duration::from_secs(3600);

/// A pod in flight.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// The pod in its latest state, with the node of the answer; its node is `None` if the answer
    /// has several nodes.
    pub pod: Arc<Pod>,
    /// The providers that count the pod, as `namespace/name` of their Services.
    pub counted_by: Vec<Arc<str>>,
    /// The latest version of the pod at the time of the answer; later versions may end the flight.
    pub(super) posted: Observed,
    /// The pod of this name that the watch shows, perhaps an earlier pod; `None` if the watch shows
    /// no such pod.
    pub(super) shown: Option<Arc<Pod>>,
    pub(super) answered: Instant,
    /// True for a member of a group, whose place is held until all members are bound: a failed
    /// attempt does not end the flight, and time does not.
    pub(super) is_held: bool,
}

/// A change of a pod in flight, for the providers that count the pod.
#[derive(Clone, Debug)]
pub struct FlightEvent {
    /// The pod, with its node if the change is `Placed` or `Bound`.
    pub pod: Arc<Pod>,
    /// The providers that count the pod, as `namespace/name` of their Services.
    pub counted_by: Vec<Arc<str>>,
    /// The change.
    pub what: FlightChange,
}

/// A change of a pod in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlightChange {
    /// Filter has answered with this node alone, where the pod now counts as bound.
    Placed,
    /// The watch shows the pod on the node.
    Bound,
    /// The pod does not go to the node.
    Ended,
}

impl InFlight {
    /// Returns whether the answer has several nodes, so that the pod's node is unknown.
    pub fn is_open(&self) -> bool {
        self.pod.node.is_none()
    }

    /// Returns whether the place is held for a member of a group.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Returns the time since the answer.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.answered)
    }

    /// Returns the end of the flight's time. `watched` is the time for which a watch has shown
    /// every pod.
    pub(super) fn until(&self, watched: Duration) -> Instant {
        if self.is_held {
            self.answered + MAX_HOLD_TIME
        } else if !self.is_seen() && watched >= MAX_UNSEEN_TIME {
            self.answered + MAX_UNSEEN_TIME
        } else {
            self.answered + MAX_FLIGHT_TIME
        }
    }

    /// Returns whether the watch shows this pod, not an earlier pod of its name.
    pub(super) fn is_seen(&self) -> bool {
        let shown = self.shown.as_ref();
        shown.is_some_and(|shown| shown.uid == self.pod.uid)
    }

    /// Returns the state of the pod for the index while the watch shows `new`; `None` if the flight
    /// has ended.
    pub(super) fn merge(&self, new: &Pod) -> Option<Pod> {
        let unbound = new.placement.as_ref().filter(|_| new.node.is_none())?;
        if new.uid != self.pod.uid || new.finished || new.terminating {
            return None;
        }
        let Observed {
            resource_version,
            attempt,
        } = unbound.observed;
        let is_later = resource_version > self.posted.resource_version;
        if is_later && attempt != self.posted.attempt && !self.is_held {
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
