//! From held places to bound pods.

use super::*;

#[test]
fn binds_reserve_together_and_write_together() {
    let mut bench = Bench::held(&["a", "b"]);
    assert_eq!(bench.bind("a", Step::Came), []);
    assert_eq!(bench.bind("a", Step::Came), [], "it is the same bind");
    let both = bench.bind("b", Step::Came);
    assert_eq!(both, proceed(&["a", "b"], Next::Reserve));
    assert_eq!(bench.bind("b", Step::Reserved), []);
    assert_eq!(bench.bind("b", Step::Reserved), []);
    let both = bench.bind("a", Step::Reserved);
    assert_eq!(both, proceed(&["a", "b"], Next::Write));
    assert_eq!(bench.phase(), Phase::Writing);
    let writes = "an earlier bind of the pod is being written";
    assert_eq!(bench.bind("a", Step::Came), [fail("a", writes)]);
    assert_eq!(bench.bind("a", Step::Left), [], "the write counts");
    assert_eq!(bench.bind("a", Step::Written), []);
    assert_eq!(bench.see_with("g", "b", 0, true), []);
    assert_eq!(bench.bind("b", Step::Written), []);
    assert_eq!(bench.phase(), Phase::Bound);
    assert_eq!(bench.tick(60_000), []);
}

#[test]
fn binds_without_a_place_fail() {
    let mut bench = Bench::with(2, &["a", "b"]);
    assert_eq!(bench.bind("a", Step::Came), [fail("a", NO_PLACE)]);
    let unknown = "the pod is not known as a member of its group";
    assert_eq!(bench.bind("x", Step::Came), [fail("x", unknown)]);
    bench.planned("g", 1, &["a", "b"]);
    bench.see("g", "late");
    assert_eq!(bench.bind("late", Step::Came), [fail("late", NO_PLACE)]);
    let (group, uid) = (key("other"), "a".into());
    let step = Step::Came;
    let actions = bench.apply(Event::Bind { group, uid, step });
    let unknown = "group other of offer shop/near is not known";
    assert_eq!(actions, [fail("a", unknown)]);
}

#[test]
fn late_members_wait_and_are_alone_once_the_group_is_bound() {
    let mut bench = Bench::held(&["a", "b"]);
    bench.see("g", "late");
    assert_eq!(bench.ask("late"), waiting(3, Some(2)));
    bench.see_with("g", "a", 0, true);
    assert_eq!(bench.ask("b"), place("b"), "its place is still held");
    assert_eq!(bench.see_with("g", "b", 0, true), [wake(&["late"])]);
    assert_eq!(bench.ask("late"), Verdict::Alone);
    bench.gone("a");
    assert_eq!(bench.ask("late"), Verdict::Alone, "it takes the place of a");
}

#[test]
fn failed_reservations_end_the_round() {
    let mut bench = Bench::held(&["a", "b"]);
    bench.bind("a", Step::Came);
    bench.bind("b", Step::Came);
    bench.bind("a", Step::Reserved);
    let why = "the bind of b failed: full";
    let actions = bench.bind("b", Step::Failed("full".to_owned()));
    assert_eq!(actions, [fail("a", why), free(&["a", "b"])]);
    assert_eq!(bench.ask("a"), Verdict::Planning);
    assert_eq!(bench.bind("a", Step::Reserved), [], "the bind has ended");
    assert_eq!(bench.tick(999), []);
    assert_eq!(bench.tick(1), [plan("g", 2, &["a", "b"])]);
    let actions = bench.planned("g", 2, &["a", "b"]);
    assert_eq!(actions, [hold("g", &["a", "b"]), wake(&["a", "b"])]);
}

#[test]
fn callers_that_leave_and_lost_places_end_the_round() {
    let mut bench = Bench::held(&["a", "b"]);
    assert_eq!(bench.bind("b", Step::Left), [], "its bind did not come");
    bench.bind("a", Step::Came);
    assert_eq!(bench.bind("a", Step::Left), [free(&["a", "b"])]);
    assert_eq!(bench.lost("a"), [], "it has no place");

    let mut bench = Bench::held(&["a", "b"]);
    bench.bind("a", Step::Came);
    let why = "the place of b is lost: taint";
    assert_eq!(
        bench.lost("b"),
        [wake(&["b"])],
        "it may not have been known"
    );
    assert_eq!(bench.ask("b"), place("b"));
    assert_eq!(bench.lost("b"), [fail("a", why), free(&["a", "b"])]);
    assert_eq!(bench.tick(1_000), [plan("g", 2, &["a", "b"])]);
}

