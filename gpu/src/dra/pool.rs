//! The slices of one pool, and whether they can be relied on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{counters::Counters, model::Slice};

/// Why a pool's devices are ignored, as the scheduler ignores them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error(
        "{seen} of {slices} slices of generation {generation} are published; wait for the driver"
    )]
    Incomplete {
        generation: i64,
        seen: usize,
        slices: i64,
    },
    #[error("device {0} is published twice; the driver must give each its own name")]
    DuplicateDevice(Arc<str>),
    #[error("counter set {0} is published twice; the driver must give each its own name")]
    DuplicateCounters(Box<str>),
    #[error("device {device} consumes of counter set {set} what is not there; mend the driver")]
    NoCounters { device: Arc<str>, set: Box<str> },
}

/// All slices of a pool by name, of any generation.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    pub(super) slices: BTreeMap<Arc<str>, Arc<Slice>>,
}

impl Pool {
    /// The slices of the highest generation, by name as the allocator takes them,
    /// if all are there and agree. A driver that replaces a pool writes slice by
    /// slice: until the last one is there the pool gives nothing.
    pub(super) fn current(&self) -> Result<Vec<&Arc<Slice>>, Unusable> {
        let Some(generation) = self.slices.values().map(|s| s.generation).max() else {
            return Ok(Vec::new());
        };
        let of = |s: &&Arc<Slice>| s.generation == generation;
        let current: Vec<&Arc<Slice>> = self.slices.values().filter(of).collect();
        let slices = current.first().map_or(0, |s| s.slices);
        if usize::try_from(slices) != Ok(current.len()) {
            return Err(Unusable::Incomplete {
                generation,
                seen: current.len(),
                slices,
            });
        }
        check(&current)?;
        Ok(current)
    }
}

fn check(slices: &[&Arc<Slice>]) -> Result<(), Unusable> {
    let mut names = BTreeSet::new();
    let mut sets = BTreeSet::new();
    for set in slices.iter().flat_map(|s| &s.counters) {
        if !sets.insert(&set.name) {
            return Err(Unusable::DuplicateCounters(set.name.clone()));
        }
    }
    let counters = Counters::new(slices.iter().flat_map(|s| &s.counters));
    for device in slices.iter().flat_map(|s| &s.devices) {
        if !names.insert(&device.name) {
            return Err(Unusable::DuplicateDevice(device.name.clone()));
        }
        for set in &device.consumes {
            if !counters.names(set) {
                return Err(Unusable::NoCounters {
                    device: device.name.clone(),
                    set: set.name.clone(),
                });
            }
        }
    }
    Ok(())
}
