use std::{collections::BTreeMap, convert::Infallible};

use proptest::prelude::*;

use super::*;

const HOLD: Duration = MAX_HOLD;

fn key(uid: u8, node: u8, rule: u8) -> Key {
    Key {
        uid: format!("pod-{uid}"),
        node: format!("n{node}"),
        rule: Rule {
            name: format!("rule-{rule}"),
            ..Rule::default()
        },
    }
}

/// Each grant is a different number.
fn reserve(book: &mut Reservations<u64>, now: Instant, key: Key, grant: u64) -> Reservation<u64> {
    let granted = book.reserve(now, key, HOLD, |_| Ok::<_, Infallible>(grant));
    granted.unwrap_or_else(|never| match never {})
}

#[test]
fn expired_id_does_not_affect_the_next_reservation() {
    let (mut book, start) = (Reservations::new("a"), Instant::now());
    let old = reserve(&mut book, start, key(0, 0, 0), 1);
    let later = start + HOLD;
    let new = reserve(&mut book, later, key(0, 0, 0), 2);
    assert_ne!(old.id, new.id);
    assert_eq!(new.grant, 2);
    assert_eq!(
        book.confirm(later, &old.id),
        Err(UnknownReservation(old.id.clone()))
    );
    assert_eq!(book.release(later, &old.id), None);
    assert_eq!(book.grants_on_node(later, "n0").count(), 1);
    // Nor does another process's.
    for id in ["b-1", "a-01", "a-+1", "a1", "", "a-"] {
        book.confirm(later, id).unwrap_err();
    }
}

#[test]
fn release_of_one_attempt_keeps_the_grant() {
    let (mut book, start) = (Reservations::new("a"), Instant::now());
    let first = reserve(&mut book, start, key(0, 0, 0), 1);
    let second = reserve(&mut book, start + HOLD / 2, key(0, 0, 0), 2);
    assert_eq!((&first.id, first.grant), (&second.id, second.grant));
    assert_eq!(book.release(start + HOLD / 2, &second.id), None);
    assert_eq!(book.grants_on_node(start + HOLD / 2, "n0").count(), 1);
    assert_eq!(
        book.release(start + HOLD / 2, &first.id),
        Some("n0".to_owned())
    );
    assert_eq!(book.grants_on_node(start + HOLD / 2, "n0").count(), 0);
}

#[test]
fn confirm_after_observe_pod_succeeds() {
    let (mut book, now) = (Reservations::new("a"), Instant::now());
    let (here, there) = (
        reserve(&mut book, now, key(0, 0, 0), 1),
        reserve(&mut book, now, key(0, 1, 0), 2),
    );
    let nodes: Vec<_> = book
        .observe_pod(now, "pod-0", Some("n0"))
        .into_iter()
        .collect();
    assert_eq!(nodes, ["n0", "n1"]);
    assert_eq!(book.counts(now), ReservationCounts::default());
    book.confirm(now, &here.id).unwrap();
    book.confirm(now, &there.id).unwrap_err();
    assert!(book.expire(now + HOLD).is_empty());
    book.confirm(now + HOLD, &here.id).unwrap_err();
}

