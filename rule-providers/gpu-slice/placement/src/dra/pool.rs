//! The pools of devices, and the counters that devices of a pool share (KEP-4815).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::model::{Amounts, CounterSet, Slice};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    total: i64,
    used: i64,
}

impl Counter {
    fn left(self) -> i64 {
        self.total - self.used
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolCounters {
    sets: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Counter>>,
    overdrawn: bool,
}

impl PoolCounters {
    /// Creates unused counters of sets with different names.
    pub(super) fn new<'a>(sets: impl IntoIterator<Item = &'a CounterSet>) -> Self {
        let set = |set: &CounterSet| {
            let counters = set.counters.iter().map(|(name, total)| {
                let total = (*total).max(0);
                (Arc::from(&**name), Counter { total, used: 0 })
            });
            (Arc::from(&*set.name), counters.collect())
        };
        Self {
            sets: sets.into_iter().map(set).collect(),
            overdrawn: false,
        }
    }

    pub(super) fn contains(&self, wanted: &CounterSet) -> bool {
        let own = self.sets.get(&*wanted.name);
        own.is_some_and(|own| wanted.counters.keys().all(|n| own.contains_key(&**n)))
    }

    pub(super) fn has_enough(&self, wanted: &[CounterSet]) -> bool {
        let enough = |set: &CounterSet| {
            let Some(own) = self.sets.get(&*set.name) else {
                return false;
            };
            set.counters
                .iter()
                .all(|(n, v)| own.get(&**n).is_some_and(|c| c.left() >= *v))
        };
        wanted.iter().all(enough)
    }

    /// Adds amounts that claims hold already; beyond the total the counters are overdrawn.
    pub(super) fn charge(&mut self, held: &[CounterSet]) {
        for set in held {
            let Some(own) = self.sets.get_mut(&*set.name) else {
                self.overdrawn = true;
                continue;
            };
            for (name, amount) in &set.counters {
                match own.get_mut(&**name) {
                    Some(c) => {
                        let used = c.used.saturating_add((*amount).max(0));
                        self.overdrawn |= used > c.total;
                        c.used = used.min(c.total);
                    }
                    None => self.overdrawn = true,
                }
            }
        }
    }

    /// Returns whether claims hold more than exists: the pool has shrunk, or its driver has a bug.
    pub(super) fn overdrawn(&self) -> bool {
        self.overdrawn
    }

    /// The free part of a set's scarcest counter, in thousandths. Counters of one unit
    /// (`memory-slice-3`) identify a place instead of an amount: they count only in sets without
    /// larger counters, by the number that is left.
    pub(super) fn free_milli(&self, set: &str) -> Option<u16> {
        let counters = || self.sets.get(set).into_iter().flat_map(BTreeMap::values);
        let divisible = counters().filter(|c| c.total > 1000);
        let scarcest = divisible.map(|c| per_mille(c.left(), c.total)).min();
        scarcest.or_else(|| {
            let total: i64 = counters().map(|c| c.total).fold(0, i64::saturating_add);
            let left: i64 = counters().map(|c| c.left()).fold(0, i64::saturating_add);
            (total > 0).then(|| per_mille(left, total))
        })
    }

    /// The largest part of a set's counters that `wanted` takes, in thousandths, by the same rule
    /// as [`Self::free_milli`].
    pub(super) fn share_milli(&self, wanted: &CounterSet) -> Option<u16> {
        let own = self.sets.get(&*wanted.name)?;
        let of = |amounts: &Amounts, n: &str| amounts.get(n).copied().unwrap_or(0);
        let divisible = own.iter().filter(|(_, c)| c.total > 1000);
        let largest = divisible
            .map(|(n, c)| per_mille(of(&wanted.counters, n), c.total))
            .max();
        largest.or_else(|| {
            let total: i64 = own.values().map(|c| c.total).fold(0, i64::saturating_add);
            let taken = wanted.counters.values().copied();
            (total > 0).then(|| per_mille(taken.fold(0, i64::saturating_add), total))
        })
    }
}

pub(super) fn per_mille(part: i64, whole: i64) -> u16 {
    if whole <= 0 {
        return 0;
    }
    let milli = i128::from(part.max(0)) * 1000 / i128::from(whole);
    u16::try_from(milli.min(1000)).unwrap_or(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(name: &str, counters: &[(&str, i64)]) -> CounterSet {
        CounterSet {
            name: name.into(),
            counters: counters.iter().map(|(n, v)| ((*n).into(), *v)).collect(),
        }
    }

    #[test]
    fn units_tell_places_and_the_rest_amounts() {
        let whole = set(
            "gpu-0",
            &[("memory", 80_000), ("sm", 7_000), ("memory-slice-0", 1_000)],
        );
        let mut counters = PoolCounters::new([&whole]);
        let three = set(
            "gpu-0",
            &[("memory", 40_000), ("sm", 3_000), ("memory-slice-0", 1_000)],
        );
        assert_eq!(counters.share_milli(&three), Some(500));
        counters.charge(std::slice::from_ref(&three));
        assert_eq!(counters.free_milli("gpu-0"), Some(500));
        assert!(!counters.has_enough(std::slice::from_ref(&three)));
        assert!(!counters.has_enough(&[set("gpu-1", &[])]));
        assert!(!counters.has_enough(&[set("gpu-0", &[("fans", 1)])]));
        let units = PoolCounters::new([&set("s", &[("a", 1000), ("b", 1000)])]);
        assert_eq!(units.share_milli(&set("s", &[("a", 1000)])), Some(500));
    }

    proptest! {
        #[test]
        fn never_exceeded(
            total in prop::collection::vec(0i64..50, 3),
            wants in prop::collection::vec((prop::collection::vec(0i64..30, 3), any::<bool>()), 0..30),
        ) {
            let of = |amounts: &[i64]| {
                let list: Vec<_> = ["a", "b", "c"].into_iter().zip(amounts.iter().copied()).collect();
                set("s", &list)
            };
            let mut counters = PoolCounters::new([&of(&total)]);
            for (want, known) in wants {
                let want = [of(&want)];
                let enough = counters.has_enough(&want);
                if known || enough {
                    let before = counters.overdrawn();
                    counters.charge(&want);
                    prop_assert_eq!(counters.overdrawn(), before || !enough);
                }
                for c in counters.sets.values().flat_map(BTreeMap::values) {
                    prop_assert!(c.used >= 0 && c.used <= c.total);
                }
                prop_assert!(counters.free_milli("s").is_none_or(|m| m <= 1000));
            }
        }
    }
}
