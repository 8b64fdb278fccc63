//! Two directions of a pair, and machines that change under a name.

use super::*;

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
