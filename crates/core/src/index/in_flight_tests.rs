use proptest::prelude::*;

use super::*;
use crate::{
    index::{
        Kind, Object,
        flight::{MAX_FLIGHT_TIME, MAX_UNSEEN_TIME},
    },
    model::{NodeConstraints, Observed},
};

const WATCHED: Duration = Duration::from_secs(60);

fn pod(uid: &str, version: u64, attempt: u64, node: Option<&str>) -> Pod {
    let observed = Observed {
        resource_version: version,
        attempt,
    };
    Pod {
        namespace: "ns".into(),
        name: "p".into(),
        uid: uid.into(),
        node: node.map(Into::into),
        placement: node.is_none().then(|| {
            Box::new(NodeConstraints {
                observed,
                ..NodeConstraints::default()
            })
        }),
        ..Pod::default()
    }
}

fn node_of(index: &Index) -> Option<String> {
    let snapshot = index.snapshot();
    snapshot.pod("ns", "p")?.node.as_deref().map(str::to_owned)
}

fn flights(index: &Index) -> usize {
    index.snapshot().in_flight().count()
}

fn flown(counted_by: &[&str]) -> (Index, Instant) {
    let (mut index, now) = (Index::default(), Instant::now());
    index.apply(Object::Pod(pod("u", 5, 0, None)));
    let counted_by = counted_by.iter().map(|p| (*p).into()).collect();
    assert!(index.begin_flight(now, pod("u", 5, 0, None), Some("n1"), counted_by));
    assert_eq!(node_of(&index).as_deref(), Some("n1"));
    assert_eq!(index.snapshot().pods_on("n1").len(), 1);
    (index, now)
}

#[test]
fn flight_ends_when_the_watch_shows_the_node() {
    let (mut index, _) = flown(&[]);
    assert!(
        !index.apply(Object::Pod(pod("u", 6, 0, Some("n1")))),
        "no change"
    );
    assert_eq!(
        (node_of(&index).as_deref(), flights(&index)),
        (Some("n1"), 0)
    );
    let (mut index, _) = flown(&[]);
    index.apply(Object::Pod(pod("u", 6, 0, Some("n2"))));
    assert_eq!(
        (node_of(&index).as_deref(), flights(&index)),
        (Some("n2"), 0)
    );
    assert!(index.snapshot().pods_on("n1").is_empty());
}

#[test]
fn flight_outlasts_events_that_do_not_end_the_attempt() {
    let (mut index, _) = flown(&[]);
    // Before the posted version: another condition is an earlier attempt's.
    index.apply(Object::Pod(pod("u", 4, 9, None)));
    assert_eq!(node_of(&index).as_deref(), Some("n1"));
    let mut relabelled = pod("u", 8, 0, None);
    relabelled.labels = [("app", "web")].into_iter().collect();
    index.apply(Object::Pod(relabelled.clone()));
    assert_eq!(node_of(&index).as_deref(), Some("n1"));
    let snapshot = index.snapshot();
    let in_flight = snapshot.in_flight().next().unwrap();
    assert_eq!(in_flight.pod.labels, relabelled.labels);
    assert_eq!(snapshot.pod("ns", "p").unwrap().labels, relabelled.labels);
}

#[test]
fn flight_ends_with_one_event_of_a_failed_attempt() {
    let (mut index, _) = flown(&[]);
    index.apply(Object::Pod(pod("u", 6, 7, None)));
    assert_eq!((node_of(&index), flights(&index)), (None, 0));
    assert!(index.snapshot().pods_on("n1").is_empty());
    for end in [
        Pod {
            terminating: true,
            ..pod("u", 6, 0, None)
        },
        Pod {
            finished: true,
            ..pod("u", 6, 0, None)
        },
        pod("other", 6, 0, None),
    ] {
        let (mut index, _) = flown(&[]);
        index.apply(Object::Pod(end));
        assert_eq!((node_of(&index), flights(&index)), (None, 0));
    }
    let (mut index, _) = flown(&[]);
    index.delete(Kind::Pod, "ns/p");
    assert!(index.snapshot().pod("ns", "p").is_none());
    assert_eq!(flights(&index), 0);
}

