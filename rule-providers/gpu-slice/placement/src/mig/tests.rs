use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::mig::geometry::ALL;

fn card(memory_gb: u16) -> MigCard {
    MigCard::new(ALL.iter().find(|g| g.memory_gb == memory_gb).unwrap())
}

fn named(mig: &MigCard, name: &str) -> &'static Profile {
    mig.geometry.profile(name).unwrap()
}

/// Returns whether the instances have places on the card together.
fn fit_together(mig: MigCard, names: &[&str]) -> bool {
    let [first, rest @ ..] = names else {
        return true;
    };
    let profile = named(&mig, first);
    profile.starts.iter().any(|start| {
        let mut after = mig;
        after.add(profile, *start) && fit_together(after, rest)
    })
}

/// NVIDIA MIG User Guide, "Supported MIG Profiles": instances available.
#[test]
fn max_instances_match_the_guide() {
    for (memory, counts) in [
        (24, &[("1g.6gb", 4), ("2g.12gb", 2), ("4g.24gb", 1)][..]),
        (
            40,
            &[
                ("1g.5gb", 7),
                ("1g.10gb", 4),
                ("2g.10gb", 3),
                ("3g.20gb", 2),
                ("4g.20gb", 1),
                ("7g.40gb", 1),
            ],
        ),
        (
            80,
            &[
                ("1g.10gb", 7),
                ("1g.20gb", 4),
                ("2g.20gb", 3),
                ("3g.40gb", 2),
                ("4g.40gb", 1),
                ("7g.80gb", 1),
            ],
        ),
        (
            94,
            &[
                ("1g.12gb", 7),
                ("1g.24gb", 4),
                ("2g.24gb", 3),
                ("3g.47gb", 2),
                ("4g.47gb", 1),
                ("7g.94gb", 1),
            ],
        ),
        (
            96,
            &[
                ("1g.12gb", 7),
                ("1g.24gb", 4),
                ("2g.24gb", 3),
                ("3g.48gb", 2),
                ("4g.48gb", 1),
                ("7g.96gb", 1),
            ],
        ),
        (
            141,
            &[
                ("1g.18gb", 7),
                ("1g.35gb", 4),
                ("2g.35gb", 3),
                ("3g.71gb", 2),
                ("4g.71gb", 1),
                ("7g.141gb", 1),
            ],
        ),
        (
            180,
            &[
                ("1g.23gb", 7),
                ("1g.45gb", 4),
                ("2g.45gb", 3),
                ("3g.90gb", 2),
                ("4g.90gb", 1),
                ("7g.180gb", 1),
            ],
        ),
        (
            186,
            &[
                ("1g.23gb", 7),
                ("1g.47gb", 4),
                ("2g.47gb", 3),
                ("3g.93gb", 2),
                ("4g.93gb", 1),
                ("7g.186gb", 1),
            ],
        ),
    ] {
        for (name, count) in counts {
            let empty = card(memory);
            assert_eq!(empty.max_instances(named(&empty, name)), *count, "{name}");
            assert!(fit_together(empty, &vec![*name; *count]), "{name}");
            assert!(!fit_together(empty, &vec![*name; *count + 1]), "{name}");
        }
    }
}

#[test]
fn media_engines_change_no_slices() {
    let mig = card(40);
    assert_eq!(named(&mig, "1g.5gb+me"), named(&mig, "1g.5gb"));
    for unknown in ["", "1g", "gb", "1g.6gb", "9g.40gb", "xg.5gb"] {
        assert_eq!(mig.geometry.profile(unknown), None, "{unknown}");
    }
}

#[test]
fn add_fits_the_mixtures_of_the_guide() {
    for names in [
        &["4g.20gb", "3g.20gb"][..],
        &["3g.20gb", "3g.20gb"],
        &["3g.20gb", "2g.10gb", "2g.10gb"],
        &["4g.20gb", "2g.10gb", "1g.5gb"],
        &["2g.10gb", "2g.10gb", "2g.10gb", "1g.5gb"],
        &["1g.5gb", "1g.5gb", "1g.5gb", "4g.20gb"],
        &["3g.20gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb"],
        &["2g.10gb", "2g.10gb", "2g.10gb", "1g.10gb"],
        &["1g.5gb+me", "2g.10gb", "4g.20gb"],
    ] {
        assert!(fit_together(card(40), names), "{names:?}");
    }
    for names in [
        &["4g.20gb", "4g.20gb"][..],
        &["3g.20gb", "3g.20gb", "1g.5gb"],
        &["7g.40gb", "1g.5gb"],
        &["4g.20gb", "3g.20gb", "1g.5gb"],
    ] {
        assert!(!fit_together(card(40), names), "{names:?}");
    }
}

/// The guide's figure of an A100 has 19 combinations of its five basic profiles: 6 of the first
/// half times 3 of the second, and the whole card.
#[test]
fn nineteen_fillings_of_an_a100() {
    let basic = ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"];
    let (mut seen, mut full) = (BTreeSet::new(), 0);
    let mut open = vec![(card(40), BTreeSet::new())];
    while let Some((mig, instances)) = open.pop() {
        if !seen.insert(instances.clone()) {
            continue;
        }
        let before = open.len();
        for name in basic {
            for start in named(&mig, name).starts {
                let mut after = mig;
                if after.add(named(&mig, name), *start) {
                    let mut instances = instances.clone();
                    instances.insert((*start, name));
                    open.push((after, instances));
                }
            }
        }
        full += usize::from(open.len() == before);
    }
    assert_eq!(full, 19);
}

#[test]
fn add_rejects_what_the_card_cannot_have() {
    let mut mig = card(40);
    let (one, three) = (named(&mig, "1g.5gb"), named(&mig, "3g.20gb"));
    assert!(mig.add(three, 0));
    assert!(!mig.add(one, 3), "the memory slice is taken");
    assert!(!mig.add(three, 2), "the profile cannot start there");
    assert_eq!((mig.occupied, mig.free_compute), (0b1111, 4));
    assert!(mig.add(three, 4));
    assert_eq!((mig.free_compute, mig.remaining_value()), (1, 0));
}

proptest! {
    /// In any order of instances none overlap, nothing exceeds the card, and as many instances of a
    /// profile fit as the card counts.
    #[test]
    fn never_over_committed(
        which in 0..8usize,
        adds in prop::collection::vec((0..6usize, 0..9u8), 0..30),
        next in 0..6usize,
    ) {
        let geometry = &ALL[which];
        let profile = |i: usize| &geometry.profiles[i % geometry.profiles.len()];
        let mut mig = MigCard::new(geometry);
        let (mut slices, mut compute) = (0, 0);
        for (i, start) in adds {
            let value = mig.remaining_value();
            if mig.add(profile(i), start) {
                slices += u32::from(profile(i).memory);
                compute += profile(i).compute;
                prop_assert!(mig.remaining_value() < value);
            }
            prop_assert_eq!(mig.occupied.count_ones(), slices);
            prop_assert!(mig.occupied < 1 << geometry.memory);
            prop_assert_eq!(mig.free_compute, geometry.compute - compute);
        }
        let most = mig.max_instances(profile(next));
        let mut more = mig;
        let added = profile(next).starts.iter().filter(|start| more.add(profile(next), **start));
        prop_assert_eq!(added.count(), most);
    }
}
