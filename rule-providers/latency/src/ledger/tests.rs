use proptest::prelude::*;
use tautline_proto::latency::State;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: u64 = 1_000_000;

fn hello(node: &str, boot: &str) -> Hello {
    Hello {
        node: node.into(),
        boot_id: boot.into(),
        address: "10.0.0.1:5310".into(),
        nic_bits_per_second: 10,
        ..Hello::default()
    }
}

fn pair(to: &str, nanos: u64) -> Pair {
    Pair {
        node: to.into(),
        instance: format!("uid-{to}/boot"),
        state: State::Measured.into(),
        window_nanos: vec![nanos; 3],
        p50_nanos: nanos,
        p95_nanos: nanos * 2,
        samples: 60,
        age_millis: 0,
        refresh_millis: 30_000,
        losses: 0,
        connect: false,
    }
}

fn lost(to: &str) -> Pair {
    Pair {
        state: State::Unreachable.into(),
        window_nanos: vec![],
        losses: 3,
        ..pair(to, 1)
    }
}

/// A ledger with these nodes, and the streams of their agents.
fn with(nodes: &[&str]) -> (Ledger, Vec<(Id, u64)>) {
    let mut ledger = Ledger::default();
    let join = |n: &&str| ledger.join(&format!("uid-{n}"), &hello(n, "boot"), Duration::ZERO);
    let streams = nodes.iter().map(join).collect();
    (ledger, streams)
}

fn state(reading: &Reading) -> &'static str {
    match reading {
        Reading::Fresh(_) => "fresh",
        Reading::Unreachable { .. } => "unreachable",
        Reading::Old(_) => "old",
        Reading::Nothing => "nothing",
    }
}

#[test]
fn from_fresh_to_old_to_nothing() {
    let (mut ledger, of) = with(&["a", "b"]);
    let (a, b) = (of[0].0, of[1].0);
    let at = |ledger: &Ledger, seconds: u64| {
        state(&ledger.reading(b, a, SECOND * seconds as u32)).to_owned()
    };
    assert_eq!(at(&ledger, 0), "nothing");
    assert!(
        ledger
            .report(a, &[pair("b", MILLI)], Duration::ZERO)
            .is_empty()
    );
    let Reading::Fresh(figure) = ledger.reading(a, b, SECOND) else {
        panic!("not fresh");
    };
    assert_eq!(figure.median, Duration::from_millis(1));
    assert_eq!((figure.windows.len(), figure.samples), (3, 60));
    assert_eq!((figure.p95, figure.age), (Duration::from_millis(2), SECOND));
    // Without a frame it is fresh for twice its refresh time.
    assert_eq!(
        (at(&ledger, 59).as_str(), at(&ledger, 60).as_str()),
        ("fresh", "old")
    );
    // Frames say that it still holds, and what is told again is as new.
    for seconds in (2..=100).step_by(2) {
        let told = if seconds % 30 == 0 {
            vec![pair("b", MILLI)]
        } else {
            vec![]
        };
        ledger.report(a, &told, SECOND * seconds);
    }
    assert_eq!(at(&ledger, 101), "fresh");
    let Reading::Fresh(figure) = ledger.reading(a, b, SECOND * 101) else {
        panic!("not fresh");
    };
    assert_eq!(figure.age, SECOND * 11);
    // The stream has gone: twice the refresh after the last sample, at 90 s.
    ledger.leave(a, of[0].1, true, SECOND * 101);
    assert_eq!(
        (at(&ledger, 149).as_str(), at(&ledger, 150).as_str()),
        ("fresh", "old")
    );
    assert_eq!(
        (at(&ledger, 689).as_str(), at(&ledger, 690).as_str()),
        ("old", "nothing")
    );
}

