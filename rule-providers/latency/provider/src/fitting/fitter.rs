//! Fits the model of round-trip times to the samples that agents report, every few seconds, and
//! chooses the nodes that each node measures.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use hashbrown::HashMap;
use tautline_core::{Snapshot, model};
use tautline_rtt_model::{Fit, Labels, Model, NodeId, Options};

use crate::{
    location::ZONE,
    network::{
        Network,
        pair_store::{Changes, InstanceId},
        view::PublishedFit,
    },
};

/// The default number of nodes that each node measures, in addition to those that rules name.
pub const DEFAULT_TARGETS: usize = 32;
const REGION: &str = "topology.kubernetes.io/region";
const RACK: &str = "topology.kubernetes.io/rack";
/// The pause between two fits. The first pauses are shorter: they double from [`FIRST_FIT_PAUSE`].
const FIT_PAUSE: Duration = Duration::from_secs(10);
const FIRST_FIT_PAUSE: Duration = Duration::from_secs(1);
/// The least pause after a fit, in multiples of the time that the fit took.
const PAUSE_FACTOR: u32 = 4;
/// The interval at which all targets are chosen again while no node changes.
const CHOOSE_INTERVAL: Duration = Duration::from_secs(60);
/// The number of instances whose pairs are read under one lock, for which requests wait.
const INSTANCES_PER_LOCK: usize = 128;

pub(super) struct Fitter {
    pub network: Arc<Network>,
    /// The number of nodes that each node measures, in addition to those that rules name.
    pub targets: usize,
    model: Model,
    ids: HashMap<InstanceId, ModelNode>,
    by_node: HashMap<NodeId, InstanceId>,
    fit: Option<Arc<Fit>>,
    samples_changed: bool,
    nodes_changed: bool,
    pause: Duration,
    next_fit: Option<Instant>,
    chosen_at: Option<Instant>,
    flagged: BTreeSet<Arc<str>>,
}

struct ModelNode {
    node: NodeId,
    targets: Vec<NodeId>,
}

impl Fitter {
    pub fn new(network: Arc<Network>, targets: usize) -> Self {
        Self {
            network,
            targets,
            model: Model::new(Options::default()),
            ids: HashMap::new(),
            by_node: HashMap::new(),
            fit: None,
            samples_changed: true,
            nodes_changed: false,
            pause: FIRST_FIT_PAUSE,
            next_fit: None,
            chosen_at: None,
            flagged: BTreeSet::new(),
        }
    }

    pub fn step(&mut self, now: Instant) {
        let changes = self.network.pairs.lock().take_changes();
        let new = self.apply(changes);
        self.choose(&new, now);
        let due = *self.next_fit.get_or_insert(now + self.pause) <= now;
        if due && self.samples_changed {
            self.fit(now);
        }
        if due
            && (self.nodes_changed || self.chosen_at.is_none_or(|at| now >= at + CHOOSE_INTERVAL))
        {
            let all: Vec<InstanceId> = self.ids.keys().copied().collect();
            self.choose(&all, now);
            (self.nodes_changed, self.chosen_at) = (false, Some(now));
        }
    }

    fn apply(&mut self, changes: Changes) -> Vec<InstanceId> {
        self.nodes_changed |= !changes.joined.is_empty() || !changes.left.is_empty();
        let only_nodes = changes.reported.is_empty() && changes.dropped.is_empty();
        self.samples_changed |= !only_nodes || !changes.left.is_empty();
        for id in changes.left {
            if let Some(known) = self.ids.remove(&id) {
                self.by_node.remove(&known.node);
                self.model.remove(known.node);
            }
        }
        let (snapshot, store) = (self.network.store.snapshot(), self.network.pairs.lock());
        let mut new = Vec::new();
        for id in changes.joined {
            let Some(instance) = store.get(id) else {
                continue;
            };
            let labels = labels(&snapshot, &instance.node);
            let node = self.model.insert(&instance.name, labels);
            if instance.is_outside {
                // It is measured in its own way.
                self.model.exclude(node);
            }
            self.by_node.insert(node, id);
            let known = ModelNode {
                node,
                targets: Vec::new(),
            };
            self.ids.insert(id, known);
            new.push(id);
        }
        let pair = |from, to| Some((self.ids.get(&from)?.node, self.ids.get(&to)?.node));
        for (from, to) in changes.dropped {
            if let Some((from, to)) = pair(from, to) {
                self.model.forget(from, to);
            }
        }
        for (from, to) in changes.reported {
            if let Some((micros, spread)) = store.sample(from, to)
                && let Some((from, to)) = pair(from, to)
            {
                self.model.observe(from, to, micros, spread);
            }
        }
        new
    }

