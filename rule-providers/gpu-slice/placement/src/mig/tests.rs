use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn card(memory_gb: u16) -> MigCard {
    let all = Geometry::all().iter();
    MigCard::new(all.into_iter().find(|g| g.memory_gb == memory_gb).unwrap())
}

fn named(mig: &MigCard, name: &str) -> &'static Profile {
    mig.geometry().profile(name).unwrap()
}

fn filled(memory_gb: u16, names: &[&str]) -> usize {
    let mut mig = card(memory_gb);
    let taken = |n: &&&str| mig.take(named(&mig, n)).is_some();
    names.iter().filter(taken).count()
}

/// NVIDIA MIG User Guide, "Supported MIG Profiles": instances available.
#[test]
fn max_instances_match_the_guide() {
    for (memory, counts) in [
        (
            24,
            &[
                ("1g.6gb", 4),
                ("1g.6gb+me", 1),
                ("2g.12gb", 2),
                ("2g.12gb+me", 1),
                ("4g.24gb", 1),
            ][..],
        ),
        (
            40,
            &[
                ("1g.5gb", 7),
                ("1g.5gb+me", 1),
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
            assert_eq!(filled(memory, &[*name; 8]), usize::from(*count), "{name}");
        }
    }
}

#[test]
fn take_fits_the_mixtures_of_the_guide() {
    for names in [
        &["4g.20gb", "3g.20gb"][..],
        &["3g.20gb", "4g.20gb"],
        &["3g.20gb", "3g.20gb"],
        &["3g.20gb", "2g.10gb", "2g.10gb"],
        &["4g.20gb", "2g.10gb", "1g.5gb"],
        &["1g.5gb", "2g.10gb", "4g.20gb"],
        &["2g.10gb", "2g.10gb", "2g.10gb", "1g.5gb"],
        &["1g.5gb", "2g.10gb", "2g.10gb", "2g.10gb"],
        &["1g.5gb", "1g.5gb", "1g.5gb", "4g.20gb"],
        &["3g.20gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb"],
        &["2g.10gb", "2g.10gb", "2g.10gb", "1g.10gb"],
        &["1g.5gb+me", "2g.10gb", "4g.20gb"],
    ] {
        assert_eq!(filled(40, names), names.len(), "{names:?}");
    }
    for names in [
        &["4g.20gb", "4g.20gb"][..],
        &["3g.20gb", "3g.20gb", "1g.5gb"],
        // A lone 2g goes to slice 4, to leave space for a 4g: a second one then takes from the
        // half that a 3g would need.
        &["2g.10gb", "2g.10gb", "3g.20gb"],
        &["7g.40gb", "1g.5gb"],
        &["1g.5gb+me", "1g.5gb+me"],
        &["4g.20gb", "3g.20gb", "1g.5gb"],
    ] {
        assert_eq!(filled(40, names), names.len() - 1, "{names:?}");
    }
    assert_eq!(filled(24, &["2g.12gb+me", "1g.6gb+me", "1g.6gb"]), 2);
}

/// The guide's figure of an A100 has 19 combinations of its five basic profiles: 6 of the first
/// half times 3 of the second, and the whole card.
#[test]
fn nineteen_fillings_of_an_a100() {
    let basic = ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"];
    let empty = card(40);
    let basic = basic.map(|n| named(&empty, n));
    let (mut seen, mut full) = (BTreeSet::new(), 0);
    let mut open = vec![empty];
    while let Some(mig) = open.pop() {
        if !seen.insert(format!("{mig:?}")) {
            continue;
        }
        let next: Vec<MigCard> = basic
            .iter()
            .flat_map(|p| p.starts.iter().map(move |s| (p, s)))
            .filter_map(|(p, s)| {
                let mut after = mig;
                after.take_at(p, *s).ok().map(|_| after)
            })
            .collect();
        full += usize::from(next.is_empty());
        open.extend(next);
    }
    assert_eq!(full, 19);
}

#[test]
fn place_leaves_the_most_value() {
    for (name, start) in [
        ("3g.20gb", 4),
        ("2g.10gb", 4),
        ("1g.10gb", 6),
        ("1g.5gb", 6),
        ("4g.20gb", 0),
    ] {
        let mig = card(40);
        assert_eq!(mig.place(named(&mig, name)).unwrap().start, start, "{name}");
    }
    // If all requests are for 1g, a 1g.10gb takes the slice that 1g cannot use.
    let mig = card(40);
    let one = named(&mig, "1g.5gb");
    let placed = mig.place_weighted(named(&mig, "1g.10gb"), |p| u64::from(p == one));
    assert_eq!(placed.unwrap().start, 6);
}

#[test]
fn take_at_reports_errors() {
    let mut mig = card(40);
    let (one, three) = (named(&mig, "1g.5gb"), named(&mig, "3g.20gb"));
    mig.take_at(three, 0).unwrap();
    assert_eq!(
        mig.take_at(one, 3).unwrap_err().to_string(),
        "instance 1g.5gb 3:1 meets one that is there; release that first, or take another start"
    );
    assert!(matches!(
        mig.take_at(three, 2),
        Err(MigError::NoStart { start: 2, .. })
    ));
    let foreign = named(&card(80), "3g.40gb");
    assert!(matches!(
        mig.take_at(foreign, 4),
        Err(MigError::NoProfile { .. })
    ));
    assert!(!mig.fits(foreign) && mig.place(foreign).is_none());
    let gone = Placement {
        profile: three,
        start: 4,
    };
    assert_eq!(mig.release(gone), Err(MigError::Absent(gone)));
    assert_eq!(mig.free_milli(), 500);
    mig.take(three).unwrap();
    assert_eq!((mig.free_milli(), mig.free_compute()), (0, 1));
}

#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    TakeAt(usize, u8),
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..7usize).prop_map(Step::Take),
        (0..7usize, 0..9u8).prop_map(|(p, s)| Step::TakeAt(p, s)),
        (0..8usize).prop_map(Step::Release),
    ]
}

