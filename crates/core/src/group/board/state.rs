//! The members of one group, and the stages from the first member to held places.

use std::{
    collections::BTreeMap,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Action, FIRST_BACKOFF, GroupState, MAX_BACKOFF, MAX_MEMBERS, Member, NO_ROOM_WAIT, Phase,
    Places, Verdict,
    barrier::{Bind, Round},
};
use crate::group::GroupKey;

/// The surroundings of a change.
pub(super) struct Context<'a> {
    pub key: &'a GroupKey,
    pub now: Instant,
    pub timeout: Duration,
    pub binds: bool,
    pub actions: &'a mut Vec<Action>,
}

impl Context<'_> {
    pub(super) fn fail(&mut self, uid: &Arc<str>, why: &str) {
        self.actions.push(Action::Fail {
            uid: Arc::clone(uid),
            why: why.to_owned(),
        });
    }
}

/// A member and its state.
pub(super) struct MemberState {
    pub member: Member,
    /// True if kube-scheduler has set the pod aside, so that a place is of no use without a wake.
    pub refused: bool,
    /// The bind that is under way.
    pub bind: Option<Bind>,
}

#[derive(Default)]
pub(super) enum Stage {
    /// There is nothing to plan.
    #[default]
    Idle,
    /// The group waits for its turn, which comes at `since` at the earliest.
    Queued { since: Instant },
    /// The planner works. `since` is the time in the queue.
    Planning {
        number: u64,
        since: Instant,
        members: Vec<Arc<str>>,
    },
    /// The last plan, whose result came at `at`, found no room.
    NoRoom { at: Instant },
    /// The places are held.
    Held(Round),
}

/// The last result without room.
struct NoRoom {
    placed: usize,
    of: usize,
    why: Arc<str>,
}

#[derive(Default)]
pub(super) struct Group {
    minimum: Option<u32>,
    pub members: BTreeMap<Arc<str>, MemberState>,
    /// The members that left, and when: a late `Seen` does not bring them back.
    gone: BTreeMap<Arc<str>, Instant>,
    /// The pods that were asked about before the watch showed them, and when.
    asked: BTreeMap<Arc<str>, Instant>,
    pub stage: Stage,
    no_room: Option<NoRoom>,
    /// The number of failed barriers since the group was last bound.
    failures: u32,
    last_failure: Option<Arc<str>>,
    /// The end of the wait after a failed barrier.
    not_before: Option<Instant>,
    /// The time of the last change from outside.
    changed: Option<Instant>,
}

impl Group {
    pub(super) fn bound(&self) -> usize {
        self.members.values().filter(|m| m.member.bound).count()
    }

    /// Returns the number of members to place beside the bound ones, or `None` if the minimum is
    /// not known.
    fn need(&self) -> Option<usize> {
        let minimum = usize::try_from(self.minimum?).unwrap_or(usize::MAX);
        Some(minimum.saturating_sub(self.bound()))
    }

    /// Returns true if pods are placed as ordinary pods, outside of a round.
    pub(super) fn is_alone(&self) -> bool {
        self.need().is_some_and(|need| need <= 1)
    }

    /// Returns true if there are members to place together.
    fn is_complete(&self) -> bool {
        let unbound = self.members.len() - self.bound();
        self.need().is_some_and(|need| need > 1 && need <= unbound)
    }

