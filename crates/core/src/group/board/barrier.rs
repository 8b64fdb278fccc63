//! The time from held places to bound pods: the binds of a group wait for each other before the
//! reservation, and again before the write.

use std::{collections::BTreeSet, mem, sync::Arc, time::Instant};

use super::{
    Action, Next, Places, Step,
    state::{Context, Group, MemberState, Stage},
};

/// The state of a bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BindStep {
    Came,
    Reserving,
    Reserved,
    Writing,
}

/// A bind that is under way.
#[derive(Clone, Copy)]
pub(super) struct Bind {
    step: BindStep,
    until: Instant,
}

impl Bind {
    /// Returns true if the bind still waits for its last action.
    pub(super) fn waits(self) -> bool {
        self.step != BindStep::Writing
    }
}

/// A complete plan whose places are held.
pub(super) struct Round {
    /// The places of the members that are not bound yet.
    pub places: Places,
    pub until: Instant,
    /// True if the binds may write, so that the round cannot be given up as a whole.
    pub writes: bool,
    /// The reason of the first write that failed.
    failed: Option<String>,
    /// The members that kube-scheduler did not offer their place once.
    missed: BTreeSet<Arc<str>>,
}

impl Round {
    pub(super) fn new(places: Places, until: Instant) -> Self {
        Self {
            places,
            until,
            writes: false,
            failed: None,
            missed: BTreeSet::new(),
        }
    }
}

impl MemberState {
    fn is_at(&self, step: BindStep) -> bool {
        self.bind.is_some_and(|bind| bind.step == step)
    }

    /// Ends a bind that waits.
    fn fail(&mut self, why: &str, cx: &mut Context<'_>) {
        if self.bind.take_if(|bind| bind.waits()).is_some() {
            cx.fail(&self.member.uid, why);
        }
    }
}

impl Group {
    /// Returns the round, if it has a place for this member.
    fn round_of(&mut self, uid: &str) -> Option<&mut Round> {
        match &mut self.stage {
            Stage::Held(round) if round.places.contains_key(uid) => Some(round),
            _ => None,
        }
    }

    pub(super) fn bind(&mut self, uid: &Arc<str>, step: Step, cx: &mut Context<'_>) {
        match step {
            Step::Came => match self.start_bind(uid, cx) {
                Ok(()) => self.advance(uid, cx),
                Err(why) => cx.fail(uid, why),
            },
            Step::Reserved => {
                let bind = self.members.get_mut(uid).and_then(|m| m.bind.as_mut());
                if let Some(bind) = bind.filter(|bind| bind.step == BindStep::Reserving) {
                    bind.step = BindStep::Reserved;
                    self.advance(uid, cx);
                }
            }
            Step::Written => self.set_bound(uid, cx),
            Step::Failed(why) => self.end_bind(uid, &format!("failed: {why}"), cx),
            Step::Left => {
                let state = self.members.get(uid);
                if state.is_some_and(|m| m.bind.is_some_and(Bind::waits)) {
                    self.end_bind(uid, "was given up by kube-scheduler", cx);
                }
            }
        }
    }

