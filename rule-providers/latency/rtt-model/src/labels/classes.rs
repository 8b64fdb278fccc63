//! Classes of pairs, from general to specific, and their typical round-trip times.

use super::Sample;
use super::offsets::Offsets;
use super::placements::{NONE, NodePlacements, Placement};
use super::robust::{four_of_five, median, median_with_prior, spread};

const CHUNK: usize = 4_096;
/// With this many samples a class uses its own median, spread and error.
const ENOUGH: usize = 8;
const ENOUGH_FOR_SPREAD: usize = 16;
const ENOUGH_FOR_ERROR: usize = 30;
/// The most samples that a class's median is taken of.
const PLENTY: usize = 1000;
/// A rack's median counts as this many samples of its zone's racks.
const RACK_PRIOR: f32 = 20.0;
/// A prediction is at least this part of its class's typical time.
const LEAST_PART: f32 = 0.2;

/// Kinds of classes; a class's parent is of an earlier kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any two nodes of one zone, whichever zone.
    Zone,
    /// Two regions, and one region across its zones.
    Regions,
    /// Two zones, or one zone across its racks.
    Zones,
    /// Two nodes of one rack, whichever rack of the zone.
    Racks,
    Rack,
}

pub(super) const KIND_SHIFT: u32 = 60;
pub(super) const HIGH_SHIFT: u32 = 30;

pub(super) fn ordered_key(kind: Kind, first: u32, second: u32) -> u64 {
    (kind as u64) << KIND_SHIFT | u64::from(first) << HIGH_SHIFT | u64::from(second)
}

fn key(kind: Kind, a: u32, b: u32) -> u64 {
    ordered_key(kind, a.min(b), a.max(b))
}

/// A class's typical time without offsets, and its spread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub base: f32,
    /// Standard deviation of a sample around base and offsets, microseconds.
    pub sigma: f32,
    /// Standard deviation of the logarithm of truth over prediction.
    pub error: f32,
    parent: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PairClasses {
    pub keys: Vec<u64>,
    classes: Vec<Class>,
    /// A sample's most specific class, `NONE` if it does not count.
    leaves: Vec<u32>,
    /// Samples of class `c`: `members[starts[c]..starts[c + 1]]`.
    starts: Vec<u32>,
    members: Vec<u32>,
}

/// Base and offsets, with a lower bound.
pub(super) fn total(base: f32, a: f32, b: f32) -> f32 {
    (base + (a + b)).max(base * LEAST_PART).max(1.0)
}

impl PairClasses {
    pub fn new(
        placements: &NodePlacements,
        samples: &[Sample],
        counts: impl Fn(&Sample) -> bool,
    ) -> Self {
        // Computed twice rather than stored: there are many samples.
        let pair = |s: &Sample| -> Option<(u64, Option<u64>)> {
            counts(s)
                .then(|| {
                    leaf(
                        placements,
                        placements.placement(s.from)?,
                        placements.placement(s.to)?,
                    )
                })
                .flatten()
        };
        let mut keys: Vec<u64> = Vec::new();
        for some in samples.chunks(CHUNK) {
            let pairs = some.iter().filter_map(&pair);
            keys.extend(
                pairs
                    .flat_map(|(leaf, parent)| [Some(leaf), parent])
                    .flatten(),
            );
            keys.sort_unstable();
            keys.dedup();
        }
        let mut table = Self {
            keys,
            ..Self::default()
        };
        let none = Class {
            base: 0.0,
            sigma: 0.0,
            error: 0.0,
            parent: NONE,
        };
        table.classes = vec![none; table.keys.len()];
        table.starts = vec![0; table.keys.len() + 1];
        let find = |k: Option<u64>| k.and_then(|k| table.find(k)).unwrap_or(NONE);
        let ids: Vec<[u32; 2]> = samples
            .iter()
            .map(|s| {
                let pair = pair(s);
                [find(pair.map(|p| p.0)), find(pair.and_then(|p| p.1))]
            })
            .collect();
        for (ids, pair) in ids.iter().zip(samples.iter().map(&pair)) {
            let [leaf, parent] = *ids;
            let Some(class) = table.classes.get_mut(leaf as usize) else {
                continue;
            };
            class.parent = parent;
            // A zone's racks fall back on the zone across its racks.
            if let Some((_, Some(racks))) = pair.filter(|p| p.0 >> KIND_SHIFT == Kind::Rack as u64)
            {
                let place = (racks & ((1 << HIGH_SHIFT) - 1)) as u32;
                let zone = table.keys.binary_search(&key(Kind::Zones, place, place));
                table.classes[parent as usize].parent = zone.map_or(NONE, |at| at as u32);
            }
        }
        table.gather(&ids);
        table.leaves = ids.into_iter().map(|[leaf, _]| leaf).collect();
        table
    }

