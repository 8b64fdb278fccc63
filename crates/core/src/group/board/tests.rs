mod barrier;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);

fn key(name: &str) -> GroupKey {
    GroupKey {
        namespace: "shop".into(),
        offer: "near".into(),
        name: name.into(),
    }
}

fn uids(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|&name| name.into()).collect()
}

/// A board with a clock. Places are one node for each member.
struct Bench {
    board: Board,
    now: Instant,
}

impl Bench {
    fn new(binds: bool) -> Self {
        Self {
            board: Board::new(TIMEOUT, binds),
            now: Instant::now(),
        }
    }

    /// Makes a board with group "g" of this minimum and these members, whose plan has number 1.
    fn with(minimum: u32, names: &[&str]) -> Self {
        let mut bench = Self::new(true);
        bench.minimum("g", minimum);
        for name in names {
            bench.see("g", name);
            bench.ask_all();
        }
        bench
    }

    /// Makes a board with group "g", whose plan succeeded.
    fn held(names: &[&str]) -> Self {
        let mut bench = Self::with(u32::try_from(names.len()).unwrap(), names);
        bench.planned("g", 1, names);
        bench
    }

    fn apply(&mut self, event: Event) -> Vec<Action> {
        self.board.apply(event, self.now)
    }

    fn minimum(&mut self, group: &str, minimum: u32) -> Vec<Action> {
        self.apply(Event::Minimum {
            group: key(group),
            minimum: Some(minimum),
        })
    }

    fn see_with(&mut self, group: &str, name: &str, priority: i32, bound: bool) -> Vec<Action> {
        self.apply(Event::Seen {
            group: key(group),
            member: Member {
                uid: name.into(),
                name: name.into(),
                priority,
                created_unix: 0,
                bound,
            },
        })
    }

    fn see(&mut self, group: &str, name: &str) -> Vec<Action> {
        self.see_with(group, name, 0, false)
    }

    fn gone(&mut self, name: &str) -> Vec<Action> {
        let (group, uid) = (key("g"), name.into());
        self.apply(Event::Gone { group, uid })
    }

    fn planned(&mut self, group: &str, number: u64, names: &[&str]) -> Vec<Action> {
        self.apply(Event::Planned {
            group: key(group),
            number,
            places: places(names),
        })
    }

    fn no_room(&mut self, group: &str, number: u64) -> Vec<Action> {
        self.apply(Event::NoRoom {
            group: key(group),
            number,
            placed: 1,
            why: "latency".to_owned(),
        })
    }

    fn lost(&mut self, name: &str) -> Vec<Action> {
        self.apply(Event::Lost {
            group: key("g"),
            uid: name.into(),
            why: "taint".to_owned(),
        })
    }

    fn bind(&mut self, name: &str, step: Step) -> Vec<Action> {
        let (group, uid) = (key("g"), name.into());
        self.apply(Event::Bind { group, uid, step })
    }

    fn ask(&mut self, name: &str) -> Verdict {
        let (verdict, actions) = self.board.ask(&key("g"), name, self.now);
        assert_eq!(actions, []);
        verdict
    }

    /// Lets kube-scheduler try all members.
    fn ask_all(&mut self) -> Vec<Action> {
        let groups = self.board.groups.iter();
        let members = groups.flat_map(|(key, group)| {
            let uids = group.members.keys();
            uids.map(move |uid| (key.clone(), Arc::clone(uid)))
        });
        let members: Vec<_> = members.collect();
        let asked = members
            .iter()
            .map(|(group, uid)| self.board.ask(group, uid, self.now).1);
        asked.flatten().collect()
    }

    /// Applies a tick after these milliseconds, and lets kube-scheduler try all members.
    fn tick(&mut self, millis: u64) -> Vec<Action> {
        self.now += Duration::from_millis(millis);
        let mut actions = self.apply(Event::Tick);
        actions.extend(self.ask_all());
        actions
    }

    fn phase(&self) -> Phase {
        self.board.states().next().unwrap().1.phase
    }
}

fn places(names: &[&str]) -> Places {
    let place = |&name: &&str| (name.into(), format!("node-{name}").into());
    names.iter().map(place).collect()
}

fn plan(group: &str, number: u64, members: &[&str]) -> Action {
    Action::Plan {
        group: key(group),
        number,
        members: uids(members),
    }
}

fn hold(group: &str, names: &[&str]) -> Action {
    Action::Hold {
        group: key(group),
        places: places(names),
    }
}

fn free(names: &[&str]) -> Action {
    Action::Free {
        group: key("g"),
        uids: uids(names),
    }
}

