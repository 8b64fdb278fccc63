//! Classes by place, as a row of many candidates asks for them.

use super::classes::{HIGH_SHIFT, KIND_SHIFT, Kind, PairClasses, ordered_key};
use super::placements::{NONE, NodePlacements, Placement};

/// Pair classes from either side, to read those of one place in a row.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassIndex(Vec<(u64, u32)>);

impl ClassIndex {
    pub fn new(chart: &PairClasses) -> Self {
        let low = (1u64 << HIGH_SHIFT) - 1;
        let both = (0u32..).zip(&chart.keys).flat_map(|(class, key)| {
            let turned = (key >> KIND_SHIFT) << KIND_SHIFT
                | (key & low) << HIGH_SHIFT
                | key >> HIGH_SHIFT & low;
            [(*key, class), (turned, class)]
        });
        let mut both: Vec<(u64, u32)> = both.collect();
        both.sort_unstable();
        both.dedup();
        Self(both)
    }

    fn row(&self, kind: Kind, from: u32) -> impl Iterator<Item = (usize, u32)> + '_ {
        let first = ordered_key(kind, from, 0);
        let at = self.0.partition_point(|(key, _)| *key < first);
        let row = self.0[at..]
            .iter()
            .take_while(move |(key, _)| key >> HIGH_SHIFT == first >> HIGH_SHIFT);
        row.map(|(key, class)| ((key & ((1 << HIGH_SHIFT) - 1)) as usize, *class))
    }

    /// The class of a node in `spot` with one in each place, racks apart;
    /// `NONE` where there is none.
    pub fn classes_from(
        &self,
        atlas: &NodePlacements,
        chart: &PairClasses,
        spot: Placement,
    ) -> Vec<u32> {
        let mut regions = vec![NONE; atlas.places() as usize];
        for (region, class) in self.row(Kind::Regions, spot.region) {
            regions[region] = class;
        }
        let mut out: Vec<u32> = (0..atlas.places())
            .map(|p| regions[atlas.region(p) as usize])
            .collect();
        if atlas.is_zone(spot.place) {
            for (place, class) in self.row(Kind::Zones, spot.place) {
                out[place] = class;
            }
            if let Some(class) = chart.zones_class(spot.place, spot.place) {
                out[spot.place as usize] = class;
            }
        }
        out
    }
}
