//! Classes by place, for rows of many candidates.

use super::classes::{HIGH_SHIFT, KIND_SHIFT, Kind, PairClasses, ordered_key};
use super::placements::{NONE, NodePlacements, Placement};

#[derive(Clone, Debug, Default)]
pub(super) struct ClassIndex(Vec<(u64, u32)>);

impl ClassIndex {
    pub fn new(classes: &PairClasses) -> Self {
        let low = (1u64 << HIGH_SHIFT) - 1;
        let both = (0u32..).zip(&classes.keys).flat_map(|(class, key)| {
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

    /// By place, racks apart; `NONE` where there is none.
    pub fn classes_from(
        &self,
        placements: &NodePlacements,
        classes: &PairClasses,
        spot: Placement,
    ) -> Vec<u32> {
        let mut regions = vec![NONE; placements.places() as usize];
        for (region, class) in self.row(Kind::Regions, spot.region) {
            regions[region] = class;
        }
        let mut out: Vec<u32> = (0..placements.places())
            .map(|p| regions[placements.region(p) as usize])
            .collect();
        if placements.is_zone(spot.place) {
            for (place, class) in self.row(Kind::Zones, spot.place) {
                out[place] = class;
            }
            if let Some(class) = classes.zones_class(spot.place, spot.place) {
                out[spot.place as usize] = class;
            }
        }
        out
    }
}
