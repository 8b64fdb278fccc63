//! The use of the nodes' cards, from the last report of each node's agent.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use tautline_agent_link::SilentAgents;
use tautline_core::{model::Pod, text};
use tautline_gpu_placement::Inventory;
use tautline_proto::gpu::{CardUse, ContainerUse, Use};
use tonic::Status;

use crate::uses::{self, Page, STRAY_BYTES};

/// The age from which a report no longer counts; the use of the node's cards is then unknown.
pub(crate) const MAX_REPORT_AGE: Duration = Duration::from_secs(30);
/// The time for which the last report of a silent agent is remembered.
const SILENCE_RETENTION: Duration = Duration::from_secs(3_600);
/// The greatest number of cards in a report, which is more than a node has.
const MAX_CARDS: usize = 128;
/// The greatest number of containers in a report; an agent leaves out those with the least memory.
const MAX_CONTAINERS: usize = 1_024;
const MAX_NAME_BYTES: usize = 253;
const MAX_COMMAND_CHARS: usize = 64;
/// The number of consecutive reports that must show a container on a card that its pod does not
/// have. A single report may be older than the end of the pod.
const STRAY_REPORTS: u32 = 2;

tautline_runtime::metrics! {
    /// The metrics of the agents. Clones share all values.
    pub(crate) struct AgentMetrics {
        used: Family<OfCard, Gauge> => "gpu_used_bytes",
            "Memory in use of each card, as the node's agent reports it";
        /// The number of open streams.
        pub(crate) agents: Gauge => "gpu_agents", "Agents that are connected to this replica";
        /// The number of streams that were refused because their agents gave no proof of the node.
        pub(crate) refused: Counter
            => "gpu_agents_refused", "Streams of agents that were refused";
    }
    labels OfCard { node: String, card: String }
}

impl AgentMetrics {
    /// Replaces the use of a node's cards. Cards that are no longer reported are dropped.
    fn replace(&self, node: &str, old: &[CardUse], new: &[CardUse]) {
        let of = |of: &CardUse| OfCard {
            node: node.to_owned(),
            card: of.card.clone(),
        };
        for gone in old.iter().filter(|o| new.iter().all(|n| n.card != o.card)) {
            self.used.remove(&of(gone));
        }
        for card in new {
            let bytes = signed(card.memory_bytes);
            self.used.get_or_create(&of(card)).set(bytes);
        }
    }
}

pub(crate) type SessionId = u64;

#[derive(Debug, Default)]
pub(crate) struct UseStore {
    pub(crate) metrics: AgentMetrics,
    nodes: HashMap<Arc<str>, NodeUse>,
    sessions: SessionId,
}

/// The last report of a node.
#[derive(Debug, Default)]
pub(crate) struct NodeUse {
    session: Option<SessionId>,
    at: Option<Instant>,
    pub(crate) cards: Vec<CardUse>,
    pub(crate) containers: Vec<SeenUse>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenUse {
    pub(crate) of: ContainerUse,
    /// The number of consecutive reports in which no record gave the container the card.
    stray_reports: u32,
}

impl SeenUse {
    /// Returns whether the container uses a card that its pod does not have.
    pub(crate) fn is_stray(&self) -> bool {
        self.stray_reports >= STRAY_REPORTS
    }
}

/// Returns the key of a use. Containers of a pod have names; processes outside of pods with the
/// same name share a key.
fn key(of: &ContainerUse) -> (&str, &str, &str) {
    (&of.pod_uid, &of.container, &of.card)
}

impl UseStore {
    /// Opens a session of the node's agent, which replaces an older session.
    pub(crate) fn open(&mut self, node: &str) -> SessionId {
        self.metrics.agents.inc();
        self.sessions += 1;
        self.nodes.entry(node.into()).or_default().session = Some(self.sessions);
        self.sessions
    }

