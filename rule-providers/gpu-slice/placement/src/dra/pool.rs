use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

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

#[derive(Clone, Debug)]
pub(super) struct Pool {
    slices: BTreeMap<Arc<str>, Arc<Slice>>,
    /// Result of [`current`] for the slices, computed at each change because requests are more
    /// frequent than changes.
    current: Result<Current, PoolError>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Current {
    pub(super) slices: Vec<Arc<Slice>>,
    pub(super) counters: PoolCounters,
    /// True if a device has binding conditions; the allocator takes such pools last.
    pub(super) binding_conditions: bool,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            slices: BTreeMap::new(),
            current: Ok(Current::default()),
        }
    }
}

impl Pool {
    pub(super) fn insert(&mut self, slice: Slice) {
        self.slices.insert(slice.name.clone(), Arc::new(slice));
        self.current = current(&self.slices);
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<Slice>> {
        let old = self.slices.remove(name);
        self.current = current(&self.slices);
        old
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    pub(super) fn current(&self) -> Result<&Current, &PoolError> {
        self.current.as_ref()
    }
}

/// Returns the slices of the highest generation, if complete: drivers replace slice by slice.
fn current(slices: &BTreeMap<Arc<str>, Arc<Slice>>) -> Result<Current, PoolError> {
    let Some(generation) = slices.values().map(|s| s.generation).max() else {
        return Ok(Current::default());
    };
    let of = |s: &&Arc<Slice>| s.generation == generation;
    let current: Vec<Arc<Slice>> = slices.values().filter(of).cloned().collect();
    let slices = current.first().map_or(0, |s| s.slices);
    if usize::try_from(slices) != Ok(current.len()) {
        return Err(PoolError::Incomplete {
            generation,
            seen: current.len(),
            slices,
        });
    }
    let mut sets = BTreeSet::new();
    for set in current.iter().flat_map(|s| &s.counters) {
        if !sets.insert(&set.name) {
            return Err(PoolError::DuplicateCounters(set.name.clone()));
        }
    }
    let counters = PoolCounters::new(current.iter().flat_map(|s| &s.counters));
    let mut names = BTreeSet::new();
    for device in current.iter().flat_map(|s| &s.devices) {
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
    let mut devices = current.iter().flat_map(|s| &s.devices);
    let binding_conditions = devices.any(|d| d.binding_conditions);
    Ok(Current {
        slices: current,
        counters,
        binding_conditions,
    })
}
