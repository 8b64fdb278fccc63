//! Places the pods of groups together: applies the events of pods, plans and binds to the board of
//! groups, and carries out its actions.

mod answer;
mod bind;
mod costs;
mod follow;
mod size;
mod solve;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tautline_core::{
    Snapshot,
    group::{
        GroupKey, MAX_MEMBERS,
        board::{Action, Board, Event, Phase, Places, Verdict},
    },
    model::Pod,
};
use tautline_pod_requeue::{nominate, wake};
use tautline_provider_client::PlanningRound;
use tautline_runtime::api_call::ApiCallError;
use tokio::{
    sync::{Notify, mpsc::UnboundedSender},
    time::{timeout, timeout_at},
};

pub use self::answer::RULE;
pub(crate) use self::{answer::member_plan, bind::GroupBind, follow::follow};
use self::{bind::Signal, follow::Follower, solve::NoRoom};
use crate::state::State;

/// The places of several pods of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupRecord {
    /// The number of pods that were asked about.
    pub pods: usize,
    /// The number of pods that have a place.
    pub placed: usize,
    /// The nodes of the pods; empty if not all pods have a place.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub nodes: BTreeSet<String>,
    /// The reason why the other pods have no place; empty if all have one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Plans the places of `count` pods like this one, at most as many as a group has, and holds none.
pub(crate) async fn try_places(
    state: &State,
    snapshot: &Arc<Snapshot>,
    pod: &Pod,
    count: usize,
) -> GroupRecord {
    let pods = count.clamp(1, MAX_MEMBERS);
    let members = (0..pods).map(|i| {
        Arc::new(Pod {
            name: format!("{}-{i}", pod.name).into(),
            uid: format!("{}-{i}", pod.uid).into(),
            ..pod.clone()
        })
    });
    let plan = solve::place(state, snapshot, members.collect(), &pod.name);
    let mut nodes = BTreeSet::new();
    let (placed, why) = match timeout(PLAN_TIMEOUT, plan).await {
        Ok(Ok(solved)) => {
            nodes.extend(solved.places.values().map(|node| node.to_string()));
            (pods, String::new())
        }
        Ok(Err(no_room)) => (no_room.placed.min(pods - 1), no_room.why),
        Err(_) => (0, format!("no plan within {} s", PLAN_TIMEOUT.as_secs())),
    };
    GroupRecord {
        pods,
        placed,
        nodes,
        why,
    }
}

/// The groups of pods that are placed together.
pub(crate) struct Groups {
    board: Mutex<Board>,
    follower: Mutex<Follower>,
    /// The rounds that checked the places of plans, by group and by the member's UID.
    rounds: Mutex<HashMap<GroupKey, Rounds>>,
    /// The binds at the barrier, by the pod's UID.
    binds: Mutex<HashMap<Arc<str>, UnboundedSender<Signal>>>,
    /// Notifies the requests that wait for the end of a plan.
    planned: Notify,
}

/// The phases of groups with their names in metrics.
const PHASES: [(Phase, &str); 7] = [
    (Phase::Waiting, "waiting"),
    (Phase::Queued, "queued"),
    (Phase::Planning, "planning"),
    (Phase::NoRoom, "no_room"),
    (Phase::Held, "held"),
    (Phase::Writing, "writing"),
    (Phase::Bound, "bound"),
];

/// The longest time of a joint plan: other groups wait for it.
const PLAN_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest time for which filter waits for a plan, and kube-scheduler for filter.
const FILTER_WAIT: Duration = Duration::from_millis(100);

type Rounds = HashMap<Arc<str>, Arc<PlanningRound>>;

impl Groups {
    /// Creates the groups. `binds` is true if the extender binds, so that the members' binds wait
    /// for each other, for `timeout` at most.
    pub fn new(timeout: Duration, binds: bool) -> Self {
        Self {
            board: Mutex::new(Board::new(timeout, binds)),
            follower: Mutex::default(),
            rounds: Mutex::default(),
            binds: Mutex::default(),
            planned: Notify::new(),
        }
    }

    /// The round that checked a member's place in the last plan.
    fn round(&self, group: &GroupKey, uid: &str) -> Option<Arc<PlanningRound>> {
        self.rounds.lock().get(group)?.get(uid).cloned()
    }
}

/// Lets time pass for all groups, and counts them.
fn tick(state: &Arc<State>) {
    apply(state, Event::Tick);
    let mut counts = PHASES.map(|(phase, _)| (phase, 0));
    let mut planned = HashSet::new();
    let board = state.groups.board.lock();
    for (group, of) in board.states() {
        for (phase, count) in &mut counts {
            *count += usize::from(of.phase == *phase);
        }
        if matches!(of.phase, Phase::Planning | Phase::Held | Phase::Writing) {
            planned.insert(group.clone());
        }
    }
    drop(board);
    for ((_, count), (_, name)) in counts.iter().zip(PHASES) {
        state.metrics.groups(name, *count);
    }
    state
        .groups
        .rounds
        .lock()
        .retain(|group, _| planned.contains(group));
}

/// Applies an event, and carries out what follows.
fn apply(state: &Arc<State>, event: Event) {
    // The lock is held while the actions are carried out, so that they keep their order.
    let mut board = state.groups.board.lock();
    let actions = board.apply(event, Instant::now());
    carry_out(state, actions);
}

/// Returns filter's answer for a member. It waits a moment for a plan that is being made: a refused pod
/// costs kube-scheduler an event, a status and another attempt.
async fn ask_patiently(state: &Arc<State>, group: &GroupKey, uid: &str) -> Verdict {
    let deadline = Instant::now() + FILTER_WAIT;
    loop {
        let mut planned = pin!(state.groups.planned.notified());
        planned.as_mut().enable();
        let verdict = ask(state, group, uid);
        let is_planning = matches!(verdict, Verdict::Planning);
        if !is_planning || timeout_at(deadline.into(), planned).await.is_err() {
            return verdict;
        }
    }
}

