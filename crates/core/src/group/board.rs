//! The state machine of groups: it decides when a group is planned, how long its places are held,
//! and when its pods are bound. Events come in and actions go out; the caller has the clock and
//! does the I/O.
//!
//! ```text
//! Waiting ──▶ Queued ──▶ Planning ──▶ Held ──▶ Writing ──▶ Bound
//!               ▲  ▲         │ ▲ NoRoom │         │
//!               │  └─────────┘          │         │
//!               └─── a failed barrier ──┴─────────┘
//! ```
//!
//! A binding cannot be undone. If the write of one member fails after others are written, nobody is
//! evicted: the written members stay where they are, and the rest is planned again around them.
//!
//! A group is planned only where kube-scheduler has asked about one of its pods since the last plan:
//! of several replicas of the extender only one plans it.
//!
//! Contract of the caller:
//! - It applies `Seen` before it asks about a pod, and states the minimum with each new member: an
//!   empty group is dropped after the timeout. It applies no `Seen` that is older than a
//!   `Gone` of the same pod by more than the timeout.
//! - It fails a bind itself, before `Came`, whose node is not the pod's `place`: the bind may come
//!   from an earlier plan, or from a time when the pod was placed alone.
//! - It has at most one bind of a member under way, and reports the steps of it in order. `Fail`
//!   ends the bind; the caller then gives back the reservations that the bind made.
//! - It applies `Written` or `Failed` after each `Proceed` to `Write`, even if kube-scheduler does
//!   not wait for the bind any more.
//! - Reservations, writes and plans of the caller have deadlines below the timeout.
//! - It applies `Tick` at least each second.

mod barrier;
mod events;
#[cfg(test)]
mod property_tests;
mod state;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::events::{Action, Event, GroupState, Member, Next, Phase, Places, Step, Verdict};
use self::state::{Context, Group};
use super::{GroupKey, MAX_MEMBERS};

/// The shortest time between a result without room and the next plan of the same members.
const NO_ROOM_WAIT: Duration = Duration::from_secs(2);
/// The wait after the first failed barrier of a group. It doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest wait after a failed barrier.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// The plan that runs.
struct Running {
    group: GroupKey,
    number: u64,
    /// The result counts as lost after this time.
    until: Instant,
}

/// All groups, and the queue for the one planner.
pub struct Board {
    /// The longest time that places are held before the writes, that writes take, and that a plan
    /// takes.
    timeout: Duration,
    /// True if the extender binds, so that there is a barrier.
    binds: bool,
    groups: BTreeMap<GroupKey, Group>,
    /// The groups that wait for a plan.
    queued: BTreeSet<GroupKey>,
    running: Option<Running>,
    last_number: u64,
    /// The number of each namespace's last plan: namespaces take turns.
    last_of_namespace: BTreeMap<Arc<str>, u64>,
}

impl Board {
    /// Makes a board without groups. `binds` is true if the extender binds, so that the binds of a
    /// group wait for each other.
    pub fn new(timeout: Duration, binds: bool) -> Self {
        Self {
            timeout,
            binds,
            groups: BTreeMap::new(),
            queued: BTreeSet::new(),
            running: None,
            last_number: 0,
            last_of_namespace: BTreeMap::new(),
        }
    }