#[test]
fn a_pair_that_is_not_told_of_any_more_grows_old_while_its_agent_lives() {
    let (mut ledger, of) = with(&["a", "b"]);
    ledger.report(of[0].0, &[pair("b", MILLI)], Duration::ZERO);
    for seconds in (0..=90).step_by(2) {
        ledger.report(of[0].0, &[], SECOND * seconds);
    }
    let reading = ledger.reading(of[0].0, of[1].0, SECOND * 90);
    assert_eq!(state(&reading), "old");
    // And at once, if the agent says so.
    ledger.report(of[0].0, &[pair("b", MILLI)], SECOND * 91);
    assert_eq!(
        state(&ledger.reading(of[0].0, of[1].0, SECOND * 91)),
        "fresh"
    );
    let stale = Pair {
        state: State::Stale.into(),
        ..pair("b", MILLI)
    };
    ledger.report(of[0].0, &[stale], SECOND * 92);
    assert_eq!(state(&ledger.reading(of[0].0, of[1].0, SECOND * 92)), "old");
}

#[test]
fn a_visit_every_two_seconds_is_trusted_for_six_without_a_frame() {
    let (mut ledger, of) = with(&["a", "b"]);
    let often = Pair {
        refresh_millis: 2000,
        ..pair("b", MILLI)
    };
    ledger.report(of[0].0, &[often], Duration::ZERO);
    ledger.report(of[0].0, &[], SECOND * 10);
    let at = |s: u32| state(&ledger.reading(of[0].0, of[1].0, SECOND * s)).to_owned();
    assert_eq!((at(15).as_str(), at(16).as_str()), ("fresh", "old"));
}

#[test]
fn losses_count_while_someone_is_there_to_answer() {
    let (mut ledger, of) = with(&["a", "b"]);
    let (a, b) = (of[0].0, of[1].0);
    ledger.report(a, &[pair("b", MILLI)], SECOND * 41);
    ledger.report(b, &[pair("a", MILLI)], SECOND * 41);
    ledger.report(a, &[lost("b")], SECOND * 42);
    ledger.report(a, &[lost("b")], SECOND * 43);
    let (since, seldom) = (SECOND * 2, true);
    assert_eq!(
        ledger.reading(a, b, SECOND * 44),
        Reading::Unreachable { since, seldom }
    );
    // Silent: the node may have gone with its network.
    let mut silent = with(&["a", "b"]).0;
    silent.report(a, &[lost("b")], SECOND * 60);
    silent.leave(b, of[1].1, true, SECOND * 61);
    assert_eq!(state(&silent.reading(a, b, SECOND * 62)), "unreachable");
    // Closed: only the agent has gone; what it measured itself still holds.
    ledger.leave(b, of[1].1, true, SECOND * 44);
    assert_eq!(state(&ledger.reading(a, b, SECOND * 44)), "fresh");
    // Come again: what was lost meanwhile does not count, nor what is told before
    // there was time for a visit; what is lost then does.
    ledger.join("uid-b", &hello("b", "boot"), SECOND * 110);
    ledger.report(a, &[], SECOND * 110);
    assert_eq!(state(&ledger.reading(a, b, SECOND * 110)), "old");
    ledger.report(a, &[lost("b")], SECOND * 111);
    ledger.report(a, &[], SECOND * 144);
    assert_eq!(state(&ledger.reading(a, b, SECOND * 144)), "old");
    ledger.report(a, &[], SECOND * 145);
    assert_eq!(state(&ledger.reading(a, b, SECOND * 145)), "unreachable");
}

#[test]
fn who_is_away_is_there_and_has_not_begun_anew() {
    let (mut ledger, of) = with(&["a", "b"]);
    let ((a, a_stream), (b, b_stream)) = (of[0], of[1]);
    ledger.report(a, &[pair("b", MILLI)], SECOND * 60);
    ledger.park(a, a_stream);
    assert!(!ledger.speaks(a, a_stream));
    // A closed stream says no more.
    ledger.leave(a, a_stream, true, SECOND * 60);
    let at = |ledger: &Ledger, seconds: u64| state(&ledger.reading(a, b, SECOND * seconds as u32));
    assert_eq!((at(&ledger, 99), at(&ledger, 119)), ("fresh", "fresh"));
    assert_eq!(at(&ledger, 120), "old", "twice its refresh");

    // b is away when a, back, has lost it: that counts at once.
    ledger.report(b, &[], SECOND * 90);
    ledger.park(b, b_stream);
    let (again, stream) = ledger.rejoin("uid-a", &hello("a", "boot"), SECOND * 96);
    assert!(again == a && ledger.speaks(a, stream));
    ledger.report(a, &[lost("b")], SECOND * 96);
    assert_eq!(at(&ledger, 96), "unreachable");
    // And when b is back, too; not if it has begun anew.
    ledger.rejoin("uid-b", &hello("b", "boot"), SECOND * 97);
    assert_eq!(at(&ledger, 97), "unreachable");
    ledger.join("uid-b", &hello("b", "boot"), SECOND * 98);
    assert_ne!(at(&ledger, 98), "unreachable");
}

