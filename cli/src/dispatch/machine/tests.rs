//! Tests of the machine, with made-up times and answers.

use proptest::prelude::*;

use super::*;
use crate::dispatch::answers::tests::{of, what_if};

const TIMING: Timing = Timing {
    round: Duration::from_secs(300),
    retry: Duration::from_secs(30),
};

fn key(name: &str) -> Key {
    Key {
        namespace: "train".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn fits(cost: i64) -> Answer {
    of(&[what_if(&[cost])])
}

fn refused() -> Answer {
    of(&[what_if(&[-1, -1])])
}

fn full() -> Answer {
    let mut set = what_if(&[5]);
    set["group"] = serde_json::json!({"placed": 2, "pods": 4});
    of(&[set])
}

fn answers(of: &[(&str, Answer)]) -> Answers {
    let of = of.iter().cloned();
    of.map(|(name, answer)| (name.to_owned(), answer)).collect()
}

/// A machine with one workload, and the clock of its test.
struct Case {
    machine: Machine,
    now: Instant,
}

impl Case {
    /// Shows the workload with these nominated clusters to a new machine.
    fn new(nominated: &[&str]) -> (Self, Vec<Action>) {
        let mut case = Self {
            machine: Machine::new(TIMING),
            now: Instant::now(),
        };
        let actions = case.see(nominated);
        (case, actions)
    }

    fn see(&mut self, nominated: &[&str]) -> Vec<Action> {
        let all = BTreeMap::from([(key("a"), names(nominated))]);
        self.machine.apply(Event::Waiting(all), self.now)
    }

    fn after(&mut self, time: Duration) -> Vec<Action> {
        self.now += time;
        self.machine.apply(Event::Tick, self.now)
    }

    /// Answers the question of the only action.
    fn answer(&mut self, asked: &[Action], of: &[(&str, Answer)]) -> Vec<Action> {
        let [Action::Ask { key, number, .. }] = asked else {
            panic!("no question: {asked:?}");
        };
        let event = Event::Answered(key.clone(), *number, Some(answers(of)));
        self.machine.apply(event, self.now)
    }

    fn written(&mut self, is_written: bool) -> Vec<Action> {
        let event = Event::Written(key("a"), is_written);
        self.machine.apply(event, self.now)
    }
}

fn nominate(from: &[&str], to: &[&str]) -> Vec<Action> {
    vec![Action::Nominate {
        key: key("a"),
        from: names(from),
        to: names(to),
    }]
}

#[test]
fn machine_nominates_the_best_cluster_and_the_next_after_a_round() {
    let (mut case, asked) = Case::new(&[]);
    let of = [("east", fits(50)), ("north", refused()), ("west", fits(30))];
    assert_eq!(case.answer(&asked, &of), nominate(&[], &["west"]));
    assert_eq!(case.written(true), []);
    assert_eq!(case.see(&["west"]), []);
    assert_eq!(case.after(TIMING.round - Duration::from_secs(1)), []);
    let asked = case.after(Duration::from_secs(1));
    assert_eq!(
        case.answer(&asked, &of),
        nominate(&["west"], &["west", "east"])
    );
    case.written(true);
    // No cluster is left: the workload stays where it is, without an event.
    let asked = case.after(TIMING.round);
    assert_eq!(case.answer(&asked, &of), []);
    assert_eq!(case.machine.counts(), [1, 0, 0]);
}

#[test]
fn machine_reports_why_no_cluster_fits_and_asks_again() {
    let (mut case, asked) = Case::new(&[]);
    let away = Answer::Unknown("Timeout");
    let of = [
        ("east", refused()),
        ("north", away),
        ("west", Answer::Ungoverned),
    ];
    let reasons = "east: latency/OverLimit on 2 of 2 nodes; north: Timeout; west: NoOffer";
    let report = Action::Report {
        key: key("a"),
        reasons: reasons.to_owned(),
    };
    assert_eq!(case.answer(&asked, &of), [report]);
    let asked = case.after(TIMING.retry);
    let of = [("east", fits(1)), ("north", refused()), ("west", refused())];
    assert_eq!(case.answer(&asked, &of), nominate(&[], &["east"]));
}

#[test]
fn machine_withdraws_clusters_that_refuse_and_keeps_the_others() {
    let (mut case, asked) = Case::new(&["east", "north", "south"]);
    assert_eq!(asked, []);
    let asked = case.after(TIMING.round);
    let of = [
        ("east", refused()),
        ("north", Answer::Unknown("Unreachable")),
        ("south", full()),
        ("west", fits(9)),
    ];
    let kept = nominate(&["east", "north", "south"], &["north", "south", "west"]);
    assert_eq!(case.answer(&asked, &of), kept);
}

#[test]
fn machine_nominates_no_full_cluster() {
    let (mut case, asked) = Case::new(&[]);
    let actions = case.answer(&asked, &[("east", full()), ("west", Answer::Ungoverned)]);
    let reasons = "east: group/NoRoom, 2 of 4 pods; west: NoOffer".to_owned();
    let key = key("a");
    assert_eq!(actions, [Action::Report { key, reasons }]);
}

#[test]
fn machine_nominates_all_clusters_for_ungoverned_pods() {
    let (mut case, asked) = Case::new(&[]);
    let away = Answer::Unknown("NoTautline");
    let open = Answer::Ungoverned;
    let of = [("east", open.clone()), ("north", away), ("west", open)];
    assert_eq!(case.answer(&asked, &of), nominate(&[], &["east", "west"]));
}

#[test]
fn machine_yields_to_another_writer() {
    let (mut case, asked) = Case::new(&[]);
    case.answer(&asked, &[("east", fits(1))]);
    case.written(true);
    // The watch may still show the state before the write.
    assert_eq!(case.see(&[]), []);
    assert_eq!(case.see(&["east", "north"]), []);
    assert_eq!(case.see(&["north"]), []);
    assert_eq!(case.after(2 * TIMING.round), []);
    assert_eq!(case.machine.counts(), [0, 0, 1]);
    // The other writer gives up.
    assert_eq!(case.see(&[]), []);
    assert_eq!(case.after(TIMING.retry).len(), 1);
}

#[test]
fn machine_tries_a_failed_write_again() {
    let (mut case, asked) = Case::new(&[]);
    case.answer(&asked, &[("east", fits(1))]);
    assert_eq!(case.written(false), []);
    let asked = case.after(TIMING.retry);
    assert_eq!(
        case.answer(&asked, &[("east", fits(1))]),
        nominate(&[], &["east"])
    );
}

#[test]
fn machine_keeps_a_nomination_while_the_clusters_cannot_be_read() {
    let (mut case, _) = Case::new(&["east"]);
    let asked = case.after(TIMING.round);
    let [Action::Ask { key, number }] = &*asked else {
        panic!("{asked:?}");
    };
    let event = Event::Answered(key.clone(), *number, None);
    assert_eq!(case.machine.apply(event, case.now), []);
    assert_eq!(case.after(TIMING.retry).len(), 1);
}

#[test]
fn machine_forgets_workloads_that_no_longer_wait() {
    let (mut case, asked) = Case::new(&[]);
    case.machine
        .apply(Event::Waiting(BTreeMap::new()), case.now);
    assert_eq!(case.answer(&asked, &[("east", fits(1))]), []);
    assert_eq!(case.written(true), []);
    // It waits again after an eviction.
    let asked = case.see(&[]);
    assert_eq!(
        case.answer(&asked, &[("east", fits(1))]),
        nominate(&[], &["east"])
    );
}

#[test]
fn machine_asks_about_a_bounded_number_of_workloads_at_a_time() {
    let mut machine = Machine::new(TIMING);
    let now = Instant::now();
    let all = (0..MAX_ACTIVE + 1).map(|i| (key(&format!("w{i:02}")), Vec::new()));
    let actions = machine.apply(Event::Waiting(all.collect()), now);
    assert_eq!(actions.len(), MAX_ACTIVE);
    let Some(Action::Ask {
        key: first, number, ..
    }) = actions.first()
    else {
        panic!("{actions:?}");
    };
    let event = Event::Answered(
        first.clone(),
        *number,
        Some(answers(&[("east", refused())])),
    );
    let actions = machine.apply(event, now);
    let [Action::Report { .. }, Action::Ask { key: last, .. }] = &*actions else {
        panic!("{actions:?}");
    };
    assert_eq!(last.name, format!("w{MAX_ACTIVE:02}"));
}

#[test]
fn machine_serves_namespaces_in_turn() {
    let mut machine = Machine::new(TIMING);
    let now = Instant::now();
    let of = |namespace: &str, name: String| Key {
        namespace: namespace.to_owned(),
        ..key(&name)
    };
    let many = (0..9).map(|i| of("loud", format!("w{i}")));
    let all = many.chain([of("quiet", "w".to_owned())]);
    let all = all.map(|key| (key, Vec::new())).collect();
    let actions = machine.apply(Event::Waiting(all), now);
    let asked = actions.iter().filter_map(|action| match action {
        Action::Ask { key, .. } => Some(&*key.namespace),
        _ => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), ["loud", "quiet", "loud"]);
}

fn any_answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        (0..99_i64).prop_map(fits),
        Just(refused()),
        Just(full()),
        Just(Answer::Ungoverned),
        Just(Answer::Unknown("Timeout")),
    ]
}

proptest! {
    /// A nomination names clusters of the answers only, each once, at most one more than before
    /// where an offer governs the pods, and none that refuses.
    #[test]
    fn nominations_hold_what_the_answers_allow(
        of in prop::collection::vec(any_answer(), 0..4),
        nominated in prop::sample::subsequence(vec!["c0", "c1", "c2", "gone"], 0..=4),
    ) {
        let answers: Answers = of.into_iter().enumerate()
            .map(|(i, answer)| (format!("c{i}"), answer))
            .collect();
        let nominated = names(&nominated);
        let next = next(&nominated, &answers);
        let distinct: BTreeSet<&String> = next.iter().collect();
        prop_assert_eq!(distinct.len(), next.len());
        let is_open = |a: &Answer| matches!(a, Answer::Ungoverned | Answer::Unknown(_));
        let is_governed = !answers.values().all(is_open);
        for name in &next {
            let answer = answers.get(name);
            prop_assert!(answer.is_some(), "{}", name);
            prop_assert!(!matches!(answer, Some(Answer::Refused(_))), "{}", name);
        }
        let added = next.iter().filter(|name| !nominated.contains(name)).count();
        prop_assert!(!is_governed || added <= 1);
    }
}