    pub fn forget_samples(&mut self) {
        self.leaves = Vec::new();
        self.members = Vec::new();
        self.starts = Vec::new();
    }

    fn gather(&mut self, ids: &[[u32; 2]]) {
        let of = |ids: &[u32; 2]| {
            ids.map(|c| c as usize)
                .into_iter()
                .filter(|c| *c != NONE as usize)
        };
        for class in ids.iter().flat_map(of) {
            self.starts[class + 1] += 1;
        }
        for at in 1..self.starts.len() {
            self.starts[at] += self.starts[at - 1];
        }
        let mut next = self.starts.clone();
        self.members = vec![0; *self.starts.last().unwrap_or(&0) as usize];
        for (sample, ids) in (0u32..).zip(ids) {
            for class in of(ids) {
                self.members[next[class] as usize] = sample;
                next[class] += 1;
            }
        }
    }

    pub fn class(&self, id: u32) -> Class {
        self.classes[id as usize]
    }

    pub fn leaf(&self, sample: u32) -> Option<Class> {
        self.classes
            .get(self.leaves[sample as usize] as usize)
            .copied()
    }

    /// The most specific class with samples for two placements.
    pub fn class_of(&self, placements: &NodePlacements, a: Placement, b: Placement) -> Option<u32> {
        let rack = (a.rack == b.rack).then(|| self.rack_class(a)).flatten();
        let zones = || {
            let zoned = placements.is_zone(a.place) && placements.is_zone(b.place);
            zoned.then(|| self.zones_class(a.place, b.place)).flatten()
        };
        rack.or_else(zones)
            .or_else(|| self.find(key(Kind::Regions, a.region, b.region)))
    }

    pub fn rack_class(&self, spot: Placement) -> Option<u32> {
        let rack = || self.find(key(Kind::Rack, spot.rack, spot.rack));
        let racks = || self.find(key(Kind::Racks, spot.place, spot.place));
        (spot.rack != NONE).then(|| rack().or_else(racks)).flatten()
    }

    pub fn zones_class(&self, a: u32, b: u32) -> Option<u32> {
        let any = || (a == b).then(|| self.find(key(Kind::Zone, 0, 0))).flatten();
        self.find(key(Kind::Zones, a, b)).or_else(any)
    }

    fn find(&self, key: u64) -> Option<u32> {
        self.keys.binary_search(&key).ok().map(|at| at as u32)
    }

    fn samples_of(&self, class: usize) -> &[u32] {
        &self.members[self.starts[class] as usize..self.starts[class + 1] as usize]
    }

