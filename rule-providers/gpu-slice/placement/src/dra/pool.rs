use std::{collections::BTreeSet, sync::Arc};

use super::{counters::PoolCounters, model::Slice};

/// Reasons why all devices of a pool are left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The newest generation of the pool does not have the number of slices that it should have.
    #[error(
        "{seen} of {slices} slices of generation {generation} are published; wait for the driver"
    )]
    Incomplete {
        /// Highest generation of the pool's slices.
        generation: i64,
        /// Number of slices of that generation.
        seen: usize,
        /// Number of slices that the generation should have (`resourceSliceCount`).
        slices: i64,
    },
    /// The pool has two devices with this name.
    #[error("device {0} is published twice; the driver must give each its own name")]
    DuplicateDevice(Arc<str>),
    /// The pool has two counter sets with this name.
    #[error("counter set {0} is published twice; the driver must give each its own name")]
    DuplicateCounters(Box<str>),
    /// A device consumes a counter that its pool does not have.
    #[error("device {device} consumes counters that set {set} lacks; fix the driver")]
    NoCounters {
        /// Name of the device.
        device: Arc<str>,
        /// Name of the counter set that is missing or lacks the counter.
        set: Box<str>,
    },
}

/// The slices of a pool's highest generation.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) slices: Vec<Arc<Slice>>,
    pub(super) counters: PoolCounters,
    /// True if a device has binding conditions; the allocator takes such pools last.
    pub(super) binding_conditions: bool,
}

impl Pool {
    /// Creates a pool of the slices of the highest generation. Fails if slices are missing, because
    /// drivers replace them one by one.
    pub(super) fn new(mut slices: Vec<Arc<Slice>>) -> Result<Self, PoolError> {
        let generation = slices.iter().map(|s| s.generation).max().unwrap_or(0);
        slices.retain(|s| s.generation == generation);
        let expected = slices.first().map_or(0, |s| s.slices);
        if usize::try_from(expected) != Ok(slices.len()) {
            return Err(PoolError::Incomplete {
                generation,
                seen: slices.len(),
                slices: expected,
            });
        }
        let mut sets = BTreeSet::new();
        for set in slices.iter().flat_map(|s| &s.counters) {
            if !sets.insert(&set.name) {
                return Err(PoolError::DuplicateCounters(set.name.clone()));
            }
        }
        let counters = PoolCounters::new(slices.iter().flat_map(|s| &s.counters));
        let devices = || slices.iter().flat_map(|s| &s.devices);
        let mut names = BTreeSet::new();
        for device in devices() {
            if !names.insert(&device.name) {
                return Err(PoolError::DuplicateDevice(device.name.clone()));
            }
            if let Some(set) = device.consumes.iter().find(|s| !counters.contains(s)) {
                return Err(PoolError::NoCounters {
                    device: device.name.clone(),
                    set: set.name.clone(),
                });
            }
        }
        let binding_conditions = devices().any(|d| d.binding_conditions);
        Ok(Self {
            slices,
            counters,
            binding_conditions,
        })
    }
}