proptest! {
    /// In any order of steps instances never overlap, nothing exceeds the card, the totals agree
    /// with the instances, and a release undoes a take.
    #[test]
    fn never_over_committed(which in 0..8usize, steps in prop::collection::vec(step(), 0..60)) {
        let geometry = &Geometry::all()[which];
        let mut mig = MigCard::new(geometry);
        for step in steps {
            let before = mig;
            let profile = |i: usize| &geometry.profiles[i % geometry.profiles.len()];
            let taken = match step {
                Step::Take(i) => {
                    let most = mig.max_instances(profile(i));
                    let taken = mig.take(profile(i));
                    prop_assert_eq!(taken.is_some(), most > 0);
                    taken
                }
                Step::TakeAt(i, start) => mig.take_at(profile(i), start).ok(),
                Step::Release(i) => {
                    if let Some(there) = before.instances().nth(i) {
                        mig.release(there).unwrap();
                        mig.take_at(there.profile, there.start).unwrap();
                        prop_assert_eq!(mig, before);
                        mig.release(there).unwrap();
                    }
                    None
                }
            };
            if let Some(placement) = taken {
                let mut undone = mig;
                undone.release(placement).unwrap();
                prop_assert_eq!(undone, before);
            }
            let mut slices = 0u16;
            let (mut compute, mut media) = (0, 0);
            for i in mig.instances() {
                prop_assert_eq!(slices & i.slices(), 0);
                prop_assert!(i.profile.starts.contains(&i.start));
                slices |= i.slices();
                compute += i.profile.compute;
                media += u8::from(i.profile.media);
            }
            prop_assert!(slices < 1 << geometry.memory);
            prop_assert!(compute <= geometry.compute && media <= 1);
            prop_assert_eq!(u32::from(geometry.memory - mig.free_memory()), slices.count_ones());
            prop_assert!(mig.free_milli() <= 1000);
        }
    }

    #[test]
    fn could_fit_max_is_exact(which in 0..8usize, there in prop::collection::vec(0..7usize, 0..6), next in 0..7usize) {
        let geometry = &Geometry::all()[which];
        let profile = |i: usize| &geometry.profiles[i % geometry.profiles.len()];
        let mut mig = MigCard::new(geometry);
        for i in there {
            _ = mig.take(profile(i));
        }
        let most = mig.max_instances(profile(next));
        let mut came = 0;
        while mig.take(profile(next)).is_some() {
            came += 1;
        }
        prop_assert_eq!(came, most);
    }
}

/// Pods that come and go at random on one card: the rule refuses fewer than the lowest free
/// start does, and not more than the highest.
#[test]
fn place_rejects_fewer_pods_than_the_lowest_start() {
    let rules: [fn(&MigCard, &'static Profile) -> Option<Placement>; 3] = [
        |mig, p| mig.place(p),
        |mig, p| p.starts.iter().find_map(|s| at(mig, p, *s)),
        |mig, p| p.starts.iter().rev().find_map(|s| at(mig, p, *s)),
    ];
    let away = rules.map(|rule| turned_away(rule, 20_000));
    println!(
        "turned away of 20000: rule {}, lowest start {}, highest start {}",
        away[0], away[1], away[2]
    );
    assert!(away[0] < away[1], "{away:?}");
    assert!(away[0] <= away[2] + away[2] / 100, "{away:?}");
}

fn at(mig: &MigCard, profile: &'static Profile, start: u8) -> Option<Placement> {
    let mut after = *mig;
    after.take_at(profile, start).ok()
}

fn turned_away(rule: fn(&MigCard, &'static Profile) -> Option<Placement>, pods: u32) -> u32 {
    let mut mig = card(80);
    let names = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb"];
    let (mut random, mut away) = (1u64, 0);
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    for _ in 0..pods {
        // About two of three instances leave before the next arrives.
        for there in mig.instances().collect::<Vec<_>>() {
            if next(3) == 0 {
                mig.release(there).unwrap();
            }
        }
        let profile = named(&mig, names[next(5) as usize]);
        match rule(&mig, profile) {
            Some(p) => _ = mig.take_at(profile, p.start).unwrap(),
            None => away += 1,
        }
    }
    away
}
