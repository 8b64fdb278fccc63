//! The MIG slices and profiles of card models. The numbers are from the NVIDIA Multi-Instance GPU
//! User Guide, "Supported MIG Profiles", and from the placements of `nvidia-smi mig -lgipp`.

/// A size of MIG instances.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    /// Number of compute slices of an instance.
    pub(crate) compute: u8,
    /// Number of memory slices of an instance, which are adjacent.
    pub(crate) memory: u8,
    /// Memory slices at which an instance can start, from 0.
    pub(crate) starts: &'static [u8],
}

/// The MIG slices and profiles of card models with equal memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Nominal memory in GB, as in the name of the largest profile.
    pub(crate) memory_gb: u16,
    /// Number of compute slices of the card: 4 or 7.
    pub(crate) compute: u8,
    /// Number of memory slices of the card: 4 or 8.
    pub(crate) memory: u8,
    /// Profiles, the smaller first.
    pub(crate) profiles: &'static [Profile],
    /// Memory of an instance of each profile in GB, as in the profile's name.
    pub(crate) profile_gb: &'static [u16],
}

/// The models with MIG, and their memory sizes in GB; the first size is the default.
const MODELS: [(&str, &[u16]); 10] = [
    ("A30", &[24]),
    ("A100", &[40, 80]),
    ("A800", &[40, 80]),
    ("H100", &[80, 94, 96]),
    ("H800", &[80]),
    ("GH200", &[96]),
    ("H20", &[96]),
    ("H200", &[141]),
    ("B200", &[180]),
    ("GB200", &[186]),
];

/// The profiles of cards with 4 compute and 4 memory slices.
const FOUR_SLICES: [Profile; 3] = [
    profile((1, 1), &[0, 1, 2, 3]),
    profile((2, 2), &[0, 2]),
    profile((4, 4), &[0]),
];
/// The profiles of cards with 7 compute and 8 memory slices.
const SEVEN_SLICES: [Profile; 6] = [
    profile((1, 1), &[0, 1, 2, 3, 4, 5, 6]),
    profile((1, 2), &[0, 2, 4, 6]),
    profile((2, 2), &[0, 2, 4]),
    profile((3, 4), &[0, 4]),
    profile((4, 4), &[0]),
    profile((7, 8), &[0]),
];

pub(super) static ALL: [Geometry; 8] = [
    Geometry {
        memory_gb: 24,
        compute: 4,
        memory: 4,
        profiles: &FOUR_SLICES,
        profile_gb: &[6, 12, 24],
    },
    seven_slices(40, &[5, 10, 10, 20, 20, 40]),
    seven_slices(80, &[10, 20, 20, 40, 40, 80]),
    seven_slices(94, &[12, 24, 24, 47, 47, 94]),
    seven_slices(96, &[12, 24, 24, 48, 48, 96]),
    seven_slices(141, &[18, 35, 35, 71, 71, 141]),
    seven_slices(180, &[23, 45, 45, 90, 90, 180]),
    seven_slices(186, &[23, 47, 47, 93, 93, 186]),
];

const fn seven_slices(memory_gb: u16, profile_gb: &'static [u16; 6]) -> Geometry {
    Geometry {
        memory_gb,
        compute: 7,
        memory: 8,
        profiles: &SEVEN_SLICES,
        profile_gb,
    }
}

const fn profile((compute, memory): (u8, u8), starts: &'static [u8]) -> Profile {
    Profile {
        compute,
        memory,
        starts,
    }
}

impl Profile {
    /// The larger of the compute and memory shares of the card, in thousandths.
    pub(crate) fn milli(&self, of: &Geometry) -> u16 {
        let share = |part: u8, whole: u8| u16::from(part) * 1000 / u16::from(whole);
        share(self.compute, of.compute).max(share(self.memory, of.memory))
    }
}

impl Geometry {
    /// The geometry of a product, named as by a DRA driver's attribute `productName` or by NVIDIA's
    /// GPU feature discovery (`NVIDIA-A100-SXM4-40GB`). `memory_mib`, the memory of a whole card,
    /// decides between memory sizes; the geometry of an unknown size is not known.
    pub(crate) fn of_product(product: &str, memory_mib: Option<u64>) -> Option<&'static Geometry> {
        let words = || product.split(|c: char| !c.is_ascii_alphanumeric());
        let (model, sizes) = MODELS
            .iter()
            .find(|(model, _)| words().any(|w| w.eq_ignore_ascii_case(model)))?;
        let named = words()
            .filter_map(|w| w.strip_suffix("GB")?.parse().ok())
            .find(|gb| sizes.contains(gb));
        let gb = match (named, memory_mib) {
            (Some(gb), _) => gb,
            (None, Some(mib)) => nearest(mib, sizes)?,
            // The name of the 94 GB card contains NVL.
            (None, None) if *model == "H100" && words().any(|w| w == "NVL") => 94,
            (None, None) => *sizes.first()?,
        };
        ALL.iter().find(|g| g.memory_gb == gb)
    }

    /// The profile with NVIDIA's name, such as `1g.5gb`. A profile with the media engines
    /// (`1g.5gb+me`) has the same slices as the profile without them.
    pub(crate) fn profile(&self, name: &str) -> Option<&'static Profile> {
        let name = name.strip_suffix("+me").unwrap_or(name);
        let (compute, gb) = name.strip_suffix("gb")?.split_once("g.")?;
        let wanted: (u8, u16) = (compute.parse().ok()?, gb.parse().ok()?);
        let mut profiles = self.profiles.iter().zip(self.profile_gb);
        let found = profiles.find(|(profile, gb)| (profile.compute, **gb) == wanted);
        found.map(|(profile, _)| profile)
    }
}

/// Returns the size in GB that is nearest to `mib`; `None`: it differs by more than 3 %. Drivers
/// show up to 3 % less memory than the product's name.
fn nearest(mib: u64, sizes: &[u16]) -> Option<u16> {
    let off = |gb: &u16| (u64::from(*gb) * 1024).abs_diff(mib);
    let gb = sizes.iter().min_by_key(|gb| off(gb))?;
    (off(gb) <= u64::from(*gb) * 1024 * 3 / 100).then_some(*gb)
}

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
mod card_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_as_they_are_labelled() {
        for (product, memory, want) in [
            ("NVIDIA-A30", None, Some(24)),
            ("NVIDIA-A100-SXM4-40GB", None, Some(40)),
            ("NVIDIA-A100-PCIE-40GB-MIG-3g.20gb", None, Some(40)),
            ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", Some(9728), Some(80)),
            ("NVIDIA A100 80GB PCIe", None, Some(80)),
            ("A100", Some(81920), Some(80)),
            ("NVIDIA-H100-80GB-HBM3", Some(81559), Some(80)),
            ("NVIDIA-H100-PCIe", None, Some(80)),
            ("NVIDIA-H100-NVL", None, Some(94)),
            ("NVIDIA-H100-NVL", Some(95830), Some(94)),
            ("NVIDIA-GH200-480GB", Some(97871), Some(96)),
            ("NVIDIA-H20", None, Some(96)),
            ("NVIDIA-H200", Some(143_771), Some(141)),
            ("NVIDIA-B200", Some(183_359), Some(180)),
            ("NVIDIA-GB200", Some(189_471), Some(186)),
            ("NVIDIA-L40S", None, None),
            ("NVIDIA-A10", Some(24_576), None),
            ("NVIDIA-H200", Some(81_559), None),
            ("", None, None),
        ] {
            let got = Geometry::of_product(product, memory).map(|g| g.memory_gb);
            assert_eq!(got, want, "{product} {memory:?}");
        }
    }
}
