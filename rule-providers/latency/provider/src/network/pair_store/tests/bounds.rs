//! What is refused, and what is forgotten.

use super::*;

#[test]
fn garbage_is_refused() {
    let (mut store, of) = with(&["a", "b"]);
    let good = || pair("b", MILLI);
    for (bad, refusal) in [
        (
            Pair {
                window_nanos: vec![0],
                ..good()
            },
            Refusal::Malformed,
        ),
        (
            Pair {
                window_nanos: vec![10_000_000_001],
                ..good()
            },
            Refusal::Malformed,
        ),
        (
            Pair {
                window_nanos: vec![],
                ..good()
            },
            Refusal::Malformed,
        ),
        (
            Pair {
                window_nanos: vec![MILLI; 4],
                ..good()
            },
            Refusal::Malformed,
        ),
        (
            Pair {
                p50_nanos: 0,
                ..good()
            },
            Refusal::Malformed,
        ),
        (
            Pair {
                p95_nanos: 1,
                ..good()
            },
            Refusal::Malformed,
        ),
        (
            Pair {
                samples: 0,
                ..good()
            },
            Refusal::Malformed,
        ),
        (Pair { state: 9, ..good() }, Refusal::Malformed),
        (
            Pair {
                age_millis: 600_001,
                ..good()
            },
            Refusal::Malformed,
        ),
        (
            Pair {
                instance: "uid-b/x".into(),
                ..good()
            },
            Refusal::UnknownInstance,
        ),
        (pair("x", MILLI), Refusal::UnknownInstance),
        (pair("a", MILLI), Refusal::SameNode),
    ] {
        assert_eq!(
            store.report(of[0].0, std::slice::from_ref(&bad), SECOND),
            [refusal],
            "{bad:?}"
        );
    }
    assert_eq!(
        store.measurement(of[0].0, of[1].0, SECOND),
        Measurement::Missing
    );
}

#[test]
fn spread_of_a_sample_is_known_or_unknown_and_never_refused() {
    let (mut store, of) = with(&["a", "b"]);
    let mut told = |report: Pair| {
        assert!(store.report(of[0].0, &[report], SECOND).is_empty());
        assert_eq!(store.take_changes().reported.len(), 1);
        let (micros, spread) = store.sample(of[0].0, of[1].0).unwrap();
        assert_eq!(micros, 1_000.0);
        spread
    };
    for (middle_half_nanos, spread) in [
        (1, Some(5e-6)),
        (2 * MILLI, Some(1.0f32.asinh())),
        (0, None),
        (2 * MILLI + 10, None),
        (10_000_000_001, None),
        (u64::MAX, None),
        (MILLI / 5, Some(0.1f32.asinh())),
    ] {
        let report = Pair {
            middle_half_nanos,
            ..pair("b", MILLI)
        };
        assert_eq!(told(report), spread, "{middle_half_nanos}");
    }
    assert_eq!(
        told(lost("b")),
        Some(0.1f32.asinh()),
        "that of the last times"
    );
}

