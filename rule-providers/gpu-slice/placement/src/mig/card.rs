use super::geometry::{Geometry, Profile};

/// The slices of a card in MIG mode that instances occupy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MigCard {
    geometry: &'static Geometry,
    /// Memory slices with an instance; the lowest bit is the first slice.
    occupied: u16,
    free_compute: u8,
}

impl MigCard {
    /// Creates a card in MIG mode without instances.
    pub(crate) fn new(geometry: &'static Geometry) -> Self {
        Self {
            geometry,
            occupied: 0,
            free_compute: geometry.compute,
        }
    }

    /// Adds an instance of one of the geometry's profiles, and returns whether it fits at that
    /// memory slice.
    pub(crate) fn add(&mut self, profile: &Profile, start: u8) -> bool {
        let fits = profile.starts.contains(&start)
            && self.is_free(profile, start)
            && profile.compute <= self.free_compute;
        if fits {
            self.occupied |= mask(profile, start);
            self.free_compute -= profile.compute;
        }
        fits
    }

    /// The number of further instances of the profile that fit if no other instances are added.
    fn max_instances(&self, profile: &Profile) -> usize {
        let starts = profile.starts.iter();
        let free = starts.filter(|start| self.is_free(profile, **start));
        free.count()
            .min((self.free_compute / profile.compute).into())
    }

    /// The value of further instances: the sum, over all profiles, of the instances that fit times
    /// their compute slices.
    pub(crate) fn remaining_value(&self) -> usize {
        let value = |p: &Profile| self.max_instances(p) * usize::from(p.compute);
        self.geometry.profiles.iter().map(value).sum()
    }

    fn is_free(&self, profile: &Profile, start: u8) -> bool {
        self.occupied & mask(profile, start) == 0
    }
}

fn mask(profile: &Profile, start: u8) -> u16 {
    ((1 << profile.memory) - 1) << start
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
