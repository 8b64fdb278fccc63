//! Small worlds whose truth is known.

use proptest::prelude::*;

use super::*;

const ZONES: u32 = 6;

/// Nodes dealt out to 6 zones in 3 regions, racks of 8, each with an offset;
/// node 0 is slow. A pair's path and a sample's noise are hashed.
struct World {
    places: Vec<Place>,
}

fn place(node: u32) -> Place {
    let (zone, rack) = (node % ZONES, node / ZONES / 8);
    Place {
        region: Some(zone / 2),
        zone: Some(zone % 2),
        rack: Some(rack),
    }
}

/// Uniform in -1..1.
fn hashed(a: u32, b: u32, salt: u32) -> f32 {
    let mut x = u64::from(a) << 40 ^ u64::from(b) << 16 ^ u64::from(salt);
    for _ in 0..3 {
        x = (x ^ x >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

impl World {
    fn new(nodes: u32) -> Self {
        Self {
            places: (0..nodes).map(place).collect(),
        }
    }

    fn len(&self) -> u32 {
        self.places.len() as u32
    }

    fn truth(&self, a: u32, b: u32) -> f32 {
        let (p, q, low, high) = (place(a), place(b), a.min(b), a.max(b));
        let own = |n: u32| {
            if n == 0 {
                300.0
            } else {
                20.0 + 15.0 * hashed(n, n, 1)
            }
        };
        let base = if p == q {
            45.0
        } else if (p.region, p.zone) == (q.region, q.zone) {
            90.0
        } else if p.region == q.region {
            800.0 + 50.0 * p.region.unwrap() as f32
        } else {
            20_000.0 * (p.region.unwrap() + q.region.unwrap()) as f32
        };
        base * (1.0 + 0.08 * hashed(low, high, 2)) + own(a) + own(b)
    }

    /// Every node's own zone neighbours and some others, as it reports them.
    fn samples(&self) -> Vec<Sample> {
        let mut out = Vec::new();
        for from in 0..self.len() {
            for turn in 0..16u32 {
                let hop = 1 + ((hashed(from, turn, 3) + 1.0) * 20.0) as u32;
                let step = if turn % 2 == 0 { hop * ZONES } else { hop };
                let to = (from + step) % self.len();
                let micros = self.truth(from, to) * (1.0 + 0.03 * hashed(from, to, 4));
                out.push(Sample {
                    from: NodeId(from),
                    to: NodeId(to),
                    micros,
                });
            }
        }
        out
    }

    /// |ln(estimate / truth)|, sorted, over pairs that `keep` picks.
    fn residuals(&self, fit: &LabelFit, keep: impl Fn(u32, u32) -> bool) -> Vec<f32> {
        let pairs = (0..self.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let mut residuals: Vec<f32> = pairs
            .filter(|(a, b)| keep(*a, *b))
            .map(|(a, b)| {
                let guess = fit.estimate(NodeId(a), NodeId(b)).unwrap();
                (guess.micros / self.truth(a, b)).ln().abs()
            })
            .collect();
        residuals.sort_by(f32::total_cmp);
        residuals
    }
}

fn at(residuals: &[f32], part: f32) -> f32 {
    residuals[((residuals.len() - 1) as f32 * part) as usize]
}

fn contradicted(fit: &LabelFit) -> Vec<(NodeId, LabelStatus)> {
    let all = (0u32..).map(NodeId).zip(fit.standings.iter().copied());
    all.filter(|(_, s)| !matches!(s, LabelStatus::Fits | LabelStatus::Unlabelled))
        .collect()
}

fn same_zone(a: u32, b: u32) -> bool {
    a % ZONES == b % ZONES
}

#[test]
fn unmeasured_pairs_are_predicted() {
    let world = World::new(240);
    let fit = LabelFit::new(&world.places, world.samples().into_iter());
    assert_eq!(contradicted(&fit), []);
    let near = world.residuals(&fit, same_zone);
    assert!(at(&near, 0.5) < 0.06, "near pairs: {}", at(&near, 0.5));
    assert!(at(&near, 0.95) < 0.2, "near pairs: {}", at(&near, 0.95));
    let far = world.residuals(&fit, |a, b| !same_zone(a, b));
    assert!(at(&far, 0.5) < 0.06, "far pairs: {}", at(&far, 0.5));
}

#[test]
fn four_of_five_truths_are_within_the_error() {
    let world = World::new(240);
    let fit = LabelFit::new(&world.places, world.samples().into_iter());
    let pairs = (0..240).flat_map(|a| (0..a).map(move |b| (a, b)));
    let (mut within, mut all) = (0.0, 0.0);
    for (a, b) in pairs.filter(|(a, b)| same_zone(*a, *b)) {
        let guess = fit.estimate(NodeId(a), NodeId(b)).unwrap();
        let residual = (guess.micros / world.truth(a, b)).ln().abs();
        within += f32::from(u8::from(residual <= robust::FOUR_OF_FIVE * guess.error));
        all += 1.0;
    }
    assert!((0.7..0.95).contains(&(within / all)), "{}", within / all);
}

#[test]
fn a_slow_node_has_its_offset_and_fits() {
    let world = World::new(240);
    let fit = LabelFit::new(&world.places, world.samples().into_iter());
    let slow = world.residuals(&fit, |a, b| b == 0 && same_zone(a, b));
    assert!(at(&slow, 0.5) < 0.1, "{slow:?}");
    assert_eq!(fit.status(NodeId(0)), LabelStatus::Fits);
}

#[test]
fn wrong_labels_are_found_and_the_right_place_too() {
    let mut world = World::new(240);
    let wrong = |n: u32| n % 20 == 7;
    let samples = world.samples();
    for node in (0..240).filter(|n| wrong(*n)) {
        world.places[node as usize] = place(node + 1 + node % 5);
    }
    let fit = LabelFit::new(&world.places, samples.iter().copied());
    for node in 0..240 {
        let right = LabelStatus::Misplaced(Place {
            rack: None,
            ..place(node)
        });
        let expected = if wrong(node) {
            right
        } else {
            LabelStatus::Fits
        };
        assert_eq!(fit.status(NodeId(node)), expected, "node {node}");
    }
    let near = world.residuals(&fit, |a, b| same_zone(a, b) && !wrong(a) && !wrong(b));
    assert!(at(&near, 0.5) < 0.07, "{}", at(&near, 0.5));
    // Their racks are not known, so those of one rack come out too far.
    let moved = world.residuals(&fit, |a, b| same_zone(a, b) && (wrong(a) || wrong(b)));
    assert!(at(&moved, 0.5) < 0.2, "{}", at(&moved, 0.5));
}

#[test]
fn misreporting_nodes_are_found_and_left_out() {
    let world = World::new(240);
    let lies = |n: u32| n % 20 == 3;
    let mut samples = world.samples();
    for s in samples.iter_mut().filter(|s| lies(s.from.0)) {
        s.micros *= if s.from.0 % 40 == 3 { 10.0 } else { 0.1 };
    }
    let fit = LabelFit::new(&world.places, samples.iter().copied());
    for node in 0..240 {
        let expected = if lies(node) {
            LabelStatus::Misreports
        } else {
            LabelStatus::Fits
        };
        assert_eq!(fit.status(NodeId(node)), expected, "node {node}");
    }
    let near = world.residuals(&fit, same_zone);
    assert!(at(&near, 0.5) < 0.07, "{}", at(&near, 0.5));
}

#[test]
fn a_slow_line_is_not_taken_for_the_next_zone() {
    let world = World::new(240);
    let fits = |slow: &u32| {
        let mut samples = world.samples();
        for s in samples
            .iter_mut()
            .filter(|s| [s.from, s.to].contains(&NodeId(*slow)))
        {
            s.micros += 780.0;
        }
        let fit = LabelFit::new(&world.places, samples.iter().copied());
        fit.status(NodeId(*slow)) == LabelStatus::Fits
    };
    let found = (1..240).step_by(8).filter(fits).count();
    assert!(found >= 28, "{found} of 30");
}

#[test]
fn misreporting_node_with_wrong_labels_is_found_in_both() {
    let mut world = World::new(240);
    let mut samples = world.samples();
    world.places[50] = place(51);
    for s in samples.iter_mut().filter(|s| s.from.0 == 50) {
        s.micros *= 10.0;
    }
    let fit = LabelFit::new(&world.places, samples.iter().copied());
    assert_eq!(contradicted(&fit), [(NodeId(50), LabelStatus::Misreports)]);
    let near = world.residuals(&fit, |a, b| same_zone(a, b) && (a == 50 || b == 50));
    assert!(at(&near, 0.5) < 0.2, "{near:?}");
}

#[test]
fn node_without_labels_is_not_estimated_and_harms_no_others() {
    let mut world = World::new(240);
    let samples = world.samples();
    world.places[9] = Place::default();
    let fit = LabelFit::new(&world.places, samples.iter().copied());
    assert_eq!(fit.estimate(NodeId(9), NodeId(15)), None);
    assert_eq!(fit.estimate(NodeId(15), NodeId(9)), None);
    assert_eq!(fit.status(NodeId(9)), LabelStatus::Unlabelled);
    let near = world.residuals(&fit, |a, b| same_zone(a, b) && a != 9 && b != 9);
    assert!(at(&near, 0.5) < 0.06);
}

fn sample(from: u32, to: u32, micros: f32) -> Sample {
    Sample {
        from: NodeId(from),
        to: NodeId(to),
        micros,
    }
}

#[test]
fn with_little_measured_the_wider_class_answers() {
    let zone = |region, zone| Place {
        region: Some(region),
        zone: Some(zone),
        rack: None,
    };
    // One region of three zones, one of a zone, and one never measured.
    let places = [
        zone(0, 0),
        zone(0, 1),
        zone(0, 2),
        zone(1, 0),
        zone(2, 0),
        zone(0, 0),
    ];
    let samples = [
        sample(0, 1, 1_000.0),
        sample(1, 0, 1_100.0),
        sample(0, 3, 80_000.0),
    ];
    let fit = LabelFit::new(&places, samples.iter().copied());
    let estimate = |a, b| fit.estimate(NodeId(a), NodeId(b)).map(|g| g.micros.round());
    assert_eq!(estimate(0, 1), Some(1_050.0));
    assert_eq!(estimate(1, 2), Some(1_050.0), "by the region");
    assert_eq!(estimate(2, 3), Some(80_000.0), "by the regions");
    assert_eq!(
        estimate(0, 5),
        Some(1_050.0),
        "no two of one zone were measured"
    );
    assert_eq!(estimate(0, 4), None);
    assert_eq!(estimate(0, 0), None);
}

#[test]
fn unmeasured_rack_is_estimated_from_its_zone() {
    let world = World::new(240);
    let new = Place {
        rack: Some(99),
        ..place(0)
    };
    let places: Vec<Place> = world.places.iter().copied().chain([new, new]).collect();
    let fit = LabelFit::new(&places, world.samples().into_iter());
    let rack = fit.estimate(NodeId(240), NodeId(241)).unwrap().micros;
    assert!((70.0..130.0).contains(&rack), "{rack}");
    let zone = fit.estimate(NodeId(240), NodeId(6)).unwrap().micros;
    assert!((100.0..160.0).contains(&zone), "{zone}");
}

#[test]
fn the_zone_of_a_node_that_names_only_its_region_is_found() {
    let mut world = World::new(240);
    let samples = world.samples();
    world.places[10].zone = None;
    world.places[10].rack = None;
    let fit = LabelFit::new(&world.places, samples.iter().copied());
    assert_eq!(fit.status(NodeId(10)), LabelStatus::Fits);
    let near = world.residuals(&fit, |a, b| same_zone(a, b) && (a == 10 || b == 10));
    assert!(at(&near, 0.5) < 0.25, "{near:?}");
}

#[test]
fn only_the_region_is_believed_where_its_zones_fit_alike() {
    let mut world = World::new(240);
    let samples = world.samples();
    let inside = |s: &Sample| {
        let other = if s.from.0 == 50 { s.to.0 } else { s.from.0 };
        (s.from.0 == 50 || s.to.0 == 50) && place(other).region == place(50).region
    };
    let samples: Vec<Sample> = samples.into_iter().filter(|s| !inside(s)).collect();
    world.places[50] = place(48);
    let fit = LabelFit::new(&world.places, samples.iter().copied());
    let region = Place {
        region: place(50).region,
        ..Place::default()
    };
    assert_eq!(fit.status(NodeId(50)), LabelStatus::Misplaced(region));
    // As far from its zone as from the other: nearness is not claimed unseen.
    assert!(fit.estimate(NodeId(50), NodeId(56)).unwrap().micros > 500.0);
}

#[test]
fn racks_alone_are_labels_too() {
    let world = World::new(48);
    let places: Vec<Place> = (0..48)
        .map(|n| Place {
            rack: Some(n % ZONES),
            ..Place::default()
        })
        .collect();
    let fit = LabelFit::new(&places, world.samples().into_iter());
    let estimate = |a, b| fit.estimate(NodeId(a), NodeId(b)).unwrap().micros;
    assert!(
        estimate(1, 7) < 150.0 && estimate(1, 2) > 500.0,
        "{} {}",
        estimate(1, 7),
        estimate(1, 2)
    );
}

fn any_micros() -> impl Strategy<Value = f32> {
    prop_oneof![
        any::<f32>(),
        0.0f32..1e6,
        Just(f32::NAN),
        Just(f32::INFINITY),
        Just(-1.0),
        Just(1.0)
    ]
}

fn any_label() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![3 => (0u32..3).prop_map(Some), 1 => Just(None), 1 => Just(Some(u32::MAX))]
}

fn any_places() -> impl Strategy<Value = Vec<Place>> {
    let one = (any_label(), any_label(), any_label());
    prop::collection::vec(
        one.prop_map(|(region, zone, rack)| Place { region, zone, rack }),
        0..30,
    )
}

fn any_samples() -> impl Strategy<Value = Vec<Sample>> {
    let one = (0u32..32, 0u32..32, any_micros());
    prop::collection::vec(
        one.prop_map(|(from, to, micros)| sample(from, to, micros)),
        0..200,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_input_gives_sound_and_symmetric_estimates(places in any_places(), samples in any_samples()) {
        let fit = LabelFit::new(&places, samples.iter().copied());
        let all: Vec<NodeId> = (0..places.len() as u32 + 2).map(NodeId).collect();
        for &a in &all {
            let mut row = Vec::new();
            fit.row(a, &all, &mut row);
            prop_assert_eq!(row.len(), all.len());
            for (&b, estimate) in all.iter().zip(row) {
                let guess = fit.estimate(a, b);
                prop_assert_eq!(guess, estimate);
                let known = |n: NodeId| places.get(n.0 as usize).is_some_and(|p| *p != Place::default());
                prop_assert!(guess.is_none() || a != b && known(a) && known(b));
                prop_assert_eq!(guess, fit.estimate(b, a));
                if let Some(guess) = guess {
                    prop_assert!(guess.micros.is_finite() && guess.micros >= 1.0, "{guess:?}");
                    prop_assert!(guess.error.is_finite() && guess.error >= 0.0, "{guess:?}");
                }
            }
        }
    }

    #[test]
    fn the_order_of_samples_does_not_matter(
        places in any_places(),
        (samples, shuffled) in any_samples().prop_flat_map(|s| (Just(s.clone()), Just(s).prop_shuffle())),
    ) {
        let (fit, again) = (LabelFit::new(&places, samples.iter().copied()), LabelFit::new(&places, shuffled.iter().copied()));
        for (a, b) in (0..30).flat_map(|a| (0..a).map(move |b| (NodeId(a), NodeId(b)))) {
            prop_assert_eq!(fit.estimate(a, b), again.estimate(a, b));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn one_misreporting_node_moves_others_little(liar in 1u32..240, lies in prop::collection::vec(1.0f32..1e7, 16)) {
        let world = World::new(240);
        let honest = world.samples();
        let mut samples = honest.clone();
        let own = samples.iter_mut().filter(|s| s.from.0 == liar);
        own.zip(&lies).for_each(|(s, lie)| s.micros = *lie);
        let before = LabelFit::new(&world.places, honest.iter().copied());
        let after = LabelFit::new(&world.places, samples.iter().copied());
        for (a, b) in (0..240).flat_map(|a| (0..a).map(move |b| (a, b))) {
            if a != liar && b != liar {
                let estimate = |fit: &LabelFit| fit.estimate(NodeId(a), NodeId(b)).unwrap().micros;
                let moved = (estimate(&after) / estimate(&before)).ln().abs();
                prop_assert!(moved < 0.1, "{a} {b} moved by {moved}");
            }
        }
    }
}