    fn start_bind(&mut self, uid: &Arc<str>, cx: &Context<'_>) -> Result<(), &'static str> {
        if !cx.binds {
            return Err("the extender does not bind the pods of groups");
        }
        let is_held = matches!(self.stage, Stage::Held(_));
        let round_end = self.round_of(uid).map(|round| round.until);
        let alone_end = (!is_held && self.is_alone()).then(|| cx.now + cx.timeout);
        let Some(state) = self.members.get_mut(uid) else {
            return Err("the pod is not known as a member of its group");
        };
        if state.member.bound {
            return Err("the pod is bound already");
        }
        if let Some(bind) = state.bind {
            let writes = "an earlier bind of the pod is being written";
            return if bind.waits() { Ok(()) } else { Err(writes) };
        }
        let Some(until) = round_end.or(alone_end) else {
            return Err("the pod's group has no place held for it");
        };
        let step = BindStep::Came;
        state.bind = Some(Bind { step, until });
        Ok(())
    }

    /// Lets binds go on if all that wait for each other have come equally far: those of a round, or
    /// the one of a pod that is placed alone.
    fn advance(&mut self, uid: &Arc<str>, cx: &mut Context<'_>) {
        let round = self.round_of(uid);
        let uids: Vec<Arc<str>> = match round {
            Some(round) => round.places.keys().cloned().collect(),
            None => vec![Arc::clone(uid)],
        };
        let all_at = |step| {
            let mut states = uids.iter().map(|uid| self.members.get(uid));
            states.all(|state| state.is_some_and(|m| m.is_at(step)))
        };
        let (step, next) = if all_at(BindStep::Came) {
            (BindStep::Reserving, Next::Reserve)
        } else if all_at(BindStep::Reserved) {
            (BindStep::Writing, Next::Write)
        } else {
            return;
        };
        let write_end = cx.now + cx.timeout;
        if step == BindStep::Writing
            && let Some(round) = self.round_of(uid)
        {
            (round.writes, round.until) = (true, write_end);
        }
        for uid in uids {
            let Some(state) = self.members.get_mut(&uid) else {
                continue;
            };
            if let Some(bind) = &mut state.bind {
                bind.step = step;
                if step == BindStep::Writing {
                    bind.until = write_end;
                }
            }
            cx.actions.push(Action::Proceed { uid, step: next });
        }
    }

    pub(super) fn set_bound(&mut self, uid: &Arc<str>, cx: &mut Context<'_>) {
        let Some(state) = self.members.get_mut(uid) else {
            return;
        };
        if mem::replace(&mut state.member.bound, true) {
            return;
        }
        state.refused = false;
        state.fail("the pod is bound already", cx);
        state.bind = None;
        if let Some(round) = self.round_of(uid) {
            round.places.remove(uid);
            // A bind of the group elsewhere does not hold up the rest.
            let rest = round.places.keys().next().cloned();
            if let Some(rest) = rest {
                self.advance(&rest, cx);
            }
        }
        self.replan(cx);
    }

    /// Handles a bind that ended without a binding.
    fn end_bind(&mut self, uid: &Arc<str>, how: &str, cx: &mut Context<'_>) {
        let Some(state) = self.members.get_mut(uid) else {
            return;
        };
        if state.bind.take().is_none() {
            return;
        }
        let why = format!("the bind of {} {how}", state.member.name);
        match self.round_of(uid) {
            None => (),
            Some(round) if round.writes => {
                round.failed.get_or_insert(why);
                self.free_place(uid, cx);
                self.settle(cx);
            }
            Some(_) => self.fail_round(&why, cx),
        }
    }

    pub(super) fn lose(&mut self, uid: &Arc<str>, why: &str, cx: &mut Context<'_>) {
        let Some(round) = self.round_of(uid).filter(|round| !round.writes) else {
            return;
        };
        let is_first = round.missed.insert(Arc::clone(uid));
        let Some(state) = self.members.get_mut(uid) else {
            return;
        };
        if is_first {
            state.refused = true;
            self.wake(cx, |woken| woken == &**uid);
        } else {
            let name = Arc::clone(&state.member.name);
            self.fail_round(&format!("the place of {name} is lost: {why}"), cx);
        }
    }

    /// Takes a member that is gone out of the round. Before the writes this ends the round.
    pub(super) fn drop_from_round(&mut self, uid: &Arc<str>, cx: &mut Context<'_>) {
        match self.round_of(uid).map(|round| round.writes) {
            None => (),
            Some(true) => self.free_place(uid, cx),
            Some(false) => self.give_up("a pod of the group is gone", cx),
        }
    }

    fn free_place(&mut self, uid: &Arc<str>, cx: &mut Context<'_>) {
        if let Some(round) = self.round_of(uid) {
            round.places.remove(uid);
            cx.actions.push(Action::Free {
                group: cx.key.clone(),
                uids: vec![Arc::clone(uid)],
            });
        }
        if let Some(state) = self.members.get_mut(uid) {
            state.refused = true;
        }
    }

    /// Ends a round that failed: its members are planned again after a wait.
    fn fail_round(&mut self, why: &str, cx: &mut Context<'_>) {
        self.back_off(why, cx);
        self.give_up(why, cx);
        self.settle(cx);
    }

    /// Frees all places that are held, and fails the binds that wait.
    fn give_up(&mut self, why: &str, cx: &mut Context<'_>) {
        if let Stage::Held(round) = mem::take(&mut self.stage) {
            for uid in round.places.keys() {
                if let Some(state) = self.members.get_mut(uid) {
                    state.refused = true;
                    state.fail(why, cx);
                }
            }
            cx.actions.push(Action::Free {
                group: cx.key.clone(),
                uids: round.places.into_keys().collect(),
            });
        }
    }

    /// Ends a round whose places are all used, or do not meet the minimum any more.
    pub(super) fn settle_round(&mut self, cx: &mut Context<'_>) {
        let Stage::Held(round) = &mut self.stage else {
            return;
        };
        if round.places.is_empty() {
            let failed = round.failed.take();
            self.stage = Stage::Idle;
            match failed {
                Some(why) => self.back_off(&why, cx),
                None => self.reset_failures(),
            }
        } else if !round.writes {
            let places = round.places.len();
            if !self.is_met_by(places) {
                self.give_up("the group has changed", cx);
            }
        }
    }

    pub(super) fn fail_binds(&mut self, why: &str, cx: &mut Context<'_>) {
        for state in self.members.values_mut() {
            state.fail(why, cx);
        }
    }

    pub(super) fn end_overdue_binds(&mut self, cx: &mut Context<'_>) {
        if let Stage::Held(round) = &self.stage
            && round.until <= cx.now
        {
            let what = if round.writes { "written" } else { "bound" };
            let seconds = cx.timeout.as_secs();
            let why = format!("not all pods of the group were {what} within {seconds} s");
            self.fail_round(&why, cx);
        }
        for state in self.members.values_mut() {
            if state.bind.is_some_and(|bind| bind.until <= cx.now) {
                state.fail("the bind took too long", cx);
                state.bind = None;
            }
        }
    }
}
