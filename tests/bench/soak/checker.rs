//! Checks every pod against the providers' expected answers and the nodes' resources.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube_runtime::watcher::Event;
use tautline_runtime::watch_changes::{Change, Changes};

use crate::{
    clock,
    expected::{ExpectedAnswers, Verdict},
    kinds::{self, CARD, DEVICES, Kind, LATENCY, ZONE},
};

/// The checked fields of a pod.
pub struct PodState {
    pub name: String,
    pub kind: &'static Kind,
    pub since: Instant,
    pub node: Option<String>,
    cards: Vec<(u32, u32)>,
    /// When the load deletes it.
    pub until: Option<Instant>,
    pub deleting: bool,
}

#[derive(Default)]
pub struct Counts {
    pub scheduled: BTreeMap<&'static str, usize>,
    /// From when a pod was seen until it was seen bound.
    pub waits: Vec<Duration>,
    /// Pods bound by an earlier answer of the same cycle.
    pub in_flight: usize,
    pub wrong: Vec<String>,
}

pub struct Checker {
    pub expected: ExpectedAnswers,
    pub pods: HashMap<String, PodState>,
    pub counts: Counts,
    life: fastrand::Rng,
    changes: Changes<Pod>,
}

impl Checker {
    pub fn new(expected: ExpectedAnswers, seed: u64) -> Self {
        Self {
            expected,
            pods: HashMap::new(),
            counts: Counts::default(),
            life: fastrand::Rng::with_seed(seed),
            changes: Changes::default(),
        }
    }

    pub fn event(&mut self, event: Event<Pod>) {
        match self.changes.next(event, |pod| pod) {
            None => {}
            Some(Change::Applied(pod)) => self.applied(&pod),
            Some(Change::Deleted(pod)) => self.deleted(&pod.uid().unwrap_or_default()),
            Some(Change::Replaced(list)) => {
                let there: HashSet<String> = list.iter().filter_map(Pod::uid).collect();
                let left: Vec<String> = self.pods.keys().cloned().collect();
                for uid in left.iter().filter(|uid| !there.contains(*uid)) {
                    self.deleted(uid);
                }
                for pod in &list {
                    self.applied(pod);
                }
            }
        }
    }

    fn deleted(&mut self, uid: &str) {
        self.pods.remove(uid);
        self.expected.forget(uid);
    }

    fn applied(&mut self, pod: &Pod) {
        let app = pod.labels().get("app").map_or("", String::as_str);
        let (Some(kind), Some(uid)) = (Kind::of(app), pod.uid()) else {
            return;
        };
        let now = Instant::now();
        let known = self.pods.entry(uid.clone()).or_insert_with(|| PodState {
            name: pod.name_any(),
            kind,
            since: now,
            node: None,
            cards: Vec::new(),
            until: None,
            deleting: false,
        });
        known.deleting |= pod.metadata.deletion_timestamp.is_some();
        let node = pod.spec.as_ref().and_then(|s| s.node_name.clone());
        let (Some(node), None) = (node, &known.node) else {
            return;
        };
        known.node = Some(node.clone());
        known.until = Some(now + Duration::from_secs(self.life.u64(25..45)));
        self.counts.waits.push(now - known.since);
        *self.counts.scheduled.entry(kind.name).or_default() += 1;
        let name = known.name.clone();
        match record(pod, kind, &node) {
            Ok(cards) => {
                known.cards.clone_from(&cards);
                self.check_cards(&node, &cards);
            }
            Err(fault) => self.counts.wrong.push(format!("{name}: {fault}")),
        }
        self.check_rules(pod, kind, &uid, &node);
    }

    /// Reports cards of the node with more than 1000 milli allocated.
    fn check_cards(&mut self, node: &str, given: &[(u32, u32)]) {
        for (card, _) in given {
            let holders = self.on(node).filter_map(|pod| {
                let part = pod.cards.iter().find(|(held, _)| held == card)?;
                Some((&*pod.name, part.1))
            });
            let (pods, milli): (Vec<&str>, Vec<u32>) = holders.unzip();
            if milli.iter().sum::<u32>() > CARD {
                let fault = format!("{node}: card {card} is given to {pods:?}, {milli:?}");
                self.counts.wrong.push(fault);
            }
        }
    }