    /// Closes a session. The agent's last report still counts until it is too old.
    pub(crate) fn close(&mut self, node: &str, session: SessionId) {
        self.metrics.agents.dec();
        if let Some(of) = self.nodes.get_mut(node)
            && of.session == Some(session)
        {
            of.session = None;
        }
    }

    /// Replaces the node's use. `is_stray` returns whether no record gives the container the card.
    pub(crate) fn report(
        &mut self,
        node: &str,
        session: SessionId,
        used: Use,
        now: Instant,
        is_stray: impl Fn(&ContainerUse) -> bool,
    ) -> Result<(), Status> {
        let used = checked(used)?;
        let of = self.nodes.get_mut(node);
        let Some(of) = of.filter(|of| of.session == Some(session)) else {
            return Err(Status::aborted(
                "another stream speaks for the node; connect again",
            ));
        };
        let last = std::mem::take(&mut of.containers);
        let strays = last.iter().filter(|seen| seen.stray_reports > 0);
        let strays: HashMap<_, u32> = strays.map(|s| (key(&s.of), s.stray_reports)).collect();
        let seen = |container: ContainerUse| {
            let before = strays.get(&key(&container)).copied().unwrap_or_default();
            let stray_reports = if is_stray(&container) {
                before.saturating_add(1)
            } else {
                0
            };
            SeenUse {
                of: container,
                stray_reports,
            }
        };
        of.containers = used.containers.into_iter().map(seen).collect();
        self.metrics.replace(node, &of.cards, &used.cards);
        of.cards = used.cards;
        of.at = Some(now);
        Ok(())
    }

    /// Returns the use of a node's cards; `None`: there is no report, or it is too old.
    pub(crate) fn fresh(&self, node: &str, now: Instant) -> Option<&NodeUse> {
        let of = self.nodes.get(node)?;
        (of.age(now)? < MAX_REPORT_AGE).then_some(of)
    }

    /// Returns the time since the last report of each of `nodes` whose agent is silent: it has no
    /// session and no fresh report. The time is `None` if it is not known.
    pub(crate) fn silent_agents<'a>(
        &self,
        nodes: impl Iterator<Item = &'a str>,
        now: Instant,
    ) -> SilentAgents {
        SilentAgents::new(nodes.filter_map(|node| {
            let of = self.nodes.get(node);
            let is_open = of.is_some_and(|of| of.session.is_some());
            let is_silent = !is_open && self.fresh(node, now).is_none();
            is_silent.then(|| (node, of.and_then(|of| of.age(now))))
        }))
    }

    /// Returns the fresh reports of the nodes that `wanted` accepts, sorted by name.
    pub(crate) fn page(&self, now: Instant, wanted: impl Fn(&str) -> bool) -> Page {
        let wanted = self.nodes.iter().filter(|(node, _)| wanted(node));
        let mut nodes: Vec<_> = wanted
            .filter_map(|(node, of)| of.shown(node, now))
            .collect();
        nodes.sort_by(|a, b| a.node.cmp(&b.node));
        Page { nodes }
    }

    /// Drops the reports that are too old, and later the silent nodes.
    pub(crate) fn expire(&mut self, now: Instant) {
        let metrics = &self.metrics;
        self.nodes.retain(|node, of| {
            if of.age(now).is_some_and(|age| age >= MAX_REPORT_AGE) {
                metrics.replace(node, &of.cards, &[]);
                *of = NodeUse {
                    session: of.session,
                    at: of.at,
                    ..NodeUse::default()
                };
            }
            of.session.is_some() || of.age(now).is_some_and(|age| age < SILENCE_RETENTION)
        });
    }
}