#[test]
fn flight_begins_before_the_watch_shows_the_pod() {
    let (mut index, now) = (Index::default(), Instant::now());
    // A StatefulSet's earlier pod of the name.
    index.apply(Object::Pod(pod("old", 1, 0, Some("n9"))));
    index.begin_flight(now, pod("u", 5, 0, None), Some("n1"), vec![]);
    index.apply(Object::Pod(pod("old", 2, 0, Some("n9"))));
    index.delete(Kind::Pod, "ns/p");
    index.apply(Object::Pod(pod("u", 5, 0, None)));
    assert_eq!(
        (node_of(&index).as_deref(), flights(&index)),
        (Some("n1"), 1)
    );
    assert!(index.end_flight("ns/p"));
    let snapshot = index.snapshot();
    let pod = snapshot.pod("ns", "p").unwrap();
    assert_eq!((&*pod.uid, &pod.node), ("u", &None));
}

#[test]
fn flight_ends_by_time() {
    let (mut index, now) = flown(&[]);
    assert!(!index.end_old_flights(now + MAX_FLIGHT_TIME / 2, WATCHED));
    assert!(index.end_old_flights(now + MAX_FLIGHT_TIME, WATCHED));
    assert_eq!((node_of(&index), flights(&index)), (None, 0));
    let mut index = Index::default();
    index.begin_flight(now, pod("invented", 5, 0, None), Some("n1"), vec![]);
    // The watch may be behind.
    assert!(!index.end_old_flights(now + MAX_UNSEEN_TIME, Duration::ZERO));
    assert!(index.end_old_flights(now + MAX_UNSEEN_TIME, WATCHED));
    assert!(index.snapshot().pod("ns", "p").is_none());
}

#[test]
fn flight_of_an_invented_uid_does_not_erase_the_pod_of_its_name() {
    let (mut index, now) = (Index::default(), Instant::now());
    index.apply(Object::Pod(pod("real", 5, 0, Some("n2"))));
    index.begin_flight(now, pod("invented", 5, 0, None), Some("n1"), vec![]);
    let mut ready = pod("real", 6, 0, Some("n2"));
    ready.ready = true;
    index.apply(Object::Pod(ready));
    index.end_old_flights(now + MAX_UNSEEN_TIME, WATCHED);
    let snapshot = index.snapshot();
    let shown = snapshot.pod("ns", "p").unwrap();
    assert_eq!((&*shown.uid, shown.ready), ("real", true));
    assert_eq!(snapshot.pods_on("n2").len(), 1);
    assert!(snapshot.pods_on("n1").is_empty());
}

/// What providers are told, with the node.
fn told(index: &mut Index) -> Vec<(FlightChange, Option<String>)> {
    let events = index.take_flight_events().into_iter();
    let told = |e: FlightEvent| (e.what, e.pod.node.as_deref().map(str::to_owned));
    events.map(told).collect()
}

#[test]
fn providers_are_told_of_each_pod_that_they_count() {
    use FlightChange::{Bound, Ended, Placed};

    let at = |node: &str| Some(node.to_owned());
    let (mut index, now) = flown(&["a/gpu"]);
    index.apply(Object::Pod(pod("u", 6, 0, Some("n1"))));
    assert_eq!(told(&mut index), [(Placed, at("n1")), (Bound, at("n1"))]);
    assert_eq!((node_of(&index), flights(&index)), (at("n1"), 0));
    // Another attempt, and a pod that goes to one of several nodes.
    let (mut index, _) = flown(&["a/gpu"]);
    index.begin_attempt(now, WATCHED, "ns/p");
    index.begin_flight(now, pod("u", 5, 0, None), None, vec!["a/gpu".into()]);
    index.apply(Object::Pod(pod("u", 6, 0, Some("n2"))));
    let expected = [(Placed, at("n1")), (Ended, at("n1")), (Bound, at("n2"))];
    assert_eq!(told(&mut index), expected);
    // Nobody counts it.
    let (mut index, _) = flown(&[]);
    index.delete(Kind::Pod, "ns/p");
    assert_eq!(told(&mut index), []);
}

