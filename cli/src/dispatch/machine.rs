//! Decides which worker clusters a workload is nominated for, and when: events come in, actions go
//! out.
//!
//! ```text
//! Due ── Ask ──▶ Asking ── no cluster to add ──▶ Due, after the retry or the round
//!                   └── Nominate ──▶ Writing ── written ──▶ Due, after the round
//! any ── another writer's nomination ──▶ Yielded
//! ```
//!
//! A workload that no longer waits is forgotten in every phase.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::answers::{Answer, Answers, best_first};

/// The maximum number of workloads that are asked about or written at a time. Each cluster gets one
/// question about each of them, and an extender takes four questions at a time.
const MAX_ACTIVE: usize = 3;

/// The identity of a workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

#[derive(Debug)]
pub(super) enum Event {
    /// All workloads that wait for a cluster, with those that they are nominated for.
    Waiting(BTreeMap<Key, Vec<String>>),
    /// The answers of all clusters to the question with this number; `None` if the clusters that the
    /// workload may go to could not be read.
    Answered(Key, u64, Option<Answers>),
    /// The end of a nomination's write; true if it succeeded.
    Written(Key, bool),
    /// Time has passed.
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Asks the clusters about the workload.
    Ask { key: Key, number: u64 },
    /// Replaces the nominated clusters `from` by `to`.
    Nominate {
        key: Key,
        from: Vec<String>,
        to: Vec<String>,
    },
    /// Says in an event that no cluster can take the workload, and the reason of each.
    Report { key: Key, reasons: String },
}

/// The times of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// The time that a nominated cluster has to admit the workload, before the next one is added.
    pub(super) round: Duration,
    /// The time until a workload that no cluster can take is asked about again.
    pub(super) retry: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Due(Instant),
    Asking(u64),
    Writing(Vec<String>),
    Yielded,
}

#[derive(Debug)]
struct Dispatch {
    /// The clusters for which the workload is nominated.
    nominated: Vec<String>,
    /// The clusters that this machine has nominated, or found nominated when it first saw the
    /// workload. Kueue's view may lag behind a write, but never has another name.
    own: BTreeSet<String>,
    phase: Phase,
}

/// The workloads that wait for a cluster.
#[derive(Debug)]
pub(super) struct Machine {
    timing: Timing,
    dispatches: BTreeMap<Key, Dispatch>,
    questions: u64,
}

impl Machine {
    pub(super) fn new(timing: Timing) -> Self {
        Self {
            timing,
            dispatches: BTreeMap::new(),
            questions: 0,
        }
    }

    /// The numbers of workloads that are nominated, that no cluster could take so far, and that
    /// another writer dispatches.
    pub(super) fn counts(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for dispatch in self.dispatches.values() {
            let at = match &dispatch.phase {
                Phase::Yielded => 2,
                _ => usize::from(dispatch.nominated.is_empty()),
            };
            counts[at] += 1;
        }
        counts
    }

