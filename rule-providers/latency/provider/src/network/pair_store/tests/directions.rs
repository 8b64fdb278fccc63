//! Two directions of a pair, and machines that change under a name.

use super::*;

#[test]
fn of_two_directions_the_larger_counts_and_over_a_fifth_apart_is_flagged() {
    for (there, back, apart) in [(100, 119, false), (100, 121, true), (121, 100, true)] {
        let (mut store, of) = with(&["a", "b"]);
        store.report(of[0].0, &[pair("b", there * MILLI)], SECOND);
        store.report(of[1].0, &[pair("a", back * MILLI)], SECOND);
        let Measurement::Fresh(figure) = store.measurement(of[0].0, of[1].0, SECOND) else {
            panic!("not fresh");
        };
        assert_eq!(figure.median, Duration::from_millis(there.max(back)));
        assert_eq!(figure.asymmetric, apart);
        let (counts, _) = sweep(&mut store, SECOND);
        let expected = PairCounts {
            fresh: 1,
            asymmetric: apart.into(),
            ..PairCounts::default()
        };
        assert_eq!(counts, expected);
    }
}

#[test]
fn echoes_count_before_connects_and_these_are_called_such() {
    let (mut store, of) = with(&["a", "b"]);
    let by_connect = |to, nanos| Pair {
        connect: true,
        ..pair(to, nanos)
    };
    let read = |store: &PairStore, s: u32| match store.measurement(of[0].0, of[1].0, SECOND * s) {
        Measurement::Fresh(f) => (f.median, f.connect, f.asymmetric),
        other => panic!("{other:?}"),
    };
    store.report(of[0].0, &[by_connect("b", 9 * MILLI)], SECOND);
    assert_eq!(read(&store, 1), (Duration::from_millis(9), true, false));
    assert_eq!(sweep(&mut store, SECOND).0.connect, 1);
    store.report(of[1].0, &[pair("a", MILLI)], SECOND * 2);
    assert_eq!(read(&store, 2), (Duration::from_millis(1), false, false));
    store.report(of[1].0, &[by_connect("a", MILLI)], SECOND * 3);
    assert_eq!(read(&store, 3), (Duration::from_millis(9), true, true));
}

#[test]
fn another_uid_or_boot_is_another_machine() {
    for (uid, boot) in [("uid-b", "another"), ("another", "boot")] {
        let (mut store, of) = with(&["a", "b", "c"]);
        store.report(of[0].0, &[pair("b", MILLI), pair("c", MILLI)], SECOND);
        store.report(of[1].0, &[pair("a", MILLI), pair("c", MILLI)], SECOND);
        store.take_changes();
        let (new, _) = store.join(uid, &hello("b", boot), SECOND * 2);
        assert_ne!(new, of[1].0);
        for other in [of[0].0, of[2].0] {
            assert_eq!(
                store.measurement(new, other, SECOND * 2),
                Measurement::Missing
            );
            assert_eq!(
                store
                    .row(other, SECOND * 2)
                    .iter()
                    .filter(|r| r.0 == of[1].0)
                    .count(),
                0
            );
        }
        assert_eq!(
            state(&store.measurement(of[0].0, of[2].0, SECOND * 2)),
            "fresh"
        );
        assert!(!store.is_current(of[1].0, of[1].1), "the old stream is out");
        // Reports of the old one, or by it, are refused.
        let refused = store.report(of[0].0, &[pair("b", MILLI)], SECOND * 3);
        assert_eq!(refused, [Refusal::UnknownInstance]);
        let refused = store.report(of[1].0, &[pair("a", MILLI)], SECOND * 3);
        assert_eq!(refused, [Refusal::UnknownInstance]);
        let changes = store.take_changes();
        assert_eq!(changes.left, [of[1].0]);
        assert_eq!(changes.joined, [new]);
    }
}