fn wake(names: &[&str]) -> Action {
    Action::Wake {
        group: key("g"),
        uids: uids(names),
    }
}

fn proceed(names: &[&str], step: Next) -> Vec<Action> {
    let uids = uids(names).into_iter();
    uids.map(|uid| Action::Proceed { uid, step }).collect()
}

fn fail(name: &str, why: &str) -> Action {
    Action::Fail {
        uid: name.into(),
        why: why.to_owned(),
    }
}

fn place(name: &str) -> Verdict {
    Verdict::Place(format!("node-{name}").into())
}

fn waiting(exist: usize, minimum: Option<u32>) -> Verdict {
    Verdict::Waiting { exist, minimum }
}

const NO_PLACE: &str = "the pod's group has no place held for it";

#[test]
fn groups_of_one_are_placed_alone() {
    let mut bench = Bench::new(true);
    assert_eq!(bench.ask("a"), waiting(0, None));
    bench.see("g", "a");
    assert_eq!(bench.ask("a"), waiting(1, None));
    assert_eq!(bench.minimum("g", 1), [wake(&["a"])]);
    assert_eq!(bench.ask("a"), Verdict::Alone);
    assert_eq!(bench.bind("a", Step::Came), proceed(&["a"], Next::Reserve));
    let written = bench.bind("a", Step::Reserved);
    assert_eq!(written, proceed(&["a"], Next::Write));
    assert_eq!(bench.bind("a", Step::Written), []);
    assert_eq!(bench.phase(), Phase::Bound);
}

#[test]
fn last_member_starts_the_plan_and_the_plan_wakes_the_others() {
    let mut bench = Bench::with(3, &["b", "a"]);
    assert_eq!(bench.ask("a"), waiting(2, Some(3)));
    assert_eq!(bench.see("g", "c"), [plan("g", 1, &["a", "b", "c"])]);
    assert_eq!(bench.see("g", "c"), [], "the member is known");
    assert_eq!(bench.ask("b"), Verdict::Planning);
    let all = ["a", "b", "c"];
    let actions = bench.planned("g", 1, &all);
    assert_eq!(actions, [hold("g", &all), wake(&["a", "b"])]);
    assert_eq!(bench.ask("c"), place("c"));
    assert_eq!(bench.planned("g", 1, &all), [], "the result is known");
}

/// Another replica of the extender may serve kube-scheduler.
#[test]
fn groups_that_nobody_asks_about_are_not_planned() {
    let mut bench = Bench::new(true);
    bench.minimum("g", 2);
    bench.see("g", "a");
    assert_eq!(bench.see("g", "b"), []);
    assert_eq!(bench.apply(Event::Tick), []);
    assert_eq!(bench.ask_all(), [plan("g", 1, &["a", "b"])]);
}

/// kube-scheduler's watch may be ahead of the extender's.
#[test]
fn pods_that_are_asked_about_before_they_are_seen_are_woken() {
    let mut bench = Bench::new(true);
    bench.minimum("g", 2);
    assert_eq!(bench.ask("a"), waiting(0, Some(2)));
    bench.see("g", "a");
    assert_eq!(bench.see("g", "b"), [plan("g", 1, &["a", "b"])]);
    let actions = bench.planned("g", 1, &["a", "b"]);
    assert_eq!(actions, [hold("g", &["a", "b"]), wake(&["a"])]);
}

