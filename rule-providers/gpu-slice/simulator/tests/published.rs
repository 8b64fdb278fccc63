//! The same policies must reach the published figures of the bundled trace.

#![allow(clippy::unwrap_used)]

use std::{num::NonZeroUsize, path::Path};

use tautline_gpu_placement::policy::PolicyName;
use tautline_gpu_simulator::{Contender, Experiment, PublishedCurves, RunResult, Ties, Trace};

fn bundled() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data/openb"))
}

fn run(seeds: &[u64], policies: &[Contender], ties: Ties) -> Vec<RunResult> {
    let trace = Trace::open(bundled()).unwrap();
    let workloads = ["default".to_owned()];
    let experiment =
        Experiment::prepare(trace, &workloads, seeds, policies.to_vec(), ties, None).unwrap();
    experiment.run(NonZeroUsize::new(4).unwrap(), &|_| {})
}

#[test]
fn published_curves_are_met() {
    let published = PublishedCurves::read(bundled()).unwrap();
    let policies = [PolicyName::Fgd, PolicyName::BestFit, PolicyName::Packing].map(Contender::from);
    let outcomes = run(&[42, 43], &policies, Ties::First);
    assert_eq!(outcomes.len(), 6);
    for outcome in outcomes {
        let figures = &outcome.figures;
        let curve = published.curve(&figures.workload, outcome.policy, figures.seed);
        for (load, (ours, theirs)) in outcome.allocation.iter().zip(curve.unwrap()).enumerate() {
            let apart = (ours.unwrap() - theirs.unwrap()).abs();
            // The last of two decimals may round the other way.
            assert!(
                apart < 0.015,
                "{} {} at {load} %: {ours:?}, published {theirs:?}",
                figures.policy,
                figures.seed
            );
        }
    }
}

#[test]
fn random_ties_are_the_same_for_a_seed_and_cost_fgd_dearly() {
    let once = run(&[42], &[PolicyName::Fgd.into()], Ties::Random);
    let again = run(&[42], &[PolicyName::Fgd.into()], Ties::Random);
    assert_eq!(once[0].allocation, again[0].allocation);
    let at_100 = once[0].figures.allocation_at_100.unwrap();
    assert!((85.0..93.0).contains(&at_100), "{at_100}");
}

#[test]
fn a_seed_that_the_trace_lacks_is_drawn() {
    let outcomes = run(&[7], &[PolicyName::Fgd.into()], Ties::First);
    let at_100 = outcomes[0].figures.allocation_at_100.unwrap();
    assert!((90.0..99.0).contains(&at_100), "{at_100}");
    assert!(outcomes[0].figures.allocation_at_130.is_some());
}

/// The card matters little once the node is chosen: an order of the devices, which could gain no
/// more than the policy itself, is not worth its writes.
#[test]
fn first_fit_of_devices_is_within_half_a_point_of_the_policy() {
    let contenders = [PolicyName::Tautline.into(), Contender::DraFirstFit];
    let outcomes = run(&[42, 43], &contenders, Ties::First);
    let at_100 = |outcome: &RunResult| outcome.figures.allocation_at_100.unwrap();
    for pair in outcomes.chunks(2) {
        let (policy, first_fit) = (at_100(&pair[0]), at_100(&pair[1]));
        assert!(
            first_fit != policy,
            "both chose the same cards for all pods"
        );
        assert!(
            (first_fit - policy).abs() < 0.5,
            "{first_fit}, policy {policy}"
        );
    }
}
