//! For how long a figure is fresh, old, and gone.

use super::*;

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
