//! Determines which MIG instances fit on a card in addition to its present instances, by the profiles
//! that its driver lists.
//!
//! A card in MIG mode has memory slices in a row and compute slices. An instance takes adjacent
//! memory slices from one of its profile's starts, and a number of compute slices. A record has an
//! instance's thousandths and first memory slice, which together identify one profile.

use std::{cmp::Reverse, collections::BTreeSet, ops::Range};

use serde::{Deserialize, Serialize};

use crate::shape::CARD_MILLI;

/// The number of memory slices that a mask has bits for.
const MASK_SLICES: u8 = 16;

/// The instances that a card in MIG mode can be divided into.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigLayout {
    /// Possible sizes of instances.
    pub profiles: Vec<MigProfile>,
    /// Instances of the administrator, which no request for thousandths gets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<MigPlace>,
}

/// A size of instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigProfile {
    /// Name of the profile, such as `2g.20gb`.
    pub name: String,
    /// Part of the card's memory in an instance, in thousandths.
    pub milli: u16,
    /// Number of memory slices.
    pub size: u8,
    /// Number of compute slices.
    pub compute: u8,
    /// Memory slices at which an instance can start, from 0.
    pub starts: Vec<u8>,
}

/// The slices of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigPlace {
    /// First memory slice.
    pub start: u8,
    /// Number of memory slices.
    pub size: u8,
    /// Number of compute slices.
    pub compute: u8,
}

/// The slices of a card that instances occupy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupied {
    memory: u16,
    compute: u8,
}

impl MigProfile {
    /// The slices of an instance with this first memory slice; `None`: it cannot start there.
    fn at(&self, start: u8) -> Option<MigPlace> {
        let place = MigPlace {
            start,
            size: self.size,
            compute: self.compute,
        };
        self.starts.contains(&start).then_some(place)
    }
}

impl MigPlace {
    /// The memory slices as a bit mask; the lowest bit is the first slice of the card.
    pub fn mask(self) -> u16 {
        self.slices().fold(0, |mask, slice| mask | 1 << slice)
    }

    /// The numbers of the memory slices.
    pub fn slices(self) -> Range<u8> {
        self.start..self.start.saturating_add(self.size).min(MASK_SLICES)
    }
}

impl Occupied {
    /// Adds an instance.
    pub fn add(&mut self, place: MigPlace) {
        self.memory |= place.mask();
        self.compute = self.compute.saturating_add(place.compute);
    }

    /// Returns whether the instance's memory slices are free.
    pub fn is_free(self, place: MigPlace) -> bool {
        self.memory & place.mask() == 0
    }
}

