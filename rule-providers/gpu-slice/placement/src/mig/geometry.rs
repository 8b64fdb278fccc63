/// A size of MIG instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// NVIDIA's name: `1g.5gb`, `1g.5gb+me`.
    pub name: &'static str,
    /// Number of compute slices of an instance.
    pub compute: u8,
    /// Number of memory slices of an instance, which are adjacent.
    pub memory: u8,
    /// Memory slices at which an instance can start, from 0.
    pub starts: &'static [u8],
    /// Maximum number of instances of the profile on one card.
    pub count: u8,
    /// True if an instance has the media engines (`+me`), which only one instance can have.
    pub media: bool,
}

impl Profile {
    /// The larger of the compute and memory shares of the card, in thousandths.
    pub fn milli(&self, of: &Geometry) -> u16 {
        let share = |part: u8, whole: u8| u16::from(part) * 1000 / u16::from(whole.max(1));
        share(self.compute, of.compute).max(share(self.memory, of.memory))
    }

    pub(super) fn mask(&self, start: u8) -> u16 {
        ((1 << self.memory) - 1) << start
    }
}

/// The MIG slices and profiles of card models.
#[derive(Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Models and their memory, such as `A100 40GB`.
    pub name: &'static str,
    /// Nominal memory in GB, as in the name of the largest profile.
    pub memory_gb: u16,
    /// Number of compute slices of the card: 4 or 7.
    pub compute: u8,
    /// Number of memory slices of the card: 4 or 8.
    pub memory: u8,
    /// Profiles, the smaller first.
    pub profiles: &'static [Profile],
}

impl Geometry {
    /// Finds a profile by name. Accepts `1g.5gb`, `nvidia.com/mig-1g.5gb`, and `mig-1g.5gb.me` for
    /// `1g.5gb+me`.
    pub fn profile(&self, name: &str) -> Option<&'static Profile> {
        let name = name.rsplit('/').next().unwrap_or(name);
        let name = name.strip_prefix("mig-").unwrap_or(name);
        let (base, media) = match name.strip_suffix("+me").or(name.strip_suffix(".me")) {
            Some(base) => (base, true),
            None => (name, false),
        };
        self.profiles
            .iter()
            .find(|p| p.media == media && p.name.strip_suffix("+me").unwrap_or(p.name) == base)
    }

    /// All known geometries, by ascending memory.
    pub fn all() -> &'static [Geometry] {
        &ALL
    }
}

const fn profile(
    name: &'static str,
    (compute, memory): (u8, u8),
    starts: &'static [u8],
    count: u8,
) -> Profile {
    Profile {
        name,
        compute,
        memory,
        starts,
        count,
        media: false,
    }
}

const fn with_media(profile: Profile) -> Profile {
    Profile {
        count: 1,
        media: true,
        ..profile
    }
}