#[test]
fn figures_of_who_is_away_hold_until_it_should_be_back() {
    let (mut ledger, of) = with(&["a", "b"]);
    let (a, stream) = of[0];
    let told = |refresh_millis, age_millis| Pair {
        refresh_millis,
        age_millis,
        ..pair("b", MILLI)
    };
    for (refresh, age, until) in [(35_000, 34_000, 40), (4_000, 3_000, 8), (35_000, 0, 70)] {
        let now = SECOND * 100;
        ledger.join("uid-a", &hello("a", "boot"), now);
        ledger.report(a, &[told(refresh, age)], now);
        ledger.park(a, stream + 1);
        let (_, stream) = ledger.join("uid-a", &hello("a", "boot"), now);
        ledger.park(a, stream);
        let at = |after: u32| state(&ledger.reading(a, of[1].0, now + SECOND * after));
        assert_eq!(
            (at(until - 1), at(until)),
            ("fresh", "old"),
            "{refresh} {age}"
        );
    }
}

#[test]
fn a_cut_link_that_a_rule_names_is_unreachable_as_soon_as_it_is_told() {
    let (mut ledger, of) = with(&["a", "b"]);
    let named = |p: Pair| Pair {
        refresh_millis: 2_000,
        ..p
    };
    ledger.report(of[0].0, &[named(pair("b", MILLI))], SECOND * 10);
    ledger.report(of[0].0, &[named(lost("b"))], SECOND * 14);
    let (since, seldom) = (Duration::ZERO, false);
    assert_eq!(
        ledger.reading(of[0].0, of[1].0, SECOND * 14),
        Reading::Unreachable { since, seldom }
    );
}

#[test]
fn old_losses_are_no_news_until_the_stream_has_settled() {
    let (mut ledger, of) = with(&["a", "b"]);
    let (a, b) = (of[0].0, of[1].0);
    let at = |ledger: &Ledger, s: u32| state(&ledger.reading(a, b, SECOND * s)).to_owned();
    ledger.report(b, &[], SECOND * 99);
    ledger.join("uid-a", &hello("a", "boot"), SECOND * 100);
    ledger.report(a, &[lost("b")], SECOND * 101);
    assert_eq!(at(&ledger, 104), "nothing");
    assert_eq!(at(&ledger, 105), "unreachable", "it still says so");
    // What was known before is known in the next stream too.
    ledger.join("uid-a", &hello("a", "boot"), SECOND * 106);
    ledger.report(a, &[lost("b")], SECOND * 106);
    assert_eq!(at(&ledger, 106), "unreachable");
}

#[test]
fn an_echo_since_the_other_direction_was_lost_shows_that_nothing_is_cut() {
    let (mut ledger, of) = with(&["a", "b"]);
    let (a, b) = (of[0].0, of[1].0);
    let read = |ledger: &Ledger, s: u32| {
        let there = ledger.reading(a, b, SECOND * s);
        assert_eq!(there, ledger.reading(b, a, SECOND * s));
        state(&there).to_owned()
    };
    ledger.report(b, &[pair("a", MILLI)], SECOND * 49);
    ledger.report(a, &[lost("b")], SECOND * 50);
    assert_eq!(read(&ledger, 51), "unreachable");
    let before = Pair {
        age_millis: 1_500,
        ..pair("a", MILLI)
    };
    ledger.report(b, &[before], SECOND * 51);
    assert_eq!(read(&ledger, 51), "unreachable", "sampled before");
    ledger.report(b, &[pair("a", MILLI)], SECOND * 52);
    assert_eq!(read(&ledger, 52), "fresh");
    // It does not flap when the losses are told again.
    ledger.report(a, &[lost("b")], SECOND * 80);
    assert_eq!(read(&ledger, 80), "fresh");
}