    /// Returns true if the places of a round, of this many members, meet the minimum.
    pub(super) fn is_met_by(&self, places: usize) -> bool {
        self.need().is_none_or(|need| need <= places)
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.stage, Stage::Queued { .. })
    }

    /// Returns the time in the queue, if the group can be planned. A member that is placed alone
    /// and is being written must not get a second place.
    pub(super) fn ready_since(&self) -> Option<Instant> {
        let is_written = |m: &MemberState| m.bind.is_some_and(|bind| !bind.waits());
        match self.stage {
            Stage::Queued { since } if !self.members.values().any(is_written) => Some(since),
            _ => None,
        }
    }

    pub(super) fn place(&self, uid: &str) -> Option<&Arc<str>> {
        match &self.stage {
            Stage::Held(round) => round.places.get(uid),
            _ => None,
        }
    }

    pub(super) fn priority(&self) -> i32 {
        let priorities = self.members.values().map(|m| m.member.priority);
        priorities.max().unwrap_or_default()
    }

    pub(super) fn see(&mut self, member: Member, cx: &mut Context<'_>) {
        if self.gone.contains_key(&member.uid) {
            return;
        }
        self.changed = Some(cx.now);
        let Some(known) = self.members.get_mut(&member.uid) else {
            let state = MemberState {
                refused: self.asked.remove(&member.uid).is_some(),
                member,
                bind: None,
            };
            self.members.insert(Arc::clone(&state.member.uid), state);
            return self.replan(cx);
        };
        let (uid, bound) = (Arc::clone(&member.uid), member.bound);
        // The watch may be behind the write.
        let was_bound = known.member.bound;
        known.member = member;
        known.member.bound = was_bound;
        if bound {
            self.set_bound(&uid, cx);
        }
    }

    pub(super) fn forget(&mut self, uid: &Arc<str>, cx: &mut Context<'_>) {
        self.changed = Some(cx.now);
        self.gone.insert(Arc::clone(uid), cx.now);
        if !self.members.contains_key(uid) {
            return;
        }
        self.drop_from_round(uid, cx);
        if let Some(state) = self.members.remove(uid)
            && state.bind.is_some_and(|bind| bind.waits())
        {
            cx.fail(uid, "the pod is gone, or is not in the group any more");
        }
        self.replan(cx);
    }

    pub(super) fn set_minimum(&mut self, minimum: Option<u32>, cx: &mut Context<'_>) {
        self.changed = Some(cx.now);
        if mem::replace(&mut self.minimum, minimum) != minimum {
            self.replan(cx);
        }
    }

    /// Drops a plan, or a result without room, which an earlier membership had.
    pub(super) fn replan(&mut self, cx: &mut Context<'_>) {
        match &self.stage {
            Stage::Planning { members, .. }
                if self.is_complete() && *members == self.next_plan() =>
            {
                return;
            }
            Stage::Planning { since, .. } => self.stage = Stage::Queued { since: *since },
            Stage::NoRoom { .. } => self.stage = Stage::Idle,
            Stage::Idle | Stage::Queued { .. } | Stage::Held(_) => (),
        }
        self.no_room = None;
        self.settle(cx);
    }

    /// Counts a failure: the next plan waits.
    pub(super) fn back_off(&mut self, why: &str, cx: &Context<'_>) {
        let factor = 1 << self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        self.last_failure = Some(why.into());
        self.not_before = Some(cx.now + (FIRST_BACKOFF * factor).min(MAX_BACKOFF));
    }

    pub(super) fn reset_failures(&mut self) {
        (self.failures, self.last_failure, self.not_before) = (0, None, None);
    }

    /// Brings the stage in line with the members and the minimum.
    pub(super) fn settle(&mut self, cx: &mut Context<'_>) {
        self.settle_round(cx);
        if matches!(self.stage, Stage::Held(_)) {
            return;
        }
        if self.is_alone() {
            self.stage = Stage::Idle;
            self.wake(cx, |_| true);
            return;
        }
        self.fail_binds("the pod is placed together with its group now", cx);
        if !self.is_complete() || self.need() > Some(MAX_MEMBERS) {
            self.stage = Stage::Idle;
        } else if matches!(self.stage, Stage::Idle) && self.is_asked_about() {
            let since = self.not_before.map_or(cx.now, |at| at.max(cx.now));
            self.stage = Stage::Queued { since };
        }
    }

    /// Returns the members that are placed together: the oldest that are not bound, as many as the
    /// minimum calls for.
    fn next_plan(&self) -> Vec<Arc<str>> {
        let unbound = self.members.values().map(|state| &state.member);
        let mut unbound: Vec<&Member> = unbound.filter(|member| !member.bound).collect();
        unbound.sort_by_key(|m| (m.created_unix, &m.name, &m.uid));
        let planned = unbound.iter().take(self.need().unwrap_or_default());
        planned.map(|m| Arc::clone(&m.uid)).collect()
    }

    pub(super) fn start_plan(&mut self, number: u64, cx: &mut Context<'_>) {
        let Stage::Queued { since } = self.stage else {
            return;
        };
        let members = self.next_plan();
        cx.actions.push(Action::Plan {
            group: cx.key.clone(),
            number,
            members: members.clone(),
        });
        self.stage = Stage::Planning {
            number,
            since,
            members,
        };
    }

    /// Returns the members of the plan, and ends it, if the group still waits for its result.
    fn take_plan(&mut self, result: u64) -> Option<Vec<Arc<str>>> {
        match &mut self.stage {
            Stage::Planning {
                number, members, ..
            } if *number == result => {
                let members = mem::take(members);
                self.stage = Stage::Idle;
                Some(members)
            }
            _ => None,
        }
    }

    pub(super) fn planned(&mut self, number: u64, places: Places, cx: &mut Context<'_>) {
        let Some(members) = self.take_plan(number) else {
            return;
        };
        let is_placed = |uid: &&Arc<str>| places.contains_key(*uid);
        let placed = members.iter().filter(is_placed).count();
        if placed < members.len() || placed < places.len() {
            let why = "the plan does not have the members that it was asked for";
            return self.set_no_room(placed, members.len(), why, cx);
        }
        self.no_room = None;
        cx.actions.push(Action::Hold {
            group: cx.key.clone(),
            places: places.clone(),
        });
        self.wake(cx, |uid| places.contains_key(uid));
        self.stage = Stage::Held(Round::new(places, cx.now + cx.timeout));
    }

    pub(super) fn no_room(&mut self, number: u64, placed: usize, why: &str, cx: &Context<'_>) {
        if let Some(members) = self.take_plan(number) {
            self.set_no_room(placed, members.len(), why, cx);
        }
    }

    fn set_no_room(&mut self, placed: usize, of: usize, why: &str, cx: &Context<'_>) {
        let why = why.into();
        self.no_room = Some(NoRoom { placed, of, why });
        self.stage = Stage::NoRoom { at: cx.now };
    }

    /// Ends a plan whose result did not come in time.
    pub(super) fn lose_plan(&mut self, number: u64, cx: &mut Context<'_>) {
        if self.take_plan(number).is_some() {
            self.back_off("the planner did not answer in time", cx);
            self.settle(cx);
        }
    }

    /// Wakes the refused members among those that `which` accepts.
    pub(super) fn wake(&mut self, cx: &mut Context<'_>, which: impl Fn(&str) -> bool) {
        let mut uids = Vec::new();
        for (uid, state) in &mut self.members {
            if !state.member.bound && which(uid) && mem::take(&mut state.refused) {
                uids.push(Arc::clone(uid));
            }
        }
        if !uids.is_empty() {
            let group = cx.key.clone();
            cx.actions.push(Action::Wake { group, uids });
        }
    }

    pub(super) fn ask(&mut self, uid: &str, cx: &mut Context<'_>) -> Verdict {
        let is_refused = !matches!(self.verdict(uid), Verdict::Alone | Verdict::Place(_));
        let Some(state) = self.members.get_mut(uid) else {
            self.asked.insert(uid.into(), cx.now);
            self.changed = Some(cx.now);
            return self.verdict(uid);
        };
        state.refused = is_refused;
        if matches!(self.stage, Stage::NoRoom { at } if at + NO_ROOM_WAIT <= cx.now) {
            self.stage = Stage::Queued { since: cx.now };
        }
        if is_refused {
            self.settle(cx);
        }
        self.verdict(uid)
    }

    /// Returns true if kube-scheduler waits for this replica of the extender to plan the group.
    /// Another replica may have been asked, and plans it then.
    fn is_asked_about(&self) -> bool {
        self.members.values().any(|state| state.refused)
    }

    fn verdict(&self, uid: &str) -> Verdict {
        let waiting = Verdict::Waiting {
            exist: self.members.len(),
            minimum: self.minimum,
        };
        if self.members.get(uid).is_some_and(|m| m.member.bound) {
            return Verdict::Alone;
        }
        match &self.stage {
            Stage::Held(_) => self.place(uid).cloned().map_or(waiting, Verdict::Place),
            Stage::Idle if self.is_alone() => Verdict::Alone,
            Stage::Idle if self.is_complete() && self.need() <= Some(MAX_MEMBERS) => {
                Verdict::Planning
            }
            Stage::Idle if self.is_complete() => Verdict::NoRoom {
                placed: 0,
                of: self.need().unwrap_or_default(),
                why: format!("a plan has at most {MAX_MEMBERS} members").into(),
            },
            Stage::Idle => waiting,
            Stage::Queued { .. } | Stage::Planning { .. } | Stage::NoRoom { .. } => {
                let no_room = self.no_room.as_ref();
                no_room.map_or(Verdict::Planning, |no_room| Verdict::NoRoom {
                    placed: no_room.placed,
                    of: no_room.of,
                    why: Arc::clone(&no_room.why),
                })
            }
        }
    }

    /// Ends the waits whose time is over. Returns false if the group can be dropped.
    pub(super) fn tick(&mut self, cx: &mut Context<'_>) -> bool {
        self.end_overdue_binds(cx);
        let timeout = cx.timeout;
        let is_over = |at: Instant| at + timeout <= cx.now;
        self.gone.retain(|_, at| !is_over(*at));
        self.asked.retain(|_, at| !is_over(*at));
        !self.members.is_empty() || !self.changed.is_none_or(is_over)
    }

    pub(super) fn state(&self) -> Option<GroupState> {
        let (phase, held) = match &self.stage {
            Stage::Idle if self.is_alone() => (Phase::Bound, 0),
            Stage::Idle if self.need() > Some(MAX_MEMBERS) => (Phase::NoRoom, 0),
            Stage::Idle => (Phase::Waiting, 0),
            Stage::Queued { .. } => (Phase::Queued, 0),
            Stage::Planning { .. } => (Phase::Planning, 0),
            Stage::NoRoom { .. } => (Phase::NoRoom, 0),
            Stage::Held(round) if round.writes => (Phase::Writing, round.places.len()),
            Stage::Held(round) => (Phase::Held, round.places.len()),
        };
        let no_room = self.no_room.as_ref().map(|no_room| &no_room.why);
        (!self.members.is_empty()).then(|| GroupState {
            phase,
            exist: self.members.len(),
            bound: self.bound(),
            minimum: self.minimum,
            held,
            failures: self.failures,
            why: no_room.or(self.last_failure.as_ref()).cloned(),
        })
    }
}
