//! Follows the pods of groups in the cluster, and the time.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tautline_core::{
    Snapshot,
    group::{
        self, GroupKey, Membership,
        board::{Event, Member},
    },
    index::Kind,
    model::{GroupRule, Pod, key},
};
use tautline_runtime::cluster_store::Versions;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{apply, size, tick};
use crate::state::State;

/// The wait after a change of the cluster, for the changes that follow it.
const CHANGE_DEBOUNCE: Duration = Duration::from_millis(10);
/// The interval between two looks at the time.
const TICK_INTERVAL: Duration = Duration::from_millis(250);
/// The time after which the size that a controller states is read again.
const SIZE_AGE: Duration = Duration::from_secs(5);

/// The members of groups that the board knows.
#[derive(Default)]
pub(super) struct Follower {
    seen: Arc<Snapshot>,
    versions: Versions,
    has_groups: bool,
    /// The members by `namespace/name`.
    members: HashMap<String, (GroupKey, Arc<str>)>,
    /// The names of members by UID.
    names: HashMap<Arc<str>, Arc<str>>,
    groups: HashMap<GroupKey, KnownGroup>,
}

#[derive(Default)]
struct KnownGroup {
    members: u32,
    /// The time when the group's controller was last asked for the number of its pods.
    read: Option<Instant>,
    /// The number of pods that the controller states.
    stated: Option<u32>,
}

impl Follower {
    pub fn name(&self, uid: &str) -> Option<Arc<str>> {
        self.names.get(uid).cloned()
    }

    pub fn names(&self, uids: &[Arc<str>]) -> Vec<Arc<str>> {
        uids.iter().filter_map(|uid| self.name(uid)).collect()
    }

    /// Returns the events of all pods that have changed since the last call.
    fn catch_up(&mut self, state: &State) -> Vec<Event> {
        let versions = *state.store.changes().borrow();
        let has_new_offers = versions.changed(&self.versions, &[Kind::Offer]);
        self.versions = versions;
        let mut events = Vec::new();
        // Without groups no snapshot is made: the next writes would copy parts of the index for it.
        if !self.has_groups && !has_new_offers {
            return events;
        }
        let snapshot = state.store.snapshot();
        if has_new_offers {
            self.has_groups = snapshot.offers().any(|entry| entry.offer.group.is_some());
            if self.has_groups {
                for pod in snapshot.pods() {
                    self.follow(state, &snapshot, pod, &mut events);
                }
            }
        }
        let seen = if self.has_groups {
            Arc::clone(&snapshot)
        } else {
            let known: Vec<String> = self.members.keys().cloned().collect();
            known.iter().for_each(|key| self.forget(key, &mut events));
            Arc::default()
        };
        let before = std::mem::replace(&mut self.seen, seen);
        if self.has_groups {
            for (old, new) in snapshot.changed_pods(&before) {
                match (old, new) {
                    (_, Some(pod)) => self.follow(state, &snapshot, pod, &mut events),
                    (Some(pod), None) => {
                        self.forget(&key(&pod.namespace, &pod.name), &mut events);
                    }
                    (None, None) => {}
                }
            }
        }
        events
    }

    fn follow(&mut self, state: &State, snapshot: &Snapshot, pod: &Pod, events: &mut Vec<Event>) {
        let key = key(&pod.namespace, &pod.name);
        let flight = snapshot.flight(&pod.namespace, &pod.name);
        let known = self.members.get(&key);
        if flight.is_some() && known.is_some_and(|(_, uid)| **uid == *pod.uid) {
            return;
        }
        let is_gated = pod.node.is_none() && pod.placement.as_ref().is_some_and(|p| p.gated);
        // A pod that has succeeded had its place: the rest of a Job needs no new plan for all.
        let counts = !pod.terminating && !is_gated && !pod.failed;
        let of = || Membership::of(snapshot, &pod.namespace, &pod.labels, pod.owner);
        let membership = (counts && !state.is_exempt(&pod.namespace)).then(of);
        let Some(Some(Membership::Member(group, rule))) = membership else {
            self.forget(&key, events);
            return;
        };
        if known.is_some_and(|(of, uid)| *of != group || **uid != *pod.uid) {
            self.forget(&key, events);
        }
        let uid: Arc<str> = (*pod.uid).into();
        let entry = (group.clone(), Arc::clone(&uid));
        if self.members.insert(key, entry).is_none() {
            self.groups.entry(group.clone()).or_default().members += 1;
        }
        self.names.insert(Arc::clone(&uid), Arc::clone(&pod.name));
        let minimum = self.minimum(state, &group, &rule, pod);
        events.push(Event::Minimum {
            group: group.clone(),
            minimum,
        });
        events.push(Event::Seen {
            group,
            member: Member {
                uid,
                name: Arc::clone(&pod.name),
                priority: pod.placement.as_ref().map_or(0, |p| p.priority),
                created_unix: pod.created_unix,
                bound: pod.node.is_some() && flight.is_none(),
            },
        });
    }

