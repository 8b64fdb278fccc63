use std::time::Instant;

use tautline_gpu_placement::{device_annotation::CardShare, inventory::PodReservation};
use tautline_sdk::reservations::Reservations;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grant {
    /// The pod as `namespace/name`.
    pub(crate) pod: Box<str>,
    pub(crate) cpu_milli: i64,
    pub(crate) memory_bytes: i64,
    /// The parts of cards; empty if a device plugin or the scheduler picks the device.
    pub(crate) cards: Vec<CardShare>,
}

/// Returns the reservations on a node of pods that the watch does not show there, except those of
/// the pod with the UID `except`.
pub(crate) fn reserved_on(
    reservations: &Reservations<Grant>,
    now: Instant,
    node: &str,
    except: &str,
) -> Vec<PodReservation> {
    reservations
        .grants_on_node(now, node)
        .filter(|(key, _)| key.uid != except || except.is_empty())
        .map(|(_, grant)| PodReservation {
            pod: grant.pod.clone(),
            cpu_milli: grant.cpu_milli,
            memory_bytes: grant.memory_bytes,
            parts: grant.cards.clone(),
        })
        .collect()
}