/// Returns the profiles of a card with 7 compute and 8 memory slices. The third profile has twice
/// the memory of the first.
const fn seven(names: [&'static str; 7]) -> [Profile; 7] {
    let [one, one_media, double, two, three, four, all] = names;
    [
        profile(one, (1, 1), &[0, 1, 2, 3, 4, 5, 6], 7),
        with_media(profile(one_media, (1, 1), &[0, 1, 2, 3, 4, 5, 6], 1)),
        profile(double, (1, 2), &[0, 2, 4, 6], 4),
        profile(two, (2, 2), &[0, 2, 4], 3),
        profile(three, (3, 4), &[0, 4], 2),
        profile(four, (4, 4), &[0], 1),
        profile(all, (7, 8), &[0], 1),
    ]
}

const fn geometry(
    name: &'static str,
    memory_gb: u16,
    (compute, memory): (u8, u8),
    profiles: &'static [Profile],
) -> Geometry {
    Geometry {
        name,
        memory_gb,
        compute,
        memory,
        profiles,
    }
}

const A30: [Profile; 5] = [
    profile("1g.6gb", (1, 1), &[0, 1, 2, 3], 4),
    with_media(profile("1g.6gb+me", (1, 1), &[0, 1, 2, 3], 1)),
    profile("2g.12gb", (2, 2), &[0, 2], 2),
    with_media(profile("2g.12gb+me", (2, 2), &[0, 2], 1)),
    profile("4g.24gb", (4, 4), &[0], 1),
];
const GB40: [Profile; 7] = seven([
    "1g.5gb",
    "1g.5gb+me",
    "1g.10gb",
    "2g.10gb",
    "3g.20gb",
    "4g.20gb",
    "7g.40gb",
]);
const GB80: [Profile; 7] = seven([
    "1g.10gb",
    "1g.10gb+me",
    "1g.20gb",
    "2g.20gb",
    "3g.40gb",
    "4g.40gb",
    "7g.80gb",
]);
const GB94: [Profile; 7] = seven([
    "1g.12gb",
    "1g.12gb+me",
    "1g.24gb",
    "2g.24gb",
    "3g.47gb",
    "4g.47gb",
    "7g.94gb",
]);
const GB96: [Profile; 7] = seven([
    "1g.12gb",
    "1g.12gb+me",
    "1g.24gb",
    "2g.24gb",
    "3g.48gb",
    "4g.48gb",
    "7g.96gb",
]);
const GB141: [Profile; 7] = seven([
    "1g.18gb",
    "1g.18gb+me",
    "1g.35gb",
    "2g.35gb",
    "3g.71gb",
    "4g.71gb",
    "7g.141gb",
]);
const GB180: [Profile; 7] = seven([
    "1g.23gb",
    "1g.23gb+me",
    "1g.45gb",
    "2g.45gb",
    "3g.90gb",
    "4g.90gb",
    "7g.180gb",
]);
const GB186: [Profile; 7] = seven([
    "1g.23gb",
    "1g.23gb+me",
    "1g.47gb",
    "2g.47gb",
    "3g.93gb",
    "4g.93gb",
    "7g.186gb",
]);

static ALL: [Geometry; 8] = [
    geometry("A30 24GB", 24, (4, 4), &A30),
    geometry("A100 40GB", 40, (7, 8), &GB40),
    geometry("A100 or H100 80GB", 80, (7, 8), &GB80),
    geometry("H100 94GB", 94, (7, 8), &GB94),
    geometry("H100, GH200 or H20 96GB", 96, (7, 8), &GB96),
    geometry("H200 141GB", 141, (7, 8), &GB141),
    geometry("B200 180GB", 180, (7, 8), &GB180),
    geometry("GB200 186GB", 186, (7, 8), &GB186),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_consistent() {
        for g in Geometry::all() {
            for p in g.profiles {
                assert!(p.memory > 0 && p.compute <= g.compute, "{p:?}");
                for (i, s) in p.starts.iter().enumerate() {
                    assert!(s + p.memory <= g.memory, "{p:?} at {s}");
                    assert!(i == 0 || p.starts[i - 1] + p.memory <= *s, "{p:?}");
                }
                let count = if p.media { 1 } else { p.starts.len() as u8 };
                assert_eq!(p.count, count, "{p:?}");
            }
            let whole = g.profiles.last().unwrap();
            assert_eq!((whole.compute, whole.memory), (g.compute, g.memory));
            assert!(whole.name.ends_with(&format!(".{}gb", g.memory_gb)));
        }
    }

    #[test]
    fn names_as_resources_have_them() {
        let g = &Geometry::all()[1];
        for (name, want) in [
            ("1g.5gb", "1g.5gb"),
            ("nvidia.com/mig-3g.20gb", "3g.20gb"),
            ("mig-1g.10gb", "1g.10gb"),
            ("nvidia.com/mig-1g.5gb.me", "1g.5gb+me"),
            ("1g.5gb+me", "1g.5gb+me"),
        ] {
            assert_eq!(g.profile(name).unwrap().name, want, "{name}");
        }
        assert!(g.profile("3g.40gb").is_none());
        assert!(g.profile("3g.20gb.me").is_none());
    }

    #[test]
    fn shares_are_the_larger_of_compute_and_memory() {
        let g = &Geometry::all()[2];
        let milli = |name: &str| g.profile(name).unwrap().milli(g);
        assert_eq!(milli("1g.10gb"), 142);
        assert_eq!(milli("1g.20gb"), 250);
        assert_eq!(milli("3g.40gb"), 500);
        assert_eq!(milli("4g.40gb"), 571);
        assert_eq!(milli("7g.80gb"), 1000);
    }
}