#[test]
fn members_that_go_end_the_round_and_the_rest_is_planned_at_once() {
    let mut bench = Bench::with(2, &["a", "b", "c"]);
    bench.planned("g", 1, &["a", "b"]);
    bench.bind("a", Step::Came);
    let why = "a pod of the group is gone";
    let next = plan("g", 2, &["a", "c"]);
    let actions = [fail("a", why), free(&["a", "b"]), next];
    assert_eq!(bench.gone("b"), actions);
    assert_eq!(
        bench.see("g", "b"),
        [],
        "what the filter shows is out of date"
    );
}

#[test]
fn higher_minimum_ends_the_round() {
    let mut bench = Bench::held(&["a", "b"]);
    assert_eq!(bench.minimum("g", 3), [free(&["a", "b"])]);
    assert_eq!(bench.ask("a"), waiting(2, Some(3)));
}

#[test]
fn held_places_are_freed_after_the_timeout() {
    let mut bench = Bench::held(&["a", "b"]);
    bench.bind("a", Step::Came);
    assert_eq!(bench.tick(29_999), []);
    let why = "not all pods of the group were bound within 30 s";
    assert_eq!(bench.tick(1), [fail("a", why), free(&["a", "b"])]);
    let state = bench.board.states().next().unwrap().1;
    assert_eq!((state.failures, state.why.as_deref()), (1, Some(why)));
}

#[test]
fn failed_writes_leave_the_written_members_and_plan_the_rest() {
    let all = ["a", "b", "c"];
    let mut bench = Bench::held(&all);
    all.iter()
        .for_each(|name| drop(bench.bind(name, Step::Came)));
    all.iter()
        .for_each(|name| drop(bench.bind(name, Step::Reserved)));
    assert_eq!(bench.bind("a", Step::Written), []);
    let failed = bench.bind("b", Step::Failed("conflict".to_owned()));
    assert_eq!(failed, [free(&["b"])]);
    assert_eq!(bench.ask("b"), waiting(3, Some(3)), "c is being written");
    assert_eq!(bench.ask("c"), place("c"));
    // The API server did not answer for c.
    assert_eq!(bench.tick(30_000), [free(&["c"])]);
    assert_eq!(bench.tick(1_000), [plan("g", 2, &["b", "c"])]);
    // Its answer comes late, so that only b is left.
    assert_eq!(bench.bind("c", Step::Written), [wake(&["b"])]);
    assert_eq!(bench.ask("b"), Verdict::Alone);
}

/// Makes a board with group "g", whose binds may write after 29 s.
fn writing(names: &[&str]) -> Bench {
    let mut bench = Bench::held(names);
    bench.tick(29_000);
    for step in [Step::Came, Step::Reserved] {
        for name in names {
            bench.bind(name, step.clone());
        }
    }
    assert_eq!(bench.phase(), Phase::Writing);
    bench
}

#[test]
fn writes_have_their_own_timeout() {
    let mut bench = writing(&["a", "b"]);
    assert_eq!(bench.tick(29_999), []);
    assert_eq!(bench.lost("a"), []);
    assert_eq!(bench.tick(1), [free(&["a", "b"])]);
    assert_eq!(bench.tick(1_000), [plan("g", 2, &["a", "b"])]);
}

#[test]
fn members_that_go_while_they_are_written_leave_their_place() {
    let mut bench = writing(&["a", "b"]);
    assert_eq!(bench.gone("b"), [free(&["b"])]);
    assert_eq!(bench.bind("b", Step::Failed("not found".to_owned())), []);
    assert_eq!(bench.bind("a", Step::Written), []);
    assert_eq!(bench.see("g", "c"), []);
    assert_eq!(bench.ask("c"), Verdict::Alone);
}

