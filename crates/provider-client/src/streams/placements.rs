//! Pods that a provider counts before its own watch shows them.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tautline_core::index::FlightChange;
use tautline_proto::{
    MAX_HOLD,
    ruleprovider::{CostWatch, InFlightPod},
};
use tokio::time::Instant;

/// The time after which every watch shows a bound pod: one that has failed waits up to 5 s before it
/// restarts.
const SHOWN_AFTER: Duration = Duration::from_secs(6);
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
    /// The changes since the last message to the provider.
    changes: CostWatch,
}

impl Placements {
    /// Applies an event of a pod; `pod` returns the message about it.
    pub(crate) fn apply(
        &mut self,
        uid: &str,
        what: FlightChange,
        pod: impl FnOnce() -> InFlightPod,
        now: Instant,
    ) {
        match what {
            FlightChange::Placed => self.place(uid, pod()),
            FlightChange::Bound => {
                let (pod, known) = (pod(), self.pods.get(uid));
                // If filter answered several nodes, the pod's node is known only now.
                if known.is_none_or(|known| known.node != pod.node) {
                    self.place(uid, pod);
                }
                self.bound.push_back((now, uid.into()));
            }
            FlightChange::Ended => {
                self.end(uid);
                self.failed.push_back((now, uid.into()));
            }
        }
    }

    fn place(&mut self, uid: &str, pod: InFlightPod) {
        if self.end(uid) {
            self.bound.retain(|(_, bound)| **bound != *uid);
        }
        self.pods.insert(uid.into(), pod.clone());
        self.changes.placed_pods.push(pod);
    }

    /// Ends a pod, and returns whether it counted.
    fn end(&mut self, uid: &str) -> bool {
        let counted = self.pods.remove(uid).is_some();
        if counted {
            self.changes.placed_pods.retain(|pod| uid_of(pod) != uid);
            self.changes.ended_pods.push(uid.to_owned());
        }
        counted
    }

    /// Ends the pods that every watch shows by now.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(uid) = pop_due(&mut self.bound, now, SHOWN_AFTER) {
            self.end(&uid);
        }
        while pop_due(&mut self.failed, now, RESERVED_FOR).is_some() {}
    }

    /// The changes since the last call, as a message to the provider.
    pub(crate) fn take_changes(&mut self) -> CostWatch {
        std::mem::take(&mut self.changes)
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
        for what in [FlightChange::Placed, FlightChange::Ended] {
            placements.apply("u", what, || pod("u", "a"), now);
        }
        let out = placements.take_changes();
        assert_eq!(
            (out.ended_pods, out.placed_pods),
            (vec!["u".to_owned()], vec![])
        );
        assert!(placements.may_hold("u") && !placements.may_hold("v"));
        placements.expire(now + RESERVED_FOR);
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
            for (what, uid, node, seconds, is_sent) in steps {
                now += Duration::from_secs(seconds);
                let what = [FlightChange::Placed, FlightChange::Bound, FlightChange::Ended][usize::from(what)];
                let (uid, node) = (["u", "v", "w"][uid], ["a", "b", "c"][node]);
                placements.apply(uid, what, || pod(uid, node), now);
                placements.expire(now);
                if is_sent {
                    let sent = placements.take_changes();
                    sent.ended_pods.iter().for_each(|uid| _ = told.remove(uid));
                    told.extend(sent.placed_pods.into_iter().map(|pod| (uid_of(&pod).to_owned(), pod)));
                    let counted = placements.pods().map(|pod| (uid_of(pod).to_owned(), pod.clone()));
                    prop_assert_eq!(&told, &counted.collect::<HashMap<_, _>>());
                }
            }
            placements.expire(now + SHOWN_AFTER);
            placements.expire(now + RESERVED_FOR);
            prop_assert!(placements.bound.is_empty() && placements.failed.is_empty());
        }
    }
}