    /// Applies an event, and returns what follows.
    pub(super) fn apply(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Waiting(all) => self.see(all, now),
            Event::Answered(key, number, answers) => {
                actions.extend(self.decide(key, number, answers.as_ref(), now));
            }
            Event::Written(key, is_written) => self.written(&key, is_written, now),
            Event::Tick => {}
        }
        self.ask_due(now, &mut actions);
        actions
    }

    fn see(&mut self, all: BTreeMap<Key, Vec<String>>, now: Instant) {
        self.dispatches.retain(|key, _| all.contains_key(key));
        for (key, nominated) in all {
            let dispatch = self.dispatches.entry(key).or_insert_with(|| Dispatch {
                own: nominated.iter().cloned().collect(),
                // After a restart the nominated clusters get a whole round.
                phase: Phase::Due(match &*nominated {
                    [] => now,
                    _ => now + self.timing.round,
                }),
                nominated: Vec::new(),
            });
            if nominated.iter().any(|name| !dispatch.own.contains(name)) {
                dispatch.phase = Phase::Yielded;
            } else if dispatch.phase == Phase::Yielded && nominated.is_empty() {
                // The other writer has given up.
                dispatch.phase = Phase::Due(now + self.timing.retry);
            }
            dispatch.nominated = nominated;
        }
    }

    fn decide(
        &mut self,
        key: Key,
        number: u64,
        answers: Option<&Answers>,
        now: Instant,
    ) -> Option<Action> {
        let dispatch = self.dispatches.get_mut(&key)?;
        // The answers to an earlier question are late.
        if dispatch.phase != Phase::Asking(number) {
            return None;
        }
        dispatch.phase = Phase::Due(now + self.timing.retry);
        let (answers, from) = (answers?, dispatch.nominated.clone());
        let to = next(&from, answers);
        if to != from {
            dispatch.own.extend(to.iter().cloned());
            dispatch.phase = Phase::Writing(to.clone());
            return Some(Action::Nominate { key, from, to });
        }
        if !to.is_empty() {
            dispatch.phase = Phase::Due(now + self.timing.round);
            return None;
        }
        let reasons = answers.iter().filter_map(|(name, answer)| {
            let reason = answer.reason()?;
            Some(format!("{name}: {reason}"))
        });
        let reasons: Vec<String> = reasons.collect();
        let reasons = reasons.join("; ");
        (!reasons.is_empty()).then_some(Action::Report { key, reasons })
    }

    fn written(&mut self, key: &Key, is_written: bool, now: Instant) {
        let Some(dispatch) = self.dispatches.get_mut(key) else {
            return;
        };
        let Phase::Writing(names) = &mut dispatch.phase else {
            return;
        };
        let names = std::mem::take(names);
        let wait = match is_written && !names.is_empty() {
            true => self.timing.round,
            false => self.timing.retry,
        };
        if is_written {
            // The watch shows it later.
            dispatch.nominated = names;
        }
        dispatch.phase = Phase::Due(now + wait);
    }

    /// Asks about the workloads that are due. The namespace with the fewest active workloads is served
    /// first, and of its workloads the longest due.
    fn ask_due(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let (mut busy, mut due) = (BTreeMap::<String, usize>::new(), Vec::new());
        for (key, dispatch) in &mut self.dispatches {
            match dispatch.phase {
                Phase::Due(at) if at <= now => due.push((at, key, dispatch)),
                Phase::Asking(_) | Phase::Writing(_) => {
                    *busy.entry(key.namespace.clone()).or_default() += 1;
                }
                _ => {}
            }
        }
        for _ in busy.values().sum::<usize>()..MAX_ACTIVE {
            let order = |i: &usize| {
                let (at, key, _) = &due[*i];
                (busy.get(&key.namespace).copied(), *at, *key)
            };
            let Some(first) = (0..due.len()).min_by_key(order) else {
                return;
            };
            let (_, key, dispatch) = due.swap_remove(first);
            *busy.entry(key.namespace.clone()).or_default() += 1;
            self.questions += 1;
            dispatch.phase = Phase::Asking(self.questions);
            actions.push(Action::Ask {
                key: key.clone(),
                number: self.questions,
            });
        }
    }
}

/// Returns the clusters to nominate: those that are nominated and do not refuse, and the best of the
/// others. Where no cluster governs the pods, all that answered are as good.
fn next(nominated: &[String], answers: &Answers) -> Vec<String> {
    let is_governed = |answer: &Answer| !matches!(answer, Answer::Ungoverned | Answer::Unknown(_));
    let mut next: Vec<String> = nominated.to_vec();
    if answers.values().any(is_governed) {
        // Kueue has queued the workload in a nominated cluster. It keeps its place there while the
        // cluster is full, or without an answer.
        let stays = |name: &String| {
            let answer = answers.get(name);
            !matches!(answer, None | Some(Answer::Refused(_) | Answer::Ungoverned))
        };
        next.retain(stays);
        let best = best_first(answers).into_iter();
        next.extend(best.filter(|name| !nominated.contains(name)).take(1));
    } else {
        next.retain(|name| answers.contains_key(name));
        let ungoverned = answers
            .iter()
            .filter(|(_, a)| matches!(a, Answer::Ungoverned));
        let names = ungoverned.map(|(name, _)| name.clone());
        next.extend(names.filter(|name| !nominated.contains(name)));
    }
    next
}

#[cfg(test)]
#[path = "machine/tests.rs"]
mod tests;
