use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_core::{index::Object, model};
use tautline_proto::latency::{Hello, Pair, State};
use tautline_runtime::cluster_store::ClusterStore;

use super::{FitContext, FitSettings, background::step_caught, fitter::Fitter, state_file};
use crate::network::{Network, pair_store::InstanceId};

const NODES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A network of six nodes, and its fits.
fn network(state_file: Option<&Path>) -> (Network, FitContext) {
    let store = ClusterStore::default();
    for name in NODES {
        store.apply(Object::Node(model::Node {
            name: name.into(),
            uid: format!("uid-{name}").into(),
            ..model::Node::default()
        }));
    }
    let settings = FitSettings {
        state_file: state_file.map(Into::into),
        ..FitSettings::default()
    };
    let network = Network::new(store.clone(), false);
    let context = FitContext::new(store, settings, &network);
    (network, context)
}

/// All nodes but the last measure each other: they are on a line, 1 ms apart.
fn measure(network: &Network) {
    let mut store = network.pairs.lock();
    let join = |node: &&str| {
        let hello = Hello {
            node: (*node).into(),
            boot_id: "boot".into(),
            address: "10.0.0.1:5310".into(),
            ..Hello::default()
        };
        store.join(&format!("uid-{node}"), &hello, Duration::ZERO).0
    };
    let ids: Vec<InstanceId> = NODES[..5].iter().map(join).collect();
    for (i, from) in ids.iter().enumerate() {
        for (j, to) in NODES[..5]
            .iter()
            .enumerate()
            .filter(|(j, _)| i.abs_diff(*j) <= 2)
        {
            let nanos = 1_000_000 * i.abs_diff(j) as u64;
            let pair = Pair {
                node: (*to).into(),
                instance: format!("uid-{to}/boot"),
                state: State::Measured.into(),
                window_nanos: vec![nanos],
                p50_nanos: nanos,
                p95_nanos: nanos,
                samples: 5,
                ..Pair::default()
            };
            store.report(*from, &[pair], Duration::from_secs(1));
        }
    }
}

/// Fits, as if it were so many minutes later.
fn fit(fitter: &mut Fitter, minutes: u64) {
    let now = Instant::now() + Duration::from_secs(60 * minutes);
    fitter.step(now);
    fitter.step(now + Duration::from_secs(40));
}

#[test]
fn unmeasured_pairs_are_estimated_and_targets_are_chosen() {
    let (network, context) = network(None);
    let mut fitter = Fitter::new(context);
    fit(&mut fitter, 1);
    assert!(network.row("a").estimate("e").is_none());
    measure(&network);
    fit(&mut fitter, 2);
    let row = network.row("a");
    let (near, far) = (row.estimate("b").unwrap(), row.estimate("e").unwrap());
    assert!(near.micros < far.micros, "{near:?} {far:?}");
    assert!(row.estimate("a").is_none() && row.estimate("f").is_none());
    let store = network.pairs.lock();
    let targets = network.lists.chosen();
    let of_a = &targets[&store.id("a").unwrap()];
    assert_eq!(of_a.len(), 4, "all others that have an agent");
    drop(store);

    // After a node is gone the others keep their estimates.
    network.pairs.lock().retain_nodes(|name, _| name != "e");
    fit(&mut fitter, 3);
    assert!(network.row("a").estimate("e").is_none());
    assert!(network.row("a").estimate("d").is_some());
}

#[test]
fn state_file_restores_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let (before, context) = network(Some(&path));
    measure(&before);
    let mut fitter = Fitter::new(context);
    fit(&mut fitter, 1);
    fitter.save();

    let (after, context) = network(Some(&path));
    context.store.apply(Object::Node(model::Node {
        name: "e".into(),
        uid: "another".into(),
        ..model::Node::default()
    }));
    let model = state_file::restore(&context).unwrap();
    let mut fitter = Fitter::restored(context, model, Instant::now());
    fit(&mut fitter, 2);
    let row = after.row("a");
    assert!(row.estimate("d").is_some());
    assert!(row.estimate("e").is_none(), "another node of that name");
    assert_eq!(
        row.measurement("b"),
        crate::measurement::Measurement::Missing,
        "nothing is measured now"
    );
    // Restored samples expire if they are not measured again.
    let late = Instant::now() + Duration::from_secs(1200);
    fitter.step(late);
    fitter.step(late + Duration::from_secs(60));
    assert!(after.row("a").estimate("d").is_none());

    for bad in [
        "",
        "garbage\n\n",
        "tautline-latency-state 1\na uid-a boot\n\nshort",
    ] {
        std::fs::write(&path, bad).unwrap();
        assert!(
            state_file::restore(&network(Some(&path)).1).is_none(),
            "{bad}"
        );
    }
}

#[test]
fn panic_keeps_the_last_fit() {
    let (network, context) = network(None);
    measure(&network);
    let mut fitter = Fitter::new(context.clone());
    fit(&mut fitter, 1);
    assert!(!step_caught(&context, &mut fitter, |_| panic!(
        "on purpose"
    )));
    assert_eq!(network.metrics.fit_panics.get(), 1);
    assert!(network.row("a").estimate("d").is_some());
    let last = network.estimates.load_full().unwrap();
    assert!(step_caught(&context, &mut fitter, |f| fit(f, 2)));
    assert!(!Arc::ptr_eq(&last, &network.estimates.load_full().unwrap()));
    assert!(network.row("a").estimate("d").is_some());
}
