use std::path::Path;

use tautline_core::{index::Object, model};
use tautline_proto::latency::{Hello, Pair, State};
use tautline_runtime::cluster_store::ClusterStore;

use super::*;
use crate::Settings;

const NODES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn network(state: Option<&Path>) -> Network {
    let feed = ClusterStore::default();
    for name in NODES {
        feed.apply(Object::Node(model::Node {
            name: name.into(),
            uid: format!("uid-{name}").into(),
            ..model::Node::default()
        }));
    }
    let settings = Settings {
        state: state.map(Into::into),
        ..Settings::default()
    };
    Network::new(feed, settings)
}

/// All nodes but the last measure each other: they are on a line, 1 ms apart.
fn measure(network: &Network) {
    let mut ledger = network.0.ledger.lock();
    let join = |node: &&str| {
        let hello = Hello {
            node: (*node).into(),
            boot_id: "boot".into(),
            address: "10.0.0.1:5310".into(),
            ..Hello::default()
        };
        ledger
            .join(&format!("uid-{node}"), &hello, Duration::ZERO)
            .0
    };
    let ids: Vec<Id> = NODES[..5].iter().map(join).collect();
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
            ledger.report(*from, &[pair], Duration::from_secs(1));
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
fn what_was_not_measured_is_estimated_and_targets_are_chosen() {
    let network = network(None);
    let mut fitter = Fitter::new(network.clone());
    fit(&mut fitter, 1);
    assert!(network.row("a").estimate("e").is_none());
    measure(&network);
    fit(&mut fitter, 2);
    let row = network.row("a");
    let (near, far) = (row.estimate("b").unwrap(), row.estimate("e").unwrap());
    assert!(near.micros < far.micros, "{near:?} {far:?}");
    assert!(row.estimate("a").is_none() && row.estimate("f").is_none());
    let ledger = network.0.ledger.lock();
    let targets = network.0.targets.load();
    let of_a = &targets[&ledger.id("a").unwrap()];
    assert_eq!(of_a.len(), 4, "all others that have an agent");
    drop(ledger);

    // A node that goes leaves estimates of the others, and comes back unknown.
    network.0.ledger.lock().keep(|name, _| name != "e");
    fit(&mut fitter, 3);
    assert!(network.row("a").estimate("e").is_none());
    assert!(network.row("a").estimate("d").is_some());
}

#[test]
fn what_was_learned_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let before = network(Some(&path));
    measure(&before);
    let mut fitter = Fitter::new(before.clone());
    fit(&mut fitter, 1);
    fitter.save();

    let after = network(Some(&path));
    after.0.feed.apply(Object::Node(model::Node {
        name: "e".into(),
        uid: "another".into(),
        ..model::Node::default()
    }));
    let mut fitter = state::restore(&after).unwrap();
    fit(&mut fitter, 2);
    let row = after.row("a");
    assert!(row.estimate("d").is_some());
    assert!(row.estimate("e").is_none(), "another node of that name");
    assert_eq!(
        row.reading("b"),
        crate::Reading::Nothing,
        "nothing is measured now"
    );
    // What was not measured again is forgotten in the end.
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
        assert!(state::restore(&network(Some(&path))).is_none(), "{bad}");
    }
}

#[test]
fn a_panic_leaves_the_last_fit_and_begins_anew() {
    let network = network(None);
    measure(&network);
    let mut fitter = Fitter::new(network.clone());
    fit(&mut fitter, 1);
    assert!(!contained(&network, &mut fitter, |_| panic!("on purpose")));
    assert_eq!(network.0.metrics.fit_panics.get(), 1);
    assert!(network.row("a").estimate("d").is_some());
    let last = network.0.fitted.load_full().unwrap();
    assert!(contained(&network, &mut fitter, |f| fit(f, 2)));
    assert!(!Arc::ptr_eq(&last, &network.0.fitted.load_full().unwrap()));
    assert!(network.row("a").estimate("d").is_some());
}
