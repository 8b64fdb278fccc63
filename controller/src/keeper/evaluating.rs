//! Evaluations: when, in which lane, and what comes of them.

use std::{sync::Arc, time::Duration};

use tautline_core::{Compliance, model::ViolationPolicy};
use tautline_runtime::events::{EventNote, reference_to_own};
use tokio::{
    task::{Id, JoinError},
    time::Instant,
};

use super::{Entry, Keeper, WriteState};
use crate::{
    evaluate::{self, Found},
    known::{Key, Known},
    lanes::Ticket,
    schedule::{Reason, jittered, phase},
    status::{self, Change},
    violations::Fresh,
};

/// Reasons may carry figures that change each time: those alone are written no
/// more often than this.
const WORDS_EVERY: Duration = Duration::from_secs(60);

/// An evaluation that has ended.
pub(super) struct Done {
    ticket: Ticket,
    uid: Box<str>,
    /// `None`: the offer is not there any more.
    found: Option<(Found, Duration)>,
}

impl Keeper {
    /// Puts a binding on the schedule: somewhere in its period, and at once if it
    /// was never evaluated.
    pub(super) fn schedule_anew(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.turn += 1;
        let turn = entry.turn;
        let never = entry.status.last_compliance_change_timestamp.is_none();
        let now = Instant::now();
        if never {
            self.schedule.add(Arc::clone(key), now, Reason::Once);
        }
        let first = now + phase(key, self.period(key));
        self.schedule
            .add(Arc::clone(key), first, Reason::Period(turn));
    }

    fn period(&self, key: &Key) -> Duration {
        let known = self.entries.get(key).map(|e| &e.known);
        let offer = known.and_then(|k| self.snapshot.offer(&k.namespace, &k.offer));
        let period = offer.map_or(Duration::from_secs(60), |e| e.offer.period);
        period.max(self.shared.config.shortest_period)
    }

    pub(super) fn evaluate_soon(&mut self, key: &Key) {
        if self.entries.contains_key(key) {
            self.schedule
                .add(Arc::clone(key), Instant::now(), Reason::Once);
        }
    }