    /// As many of a class's samples as its median needs, evenly picked.
    fn some_of(&self, class: usize) -> impl Iterator<Item = u32> + '_ {
        let all = self.samples_of(class);
        all.iter().step_by(1 + all.len() / PLENTY).copied()
    }

    /// Fits each class's typical time and spread, given the offsets.
    pub fn fit(&mut self, samples: &[Sample], offsets: &Offsets) {
        let rest: Vec<f32> = samples
            .iter()
            .map(|s| s.micros - offsets.of(s.from).micros - offsets.of(s.to).micros)
            .collect();
        let mut values: Vec<f32> = Vec::new();
        // By key, so parents come first.
        for id in 0..self.classes.len() {
            let parent = self.classes.get(self.classes[id].parent as usize).copied();
            values.clear();
            let (count, members) = (self.samples_of(id).len(), self.some_of(id));
            values.extend(members.map(|s| rest[s as usize]));
            let mut base = match parent {
                Some(parent) if count < ENOUGH => median_with_prior(&mut values, parent.base),
                _ => median(&mut values),
            };
            if let Some(parent) =
                parent.filter(|_| self.keys[id] >> KIND_SHIFT == Kind::Rack as u64)
            {
                let count = count as f32;
                base = (count * base + RACK_PRIOR * parent.base) / (count + RACK_PRIOR);
            }
            let base = base.max(1.0);
            let precision = self.classes[id].sigma.powi(-2);
            values.clear();
            values.extend(self.some_of(id).map(|s| {
                let residual = rest[s as usize] - base;
                residual.abs() / offsets.unfitted(&samples[s as usize], precision)
            }));
            let floor = 1.0 + 0.005 * base;
            let sigma = match parent {
                Some(parent) if count < ENOUGH_FOR_SPREAD => parent.sigma,
                _ => spread(&mut values),
            };
            let class = &mut self.classes[id];
            (class.base, class.sigma) = (base, sigma.max(floor));
        }
    }

    /// Each class's error, from the residuals of its own samples. A class with few samples uses
    /// its kind's error, and the more of its parent's the fewer it has.
    pub fn measure_errors(&mut self, samples: &[Sample], offsets: &Offsets) {
        let residuals = |table: &Self, class: usize, out: &mut Vec<f32>| {
            let base = table.classes[class].base;
            out.extend(table.samples_of(class).iter().map(|s| {
                let s = &samples[*s as usize];
                let predicted = total(base, offsets.of(s.from).micros, offsets.of(s.to).micros);
                (s.micros / predicted).ln().abs()
                    / offsets.unfitted(s, table.classes[class].sigma.powi(-2))
            }));
        };
        let (mut own, mut kindred, mut kind) = (Vec::new(), Vec::new(), u64::MAX);
        let mut usual = 0.0;
        for id in 0..self.classes.len() {
            if self.keys[id] >> KIND_SHIFT != kind {
                kind = self.keys[id] >> KIND_SHIFT;
                kindred.clear();
                let alike =
                    (id..self.keys.len()).take_while(|c| self.keys[*c] >> KIND_SHIFT == kind);
                alike.for_each(|class| residuals(self, class, &mut kindred));
                usual = four_of_five(&mut kindred);
            }
            own.clear();
            residuals(self, id, &mut own);
            let parent = self
                .classes
                .get(self.classes[id].parent as usize)
                .map_or(usual, |c| c.error);
            let count = own.len();
            self.classes[id].error = match count {
                ENOUGH_FOR_ERROR.. => four_of_five(&mut own),
                _ => (usual.powi(2) + parent.powi(2) / (1.0 + count as f32)).sqrt(),
            };
        }
    }
}

/// The most specific class of a pair by labels, and its parent.
fn leaf(placements: &NodePlacements, a: Placement, b: Placement) -> Option<(u64, Option<u64>)> {
    let regions = key(Kind::Regions, a.region, b.region);
    let zoned = placements.is_zone(a.place) && placements.is_zone(b.place);
    Some(if a.rack != NONE && a.rack == b.rack {
        (
            key(Kind::Rack, a.rack, a.rack),
            Some(key(Kind::Racks, a.place, a.place)),
        )
    } else if !zoned {
        (regions, None)
    } else if a.place == b.place {
        (
            key(Kind::Zones, a.place, a.place),
            Some(key(Kind::Zone, 0, 0)),
        )
    } else {
        (key(Kind::Zones, a.place, b.place), Some(regions))
    })
}