impl NodeUse {
    fn age(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.at?))
    }

    fn shown(&self, node: &str, now: Instant) -> Option<uses::NodeUse> {
        let age = self.age(now).filter(|age| *age < MAX_REPORT_AGE)?;
        let card = |of: &CardUse| uses::CardUse {
            card: of.card.clone(),
            memory_bytes: signed(of.memory_bytes),
            busy_milli: of.busy_milli.into(),
        };
        let container = |seen: &SeenUse| uses::ContainerUse {
            namespace: seen.of.namespace.clone(),
            pod: seen.of.pod.clone(),
            container: seen.of.container.clone(),
            card: seen.of.card.clone(),
            memory_bytes: signed(seen.of.memory_bytes),
            sm_milli: seen.of.sm_milli.into(),
        };
        Some(uses::NodeUse {
            node: node.to_owned(),
            age_seconds: age.as_secs(),
            cards: self.cards.iter().map(card).collect(),
            containers: self.containers.iter().map(container).collect(),
        })
    }
}

/// Returns whether a container uses more than [`STRAY_BYTES`] of a card that an agent gives out,
/// and no record gives the card to its pod. `pods` are the pods on the node.
pub(crate) fn is_stray(inventory: &Inventory, pods: &[Arc<Pod>], of: &ContainerUse) -> bool {
    let Some((pool, card)) = inventory.card(&of.card) else {
        return false;
    };
    if !pool.offered || of.memory_bytes <= u64::from(STRAY_BYTES) {
        return false;
    }
    if of.pod_uid.is_empty() {
        return true;
    }
    // A reservation has the name of its pod, also before the watch shows the pod's binding.
    let (namespace, name) = match pods.iter().find(|pod| *pod.uid == *of.pod_uid) {
        Some(pod) => (&*pod.namespace, &*pod.name),
        None => (&*of.namespace, &*of.pod),
    };
    let is_pod = |holder: &str| holder.split_once('/') == Some((namespace, name));
    !card.holders.iter().any(|h| h.annotated && is_pod(&h.pod))
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Checks a report, and makes its commands printable. The error names the invalid field.
fn checked(mut used: Use) -> Result<Use, Status> {
    let wrong = |what: String| Err(Status::invalid_argument(format!("Use, {what}")));
    if used.cards.len() > MAX_CARDS || used.containers.len() > MAX_CONTAINERS {
        let (cards, containers) = (used.cards.len(), used.containers.len());
        return wrong(format!(
            "{cards} cards and {containers} containers: expected at most {MAX_CARDS} and \
             {MAX_CONTAINERS}"
        ));
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'/' | b'_');
    let valid = |name: &str| name.len() <= MAX_NAME_BYTES && name.bytes().all(plain);
    for card in &used.cards {
        if card.card.is_empty() || !valid(&card.card) {
            return wrong(format!("cards, card: {:?} is no UUID", clip(&card.card)));
        }
    }
    for of in &mut used.containers {
        if of.pod_uid.is_empty() {
            // A command can be any text.
            of.container = text::sanitize(&of.container, MAX_COMMAND_CHARS).into_owned();
        }
        let names = [
            ("podUid", &of.pod_uid),
            ("namespace", &of.namespace),
            ("pod", &of.pod),
            ("card", &of.card),
        ];
        let container = ("container", &of.container);
        let container = (!of.pod_uid.is_empty()).then_some(container);
        for (field, name) in names.into_iter().chain(container) {
            if !valid(name) {
                return wrong(format!("containers, {field}: {:?} is no name", clip(name)));
            }
        }
    }
    Ok(used)
}

fn clip(text: &str) -> String {
    text.chars().take(MAX_COMMAND_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(containers: &[(&str, &str, u64)]) -> Use {
        let container = |(uid, name, bytes): &(&str, &str, u64)| ContainerUse {
            pod_uid: (*uid).into(),
            container: (*name).into(),
            card: "GPU-a".into(),
            memory_bytes: *bytes,
            ..ContainerUse::default()
        };
        Use {
            cards: vec![CardUse {
                card: "GPU-a".into(),
                memory_bytes: 7,
                busy_milli: 1,
            }],
            containers: containers.iter().map(container).collect(),
        }
    }

    #[test]
    fn uses_are_fresh_for_half_a_minute_and_then_dropped() {
        let (mut store, now) = (UseStore::default(), Instant::now());
        let session = store.open("n");
        assert!(store.fresh("n", now).is_none());
        store
            .report("n", session, used(&[]), now, |_| false)
            .unwrap();
        let almost = now + MAX_REPORT_AGE - Duration::from_millis(1);
        assert_eq!(store.fresh("n", almost).unwrap().cards[0].memory_bytes, 7);
        store.close("n", session);
        store.expire(almost);
        assert!(store.fresh("n", almost).is_some(), "its figures still hold");
        assert!(store.fresh("n", now + MAX_REPORT_AGE).is_none());
        let silent = now + MAX_REPORT_AGE;
        store.expire(silent);
        assert!(store.nodes["n"].cards.is_empty());
        let nodes = || ["n", "never"].into_iter();
        assert_eq!(store.silent_agents(nodes(), almost).total, 1);
        let list = store.silent_agents(nodes(), silent).nodes;
        let list: Vec<_> = list.iter().map(|a| (&*a.node, a.silent_seconds)).collect();
        assert_eq!(list, [("n", Some(30)), ("never", None)]);
        let session = store.open("n");
        assert_eq!(store.silent_agents(nodes(), silent).total, 1);
        store.close("n", session);
        store.expire(now + SILENCE_RETENTION);
        assert!(store.nodes.is_empty());
    }

    #[test]
    fn a_newer_session_replaces_the_older() {
        let (mut store, now) = (UseStore::default(), Instant::now());
        let (older, newer) = (store.open("n"), store.open("n"));
        let refused = store.report("n", older, used(&[]), now, |_| false);
        assert_eq!(refused.unwrap_err().code(), tonic::Code::Aborted);
        store.close("n", older);
        store.report("n", newer, used(&[]), now, |_| false).unwrap();
        assert!(store.report("x", newer, used(&[]), now, |_| false).is_err());
        store.expire(now + MAX_REPORT_AGE);
        store.report("n", newer, used(&[]), now, |_| false).unwrap();
    }

    #[test]
    fn a_stray_is_one_in_two_reports_in_a_row() {
        let (mut store, now) = (UseStore::default(), Instant::now());
        let session = store.open("n");
        let mut strays = |containers: &[(&str, &str, u64)], stray: &str| {
            let is_stray = |c: &ContainerUse| c.pod_uid == stray;
            let used = used(containers);
            store.report("n", session, used, now, is_stray).unwrap();
            let fresh = store.fresh("n", now).unwrap();
            let strays = fresh.containers.iter().filter(|c| c.is_stray());
            strays.map(|c| c.of.pod_uid.clone()).collect::<Vec<_>>()
        };
        let both = [("a", "main", 5), ("b", "main", 6)];
        assert!(strays(&both, "a").is_empty());
        assert_eq!(strays(&both, "a"), ["a"]);
        assert_eq!(strays(&both[..1], "a"), ["a"]);
        assert!(strays(&both, "").is_empty(), "it has the card now");
        assert!(strays(&both, "b").is_empty());
        assert!(strays(&both[..1], "b").is_empty(), "it is gone");
        assert!(strays(&both, "b").is_empty());
    }

    #[test]
    fn impossible_reports_are_refused_by_field() {
        let mut many = used(&[]);
        many.containers = vec![ContainerUse::default(); MAX_CONTAINERS + 1];
        let mut card = used(&[]);
        card.cards[0].card = "GPU\n".into();
        let long = "x".repeat(254);
        for (report, field) in [
            (many, "1025 containers"),
            (card, "cards, card"),
            (used(&[("a\u{1b}", "main", 1)]), "containers, podUid"),
            (used(&[("a", &long, 1)]), "containers, container"),
        ] {
            let refused = checked(report).unwrap_err();
            assert!(refused.message().contains(field), "{refused}");
        }
        let outside = checked(used(&[("", "a\u{1b}[2J b", 1)])).unwrap();
        assert_eq!(outside.containers[0].container, "a\u{fffd}[2J b");
    }
}