#[test]
fn open_flight_leaves_the_pod_as_the_watch_shows_it() {
    let (mut index, now) = (Index::default(), Instant::now());
    index.begin_flight(now, pod("u", 5, 0, None), None, vec![]);
    assert!(index.snapshot().pod("ns", "p").is_none());
    index.apply(Object::Pod(pod("u", 5, 0, None)));
    let snapshot = index.snapshot();
    assert!(snapshot.in_flight().next().unwrap().is_open());
    assert!(snapshot.pod("ns", "p").unwrap().placement.is_some());
    index.apply(Object::Pod(pod("u", 6, 0, Some("n2"))));
    assert_eq!(
        (node_of(&index).as_deref(), flights(&index)),
        (Some("n2"), 0)
    );
}

#[derive(Clone, Debug)]
enum Event {
    Answer(&'static str, Option<&'static str>),
    Watch {
        uid: &'static str,
        attempt: u64,
        node: Option<&'static str>,
        terminating: bool,
    },
    Delete,
    Wait(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let uid = || prop_oneof![Just("u"), Just("v")];
    let node = || prop_oneof![Just(None), Just(Some("n1")), Just(Some("n2"))];
    let event = prop_oneof![
        (uid(), node()).prop_map(|(uid, node)| Event::Answer(uid, node)),
        (uid(), 0..3u64, node(), any::<bool>()).prop_map(|(uid, attempt, node, terminating)| {
            Event::Watch {
                uid,
                attempt,
                node,
                terminating,
            }
        }),
        Just(Event::Delete),
        (0..40u64).prop_map(Event::Wait),
    ];
    proptest::collection::vec(event, 0..40)
}

proptest! {
    /// Whatever happens, an index whose flights have ended is as the watch alone has made it, and
    /// pods_on never shows a pod on two nodes.
    #[test]
    fn flights_leave_no_trace(events in events()) {
        let (mut index, mut plain) = (Index::default(), Index::default());
        let (mut now, mut version) = (Instant::now(), 0);
        let mut exists = false;
        for event in events {
            match event {
                Event::Answer(uid, node) => {
                    _ = index.begin_flight(now, pod(uid, version, 0, None), node, vec!["a/gpu".into()]);
                }
                Event::Watch { uid, attempt, node, terminating } => {
                    version += 1;
                    exists = true;
                    let new = Pod { terminating, ..pod(uid, version, attempt, node) };
                    index.apply(Object::Pod(new.clone()));
                    plain.apply(Object::Pod(new));
                }
                Event::Delete if exists => {
                    exists = false;
                    index.delete(Kind::Pod, "ns/p");
                    plain.delete(Kind::Pod, "ns/p");
                }
                Event::Delete => {}
                Event::Wait(seconds) => {
                    now += Duration::from_secs(seconds);
                    index.end_old_flights(now, WATCHED);
                }
            }
            let snapshot = index.snapshot();
            let on = ["n1", "n2"].map(|node| snapshot.pods_on(node).len());
            prop_assert!(on.iter().sum::<usize>() <= 1, "{on:?}");
            prop_assert!(snapshot.in_flight().count() <= 1);
        }
        index.end_old_flights(now, WATCHED);
        index.end_old_flights(now + MAX_FLIGHT_TIME, WATCHED);
        prop_assert_eq!(index.snapshot().in_flight().count(), 0);
        // Whoever was promised a node is bound or has ended.
        let mut open = Vec::new();
        for event in index.take_flight_events() {
            match event.what {
                FlightChange::Placed => open.push(event.pod.uid.clone()),
                FlightChange::Bound | FlightChange::Ended => open.retain(|u| *u != event.pod.uid),
            }
        }
        prop_assert_eq!(open, Vec::<Box<str>>::new());
        let state = |index: &Index| index.snapshot().pod("ns", "p").map(|p| (**p).clone());
        prop_assert_eq!(state(&index), state(&plain));
    }
}