    fn fit(&mut self, now: Instant) {
        self.relabel();
        let fit = Arc::new(self.model.fit());
        self.samples_changed = false;
        let took = now.elapsed();
        self.pause = (self.pause * 2).min(FIT_PAUSE);
        self.next_fit = Some(now + self.pause.max(took * PAUSE_FACTOR));
        let ids: HashMap<InstanceId, NodeId> =
            self.ids.iter().map(|(id, k)| (*id, k.node)).collect();
        let known = ids.values().filter(|node| fit.knows(**node)).count();
        let metrics = &self.network.metrics;
        metrics.fit_seconds.set(took.as_secs_f64());
        metrics.fit_nodes.set(known as i64);
        self.flag(&fit);
        self.fit = Some(Arc::clone(&fit));
        let published = PublishedFit::new(fit, ids, now);
        self.network.estimates.store(Some(Arc::new(published)));
    }

    fn relabel(&mut self) {
        let snapshot = self.network.store.snapshot();
        let nodes: Vec<(NodeId, Arc<str>)> = {
            let store = self.network.pairs.lock();
            let all = self.ids.iter();
            all.filter_map(|(id, known)| Some((known.node, store.get(*id)?.node.clone())))
                .collect()
        };
        for (id, node) in nodes {
            let labels = labels(&snapshot, &node);
            self.model.relabel(id, labels);
        }
    }

    fn choose(&mut self, ids: &[InstanceId], now: Instant) {
        if ids.is_empty() {
            return;
        }
        let (k, fit) = (self.targets, self.fit.as_deref());
        for (id, lost) in ids.iter().zip(self.lost(ids, now)) {
            if let Some(known) = self.ids.get_mut(id) {
                self.model
                    .targets(fit, known.node, k, &lost, &mut known.targets);
            }
        }
        self.publish_targets();
    }

    /// Returns, for each instance in `ids`, the nodes that it could not reach.
    fn lost(&self, ids: &[InstanceId], now: Instant) -> Vec<Vec<NodeId>> {
        let now = self.network.at(now);
        let some = ids.chunks(INSTANCES_PER_LOCK).flat_map(|some| {
            let store = self.network.pairs.lock();
            let lost = |id: &InstanceId| {
                let lost = store.lost(*id, now);
                lost.filter_map(|to| Some(self.ids.get(&to)?.node))
                    .collect()
            };
            some.iter().map(lost).collect::<Vec<_>>()
        });
        some.collect()
    }

    fn publish_targets(&self) {
        let all = self.ids.iter().map(|(id, known)| {
            let targets = known.targets.iter();
            let targets = targets.filter_map(|t| self.by_node.get(t).copied());
            (*id, targets.collect())
        });
        self.network.set_chosen(all.collect());
    }

    fn flag(&mut self, fit: &Fit) {
        let store = self.network.pairs.lock();
        let ids = fit.with_contradicted_labels();
        let ids = ids.filter_map(|node| self.by_node.get(&node));
        let instances = ids.filter_map(|id| store.get(*id));
        let flagged: BTreeSet<Arc<str>> = instances.map(|i| Arc::clone(&i.node)).collect();
        drop(store);
        let count = i64::try_from(flagged.len()).unwrap_or(i64::MAX);
        self.network.metrics.flagged.set(count);
        for node in flagged.difference(&self.flagged) {
            tracing::info!(
                %node,
                "the node's round-trip times contradict its zone or rack label"
            );
        }
        self.flagged = flagged;
    }
}

fn labels<'a>(snapshot: &'a Snapshot, node: &str) -> Labels<'a> {
    let node: Option<&model::Node> = snapshot.node(node).map(Arc::as_ref);
    let label = |key| node?.labels.get(key).filter(|value| !value.is_empty());
    Labels {
        region: label(REGION),
        zone: label(ZONE),
        rack: label(RACK),
    }
}