#[test]
fn oldest_members_are_planned_first_and_not_more_than_the_maximum() {
    let mut bench = Bench::new(true);
    let mut last = Vec::new();
    for age in 0..520_u32 {
        let uid: Arc<str> = format!("{age}").into();
        let member = Member {
            name: Arc::clone(&uid),
            uid,
            priority: 0,
            created_unix: -i64::from(age),
            bound: false,
        };
        let group = key("g");
        last = bench.apply(Event::Seen { group, member });
    }
    assert_eq!(last, []);
    bench.ask("0");
    let actions = bench.minimum("g", 512);
    let [Action::Plan { members, .. }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(members.len(), MAX_MEMBERS);
    assert_eq!((&*members[0], &*members[511]), ("519", "8"));
    assert_eq!(bench.minimum("g", 513), []);
    let Verdict::NoRoom { placed: 0, of, why } = bench.ask("7") else {
        panic!()
    };
    assert_eq!((of, &*why), (513, "a plan has at most 512 members"));
}

#[test]
fn plans_run_one_at_a_time_by_priority_then_by_the_time_of_completion() {
    let mut bench = Bench::with(2, &["a", "b"]);
    for (group, names, priority) in [
        ("late", ["c", "d"], 0),
        ("high", ["e", "f"], 5),
        ("early", ["g", "h"], 0),
    ] {
        bench.minimum(group, 2);
        if group == "early" {
            bench.now -= Duration::from_millis(1);
        }
        bench.see_with(group, names[0], priority, false);
        bench.ask_all();
        assert_eq!(bench.see(group, names[1]), []);
    }
    bench.now += Duration::from_millis(1);
    let actions = bench.planned("g", 1, &["a", "b"]);
    let next = plan("high", 2, &["e", "f"]);
    assert_eq!(actions, [hold("g", &["a", "b"]), wake(&["a", "b"]), next]);
    let next = plan("early", 3, &["g", "h"]);
    assert_eq!(bench.no_room("high", 2), [next]);
    assert_eq!(bench.no_room("early", 3), [plan("late", 4, &["c", "d"])]);
}

#[test]
fn groups_that_waited_for_the_timeout_come_before_priority() {
    let mut bench = Bench::new(true);
    for group in ["busy", "low", "high"] {
        bench.minimum(group, 2);
    }
    bench.see("busy", "a");
    bench.see("busy", "b");
    bench.ask_all();
    bench.see("low", "c");
    bench.see("low", "d");
    bench.ask_all();
    bench.now += TIMEOUT - Duration::from_millis(1);
    bench.see_with("high", "e", 9, false);
    bench.see("high", "f");
    bench.ask_all();
    bench.now += Duration::from_millis(1);
    let actions = bench.no_room("busy", 1);
    assert_eq!(actions, [plan("low", 2, &["c", "d"])]);
}

#[test]
fn results_for_an_earlier_membership_are_dropped() {
    let mut bench = Bench::with(2, &["b", "c"]);
    assert_eq!(bench.see("g", "d"), [], "a later member changes nothing");
    assert_eq!(bench.phase(), Phase::Planning);
    assert_eq!(bench.see("g", "a"), [], "the first plan still runs");
    assert_eq!(bench.phase(), Phase::Queued);
    let actions = bench.planned("g", 1, &["b", "c"]);
    assert_eq!(actions, [plan("g", 2, &["a", "b"])]);
    for gone in ["a", "b", "d"] {
        assert_eq!(bench.gone(gone), []);
    }
    assert_eq!(bench.planned("g", 2, &["a", "b"]), []);
    assert_eq!(bench.ask("c"), waiting(1, Some(2)));
}

#[test]
fn plans_without_a_result_are_repeated_after_the_timeout() {
    let mut bench = Bench::with(2, &["a", "b"]);
    assert_eq!(bench.tick(29_999), []);
    assert_eq!(bench.tick(1), []);
    assert_eq!(bench.planned("g", 1, &["a", "b"]), []);
    assert_eq!(bench.tick(1_000), [plan("g", 2, &["a", "b"])]);
}

#[test]
fn incomplete_plans_count_as_no_room() {
    let mut bench = Bench::with(2, &["a", "b"]);
    assert_eq!(bench.planned("g", 1, &["a", "x"]), []);
    assert!(matches!(
        bench.ask("a"),
        Verdict::NoRoom {
            placed: 1,
            of: 2,
            ..
        }
    ));
}

#[test]
fn no_room_is_planned_again_when_a_member_asks_later() {
    let mut bench = Bench::with(2, &["a", "b"]);
    bench.no_room("g", 1);
    let no_room = Verdict::NoRoom {
        placed: 1,
        of: 2,
        why: "latency".into(),
    };
    bench.now += Duration::from_millis(1_999);
    assert_eq!(bench.ask("a"), no_room);
    bench.now += Duration::from_millis(1);
    let (verdict, actions) = bench.board.ask(&key("g"), "a", bench.now);
    assert_eq!(verdict, no_room);
    assert_eq!(actions, [plan("g", 2, &["a", "b"])]);
    assert_eq!(bench.ask("b"), no_room, "the new plan has no result yet");
    let actions = bench.planned("g", 2, &["a", "b"]);
    assert_eq!(actions, [hold("g", &["a", "b"]), wake(&["a", "b"])]);
    assert_eq!(bench.ask("a"), place("a"));
}

#[test]
fn no_room_is_planned_again_when_the_membership_changes() {
    let mut bench = Bench::with(2, &["a", "b"]);
    bench.no_room("g", 1);
    assert_eq!(bench.see("g", "c"), [plan("g", 2, &["a", "b"])]);
    assert_eq!(bench.ask("a"), Verdict::Planning);
    bench.no_room("g", 2);
    assert_eq!(bench.gone("c"), [plan("g", 3, &["a", "b"])]);
}