    /// Checks the node against the pod's other rules.
    fn check_rules(&mut self, pod: &Pod, kind: &Kind, uid: &str, node: &str) {
        let (name, bound) = (pod.name_any(), bound_millis(pod));
        if kind.has(LATENCY) {
            match self.expected.clocks(uid, node, bound) {
                Verdict::Usable => {}
                Verdict::UsableBefore => self.counts.in_flight += 1,
                Verdict::Unusable(why) => {
                    self.counts.wrong.push(format!("{name} on {node}: {why}"))
                }
            }
        }
        if kind.has(ZONE) && self.expected.refused(node, bound) {
            let fault = format!("{name}: the script refuses {node}");
            self.counts.wrong.push(fault);
        }
    }

    fn on(&self, node: &str) -> impl Iterator<Item = &PodState> {
        let on = move |p: &&PodState| p.node.as_deref() == Some(node);
        self.pods.values().filter(on)
    }

    /// Pods that have waited for longer.
    pub fn pending(&self, longer: Duration) -> impl Iterator<Item = &PodState> {
        let waits = move |p: &&PodState| p.node.is_none() && p.since.elapsed() >= longer;
        self.pods.values().filter(waits)
    }

    /// The nodes with room for another pod of the kind; `clock` is the provider of its rule.
    pub fn hosts(&self, kind: &Kind, seed: u64, clock: char) -> Vec<String> {
        let now = clock::now_millis();
        let slot = now / clock::SLOT_MILLIS;
        let fits = |node: &String| {
            let (cards, cpus) = kinds::room(node).unwrap_or_default();
            let mut held = vec![0; cards as usize];
            for (card, milli) in self.on(node).flat_map(|p| &p.cards) {
                if let Some(held) = held.get_mut(*card as usize) {
                    *held += milli;
                }
            }
            self.on(node).count() < cpus
                && (kind.milli == 0 || held.iter().any(|h| h + kind.milli <= CARD))
                && !(kind.has(LATENCY) && clock::cost(seed, clock, node, slot) < 0)
                && !(kind.has(ZONE) && self.expected.refused(node, now))
        };
        kinds::node_names().filter(fits).collect()
    }

    /// The use of all CPUs and all cards, in percent.
    pub fn utilization(&self) -> (usize, usize) {
        let bound = self.pods.values().filter(|p| p.node.is_some());
        let (mut cpus, mut milli) = (0, 0);
        for pod in bound {
            cpus += 1;
            milli += pod.kind.milli as usize;
        }
        let cards = kinds::GPU_NODES * (kinds::CARDS * CARD) as usize;
        (100 * cpus / kinds::cpus(), 100 * milli / cards)
    }
}

/// The second of the Binding.
fn bound_millis(pod: &Pod) -> u64 {
    let conditions = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let at = conditions
        .filter(|c| c.type_ == "PodScheduled" && c.status == "True")
        .find_map(|c| c.last_transition_time.as_ref())
        .and_then(|t| u64::try_from(t.0.as_second()).ok());
    at.map_or_else(clock::now_millis, |seconds| seconds * 1000)
}

/// The cards of a pod: they must be of its node, and as many as its rule requests.
fn record(pod: &Pod, kind: &Kind, node: &str) -> Result<Vec<(u32, u32)>, String> {
    let text = pod.annotations().get(DEVICES).map_or("", String::as_str);
    let part = |part: &str| {
        let (card, milli) = part.split_once(':')?;
        Some((card.parse().ok()?, milli.parse().ok()?))
    };
    let parts: Option<Vec<(u32, u32)>> = match text.is_empty() {
        true => Some(Vec::new()),
        false => text.split(',').map(part).collect(),
    };
    let (cards, _) = kinds::room(node).ok_or_else(|| format!("there is no node {node}"))?;
    let given = parts.ok_or_else(|| format!("{text:?} is no record of cards"))?;
    let right = match given[..] {
        [] => kind.milli == 0,
        [(card, milli)] => card < cards && milli == kind.milli,
        _ => false,
    };
    match right {
        true => Ok(given),
        false => Err(format!(
            "wants {}m of one of the {cards} cards of {node}, has {text:?}",
            kind.milli
        )),
    }
}

#[cfg(test)]
#[path = "checker_tests.rs"]
mod tests;