#[test]
fn of_two_directions_the_larger_counts_and_over_a_fifth_apart_is_flagged() {
    for (there, back, apart) in [(100, 119, false), (100, 121, true), (121, 100, true)] {
        let (mut ledger, of) = with(&["a", "b"]);
        ledger.report(of[0].0, &[pair("b", there * MILLI)], SECOND);
        ledger.report(of[1].0, &[pair("a", back * MILLI)], SECOND);
        let Reading::Fresh(figure) = ledger.reading(of[0].0, of[1].0, SECOND) else {
            panic!("not fresh");
        };
        assert_eq!(figure.median, Duration::from_millis(there.max(back)));
        assert_eq!(figure.apart, apart);
        let (tally, _) = ledger.sweep(&ledger.ids(), SECOND);
        let expected = Tally {
            fresh: 1,
            apart: apart.into(),
            ..Tally::default()
        };
        assert_eq!(tally, expected);
    }
}

#[test]
fn echoes_count_before_connects_and_these_are_called_such() {
    let (mut ledger, of) = with(&["a", "b"]);
    let by_connect = |to, nanos| Pair {
        connect: true,
        ..pair(to, nanos)
    };
    let read = |ledger: &Ledger, s: u32| match ledger.reading(of[0].0, of[1].0, SECOND * s) {
        Reading::Fresh(f) => (f.median, f.connect, f.apart),
        other => panic!("{other:?}"),
    };
    ledger.report(of[0].0, &[by_connect("b", 9 * MILLI)], SECOND);
    assert_eq!(read(&ledger, 1), (Duration::from_millis(9), true, false));
    assert_eq!(ledger.sweep(&ledger.ids(), SECOND).0.connect, 1);
    ledger.report(of[1].0, &[pair("a", MILLI)], SECOND * 2);
    assert_eq!(read(&ledger, 2), (Duration::from_millis(1), false, false));
    ledger.report(of[1].0, &[by_connect("a", MILLI)], SECOND * 3);
    assert_eq!(read(&ledger, 3), (Duration::from_millis(9), true, true));
}

#[test]
fn another_uid_or_boot_is_another_machine() {
    for (uid, boot) in [("uid-b", "another"), ("another", "boot")] {
        let (mut ledger, of) = with(&["a", "b", "c"]);
        ledger.report(of[0].0, &[pair("b", MILLI), pair("c", MILLI)], SECOND);
        ledger.report(of[1].0, &[pair("a", MILLI), pair("c", MILLI)], SECOND);
        ledger.changes();
        let (new, _) = ledger.join(uid, &hello("b", boot), SECOND * 2);
        assert_ne!(new, of[1].0);
        for other in [of[0].0, of[2].0] {
            assert_eq!(ledger.reading(new, other, SECOND * 2), Reading::Nothing);
            assert_eq!(
                ledger
                    .row(other, SECOND * 2)
                    .iter()
                    .filter(|r| r.0 == of[1].0)
                    .count(),
                0
            );
        }
        assert_eq!(
            state(&ledger.reading(of[0].0, of[2].0, SECOND * 2)),
            "fresh"
        );
        assert!(!ledger.speaks(of[1].0, of[1].1), "the old stream is out");
        // What is told of the old one, or by it, is refused.
        let refused = ledger.report(of[0].0, &[pair("b", MILLI)], SECOND * 3);
        assert_eq!(refused, [Refusal::UnknownInstance]);
        let refused = ledger.report(of[1].0, &[pair("a", MILLI)], SECOND * 3);
        assert_eq!(refused, [Refusal::UnknownInstance]);
        let changes = ledger.changes();
        assert_eq!(changes.left, [of[1].0]);
        assert_eq!(changes.joined[0].0, new);
    }
}