impl MigLayout {
    /// The possible thousandths of a request, ascending.
    pub fn sizes(&self) -> Vec<u16> {
        let mut sizes: Vec<u16> = self.usable().map(|p| p.milli).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The instances that can be on a card without instances of the administrator, the smallest
    /// first: the thousandths, the profile and the place of each.
    pub fn instances(&self) -> Vec<(u16, &MigProfile, MigPlace)> {
        let mut all = Vec::new();
        for milli in self.sizes() {
            let of_size = self.usable().filter(|p| p.milli == milli);
            let starts: BTreeSet<u8> = of_size.flat_map(|p| p.starts.iter().copied()).collect();
            all.extend(starts.into_iter().filter_map(|start| {
                let profile = self.profile_at(milli, start)?;
                Some((milli, profile, profile.at(start)?))
            }));
        }
        all
    }

    /// The slices of a whole card.
    pub fn whole(&self) -> MigPlace {
        let ends = self
            .usable()
            .flat_map(|p| p.starts.iter().map(|start| start + p.size));
        MigPlace {
            start: 0,
            size: ends.max().unwrap_or(0),
            compute: self.free_compute(Occupied::default()),
        }
    }

    /// The occupied slices of a card that has only the administrator's instances.
    pub fn empty(&self) -> Occupied {
        let mut occupied = Occupied::default();
        for place in &self.taken {
            occupied.add(*place);
        }
        occupied
    }

    /// The profile of a record with these thousandths and this start; among several, the profile
    /// with the most compute slices.
    pub fn profile_at(&self, milli: u16, start: u8) -> Option<&MigProfile> {
        let fits = |p: &&MigProfile| p.milli == milli && p.starts.contains(&start);
        self.usable().filter(fits).max_by_key(|p| p.compute)
    }

    /// The slices of the instance that a record with these thousandths and this start means.
    pub fn place_of(&self, milli: u16, start: u8) -> Option<MigPlace> {
        self.profile_at(milli, start)?.at(start)
    }

    /// Chooses the place of an instance of one of the [sizes](Self::sizes): the place with the most
    /// compute slices, then the place that leaves most room for further instances, then the lowest
    /// start. `None`: no place is free.
    pub fn place(&self, milli: u16, occupied: Occupied) -> Option<MigPlace> {
        let of_size = self.usable().filter(|p| p.milli == milli);
        let starts = of_size.flat_map(|p| &p.starts);
        let places = starts.filter_map(|start| self.place_of(milli, *start));
        let free = places.filter(|place| self.has_room(*place, occupied));
        free.max_by_key(|place| {
            let mut after = occupied;
            after.add(*place);
            (
                place.compute,
                self.further_milli(after),
                Reverse(place.start),
            )
        })
    }

    /// The largest size such that it and all smaller sizes have a free place; 0: no size.
    pub fn left_milli(&self, occupied: Occupied) -> u16 {
        let sizes = self.sizes().into_iter();
        let placed = sizes.take_while(|size| self.place(*size, occupied).is_some());
        placed.last().unwrap_or(0)
    }

    /// The thousandths of a profile's instances that would still fit, summed over all profiles.
    fn further_milli(&self, occupied: Occupied) -> u32 {
        let of = |profile: &MigProfile| {
            let places = profile.starts.iter().filter_map(|start| profile.at(*start));
            let free = places.filter(|place| self.has_room(*place, occupied));
            let by_compute = self.free_compute(occupied) / profile.compute.max(1);
            let count = free.count().min(by_compute.into());
            u32::from(profile.milli) * u32::try_from(count).unwrap_or(u32::MAX)
        };
        self.usable().map(of).sum()
    }

    fn has_room(&self, place: MigPlace, occupied: Occupied) -> bool {
        occupied.is_free(place) && place.compute <= self.free_compute(occupied)
    }

    /// The compute slices that are free.
    pub fn free_compute(&self, occupied: Occupied) -> u8 {
        let all = self.usable().map(|p| p.compute).max().unwrap_or(0);
        all.saturating_sub(occupied.compute)
    }

    /// The profiles that a card can have; profiles with impossible numbers are left out.
    fn usable(&self) -> impl Iterator<Item = &MigProfile> {
        self.profiles.iter().filter(|p| {
            let ends = p.starts.iter().map(|start| start.saturating_add(p.size));
            (1..=CARD_MILLI).contains(&p.milli)
                && p.size > 0
                && ends.max().unwrap_or(0) <= MASK_SLICES
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout(profiles: &[(&str, u16, u8, u8, &[u8])]) -> MigLayout {
        let profile =
            |(name, milli, size, compute, starts): &(&str, u16, u8, u8, &[u8])| MigProfile {
                name: (*name).to_owned(),
                milli: *milli,
                size: *size,
                compute: *compute,
                starts: starts.to_vec(),
            };
        MigLayout {
            profiles: profiles.iter().map(profile).collect(),
            taken: Vec::new(),
        }
    }

    fn h100() -> MigLayout {
        layout(&[
            ("1g.10gb", 125, 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
            ("1g.20gb", 250, 2, 1, &[0, 2, 4, 6]),
            ("2g.20gb", 250, 2, 2, &[0, 2, 4]),
            ("3g.40gb", 500, 4, 3, &[0, 4]),
            ("4g.40gb", 500, 4, 4, &[0]),
            ("7g.80gb", 1000, 8, 7, &[0]),
        ])
    }

    fn a30() -> MigLayout {
        layout(&[
            ("1g.6gb", 250, 1, 1, &[0, 1, 2, 3]),
            ("2g.12gb", 500, 2, 2, &[0, 2]),
            ("4g.24gb", 1000, 4, 4, &[0]),
        ])
    }

    /// Names and starts in the order in which a card is filled, and what is left then.
    fn filled(layout: &MigLayout, sizes: &[u16]) -> (Vec<String>, u16) {
        let mut occupied = layout.empty();
        let mut names = Vec::new();
        for milli in sizes {
            let Some(place) = layout.place(*milli, occupied) else {
                names.push("none".to_owned());
                continue;
            };
            let profile = layout.profile_at(*milli, place.start).unwrap();
            names.push(format!("{}@{}", profile.name, place.start));
            occupied.add(place);
        }
        (names, layout.left_milli(occupied))
    }

    #[test]
    fn sizes_are_those_of_the_profiles() {
        assert_eq!(h100().sizes(), [125, 250, 500, 1000]);
        assert_eq!(h100().left_milli(h100().empty()), 1000);
        assert_eq!(MigLayout::default().left_milli(Occupied::default()), 0);
    }

    #[test]
    fn a_card_is_filled_with_the_most_compute() {
        let (names, left) = filled(&h100(), &[250; 5]);
        assert_eq!(
            names,
            ["2g.20gb@4", "2g.20gb@0", "2g.20gb@2", "1g.20gb@6", "none"]
        );
        assert_eq!(left, 0);
        let (names, left) = filled(&h100(), &[500, 500]);
        assert_eq!(
            (names, left),
            (vec!["4g.40gb@0".into(), "3g.40gb@4".into()], 0)
        );
        let (names, left) = filled(&h100(), &[250, 500, 125]);
        assert_eq!(names, ["2g.20gb@4", "4g.40gb@0", "1g.10gb@6"]);
        assert_eq!(left, 0);
        let (names, left) = filled(&h100(), &[1000, 125]);
        assert_eq!((names, left), (vec!["7g.80gb@0".into(), "none".into()], 0));
        assert_eq!(filled(&h100(), &[125]).1, 500);
        assert_eq!(filled(&a30(), &[250, 500]).0, ["1g.6gb@0", "2g.12gb@2"]);
    }

    #[test]
    fn instances_of_the_administrator_stay_free_of_others() {
        let place = h100().place_of(500, 0).unwrap();
        let with = MigLayout {
            taken: vec![place],
            ..h100()
        };
        let (names, left) = filled(&with, &[500, 125]);
        assert_eq!((names, left), (vec!["3g.40gb@4".into(), "none".into()], 0));
    }

    #[test]
    fn a_layout_that_no_card_has_is_harmless() {
        let text = r#"{"profiles":[{"name":"x","milli":250,"size":200,"compute":9,"starts":[255]}],
            "taken":[{"start":250,"size":250,"compute":255}]}"#;
        let odd: MigLayout = serde_json::from_str(text).unwrap();
        assert_eq!((odd.left_milli(odd.empty()), odd.sizes()), (0, vec![]));
    }

    proptest! {
        /// In any order of takes and releases no slice is given twice, and what fits is placed.
        #[test]
        fn no_slice_is_ever_given_twice(
            asks in prop::collection::vec((1..=CARD_MILLI, any::<bool>(), 0..8_usize), 1..60),
            small in any::<bool>(),
            taken in prop::option::of(0..4_usize),
        ) {
            let mut layout = if small { a30() } else { h100() };
            if let Some(at) = taken {
                let milli = layout.sizes()[at % layout.sizes().len()];
                layout.taken.extend(layout.place(milli, Occupied::default()));
            }
            let mut held: Vec<(u16, MigPlace)> = Vec::new();
            for (wanted, gives_back, at) in asks {
                if gives_back && !held.is_empty() {
                    held.swap_remove(at % held.len());
                }
                let mut occupied = layout.empty();
                for (_, place) in &held {
                    occupied.add(*place);
                }
                let milli = layout.sizes().into_iter().find(|size| *size >= wanted).unwrap();
                let fits = layout.left_milli(occupied) >= milli;
                let place = layout.place(milli, occupied);
                prop_assert!(!fits || place.is_some());
                let Some(place) = place else { continue };
                prop_assert_eq!(layout.place_of(milli, place.start), Some(place));
                held.push((milli, place));
                let all = || held.iter().map(|(_, p)| *p).chain(layout.taken.iter().copied());
                let union = all().fold(0, |all, p| all | p.mask());
                let sum: u32 = all().map(|p| p.mask().count_ones()).sum();
                prop_assert_eq!(union.count_ones(), sum);
                let compute: u32 = all().map(|p| u32::from(p.compute)).sum();
                prop_assert!(compute <= layout.profiles.iter().map(|p| p.compute.into()).max().unwrap());
            }
        }
    }
}
