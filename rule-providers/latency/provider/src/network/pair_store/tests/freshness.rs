//! For how long a figure is fresh, old, and gone.

use super::*;

#[test]
fn from_fresh_to_old_to_nothing() {
    let (mut store, of) = with(&["a", "b"]);
    let (a, b) = (of[0].0, of[1].0);
    let at = |store: &PairStore, seconds: u64| {
        state(&store.measurement(b, a, SECOND * seconds as u32)).to_owned()
    };
    assert_eq!(at(&store, 0), "missing");
    assert!(
        store
            .report(a, &[pair("b", MILLI)], Duration::ZERO)
            .is_empty()
    );
    let Measurement::Fresh(figure) = store.measurement(a, b, SECOND) else {
        panic!("not fresh");
    };
    assert_eq!(figure.median, Duration::from_millis(1));
    assert_eq!((figure.windows.len(), figure.samples), (3, 60));
    assert_eq!((figure.p95, figure.age), (Duration::from_millis(2), SECOND));
    // Without a frame it is fresh for twice its refresh time.
    assert_eq!(
        (at(&store, 59).as_str(), at(&store, 60).as_str()),
        ("fresh", "stale")
    );
    // Frames confirm the pair, and a repeated report makes it new.
    for seconds in (2..=100).step_by(2) {
        let frame = if seconds % 30 == 0 {
            vec![pair("b", MILLI)]
        } else {
            vec![]
        };
        store.report(a, &frame, SECOND * seconds);
    }
    assert_eq!(at(&store, 101), "fresh");
    let Measurement::Fresh(figure) = store.measurement(a, b, SECOND * 101) else {
        panic!("not fresh");
    };
    assert_eq!(figure.age, SECOND * 11);
    // The stream has gone: twice the refresh after the last sample, at 90 s.
    store.leave(a, of[0].1, true, SECOND * 101);
    assert_eq!(
        (at(&store, 149).as_str(), at(&store, 150).as_str()),
        ("fresh", "stale")
    );
    assert_eq!(
        (at(&store, 689).as_str(), at(&store, 690).as_str()),
        ("stale", "missing")
    );
}

#[test]
fn unreported_pair_ages_while_its_agent_is_connected() {
    let (mut store, of) = with(&["a", "b"]);
    store.report(of[0].0, &[pair("b", MILLI)], Duration::ZERO);
    for seconds in (0..=90).step_by(2) {
        store.report(of[0].0, &[], SECOND * seconds);
    }
    let measurement = store.measurement(of[0].0, of[1].0, SECOND * 90);
    assert_eq!(state(&measurement), "stale");
    // And at once, if the agent says so.
    store.report(of[0].0, &[pair("b", MILLI)], SECOND * 91);
    assert_eq!(
        state(&store.measurement(of[0].0, of[1].0, SECOND * 91)),
        "fresh"
    );
    let stale = Pair {
        state: State::Stale.into(),
        ..pair("b", MILLI)
    };
    store.report(of[0].0, &[stale], SECOND * 92);
    assert_eq!(
        state(&store.measurement(of[0].0, of[1].0, SECOND * 92)),
        "stale"
    );
}

#[test]
fn a_visit_every_two_seconds_is_trusted_for_six_without_a_frame() {
    let (mut store, of) = with(&["a", "b"]);
    let often = Pair {
        refresh_millis: 2000,
        ..pair("b", MILLI)
    };
    store.report(of[0].0, &[often], Duration::ZERO);
    store.report(of[0].0, &[], SECOND * 10);
    let at = |s: u32| state(&store.measurement(of[0].0, of[1].0, SECOND * s)).to_owned();
    assert_eq!((at(15).as_str(), at(16).as_str()), ("fresh", "stale"));
}