#[test]
fn garbage_is_refused() {
    let (mut ledger, of) = with(&["a", "b"]);
    let good = || pair("b", MILLI);
    for (bad, refusal) in [
        (
            Pair {
                window_nanos: vec![0],
                ..good()
            },
            Refusal::Garbage,
        ),
        (
            Pair {
                window_nanos: vec![10_000_000_001],
                ..good()
            },
            Refusal::Garbage,
        ),
        (
            Pair {
                window_nanos: vec![],
                ..good()
            },
            Refusal::Garbage,
        ),
        (
            Pair {
                window_nanos: vec![MILLI; 4],
                ..good()
            },
            Refusal::Garbage,
        ),
        (
            Pair {
                p50_nanos: 0,
                ..good()
            },
            Refusal::Garbage,
        ),
        (
            Pair {
                p95_nanos: 1,
                ..good()
            },
            Refusal::Garbage,
        ),
        (
            Pair {
                samples: 0,
                ..good()
            },
            Refusal::Garbage,
        ),
        (Pair { state: 9, ..good() }, Refusal::Garbage),
        (
            Pair {
                age_millis: 600_001,
                ..good()
            },
            Refusal::Garbage,
        ),
        (
            Pair {
                instance: "uid-b/x".into(),
                ..good()
            },
            Refusal::UnknownInstance,
        ),
        (pair("x", MILLI), Refusal::UnknownInstance),
        (pair("a", MILLI), Refusal::Itself),
    ] {
        assert_eq!(
            ledger.report(of[0].0, std::slice::from_ref(&bad), SECOND),
            [refusal],
            "{bad:?}"
        );
    }
    assert_eq!(ledger.reading(of[0].0, of[1].0, SECOND), Reading::Nothing);
}