    fn forget(&mut self, key: &str, events: &mut Vec<Event>) {
        let Some((group, uid)) = self.members.remove(key) else {
            return;
        };
        self.names.remove(&uid);
        if let Some(known) = self.groups.get_mut(&group) {
            known.members -= 1;
            if known.members == 0 {
                self.groups.remove(&group);
            }
        }
        events.push(Event::Gone { group, uid });
    }

    /// Returns the number of pods that must be placed together; `None` if nothing states it yet.
    fn minimum(&self, state: &State, group: &GroupKey, rule: &GroupRule, pod: &Pod) -> Option<u32> {
        let known = self.groups.get(group)?;
        let stated = || group::stated_size(pod).or(known.stated);
        // Without an API server all pods that exist are known.
        let all = || state.client.is_none().then_some(known.members);
        rule.minimum.or_else(stated).or_else(all)
    }

    /// Returns a member by which the group's controller is found, unless it was asked just now.
    fn begin_reading(&mut self, group: &GroupKey) -> Option<String> {
        let (now, known) = (Instant::now(), self.groups.get_mut(group)?);
        let is_due = known.read.is_none_or(|read| now >= read + SIZE_AGE);
        let mut members = self.members.iter().filter(|_| is_due);
        let (member, _) = members.find(|(_, (of, _))| of == group)?;
        known.read = Some(now);
        Some(member.clone())
    }

    /// Returns whether only the group's controller states the number of its pods.
    fn is_read(&self, group: &GroupKey) -> bool {
        self.groups.get(group).is_some_and(|g| g.read.is_some())
    }
}

/// Applies the changes of the cluster since the last call.
pub(super) fn catch_up(state: &Arc<State>) {
    let events = state.groups.follower.lock().catch_up(state);
    for event in events {
        let asks = match &event {
            Event::Minimum {
                group,
                minimum: None,
            } => Some(group.clone()),
            _ => None,
        };
        apply(state, event);
        if let Some(group) = asks {
            read_size(state, &group);
        }
    }
}

/// Reads again the number of pods that the group's controller states, if only that says how many
/// are placed together.
pub(super) fn read_size_again(state: &Arc<State>, group: &GroupKey) {
    let is_read = state.groups.follower.lock().is_read(group);
    if is_read {
        read_size(state, group);
    }
}

fn read_size(state: &Arc<State>, group: &GroupKey) {
    let Some(client) = state.client.clone() else {
        return;
    };
    let Some(member) = state.groups.follower.lock().begin_reading(group) else {
        return;
    };
    let (state, group) = (Arc::clone(state), group.clone());
    tokio::spawn(async move {
        let name = member.split_once('/').map_or("", |(_, name)| name);
        match size::read(&client, &group, name).await {
            Ok(stated) => {
                if let Some(known) = state.groups.follower.lock().groups.get_mut(&group) {
                    known.stated = stated;
                }
                let minimum = stated;
                apply(&state, Event::Minimum { group, minimum });
            }
            Err(error) => {
                tracing::warn!(%group, %error, "the number of its pods cannot be read; set \
                    spec.group.minimum in the offer");
            }
        }
    });
}

/// Follows the cluster and the time until `stop`.
pub(crate) async fn follow(state: Arc<State>, stop: CancellationToken) {
    let (mut all, mut without_pods) = (state.store.changes(), state.store.changes_except_pods());
    let following = async {
        let mut ticked = Instant::now();
        loop {
            // Pods change thousands of times as often as offers.
            let has_groups = state.groups.follower.lock().has_groups;
            let changes = if has_groups {
                &mut all
            } else {
                &mut without_pods
            };
            if let Ok(Ok(())) = timeout(TICK_INTERVAL, changes.changed()).await {
                tokio::time::sleep(CHANGE_DEBOUNCE).await;
                all.mark_unchanged();
                without_pods.mark_unchanged();
                catch_up(&state);
            }
            if ticked.elapsed() >= TICK_INTERVAL {
                ticked = Instant::now();
                tick(&state);
            }
        }
    };
    stop.run_until_cancelled(following).await;
}
