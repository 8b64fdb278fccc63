use std::path::Path;

use tautline_core::{index::Object, model};
use tautline_proto::latency::{Hello, Pair, State};
use tautline_runtime::feed::Feed;

use super::*;
use crate::Settings;

const NODES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn network(state: Option<&Path>) -> Network {
    let feed = Feed::default();
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

/// 5,000 nodes of 32 targets that are measured from both ends, without streams:
/// `cargo test --release -p tautline-latency --lib -- --ignored --nocapture five_thousand`.
#[test]
#[ignore = "takes a minute, and measures the process"]
fn five_thousand_nodes_in_memory() {
    const NODES: usize = 5_000;
    let network = Network::default();
    let name = |i: usize| format!("node-{i:05}");
    let join = |i: usize| {
        let zone = format!("zone-{}", i % 9);
        network.0.feed.apply(Object::Node(model::Node {
            name: name(i).into(),
            uid: format!("00000000-0000-0000-0000-{i:012}").into(),
            labels: [(crate::ZONE, zone.as_str())].into_iter().collect(),
            ..model::Node::default()
        }));
        let hello = Hello {
            node: name(i),
            boot_id: "00000000-0000-0000-0000-000000000000".into(),
            address: "10.0.0.1:5310".into(),
            ..Hello::default()
        };
        let uid = format!("00000000-0000-0000-0000-{i:012}");
        network.0.ledger.lock().join(&uid, &hello, Duration::ZERO).0
    };
    let ids: Vec<Id> = (0..NODES).map(join).collect();
    println!("nodes: {}", resident());
    let report = |i: usize, round: u64| {
        let pair = |to: usize| {
            let zones = (i % 9).abs_diff(to % 9) as u64;
            let nanos = 50_000 + zones * 400_000 + round * 1000 + (i + to) as u64 % 500 * 20;
            Pair {
                node: name(to),
                instance: format!(
                    "00000000-0000-0000-0000-{to:012}/00000000-0000-0000-0000-000000000000"
                ),
                window_nanos: vec![nanos; 3],
                p50_nanos: nanos,
                p95_nanos: nanos * 2,
                samples: 60,
                refresh_millis: 32_000,
                ..Pair::default()
            }
        };
        let ahead = (1..=32).map(|k| (i + k * k * 3 + k) % NODES);
        let behind = (1..=32).map(|k| (i + NODES * 8 - k * k * 3 - k) % NODES);
        ahead.chain(behind).map(pair).collect::<Vec<Pair>>()
    };
    let mut took = Duration::ZERO;
    for round in 0..3 {
        for (i, id) in ids.iter().enumerate() {
            let pairs = report(i, round);
            let began = Instant::now();
            let refused = network.0.ledger.lock().report(*id, &pairs, network.now());
            took += began.elapsed();
            assert!(refused.is_empty());
        }
    }
    let pairs = 3 * 64 * NODES;
    println!(
        "reports: {}, {:.0} pairs/s",
        resident(),
        pairs as f64 / took.as_secs_f64()
    );
    let mut fitter = Fitter::new(network.clone());
    for minutes in 1..=3 {
        let began = Instant::now();
        fit(&mut fitter, minutes);
        println!("fit: {}, {:?}", resident(), began.elapsed());
    }
    let began = Instant::now();
    let row = network.row(&name(0));
    let readings = began.elapsed();
    assert!((1..NODES).all(|i| row.estimate(&name(i)).is_some()));
    println!(
        "row: {readings:?}, with all estimates {:?}",
        began.elapsed()
    );
    let began = Instant::now();
    println!("sweep: {:?}, {:?}", network.sweep(), began.elapsed());
}

/// This process's memory, now and at the most.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status
        .lines()
        .filter(|l| l.starts_with("VmRSS") || l.starts_with("VmHWM"));
    lines
        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join(", ")
}