    pub(super) fn evaluate_due(&mut self, now: Instant) {
        while let Some((key, due, reason)) = self.schedule.pop(now) {
            let Some(entry) = self.entries.get(&key) else {
                continue;
            };
            if let Reason::Period(turn) = reason {
                if entry.turn != turn {
                    continue;
                }
                let next = due + jittered(&key, turn, self.period(&key));
                let turn = turn + 1;
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.turn = turn;
                }
                // Far behind (the process slept): the missed turns are gone.
                let next = if next < now { now } else { next };
                self.schedule
                    .add(Arc::clone(&key), next, Reason::Period(turn));
            }
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            if entry.running {
                entry.again |= reason == Reason::Once;
                continue;
            }
            let Some(offer) = self
                .snapshot
                .offer(&entry.known.namespace, &entry.known.offer)
            else {
                continue;
            };
            entry.running = true;
            let questions =
                evaluate::questions(&self.snapshot, &self.shared.discovery, &offer.offer);
            let ticket = Ticket {
                key,
                due,
                providers: questions.providers,
                waits: 0,
            };
            if let Some(ticket) = self.lanes.take(ticket) {
                self.start(ticket);
            }
        }
        let waiting = i64::try_from(self.lanes.waiting()).unwrap_or(i64::MAX);
        self.shared.metrics.waiting.set(waiting);
    }

    /// Starts an evaluation that has its places.
    fn start(&mut self, ticket: Ticket) {
        let known = self.entries.get(&ticket.key).map(|e| Arc::clone(&e.known));
        let (shared, snapshot) = (Arc::clone(&self.shared), Arc::clone(&self.snapshot));
        shared.metrics.lag(ticket.due.elapsed());
        let kept = ticket.clone();
        let job = self.jobs.spawn(async move {
            let Some(known) = known else {
                return Done {
                    ticket,
                    uid: Box::default(),
                    found: None,
                };
            };
            let found = match snapshot.offer(&known.namespace, &known.offer) {
                None => None,
                Some(entry) => {
                    let asked = evaluate::questions(&snapshot, &shared.discovery, &entry.offer);
                    let found = evaluate::run(
                        &shared.discovery,
                        &snapshot,
                        &shared.metrics,
                        &known,
                        &asked,
                    )
                    .await;
                    Some((found, entry.offer.grace))
                }
            };
            Done {
                ticket,
                uid: known.uid.clone(),
                found,
            }
        });
        self.running.insert(job.id(), kept);
    }

    pub(super) fn evaluated(&mut self, done: Result<(Id, Done), JoinError>) {
        let done = match done {
            Ok((id, done)) => {
                self.running.remove(&id);
                done
            }
            Err(error) => {
                let Some(ticket) = self.running.remove(&error.id()) else {
                    return;
                };
                tracing::error!(binding = %ticket.key, %error, "an evaluation panicked");
                let entry = self.entries.get(&ticket.key);
                Done {
                    uid: entry.map(|e| e.known.uid.clone()).unwrap_or_default(),
                    ticket,
                    found: None,
                }
            }
        };
        for ticket in self.lanes.give(&done.ticket) {
            self.start(ticket);
        }
        let key = done.ticket.key;
        let same = |e: &&mut Entry| e.known.uid == done.uid;
        let Some(entry) = self.entries.get_mut(&key).filter(same) else {
            return;
        };
        entry.running = false;
        if std::mem::take(&mut entry.again) {
            self.schedule
                .add(Arc::clone(&key), Instant::now(), Reason::Once);
        }
        if let Some((found, grace)) = done.found {
            self.take_in(&key, found, grace);
        }
    }

    fn take_in(&mut self, key: &Key, found: Found, grace: Duration) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let now = status::now();
        let before = entry.standing;
        let standing = before.next(found.compliance, grace, now);
        (entry.standing, entry.evaluated) = (standing, true);
        let after = status::next(&entry.status, found, &standing, now);
        let write = match status::change(&entry.status, &after) {
            Change::None => false,
            Change::State => true,
            Change::Words => entry.words_at.is_none_or(|at| at.elapsed() >= WORDS_EVERY),
        };
        if write {
            entry.status = Arc::new(after);
            entry.words_at = Some(Instant::now());
            match &mut entry.write {
                WriteState::Writing { again } => *again = true,
                WriteState::Queued => {}
                idle => {
                    *idle = WriteState::Queued;
                    self.statuses.push_back(Arc::clone(key));
                }
            }
        }
        let (known, reason) = (Arc::clone(&entry.known), entry.status.first_reason.clone());
        if let Some(ends) = standing.grace_ends(grace)
            && entry.grace_ends != Some(ends)
        {
            // Look when the grace ends, not a period later.
            entry.grace_ends = Some(ends);
            let at = Instant::now() + ends.saturating_sub(now);
            self.schedule.add(Arc::clone(key), at, Reason::Once);
        }
        if before.compliance != standing.compliance {
            self.counted(&known.offer_key(), before.compliance, standing.compliance);
            self.announce(&known, before.compliance, standing.compliance, &reason);
        }
        self.report(key, &known, reason);
    }

    /// Tells whoever acts on violations how a binding stands.
    fn report(&mut self, key: &Key, known: &Arc<Known>, reason: String) {
        let policy = self
            .snapshot
            .offer(&known.namespace, &known.offer)
            .map_or(ViolationPolicy::Ignore, |e| e.offer.violation_policy);
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let compliance = entry.standing.compliance;
        if compliance == Compliance::Violation && policy != ViolationPolicy::Ignore {
            entry.reported = true;
            _ = self.fresh.send(Fresh::Violation {
                binding: Arc::clone(known),
                since: entry.standing.out_of_range_since.unwrap_or_default(),
                reason,
                mitigated: entry.status.last_mitigated_timestamp.clone(),
            });
        } else if entry.reported && compliance != Compliance::Error {
            // An error ends nothing, and nothing is done while it lasts.
            entry.reported = false;
            _ = self.fresh.send(Fresh::Over(Arc::clone(key)));
        }
    }

    /// The binding is gone, and its violation with it.
    pub(super) fn no_violation(&self, key: &Key, entry: &Entry) {
        if entry.reported {
            _ = self.fresh.send(Fresh::Over(Arc::clone(key)));
        }
    }

    /// An event on a transition; a new binding that keeps to its rules is none.
    fn announce(&self, known: &Known, from: Compliance, to: Compliance, reason: &str) {
        if from == Compliance::Pending && to == Compliance::Compliant || to == Compliance::Pending {
            return;
        }
        let warning = matches!(to, Compliance::Violation | Compliance::Error);
        self.shared.events.publish(EventNote {
            regarding: reference_to_own(
                "ConstraintPolicyBinding",
                &known.namespace,
                &known.name,
                &known.uid,
            ),
            secondary: None,
            warning,
            reason: to.to_string(),
            action: "Evaluate",
            text: format!("{from} became {to}: {reason}"),
        });
    }
}
