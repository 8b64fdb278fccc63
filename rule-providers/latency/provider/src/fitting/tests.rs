use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_core::{index::Object, model};
use tautline_proto::latency::{Hello, Pair, State};
use tautline_runtime::cluster_store::ClusterStore;

use super::{DEFAULT_TARGETS, fitter::Fitter, step};
use crate::network::{Network, pair_store::InstanceId};

const NODES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A network of six nodes, and its fits.
fn network() -> Arc<Network> {
    let store = ClusterStore::default();
    for name in NODES {
        store.apply(Object::Node(model::Node {
            name: name.into(),
            uid: format!("uid-{name}").into(),
            ..model::Node::default()
        }));
    }
    Network::new(store, false)
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
    let network = network();
    let mut fitter = Fitter::new(network.clone(), DEFAULT_TARGETS);
    fit(&mut fitter, 1);
    assert!(network.row("a").estimate("e").is_none());
    measure(&network);
    fit(&mut fitter, 2);
    let row = network.row("a");
    let (near, far) = (row.estimate("b").unwrap(), row.estimate("e").unwrap());
    assert!(near.micros < far.micros, "{near:?} {far:?}");
    assert!(row.estimate("a").is_none() && row.estimate("f").is_none());
    let store = network.pairs.lock();
    let targets = network.chosen.load();
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
fn measured_pairs_bar_is_as_wide_as_its_own_samples_spread() {
    let network = network();
    measure(&network);
    let half = |to: &str, middle_half_nanos: u64| {
        let mut store = network.pairs.lock();
        let from = store.id("a").unwrap();
        let pair = Pair {
            node: to.into(),
            instance: format!("uid-{to}/boot"),
            state: State::Measured.into(),
            window_nanos: vec![1_000_000],
            p50_nanos: 1_000_000,
            p95_nanos: 2_000_000,
            samples: 20,
            middle_half_nanos,
            ..Pair::default()
        };
        let refused = store.report(from, &[pair], Duration::from_secs(2));
        assert!(refused.is_empty(), "{refused:?}");
    };
    half("b", 20_000);
    half("c", 400_000);
    fit(&mut Fitter::new(network.clone(), DEFAULT_TARGETS), 1);
    let row = network.row("a");
    let bar = |to: &str| {
        let estimate = row.estimate(to).unwrap();
        (estimate.high / estimate.micros).ln()
    };
    assert!(bar("c") > 3.0 * bar("b"), "{} {}", bar("c"), bar("b"));
    assert!((0.1..0.5).contains(&bar("c")), "{}", bar("c"));
}

#[tokio::test]
async fn panic_keeps_the_last_fit() {
    let network = network();
    measure(&network);
    let mut fitter = Fitter::new(network.clone(), DEFAULT_TARGETS);
    fit(&mut fitter, 1);
    let (fitter, succeeded) = step(fitter, |_| panic!("on purpose")).await;
    assert!(!succeeded);
    assert_eq!(network.metrics.fit_panics.get(), 1);
    assert!(network.row("a").estimate("d").is_some());
    let last = network.estimates.load_full().unwrap();
    assert!(step(fitter, |f| fit(f, 2)).await.1);
    assert!(!Arc::ptr_eq(&last, &network.estimates.load_full().unwrap()));
    assert!(network.row("a").estimate("d").is_some());
}

#[test]
fn an_unreachable_landmark_is_replaced_and_tried_again() {
    const SECOND: Duration = Duration::from_secs(1);
    let names: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
    let start = Instant::now();
    // Replicas meet the agents in different order, and take the reports at different times.
    let replica = |turned: usize, late: Duration| {
        let network = network();
        let began = network.at(start);
        let mut order = names.clone();
        order.rotate_left(turned);
        let mut store = network.pairs.lock();
        for name in &order {
            let hello = Hello {
                node: name.clone(),
                boot_id: "boot".into(),
                address: "10.0.0.1:5310".into(),
                ..Hello::default()
            };
            let (id, _) = store.join(&format!("uid-{name}"), &hello, began);
            store.report(id, &[], began + 60 * SECOND + late);
        }
        drop(store);
        (network.clone(), Fitter::new(network, 8), late)
    };
    let mut replicas = [replica(0, Duration::ZERO), replica(17, 3 * SECOND)];
    type Replica = (Arc<Network>, Fitter, Duration);
    let step = |replica: &mut Replica, at: u32| replica.1.step(start + at * SECOND + replica.2);
    let report = |replica: &mut Replica, from: &str, to: &str, state: State, at: u32| {
        let pair = Pair {
            node: to.into(),
            instance: format!("uid-{to}/boot"),
            state: state.into(),
            window_nanos: if state == State::Measured {
                vec![1_000_000]
            } else {
                vec![]
            },
            p50_nanos: 1_000_000,
            p95_nanos: 1_000_000,
            samples: 5,
            refresh_millis: 35_000,
            ..Pair::default()
        };
        let at = replica.0.at(start) + at * SECOND + replica.2;
        let mut store = replica.0.pairs.lock();
        let from = store.id(from).unwrap();
        assert!(store.report(from, &[pair], at).is_empty());
    };
    let targets = |replica: &Replica, of: &str| -> Vec<String> {
        let store = replica.0.pairs.lock();
        let chosen = replica.0.chosen.load();
        let list = chosen[&store.id(of).unwrap()].iter();
        list.map(|id| store.get(*id).unwrap().node.to_string())
            .collect()
    };
    for replica in &mut replicas {
        step(replica, 60);
        step(replica, 70);
    }
    let whole = targets(&replicas[0], "n0");
    assert_eq!(targets(&replicas[1], "n0"), whole);
    let (lost, stays, random) = (&whole[0], &whole[1], &whole[2]);
    for replica in &mut replicas {
        report(replica, "n0", lost, State::Unreachable, 75);
        report(replica, "n0", random, State::Unreachable, 75);
        step(replica, 140);
    }
    let cut = targets(&replicas[0], "n0");
    assert_eq!(targets(&replicas[1], "n0"), cut);
    assert_eq!(cut.len(), whole.len());
    assert!(
        !cut.contains(lost) && cut[0] == *stays && cut.contains(random),
        "{cut:?}"
    );
    for other in names.iter().filter(|n| *n != "n0" && *n != lost) {
        assert!(targets(&replicas[0], other).contains(lost), "{other}");
    }
    // A visit of another target shows that the network is whole again: in one replica only.
    report(&mut replicas[0], "n0", random, State::Measured, 150);
    replicas.iter_mut().for_each(|replica| step(replica, 201));
    // The visit also adds a target.
    let again = targets(&replicas[0], "n0");
    assert!(again.starts_with(&whole), "{again:?}");
    assert_eq!(targets(&replicas[1], "n0"), cut);
    // Without that, the record is ten minutes old at last.
    step(&mut replicas[1], 670);
    assert_eq!(targets(&replicas[1], "n0"), cut);
    step(&mut replicas[1], 740);
    assert_eq!(targets(&replicas[1], "n0"), whole);
}