fn ask(state: &Arc<State>, group: &GroupKey, uid: &str) -> Verdict {
    let mut board = state.groups.board.lock();
    let (verdict, actions) = board.ask(group, uid, Instant::now());
    carry_out(state, actions);
    verdict
}

fn carry_out(state: &Arc<State>, actions: Vec<Action>) {
    let woken: HashSet<Arc<str>> = actions.iter().flat_map(woken).cloned().collect();
    for action in actions {
        match action {
            Action::Plan {
                group,
                number,
                members,
            } => {
                tokio::spawn(plan(Arc::clone(state), group, number, members));
            }
            Action::Hold { group, places } => {
                hold(state, &group, &places);
                // kube-scheduler may ask about a member that it has not set aside at any moment.
                let others = places.into_keys().filter(|uid| !woken.contains(uid));
                let others: Vec<_> = others.collect();
                nominate_places(state, &group, &others, Nomination::Place);
            }
            Action::Free { group, uids } => {
                let names = state.groups.follower.lock().names(&uids);
                let names = names.iter().map(|name| &**name);
                state.store.end_holds(&group.namespace, names);
                nominate_places(state, &group, &uids, Nomination::None);
                state.follow_flights(&state.store.snapshot());
            }
            Action::Wake { group, uids } => {
                nominate_places(state, &group, &uids, Nomination::PlaceAndWake)
            }
            Action::Proceed { uid, step } => signal(state, &uid, Signal::Proceed(step)),
            Action::Fail { uid, why } => signal(state, &uid, Signal::Fail(why)),
        }
    }
}

fn signal(state: &State, uid: &str, signal: Signal) {
    let binds = state.groups.binds.lock();
    // The bind is gone if kube-scheduler does not wait for it any more.
    _ = binds.get(uid).map(|bind| bind.send(signal));
}

/// Plans a group, and applies the result.
async fn plan(state: Arc<State>, group: GroupKey, number: u64, members: Vec<Arc<str>>) {
    let begun = Instant::now();
    let solved = timeout(PLAN_TIMEOUT, solve::solve(&state, &group, &members)).await;
    let outcome = solved.unwrap_or_else(|_| {
        Err(NoRoom {
            placed: 0,
            why: format!("the providers did not answer within {PLAN_TIMEOUT:?}"),
        })
    });
    let event = match outcome {
        Ok(solved) => {
            state.metrics.group_plan("planned", begun.elapsed());
            let mut rounds = state.groups.rounds.lock();
            rounds.insert(group.clone(), solved.rounds);
            Event::Planned {
                group,
                number,
                places: solved.places,
            }
        }
        Err(no_room) => {
            state.metrics.group_plan("no_room", begun.elapsed());
            tracing::debug!(%group, placed = no_room.placed, why = no_room.why, "no room");
            Event::NoRoom {
                group,
                number,
                placed: no_room.placed,
                why: no_room.why,
            }
        }
    };
    apply(&state, event);
    state.groups.planned.notify_waiters();
}

/// Counts the members as on their nodes, here and at the providers that count pods.
fn hold(state: &State, group: &GroupKey, places: &Places) {
    let snapshot = state.store.snapshot();
    let follower = state.groups.follower.lock();
    let held = places.iter().filter_map(|(uid, node)| {
        let name = follower.name(uid)?;
        let pod = snapshot.pod(&group.namespace, &name)?;
        let round = state.groups.round(group, uid);
        let counting = round.iter().flat_map(|round| round.counting_providers());
        let counted_by = counting.cloned().collect();
        (*pod.uid == **uid).then(|| ((**pod).clone(), Arc::clone(node), counted_by))
    });
    state.store.begin_holds(Instant::now(), held.collect());
    drop(follower);
    state.follow_flights(&state.store.snapshot());
}

/// The nominated node that members get.
#[derive(Clone, Copy, PartialEq)]
enum Nomination {
    /// Each member gets its place, which kube-scheduler then tries first.
    Place,
    /// Each member gets its place, and kube-scheduler is made to try it now.
    PlaceAndWake,
    /// Members get no node, so that other pods may take the places.
    None,
}

/// Changes the nominated nodes of these members.
fn nominate_places(state: &State, group: &GroupKey, uids: &[Arc<str>], to: Nomination) {
    let Some(client) = &state.client else { return };
    let follower = state.groups.follower.lock();
    for uid in uids {
        let Some(name) = follower.name(uid) else {
            continue;
        };
        let (client, group, uid) = (client.clone(), group.clone(), Arc::clone(uid));
        // A pod that is placed alone now has no place.
        let round = state.groups.round(&group, &uid);
        let round = round.filter(|_| to != Nomination::None);
        tokio::spawn(async move {
            let namespace = &group.namespace;
            let called = async {
                let place = round.as_ref().map(|round| round.nodes.name(0));
                if place.is_some() || to == Nomination::None {
                    nominate(&client, namespace, &name, &uid, place).await?;
                }
                if to == Nomination::PlaceAndWake {
                    wake(&client, namespace, &name, &uid, "group").await?;
                }
                Ok::<_, ApiCallError>(())
            };
            if let Err(error) = called.await {
                tracing::warn!(%group, pod = %name, %error, "pod not changed");
            }
        });
    }
}

fn woken(action: &Action) -> &[Arc<str>] {
    match action {
        Action::Wake { uids, .. } => uids,
        _ => &[],
    }
}