#[test]
fn members_that_are_bound_elsewhere_do_not_hold_up_the_rest() {
    let mut bench = Bench::held(&["a", "b", "c"]);
    bench.bind("a", Step::Came);
    bench.bind("b", Step::Came);
    let rest = bench.see_with("g", "c", 0, true);
    assert_eq!(rest, proceed(&["a", "b"], Next::Reserve));
    bench.bind("a", Step::Reserved);
    let mut actions = vec![fail("b", "the pod is bound already")];
    actions.extend(proceed(&["a"], Next::Write));
    assert_eq!(bench.see_with("g", "b", 0, true), actions);
}

#[test]
fn failures_back_off() {
    let mut bench = Bench::held(&["a", "b"]);
    for (number, seconds) in [1, 2, 4, 8, 16, 30, 30].into_iter().enumerate() {
        bench.bind("a", Step::Came);
        assert_eq!(bench.bind("a", Step::Left), [free(&["a", "b"])]);
        assert_eq!(bench.tick(seconds * 1_000 - 1), []);
        let number = u64::try_from(number).unwrap() + 2;
        assert_eq!(bench.tick(1), [plan("g", number, &["a", "b"])]);
        bench.planned("g", number, &["a", "b"]);
    }
    bench.see_with("g", "a", 0, true);
    bench.see_with("g", "b", 0, true);
    let state = bench.board.states().next().unwrap().1;
    assert_eq!((state.failures, state.why), (0, None));
}

#[test]
fn without_binds_there_is_no_barrier() {
    let mut bench = Bench::new(false);
    bench.minimum("g", 2);
    bench.see("g", "a");
    bench.see("g", "b");
    bench.ask_all();
    bench.planned("g", 1, &["a", "b"]);
    let why = "the extender does not bind the pods of groups";
    assert_eq!(bench.bind("a", Step::Came), [fail("a", why)]);
    assert_eq!(bench.see_with("g", "a", 0, true), []);
    assert_eq!(bench.tick(30_000), [free(&["b"]), wake(&["b"])]);
    assert_eq!(bench.ask("b"), Verdict::Alone);
}

#[test]
fn lone_binds_end_when_the_group_is_placed_together_or_time_passes() {
    let mut bench = Bench::with(1, &["a", "b"]);
    bench.bind("a", Step::Came);
    assert_eq!(bench.tick(30_000), [fail("a", "the bind took too long")]);
    bench.bind("b", Step::Came);
    let why = "the pod is placed together with its group now";
    assert_eq!(bench.minimum("g", 2), [fail("b", why)]);
    assert_eq!(bench.ask_all(), [plan("g", 1, &["a", "b"])]);
}

#[test]
fn members_that_are_written_alone_are_not_planned() {
    let mut bench = Bench::with(1, &["a", "b", "c"]);
    bench.bind("a", Step::Came);
    bench.bind("a", Step::Reserved);
    assert_eq!(bench.minimum("g", 3), []);
    bench.ask_all();
    let failed = bench.bind("a", Step::Failed("conflict".to_owned()));
    assert_eq!(failed, [plan("g", 1, &["a", "b", "c"])]);
    assert_eq!(bench.board.place(&key("g"), "a"), None);
    bench.planned("g", 1, &["a", "b", "c"]);
    let node = bench.board.place(&key("g"), "a").unwrap();
    assert_eq!(&**node, "node-a");
}

#[test]
fn bound_members_stay_bound() {
    let mut bench = Bench::with(2, &["a", "b"]);
    bench.see_with("g", "a", 0, true);
    bench.see("g", "a");
    assert_eq!(bench.ask("b"), Verdict::Alone);
}

#[test]
fn groups_without_members_are_dropped() {
    let mut bench = Bench::with(2, &["a"]);
    bench.gone("a");
    bench.tick(29_999);
    assert_eq!(bench.board.states().count(), 0, "it has no members");
    assert_eq!(bench.board.groups.len(), 1);
    bench.tick(1);
    assert!(bench.board.groups.is_empty());
    assert_eq!(bench.tick(1), []);
}