#[test]
fn more_targets_than_anyone_gives_are_refused_until_others_are_forgotten() {
    let names: Vec<String> = (0..MOST_TARGETS + 2).map(|i| format!("n{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut ledger, of) = with(&names);
    let all: Vec<Pair> = names[1..].iter().map(|n| pair(n, MILLI)).collect();
    let (first, last) = all.split_at(MOST_TARGETS);
    assert!(ledger.report(of[0].0, first, SECOND).is_empty());
    assert_eq!(ledger.report(of[0].0, last, SECOND * 2), [Refusal::TooMany]);
    ledger.report(of[0].0, &first[1..], SECOND * 40);
    assert!(ledger.report(of[0].0, last, SECOND * 50).is_empty());
    let end = of[MOST_TARGETS + 1].0;
    assert_eq!(state(&ledger.reading(of[0].0, end, SECOND * 50)), "fresh");
    assert_eq!(
        ledger.reading(of[0].0, of[1].0, SECOND * 50),
        Reading::Nothing
    );
    assert_eq!(ledger.changes().dropped, [(of[0].0, of[1].0)]);
}

#[test]
fn probed_pairs_never_crowd_out_targets_and_are_bounded() {
    let names: Vec<String> = (0..MOST_PROBED + MOST_TARGETS + 2)
        .map(|i| format!("n{i}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut ledger, of) = with(&names);
    let once = |n: &&str| Pair {
        refresh_millis: 0,
        ..pair(n, MILLI)
    };
    let (probed, visited) = names[1..].split_at(MOST_PROBED + 1);
    let all: Vec<Pair> = probed.iter().map(once).collect();
    assert!(ledger.report(of[0].0, &all, SECOND).is_empty());
    assert_eq!(ledger.measured(of[0].0).len(), MOST_PROBED);
    let all: Vec<Pair> = visited.iter().map(|n| pair(n, MILLI)).collect();
    assert!(ledger.report(of[0].0, &all, SECOND).is_empty());
    assert_eq!(ledger.measured(of[0].0).len(), MOST_PROBED + MOST_TARGETS);
    // One that was probed cannot become one too many visited.
    let more = pair(probed[9], MILLI);
    assert_eq!(
        ledger.report(of[0].0, &[more], SECOND * 2),
        [Refusal::TooMany]
    );
    ledger.sweep(&[of[0].0], SECOND * 61);
    assert_eq!(
        ledger.measured(of[0].0).len(),
        MOST_TARGETS,
        "answered long ago"
    );
    // What is told stale without figures takes no place.
    let stale = Pair {
        state: State::Stale.into(),
        window_nanos: vec![],
        ..pair("n1", MILLI)
    };
    assert!(ledger.report(of[0].0, &[stale], SECOND * 62).is_empty());
    assert_eq!(ledger.measured(of[0].0).len(), MOST_TARGETS);
}

#[test]
fn a_sweep_drops_what_is_too_old_and_whoever_has_gone() {
    let (mut ledger, of) = with(&["a", "b"]);
    ledger.report(of[0].0, &[pair("b", MILLI)], SECOND);
    ledger.leave(of[0].0, of[0].1, true, SECOND);
    ledger.changes();
    let ids = ledger.ids();
    assert_eq!(ledger.sweep(&ids, SECOND * 500).0.old, 1);
    let (tally, gone) = ledger.sweep(&ids, SECOND * 601);
    assert_eq!((tally, gone), (Tally::default(), vec![of[0].0]));
    assert_eq!(ledger.id("b"), Some(of[1].0), "its stream is there");
    assert!(ledger.get(of[1].0).unwrap().sources.is_empty());
}

#[test]
fn a_tenth_gone_leaves_the_others() {
    let names: Vec<String> = (0..40).map(|i| format!("n{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut ledger, of) = with(&names);
    let all: Vec<Pair> = names.iter().map(|n| pair(n, MILLI)).collect();
    for (i, (id, _)) in of.iter().enumerate() {
        let others: Vec<Pair> = all
            .iter()
            .enumerate()
            .filter(|(j, _)| *j != i)
            .map(|(_, p)| p.clone())
            .collect();
        assert!(ledger.report(*id, &others, SECOND).is_empty());
    }
    let (tally, _) = ledger.sweep(&ledger.ids(), SECOND);
    assert_eq!(tally.fresh, 40 * 39 / 2);
    for (id, stream) in &of[..4] {
        ledger.leave(*id, *stream, true, SECOND * 2);
    }
    for seconds in (30..=600).step_by(30) {
        for (i, (id, _)) in of.iter().enumerate().skip(4) {
            let told = |(j, p): (usize, &Pair)| match j {
                j if j == i => None,
                0..4 => Some(Pair {
                    node: p.node.clone(),
                    instance: p.instance.clone(),
                    ..lost("")
                }),
                _ => Some(p.clone()),
            };
            let others: Vec<Pair> = all.iter().enumerate().filter_map(told).collect();
            assert!(ledger.report(*id, &others, SECOND * seconds).is_empty());
        }
    }
    let (tally, _) = ledger.sweep(&ledger.ids(), SECOND * 600);
    assert_eq!((tally.fresh, tally.unreachable), (36 * 35 / 2, 0));
    let (_, gone) = ledger.sweep(&ledger.ids(), SECOND * 602);
    assert_eq!(gone.len(), 4);
}

proptest! {
    /// Whatever comes: readings are the same both ways, links go both ways, and
    /// readings only age as time goes by.
    #[test]
    fn always_consistent(steps in proptest::collection::vec((0usize..6, 0usize..6, 0u64..5, 0u32..9, 0u64..100), 0..60)) {
        let names = ["a", "b", "c", "d", "e", "f"];
        let (mut ledger, mut of) = with(&names);
        let mut now = Duration::ZERO;
        for (from, to, what, state, seconds) in steps {
            now += Duration::from_secs(seconds);
            let (id, stream) = of[from];
            match what {
                0 => of[from] = ledger.join(&format!("uid-{}", names[from]), &hello(names[from], "boot"), now),
                1 => ledger.leave(id, stream, state % 2 == 0, now),
                2 => {
                    let ids = ledger.ids();
                    ledger.sweep(&ids, now);
                }
                _ => {
                    let told = Pair { state: (state % 3) as i32, refresh_millis: state * 2000, ..pair(names[to], MILLI) };
                    ledger.report(id, &[told], now);
                }
            }
            for a in ledger.ids() {
                let instance = ledger.get(a).unwrap();
                for (to, _) in &instance.ways {
                    prop_assert!(ledger.get(*to).unwrap().sources.contains(&a));
                }
                for source in &instance.sources {
                    prop_assert!(ledger.measured(*source).contains(&a));
                }
                for (b, reading) in ledger.row(a, now) {
                    prop_assert_eq!(&reading, &ledger.reading(b, a, now));
                    let later = ledger.reading(b, a, now + Duration::from_secs(700));
                    prop_assert_eq!(later, Reading::Nothing);
                }
            }
        }
    }
}