#[test]
fn more_targets_than_anyone_gives_are_refused_until_others_are_forgotten() {
    let names: Vec<String> = (0..MAX_TARGETS + 2).map(|i| format!("n{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut store, of) = with(&names);
    let all: Vec<Pair> = names[1..].iter().map(|n| pair(n, MILLI)).collect();
    let (first, last) = all.split_at(MAX_TARGETS);
    assert!(store.report(of[0].0, first, SECOND).is_empty());
    assert_eq!(store.report(of[0].0, last, SECOND * 2), [Refusal::TooMany]);
    store.report(of[0].0, &first[1..], SECOND * 40);
    assert!(store.report(of[0].0, last, SECOND * 50).is_empty());
    let end = of[MAX_TARGETS + 1].0;
    assert_eq!(
        state(&store.measurement(of[0].0, end, SECOND * 50)),
        "fresh"
    );
    assert_eq!(
        store.measurement(of[0].0, of[1].0, SECOND * 50),
        Measurement::Missing
    );
    assert_eq!(store.take_changes().dropped, [(of[0].0, of[1].0)]);
}

#[test]
fn probed_pairs_never_crowd_out_targets_and_are_bounded() {
    let names: Vec<String> = (0..MAX_PROBED + MAX_TARGETS + 2)
        .map(|i| format!("n{i}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut store, of) = with(&names);
    let once = |n: &&str| Pair {
        refresh_millis: 0,
        ..pair(n, MILLI)
    };
    let (probed, visited) = names[1..].split_at(MAX_PROBED + 1);
    let all: Vec<Pair> = probed.iter().map(once).collect();
    assert!(store.report(of[0].0, &all, SECOND).is_empty());
    assert_eq!(store.targets(of[0].0).len(), MAX_PROBED);
    let all: Vec<Pair> = visited.iter().map(|n| pair(n, MILLI)).collect();
    assert!(store.report(of[0].0, &all, SECOND).is_empty());
    assert_eq!(store.targets(of[0].0).len(), MAX_PROBED + MAX_TARGETS);
    // One that was probed cannot become one too many visited.
    let more = pair(probed[9], MILLI);
    assert_eq!(
        store.report(of[0].0, &[more], SECOND * 2),
        [Refusal::TooMany]
    );
    sweep(&mut store, SECOND * 61);
    assert_eq!(
        store.targets(of[0].0).len(),
        MAX_TARGETS,
        "answered long ago"
    );
    // A stale pair without figures takes no place.
    let stale = Pair {
        state: State::Stale.into(),
        window_nanos: vec![],
        ..pair("n1", MILLI)
    };
    assert!(store.report(of[0].0, &[stale], SECOND * 62).is_empty());
    assert_eq!(store.targets(of[0].0).len(), MAX_TARGETS);
}

#[test]
fn sweep_drops_expired_pairs_and_removed_nodes() {
    let (mut store, of) = with(&["a", "b"]);
    store.report(of[0].0, &[pair("b", MILLI)], SECOND);
    store.leave(of[0].0, of[0].1, true, SECOND);
    store.take_changes();
    assert_eq!(sweep(&mut store, SECOND * 500).0.stale, 1);
    let (counts, gone) = sweep(&mut store, SECOND * 601);
    assert_eq!((counts, gone), (PairCounts::default(), vec![of[0].0]));
    assert_eq!(store.id("b"), Some(of[1].0), "its stream is there");
    assert!(store.get(of[1].0).unwrap().sources.is_empty());
}

#[test]
fn a_tenth_gone_leaves_the_others() {
    let names: Vec<String> = (0..40).map(|i| format!("n{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut store, of) = with(&names);
    let all: Vec<Pair> = names.iter().map(|n| pair(n, MILLI)).collect();
    for (i, (id, _)) in of.iter().enumerate() {
        let others: Vec<Pair> = all
            .iter()
            .enumerate()
            .filter(|(j, _)| *j != i)
            .map(|(_, p)| p.clone())
            .collect();
        assert!(store.report(*id, &others, SECOND).is_empty());
    }
    let (counts, _) = sweep(&mut store, SECOND);
    assert_eq!(counts.fresh, 40 * 39 / 2);
    for (id, stream) in &of[..4] {
        store.leave(*id, *stream, true, SECOND * 2);
    }
    for seconds in (30..=600).step_by(30) {
        for (i, (id, _)) in of.iter().enumerate().skip(4) {
            let reported = |(j, p): (usize, &Pair)| match j {
                j if j == i => None,
                0..4 => Some(Pair {
                    node: p.node.clone(),
                    instance: p.instance.clone(),
                    ..lost("")
                }),
                _ => Some(p.clone()),
            };
            let others: Vec<Pair> = all.iter().enumerate().filter_map(reported).collect();
            assert!(store.report(*id, &others, SECOND * seconds).is_empty());
        }
    }
    let (counts, _) = sweep(&mut store, SECOND * 600);
    assert_eq!((counts.fresh, counts.unreachable), (36 * 35 / 2, 0));
    let (_, gone) = sweep(&mut store, SECOND * 602);
    assert_eq!(gone.len(), 4);
}
