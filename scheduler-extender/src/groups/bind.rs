//! The barrier of a group: a member's bind waits until the binds of all members have come.

use std::{sync::Arc, time::Instant};

use tautline_core::{
    Snapshot,
    constraints::PodIdentity,
    group::{
        GroupKey, Membership,
        board::{Event, Next, Step},
    },
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::{apply, carry_out, follow};
use crate::{state::State, wire::BindArgs};

/// The board's word for a waiting bind.
pub(super) enum Signal {
    Proceed(Next),
    Fail(String),
}

/// The bind of a member at the barrier. If it is dropped before the binding is written, the bind has
/// failed.
pub(crate) struct GroupBind {
    state: Arc<State>,
    group: GroupKey,
    uid: Arc<str>,
    signals: UnboundedReceiver<Signal>,
    /// Cancelled when kube-scheduler does not wait any more.
    left: CancellationToken,
    /// The reason why the bind ends without a binding; `None` once the board knows the end.
    fails_with: Option<String>,
}

impl GroupBind {
    /// Brings a bind to the barrier; `None` for a pod without a group.
    ///
    /// # Errors
    /// The pod has its place on another node.
    pub fn begin(
        state: &Arc<State>,
        snapshot: &Snapshot,
        pod: &PodIdentity,
        args: &BindArgs,
        left: &CancellationToken,
    ) -> Result<Option<Self>, String> {
        let membership = Membership::of(snapshot, &pod.namespace, &pod.labels, pod.owner);
        let Some(Membership::Member(group, _)) = membership else {
            return Ok(None);
        };
        if state.is_exempt(&pod.namespace) {
            return Ok(None);
        }
        follow::catch_up(state);
        let uid: Arc<str> = pod.uid.as_str().into();
        let mut board = state.groups.board.lock();
        if let Some(place) = board.place(&group, &uid)
            && **place != *args.node
        {
            return Err(format!("it has its place on {place}, not on {}", args.node));
        }
        let (sender, signals) = unbounded_channel();
        let mut binds = state.groups.binds.lock();
        binds.insert(Arc::clone(&uid), sender);
        drop(binds);
        let bind = Self {
            state: Arc::clone(state),
            group,
            uid,
            signals,
            left: left.clone(),
            fails_with: Some("its bind ended".into()),
        };
        let actions = board.apply(bind.event(Step::Came), Instant::now());
        carry_out(state, actions);
        Ok(Some(bind))
    }

    /// Waits until all members may reserve.
    pub async fn until_reserve(&mut self) -> Result<(), String> {
        self.wait_for(Next::Reserve).await
    }

    /// Says that the pod has what it needs, and waits until all members may be written.
    pub async fn until_write(&mut self) -> Result<(), String> {
        self.report(Step::Reserved);
        self.wait_for(Next::Write).await
    }

    /// Says that the binding is written.
    pub fn written(mut self) {
        self.fails_with = None;
        self.report(Step::Written);
    }

    /// Keeps the reason why the bind ends without a binding.
    pub fn fail(&mut self, why: &str) {
        if let Some(fails_with) = &mut self.fails_with {
            why.clone_into(fails_with);
        }
    }

    async fn wait_for(&mut self, next: Next) -> Result<(), String> {
        let signal = tokio::select! {
            signal = self.signals.recv() => signal,
            () = self.left.cancelled() => {
                self.fails_with = None;
                self.report(Step::Left);
                return Err("kube-scheduler does not wait any more".into());
            }
        };
        let why = match signal {
            Some(Signal::Proceed(step)) if step == next => return Ok(()),
            Some(Signal::Proceed(_)) => return Err("the steps of its bind are out of order".into()),
            Some(Signal::Fail(why)) => why,
            None => "a later bind of the pod has come".into(),
        };
        self.fails_with = None;
        Err(why)
    }

    fn report(&self, step: Step) {
        apply(&self.state, self.event(step));
    }

    fn event(&self, step: Step) -> Event {
        let (group, uid) = (self.group.clone(), Arc::clone(&self.uid));
        Event::Bind { group, uid, step }
    }
}

impl Drop for GroupBind {
    fn drop(&mut self) {
        if let Some(why) = self.fails_with.take() {
            self.report(Step::Failed(why));
        }
        let mut binds = self.state.groups.binds.lock();
        // If the sender is gone, a later bind of the pod has the entry.
        if !self.signals.is_closed() {
            binds.remove(&self.uid);
        }
    }
}