#[test]
fn unobserved_gives_confirmed_pods() {
    let (mut book, now) = (Reservations::new("a"), Instant::now());
    let held = reserve(&mut book, now, key(0, 0, 0), 1);
    book.confirm(now, &held.id).unwrap();
    assert!(book.unobserved(now + HOLD, HOLD * 2).is_empty());
    assert_eq!(book.unobserved(now + HOLD * 2, HOLD * 2).len(), 1);
    assert_eq!(book.observe_pod(now, "pod-0", None).len(), 1);
    assert!(book.unobserved(now + HOLD * 2, HOLD * 2).is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(u8, u8, u8),
    Refused(u8, u8, u8),
    /// Of any id that was ever given.
    Confirm(usize),
    Release(usize),
    Settle(u8, Option<u8>),
    Expire,
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let key = (0..3u8, 0..2u8, 0..2u8);
    prop_oneof![
        4 => key.clone().prop_map(|(u, n, r)| Step::Reserve(u, n, r)),
        1 => key.prop_map(|(u, n, r)| Step::Refused(u, n, r)),
        3 => any::<usize>().prop_map(Step::Confirm),
        3 => any::<usize>().prop_map(Step::Release),
        2 => (0..3u8, proptest::option::of(0..2u8)).prop_map(|(u, n)| Step::Settle(u, n)),
        1 => Just(Step::Expire),
        3 => (0..6000u16).prop_map(Step::Wait),
    ]
}

/// One flat list without indexes.
#[derive(Default)]
struct Naive(Vec<Line>);

struct Line {
    id: String,
    key: Key,
    grant: u64,
    /// Times of calls that were not released; none: gone.
    attempts: usize,
    until: Instant,
    confirmed: bool,
    seen: Option<Instant>,
    gone: bool,
}

impl Naive {
    fn live(&mut self, now: Instant) -> impl Iterator<Item = &mut Line> {
        self.0.iter_mut().filter(move |l| {
            let remembered = l.seen.is_some_and(|s| now < s + HOLD);
            let counts = l.seen.is_none() && (l.confirmed || now < l.until);
            !l.gone && (remembered || counts)
        })
    }

    /// The counted keys and grants, in order.
    fn counting(&mut self, now: Instant) -> BTreeMap<Key, u64> {
        self.live(now)
            .filter(|l| l.seen.is_none())
            .map(|l| (l.key.clone(), l.grant))
            .collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn reservations_agree_with_a_plain_list(steps in proptest::collection::vec(step(), 1..60)) {
        let (mut book, mut naive) = (Reservations::new("a"), Naive::default());
        let mut now = Instant::now();
        let mut grants = 0;
        for step in steps {
            let before = naive.counting(now);
            let mut touched = None;
            match step {
                Step::Wait(millis) => now += Duration::from_millis(millis.into()),
                Step::Reserve(u, n, r) => {
                    grants += 1;
                    let key = key(u, n, r);
                    let got = reserve(&mut book, now, key.clone(), grants);
                    if let Some(line) = naive.live(now).find(|l| l.key == key) {
                        prop_assert_eq!((&got.id, got.grant), (&line.id, line.grant));
                        if !line.confirmed && line.seen.is_none() {
                            line.attempts += 1;
                            line.until = line.until.max(now + HOLD);
                            prop_assert_eq!(got.until, Some(line.until));
                        } else {
                            prop_assert_eq!(got.until, None);
                        }
                    } else {
                        prop_assert!(naive.0.iter().all(|l| l.id != got.id), "{} again", got.id);
                        prop_assert_eq!((got.grant, got.until), (grants, Some(now + HOLD)));
                        let (id, grant) = (got.id, got.grant);
                        naive.0.push(Line { id, key, grant, attempts: 1, until: now + HOLD,
                            confirmed: false, seen: None, gone: false });
                    }
                }
                Step::Refused(u, n, r) => {
                    let key = key(u, n, r);
                    let there = naive.live(now).find(|l| l.key == key).is_some();
                    if !there {
                        book.reserve(now, key, HOLD, |_| Err::<u64, ()>(())).unwrap_err();
                    }
                }
                Step::Confirm(which) if !naive.0.is_empty() => {
                    let id = naive.0[which % naive.0.len()].id.clone();
                    let line = naive.live(now).find(|l| l.id == id);
                    prop_assert_eq!(book.confirm(now, &id).is_ok(), line.is_some());
                    if let Some(line) = line.filter(|l| l.seen.is_none()) { line.confirmed = true; }
                }
                Step::Release(which) if !naive.0.is_empty() => {
                    let id = naive.0[which % naive.0.len()].id.clone();
                    let got = book.release(now, &id);
                    let line = naive.live(now).find(|l| l.id == id);
                    if let Some(line) = line.filter(|l| !l.confirmed && l.seen.is_none()) {
                        line.attempts -= 1;
                        line.gone = line.attempts == 0;
                        let freed = line.gone.then(|| line.key.node.clone());
                        prop_assert_eq!(got, freed);
                    }
                }
                Step::Settle(u, n) => {
                    let (uid, node) = (format!("pod-{u}"), n.map(|n| format!("n{n}")));
                    touched = Some(book.observe_pod(now, &uid, node.as_deref()));
                    for line in naive.live(now).filter(|l| l.key.uid == uid) {
                        match node.as_ref() == Some(&line.key.node) {
                            true => _ = line.seen.get_or_insert(now),
                            false => line.gone = true,
                        }
                    }
                }
                Step::Expire => { book.expire(now); }
                Step::Confirm(_) | Step::Release(_) => {}
            }
            let after = naive.counting(now);
            let mut seen = BTreeMap::new();
            for node in ["n0", "n1"] {
                seen.extend(book.grants_on_node(now, node).map(|(k, g)| (k.clone(), *g)));
            }
            prop_assert_eq!(&seen, &after);
            let counts = book.counts(now);
            prop_assert_eq!(counts.held + counts.confirmed, after.len());
            if let Some(touched) = touched {
                for key in before.keys().filter(|k| !after.contains_key(k)) {
                    prop_assert!(touched.contains(&key.node), "{} not told of", key.node);
                }
            }
        }
        book.expire(now + HOLD * 3);
        prop_assert_eq!(book.entries.len(), book.counts(now + HOLD * 3).confirmed);
        let indexed: usize = book.nodes.values().map(BTreeSet::len).sum();
        prop_assert_eq!(indexed, book.entries.len());
        prop_assert_eq!(book.uids.values().map(BTreeSet::len).sum::<usize>(), indexed);
    }
}
