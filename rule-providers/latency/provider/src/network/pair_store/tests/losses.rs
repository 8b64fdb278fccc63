//! When losses make a pair unreachable.

use super::*;

#[test]
fn losses_count_while_someone_is_there_to_answer() {
    let (mut store, of) = with(&["a", "b"]);
    let (a, b) = (of[0].0, of[1].0);
    store.report(a, &[pair("b", MILLI)], SECOND * 41);
    store.report(b, &[pair("a", MILLI)], SECOND * 41);
    store.report(a, &[lost("b")], SECOND * 42);
    store.report(a, &[lost("b")], SECOND * 43);
    let (since, rarely_probed) = (SECOND * 2, true);
    assert_eq!(
        store.measurement(a, b, SECOND * 44),
        Measurement::Unreachable {
            since,
            rarely_probed
        }
    );
    // Silent: the node may have gone with its network.
    let mut silent = with(&["a", "b"]).0;
    silent.report(a, &[lost("b")], SECOND * 60);
    silent.leave(b, of[1].1, true, SECOND * 61);
    assert_eq!(state(&silent.measurement(a, b, SECOND * 62)), "unreachable");
    // Closed: only the agent has gone; what it measured itself still holds.
    store.leave(b, of[1].1, true, SECOND * 44);
    assert_eq!(state(&store.measurement(a, b, SECOND * 44)), "fresh");
    // Come again: what was lost meanwhile does not count, nor reports before
    // there was time for a visit; what is lost then does.
    store.join("uid-b", &hello("b", "boot"), SECOND * 110);
    store.report(a, &[], SECOND * 110);
    assert_eq!(state(&store.measurement(a, b, SECOND * 110)), "stale");
    store.report(a, &[lost("b")], SECOND * 111);
    store.report(a, &[], SECOND * 144);
    assert_eq!(state(&store.measurement(a, b, SECOND * 144)), "stale");
    store.report(a, &[], SECOND * 145);
    assert_eq!(state(&store.measurement(a, b, SECOND * 145)), "unreachable");
}

/// When all processes of a node are killed, its kernel closes the agent's stream.
#[test]
fn losses_count_if_kubernetes_hears_nothing_of_the_node() {
    let (mut store, of) = with(&["a", "b"]);
    let (a, b) = (of[0].0, of[1].0);
    store.report(a, &[pair("b", MILLI)], SECOND * 41);
    store.report(b, &[], SECOND * 41);
    store.leave(b, of[1].1, true, SECOND * 42);
    store.report(a, &[lost("b")], SECOND * 44);
    assert_eq!(state(&store.measurement(a, b, SECOND * 80)), "stale");
    store.report(a, &[lost("b")], SECOND * 80);
    store.set_down(|node| node == "b");
    assert_eq!(state(&store.measurement(a, b, SECOND * 80)), "unreachable");
    // The node is back, its agent not yet.
    store.set_down(|_| false);
    assert_eq!(state(&store.measurement(a, b, SECOND * 81)), "stale");
}

#[test]
fn cut_link_of_a_rule_is_unreachable_with_its_report() {
    let (mut store, of) = with(&["a", "b"]);
    let named = |p: Pair| Pair {
        refresh_millis: 2_000,
        ..p
    };
    store.report(of[0].0, &[named(pair("b", MILLI))], SECOND * 10);
    store.report(of[0].0, &[named(lost("b"))], SECOND * 14);
    let (since, rarely_probed) = (Duration::ZERO, false);
    assert_eq!(
        store.measurement(of[0].0, of[1].0, SECOND * 14),
        Measurement::Unreachable {
            since,
            rarely_probed
        }
    );
}

#[test]
fn old_losses_are_no_news_until_the_stream_has_settled() {
    let (mut store, of) = with(&["a", "b"]);
    let (a, b) = (of[0].0, of[1].0);
    let at = |store: &PairStore, s: u32| state(&store.measurement(a, b, SECOND * s)).to_owned();
    store.report(b, &[], SECOND * 99);
    store.join("uid-a", &hello("a", "boot"), SECOND * 100);
    store.report(a, &[lost("b")], SECOND * 101);
    assert_eq!(at(&store, 104), "missing");
    assert_eq!(at(&store, 105), "unreachable", "it still says so");
    // What was known before is known in the next stream too.
    store.join("uid-a", &hello("a", "boot"), SECOND * 106);
    store.report(a, &[lost("b")], SECOND * 106);
    assert_eq!(at(&store, 106), "unreachable");
}

#[test]
fn an_echo_since_the_other_direction_was_lost_shows_that_nothing_is_cut() {
    let (mut store, of) = with(&["a", "b"]);
    let (a, b) = (of[0].0, of[1].0);
    let read = |store: &PairStore, s: u32| {
        let there = store.measurement(a, b, SECOND * s);
        assert_eq!(there, store.measurement(b, a, SECOND * s));
        state(&there).to_owned()
    };
    store.report(b, &[pair("a", MILLI)], SECOND * 49);
    store.report(a, &[lost("b")], SECOND * 50);
    assert_eq!(read(&store, 51), "unreachable");
    let before = Pair {
        age_millis: 1_500,
        ..pair("a", MILLI)
    };
    store.report(b, &[before], SECOND * 51);
    assert_eq!(read(&store, 51), "unreachable", "sampled before");
    store.report(b, &[pair("a", MILLI)], SECOND * 52);
    assert_eq!(read(&store, 52), "fresh");
    // It does not flap when the losses are reported again.
    store.report(a, &[lost("b")], SECOND * 80);
    assert_eq!(read(&store, 80), "fresh");
}

#[test]
fn losses_are_kept_for_ten_minutes_or_until_something_lost_is_reached_again() {
    let (mut store, of) = with(&["a", "b", "c", "d"]);
    let (a, b) = (of[0].0, of[1].0);
    let read = |store: &PairStore, s: u32| store.lost(a, SECOND * s).collect::<Vec<_>>();
    let alive = |store: &mut PairStore, s| {
        for (id, _) in &of {
            store.report(*id, &[], SECOND * s);
        }
    };
    alive(&mut store, 40);
    store.report(a, &[pair("b", MILLI), pair("c", MILLI)], SECOND * 40);
    store.report(a, &[lost("b")], SECOND * 50);
    assert_eq!(read(&store, 50), [b]);
    // Another pair of the same node, or of the lost one.
    for (node, other, at) in [(0, "c", 60), (1, "d", 100)] {
        let from = of[node].0;
        store.report(from, &[pair(other, MILLI)], SECOND * at);
        assert_eq!(read(&store, at), [b], "it was not lost");
        store.report(from, &[lost(other)], SECOND * (at + 10));
        store.report(from, &[pair(other, MILLI)], SECOND * (at + 20));
        assert_eq!(read(&store, at + 20), []);
        store.report(a, &[lost("b")], SECOND * (at + 30));
        assert_eq!(read(&store, at + 30), [b], "it is still lost");
    }
    // It is no target any more.
    alive(&mut store, 729);
    assert_eq!(state(&store.measurement(a, b, SECOND * 400)), "stale");
    assert_eq!(read(&store, 729), [b]);
    assert_eq!(read(&store, 730), []);
    // Its own echo came back, or its agent connected again.
    store.report(b, &[pair("a", MILLI)], SECOND * 700);
    assert_eq!(read(&store, 700), []);
    store.report(a, &[lost("b")], SECOND * 710);
    store.join("uid-b", &hello("b", "boot"), SECOND * 720);
    assert_eq!(read(&store, 730), []);
}
