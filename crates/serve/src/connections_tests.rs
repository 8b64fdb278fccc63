use proptest::prelude::*;

use super::*;

fn address(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

fn limits() -> Limits {
    Limits {
        first_byte: Duration::from_millis(100),
        head: Duration::from_millis(200),
        idle: Some(Duration::from_millis(1_000)),
        response: Duration::from_millis(300),
        ..Limits::default()
    }
}

#[test]
fn timeouts_overdue_depends_on_the_phase() {
    let mut table = Connections::new(10, 10);
    let opened = table.open(address(1), 0, "one").unwrap();
    let mut overdue = |now| table.overdue(&limits(), now);
    assert!(overdue(99).is_empty());
    opened.activity.enter(Phase::Head, 50);
    assert!(overdue(249).is_empty());
    opened.activity.progress(Phase::Work);
    assert!(overdue(9_000).is_empty(), "a handler has its own deadline");
    opened.activity.enter(Phase::Response, 9_000);
    opened.activity.progress(Phase::Flush);
    assert!(overdue(9_299).is_empty());
    opened.activity.enter(Phase::Idle, 9_300);
    assert!(overdue(10_299).is_empty(), "idle connections live longer");
    assert_eq!(overdue(10_300), [("one", CloseReason::Idle)]);
    assert!(table.is_empty() && table.sources.is_empty());
    for (phase, reason) in [
        (Phase::New, CloseReason::Silent),
        (Phase::Head, CloseReason::SlowHeaders),
        (Phase::Response, CloseReason::SlowReader),
        (Phase::Flush, CloseReason::SlowReader),
    ] {
        let opened = table.open(address(1), 0, "one").unwrap();
        opened.activity.enter(phase, 0);
        assert_eq!(table.overdue(&limits(), 300), [("one", reason)]);
    }
}

#[test]
fn rank_excludes_connections_with_streams() {
    let mut table = Connections::new(1, 1);
    let opened = table.open(address(1), 0, "agent").unwrap();
    opened.activity.open_stream();
    opened.activity.open_stream();
    opened.activity.close_stream(5);
    assert!(table.overdue(&limits(), 1 << 40).is_empty());
    assert_eq!(table.open(address(2), 6, "late").unwrap_err(), "late");
    opened.activity.close_stream(7);
    let late = table.open(address(2), 8, "late").unwrap();
    assert_eq!(late.closed, Some("agent"));
}

#[test]
fn port_closes_connections_of_the_largest_source() {
    let mut table = Connections::new(4, 3);
    for (n, name) in [(1, "quiet"), (2, "a"), (2, "b"), (2, "c")] {
        let opened = table.open(address(n), u64::from(n), name).unwrap();
        opened.activity.enter(Phase::Idle, u64::from(n));
    }
    // "quiet" has been idle for longest, and is its source's only connection.
    let fifth = table.open(address(3), 10, "new").unwrap();
    assert_eq!(fifth.closed, Some("a"));
    // At its own bound a source loses its own connection.
    let mut table = Connections::new(100, 2);
    for name in ["a", "b"] {
        table.open(address(2), 1, name).unwrap();
    }
    assert_eq!(
        table.open(address(2), 2, "c").unwrap().closed,
        Some("a"),
        "the oldest of its own"
    );
    assert_eq!(table.open(address(1), 2, "d").unwrap().closed, None);
}

#[test]
fn rank_prefers_idle_connections() {
    let mut table = Connections::new(3, 3);
    let mut enter = |name, phase| {
        let opened = table.open(address(1), 0, name).unwrap();
        opened.activity.enter(phase, 0);
    };
    enter("body", Phase::Body);
    enter("work", Phase::Work);
    enter("idle", Phase::Idle);
    let mut next = |now| {
        table.open(address(1), now, "new").map(|o| {
            o.activity.enter(Phase::Work, now);
            o.closed
        })
    };
    assert_eq!(next(1), Ok(Some("idle")));
    assert_eq!(next(2), Ok(Some("body")));
    assert_eq!(next(3), Err("new"));
}

#[test]
fn source_of_groups_addresses_by_host() {
    let of = |text: &str| source_of(text.parse().unwrap());
    assert_eq!(of("::ffff:10.0.0.1"), address(1));
    assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff::9"));
    assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
}

#[derive(Clone, Debug)]
enum Event {
    Open(u8),
    Enter(usize, usize),
    Close(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0u8..4).prop_map(Event::Open),
        3 => (any::<usize>(), 0..PHASES.len()).prop_map(|(at, phase)| Event::Enter(at, phase)),
        1 => any::<usize>().prop_map(Event::Close),
    ]
}

proptest! {
    /// Bounds hold, and never a busy connection is closed, but the idlest of the largest source.
    #[test]
    fn open_closes_the_idlest_of_the_largest_source(
        events in prop::collection::vec(event(), 1..200),
        most in 1usize..12,
        per_source in 1usize..8,
    ) {
        let mut table = Connections::new(most, per_source);
        let mut open: Vec<(u64, u8, Arc<Activity>)> = Vec::new();
        for (now, event) in events.into_iter().enumerate() {
            let now = now as u64 * 400;
            match event {
                Event::Close(_) | Event::Enter(..) if open.is_empty() => {}
                Event::Close(at) => {
                    let (id, ..) = open.remove(at % open.len());
                    prop_assert_eq!(table.close(id), Some(id));
                }
                Event::Enter(at, phase) => {
                    open[at % open.len()].2.enter(PHASES[phase], now);
                }
                Event::Open(from) => {
                    let count = |of: u8| open.iter().filter(|(_, n, _)| *n == of).count();
                    let own = count(from) >= per_source;
                    let full = own || open.len() >= most;
                    let candidates: Vec<_> = open
                        .iter()
                        .filter(|(_, n, _)| !own || *n == from)
                        .filter_map(|(id, n, a)| {
                            Some((std::cmp::Reverse(count(*n)), a.rank(now)?, *id))
                        })
                        .collect();
                    let next = table.next;
                    match table.open(address(from), now, next) {
                        Err(_) => prop_assert!(full && candidates.is_empty()),
                        Ok(opened) => {
                            let expected = candidates.iter().min().map(|c| c.2);
                            prop_assert_eq!(opened.closed, expected.filter(|_| full));
                            if let Some(gone) = opened.closed {
                                let at = open.iter().position(|(id, ..)| *id == gone).unwrap();
                                let (_, _, activity) = open.remove(at);
                                prop_assert!(!activity.is_working());
                            }
                            open.push((opened.id, from, opened.activity));
                        }
                    }
                }
            }
            prop_assert!(table.entries.len() <= most && table.entries.len() == open.len());
            for n in 0..4 {
                prop_assert!(open.iter().filter(|(_, from, _)| *from == n).count() <= per_source);
            }
        }
        for (id, ..) in open {
            table.close(id);
        }
        prop_assert!(table.is_empty() && table.sources.is_empty());
    }
}