    /// Applies an event, and returns the actions that follow from it.
    pub fn apply(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Seen { group, member } => {
                self.groups.entry(group.clone()).or_default();
                self.change(&group, now, &mut actions, |g, cx| g.see(member, cx));
            }
            Event::Gone { group, uid } => {
                self.groups.entry(group.clone()).or_default();
                self.change(&group, now, &mut actions, |g, cx| g.forget(&uid, cx));
            }
            Event::Minimum { group, minimum } => {
                self.groups.entry(group.clone()).or_default();
                self.change(&group, now, &mut actions, |g, cx| {
                    g.set_minimum(minimum, cx)
                });
            }
            Event::Planned {
                group,
                number,
                places,
            } => {
                if self.finish_plan(&group, number) {
                    self.change(&group, now, &mut actions, |g, cx| {
                        g.planned(number, places, cx)
                    });
                }
            }
            Event::NoRoom {
                group,
                number,
                placed,
                why,
            } => {
                if self.finish_plan(&group, number) {
                    self.change(&group, now, &mut actions, |g, cx| {
                        g.no_room(number, placed, &why, cx)
                    });
                }
            }
            Event::Lost { group, uid, why } => {
                self.change(&group, now, &mut actions, |g, cx| g.lose(&uid, &why, cx));
            }
            Event::Bind { group, uid, step } => {
                if self.groups.contains_key(&group) {
                    self.change(&group, now, &mut actions, |g, cx| g.bind(&uid, step, cx));
                } else if step == Step::Came {
                    let why = format!("{group} is not known");
                    actions.push(Action::Fail { uid, why });
                }
            }
            Event::Tick => self.tick(now, &mut actions),
        }
        self.start_plan(now, &mut actions);
        actions
    }

    /// Returns the filter's answer for a member. A group without room is planned again if the last
    /// result is old enough, so actions may follow.
    pub fn ask(&mut self, group: &GroupKey, uid: &str, now: Instant) -> (Verdict, Vec<Action>) {
        let mut actions = Vec::new();
        self.groups.entry(group.clone()).or_default();
        let verdict = self.change(group, now, &mut actions, |g, cx| g.ask(uid, cx));
        self.start_plan(now, &mut actions);
        let unknown = Verdict::Waiting {
            exist: 0,
            minimum: None,
        };
        (verdict.unwrap_or(unknown), actions)
    }

    /// Returns the node that is held for a member.
    pub fn place(&self, group: &GroupKey, uid: &str) -> Option<&Arc<str>> {
        self.groups.get(group)?.place(uid)
    }

    /// Returns the state of each group that has members.
    pub fn states(&self) -> impl Iterator<Item = (&GroupKey, GroupState)> {
        let groups = self.groups.iter();
        groups.filter_map(|(key, group)| Some((key, group.state()?)))
    }

    /// Changes a group, if there is one, and updates the queue.
    fn change<T>(
        &mut self,
        key: &GroupKey,
        now: Instant,
        actions: &mut Vec<Action>,
        change: impl FnOnce(&mut Group, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let group = self.groups.get_mut(key)?;
        let mut cx = Context {
            key,
            now,
            timeout: self.timeout,
            binds: self.binds,
            actions,
        };
        let result = change(group, &mut cx);
        if group.is_queued() {
            self.queued.insert(key.clone());
        } else {
            self.queued.remove(key);
        }
        Some(result)
    }

    /// Returns true if this plan runs, and ends it.
    fn finish_plan(&mut self, group: &GroupKey, number: u64) -> bool {
        let result_of = |r: &mut Running| r.number == number && r.group == *group;
        self.running.take_if(result_of).is_some()
    }

    fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if let Some(lost) = self.running.take_if(|r| r.until <= now) {
            self.change(&lost.group, now, actions, |g, cx| {
                g.lose_plan(lost.number, cx);
            });
        }
        let keys: Vec<GroupKey> = self.groups.keys().cloned().collect();
        for key in keys {
            if self.change(&key, now, actions, Group::tick) == Some(false) {
                self.groups.remove(&key);
            }
        }
        let groups = &self.groups;
        let has_group = |namespace: &Arc<str>| groups.keys().any(|key| key.namespace == *namespace);
        self.last_of_namespace
            .retain(|namespace, _| has_group(namespace));
    }

    /// Starts the next plan, if none runs. The highest priority comes first; among equal ones
    /// namespaces take turns, and the longest wait comes first. A group that waited in the queue for the timeout comes before all others, so that groups
    /// without room that are planned again and again keep no other from its turn.
    fn start_plan(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.running.is_some() {
            return;
        }
        let ranked = self.queued.iter().filter_map(|key| {
            let group = self.groups.get(key)?;
            let since = group.ready_since().filter(|since| *since <= now)?;
            let overdue = since + self.timeout <= now;
            let priority = if overdue { i32::MAX } else { group.priority() };
            let turn = self.last_of_namespace.get(&key.namespace);
            Some((!overdue, Reverse(priority), turn, since, key))
        });
        let Some((.., key)) = ranked.min() else {
            return;
        };
        let key = key.clone();
        self.last_number += 1;
        let number = self.last_number;
        let namespace = Arc::clone(&key.namespace);
        self.last_of_namespace.insert(namespace, number);
        self.change(&key, now, actions, |g, cx| g.start_plan(number, cx));
        self.running = Some(Running {
            group: key,
            number,
            until: now + self.timeout,
        });
    }
}
