//! Pods that a provider counts before its own watch shows them.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tautline_core::index::FlightChange;
use tautline_proto::{MAX_HOLD, ruleprovider::InFlightPod};
use tokio::time::Instant;

/// The time after which every watch shows a bound pod.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
/// The time in which an earlier attempt of a pod may have left a reservation.
const RESERVED_FOR: Duration = MAX_HOLD.saturating_add(SHOWN_AFTER);

/// The pods that one provider must count before its own watch shows them.
#[derive(Debug, Default)]
pub(crate) struct Placements {
    /// The pods that count now, by UID.
    pods: HashMap<Arc<str>, InFlightPod>,
    /// The UIDs of pods that Tautline's watch shows as bound, in this order.
    bound: VecDeque<(Instant, Arc<str>)>,
    /// The UIDs of pods whose attempt failed, in this order.
    failed: VecDeque<(Instant, Arc<str>)>,
}

/// The changes to send to the provider.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PlacementChanges {
    pub ended: Vec<String>,
    pub placed: Vec<InFlightPod>,
}

impl PlacementChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.placed.is_empty()
    }
}

impl Placements {
    /// Applies an event of a pod; `pod` returns the message about it.
    pub(crate) fn apply(
        &mut self,
        (uid, what): (&str, FlightChange),
        pod: impl FnOnce() -> InFlightPod,
        now: Instant,
        out: &mut PlacementChanges,
    ) {
        match what {
            FlightChange::Placed => self.place(uid, pod(), out),
            FlightChange::Bound => {
                let pod = pod();
                // If filter answered several nodes, the pod's node is known only now.
                if self
                    .pods
                    .get(uid)
                    .is_none_or(|known| known.node != pod.node)
                {
                    self.place(uid, pod, out);
                }
                self.bound.push_back((now, uid.into()));
            }
            FlightChange::Ended => {
                self.end(uid, out);
                self.failed.push_back((now, uid.into()));
            }
        }
    }

    fn place(&mut self, uid: &str, pod: InFlightPod, out: &mut PlacementChanges) {
        if self.end(uid, out) {
            self.bound.retain(|(_, bound)| **bound != *uid);
        }
        self.pods.insert(uid.into(), pod.clone());
        out.placed.push(pod);
    }

    /// Ends a pod, and returns whether it counted.
    fn end(&mut self, uid: &str, out: &mut PlacementChanges) -> bool {
        let counted = self.pods.remove(uid).is_some();
        if counted {
            out.placed.retain(|pod| uid_of(pod) != uid);
            out.ended.push(uid.to_owned());
        }
        counted
    }

    /// Ends the pods that every watch shows by now.
    pub(crate) fn expire(&mut self, now: Instant, out: &mut PlacementChanges) {
        while let Some(uid) = pop_due(&mut self.bound, now, SHOWN_AFTER) {
            self.end(&uid, out);
        }
        while pop_due(&mut self.failed, now, RESERVED_FOR).is_some() {}
    }

    /// The pods that count now.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &InFlightPod> {
        self.pods.values()
    }

    /// Returns whether an earlier attempt of the pod may have left a reservation of its own.
    pub(crate) fn may_hold(&self, uid: &str) -> bool {
        self.failed.iter().any(|(_, failed)| **failed == *uid)
    }
}

/// Removes and returns the first pod if its entry is older than `after`.
fn pop_due(
    pods: &mut VecDeque<(Instant, Arc<str>)>,
    now: Instant,
    after: Duration,
) -> Option<Arc<str>> {
    let (since, _) = pods.front()?;
    let is_due = now >= *since + after;
    is_due.then(|| pods.pop_front())?.map(|(_, uid)| uid)
}

fn uid_of(pod: &InFlightPod) -> &str {
    pod.workload.as_ref().map_or("", |w| &w.uid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tautline_proto::ruleprovider::Workload;

    use super::*;

    fn pod(uid: &str, node: &str) -> InFlightPod {
        InFlightPod {
            node: node.into(),
            workload: Some(Workload {
                uid: uid.into(),
                ..Workload::default()
            }),
            ..InFlightPod::default()
        }
    }

    #[test]
    fn a_failed_attempt_may_hold_a_reservation_for_a_while() {
        let (mut placements, now) = (Placements::default(), Instant::now());
        let mut out = PlacementChanges::default();
        for what in [FlightChange::Placed, FlightChange::Ended] {
            placements.apply(("u", what), || pod("u", "a"), now, &mut out);
        }
        assert_eq!((out.ended, out.placed), (vec!["u".to_owned()], vec![]));
        assert!(placements.may_hold("u") && !placements.may_hold("v"));
        placements.expire(now + RESERVED_FOR, &mut PlacementChanges::default());
        assert!(!placements.may_hold("u"));
    }

    proptest! {
        /// Whoever applies the changes has the same pods, on the same nodes.
        #[test]
        fn changes_lead_to_the_same_pods(
            steps in prop::collection::vec((0..3_u8, 0..3_usize, 0..3_usize, 0..3_u64, any::<bool>()), 0..60),
        ) {
            let (mut placements, mut now) = (Placements::default(), Instant::now());
            let mut told: HashMap<String, InFlightPod> = HashMap::new();
            let mut out = PlacementChanges::default();
            for (what, uid, node, seconds, is_sent) in steps {
                now += Duration::from_secs(seconds);
                let what = [FlightChange::Placed, FlightChange::Bound, FlightChange::Ended][usize::from(what)];
                let (uid, node) = (["u", "v", "w"][uid], ["a", "b", "c"][node]);
                placements.apply((uid, what), || pod(uid, node), now, &mut out);
                placements.expire(now, &mut out);
                if is_sent {
                    let sent = std::mem::take(&mut out);
                    sent.ended.iter().for_each(|uid| _ = told.remove(uid));
                    told.extend(sent.placed.into_iter().map(|pod| (uid_of(&pod).to_owned(), pod)));
                    let counted = placements.pods().map(|pod| (uid_of(pod).to_owned(), pod.clone()));
                    prop_assert_eq!(&told, &counted.collect::<HashMap<_, _>>());
                }
            }
            placements.expire(now + SHOWN_AFTER, &mut out);
            placements.expire(now + RESERVED_FOR, &mut out);
            prop_assert!(placements.bound.is_empty() && placements.failed.is_empty());
        }
    }
}
