//! What the thread does at each step.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use hashbrown::HashMap;
use tautline_core::{Snapshot, model};
use tautline_rtt_model::{Contradiction, Fit, Labels, Model, NodeId, Options};

use super::{Fitted, state};
use crate::{
    ZONE,
    ledger::{Changes, Id, KEPT},
    network::Network,
};

const REGION: &str = "topology.kubernetes.io/region";
/// Between two fits; the first ones come sooner, each twice as late as the last.
const FIT: Duration = Duration::from_secs(10);
const FIRST_FIT: Duration = Duration::from_secs(1);
/// A fit that takes long leaves the machine so many times as long to others.
const REST: u32 = 4;
/// All targets are chosen anew as often, beside after a change of nodes.
const CHOOSE: Duration = Duration::from_secs(60);
const SAVE: Duration = Duration::from_secs(300);

pub(super) struct Fitter {
    network: Network,
    model: Model,
    ids: HashMap<Id, Known>,
    by_node: HashMap<NodeId, Id>,
    fit: Option<Arc<Fit>>,
    /// Samples have changed since the last fit.
    stale: bool,
    /// Nodes have changed since all targets were chosen.
    moved: bool,
    pause: Duration,
    next_fit: Option<Instant>,
    chosen: Option<Instant>,
    saved: Option<Instant>,
    /// When samples of the last run that were not measured again are forgotten.
    forget: Option<Instant>,
    flagged: BTreeMap<Arc<str>, Contradiction>,
}

struct Known {
    node: NodeId,
    targets: Vec<NodeId>,
}

impl Fitter {
    pub fn new(network: Network) -> Self {
        Self::with(network, Model::new(Options::default()))
    }

    /// Goes on with a model; its nodes are known once the ledger names them.
    pub fn with(network: Network, model: Model) -> Self {
        Self {
            network,
            model,
            ids: HashMap::new(),
            by_node: HashMap::new(),
            fit: None,
            stale: true,
            moved: false,
            pause: FIRST_FIT,
            next_fit: None,
            chosen: None,
            saved: None,
            forget: None,
            flagged: BTreeMap::new(),
        }
    }

    /// What the model knows is of an earlier run.
    pub fn restored(mut self, now: Instant) -> Self {
        self.forget = Some(now + KEPT);
        self
    }

    pub fn step(&mut self, now: Instant) {
        let changes = self.network.0.ledger.lock().changes();
        let new = self.take(changes);
        if !new.is_empty() {
            for id in new {
                self.choose(id);
            }
            self.publish_targets();
        }
        let due = *self.next_fit.get_or_insert(now + self.pause) <= now;
        if due && self.stale {
            self.fit(now);
        }
        if due && (self.moved || self.chosen.is_none_or(|at| now >= at + CHOOSE)) {
            let all: Vec<Id> = self.ids.keys().copied().collect();
            for id in all {
                self.choose(id);
            }
            (self.moved, self.chosen) = (false, Some(now));
            self.publish_targets();
        }
        if self.forget.is_some_and(|at| now >= at) {
            self.forget = None;
            self.forget_unheard();
        }
        if now >= *self.saved.get_or_insert(now) + SAVE {
            self.saved = Some(now);
            self.save();
        }
    }

    /// Puts changes into the model; says which instances are new.
    fn take(&mut self, changes: Changes) -> Vec<Id> {
        self.moved |= !changes.joined.is_empty() || !changes.left.is_empty();
        let only_nodes = changes.samples.is_empty() && changes.dropped.is_empty();
        self.stale |= !only_nodes || !changes.left.is_empty();
        let snapshot = self.network.0.feed.snapshot();
        let mut new = Vec::new();
        for (id, name, node) in changes.joined {
            let labels = labels(&snapshot, &node, &self.network.0.settings.rack_label);
            let node = self.model.insert(&name, labels);
            let targets = Vec::new();
            self.by_node.insert(node, id);
            self.ids.insert(id, Known { node, targets });
            new.push(id);
        }
        for id in changes.left {
            if let Some(known) = self.ids.remove(&id) {
                self.by_node.remove(&known.node);
                self.model.remove(known.node);
            }
        }
        let pair = |from, to| Some((self.ids.get(&from)?.node, self.ids.get(&to)?.node));
        for (from, to) in changes.dropped {
            if let Some((from, to)) = pair(from, to) {
                self.model.forget(from, to);
            }
        }
        for (from, to, micros) in changes.samples {
            if let Some((from, to)) = pair(from, to) {
                self.model.observe(from, to, micros);
            }
        }
        new
    }

    /// Forgets samples that the ledger does not hold.
    fn forget_unheard(&mut self) {
        for (from, source) in &self.ids {
            let known = self.network.0.ledger.lock().measured(*from);
            for (to, target) in &self.ids {
                if known.binary_search(to).is_err()
                    && self.model.sample(source.node, target.node).is_some()
                {
                    self.model.forget(source.node, target.node);
                    self.stale = true;
                }
            }
        }
    }

    fn fit(&mut self, now: Instant) {
        self.relabel();
        let fit = Arc::new(self.model.fit());
        self.stale = false;
        let took = now.elapsed();
        self.pause = (self.pause * 2).min(FIT);
        self.next_fit = Some(now + self.pause.max(took * REST));
        let ids: HashMap<Id, NodeId> = self.ids.iter().map(|(id, k)| (*id, k.node)).collect();
        let known = ids.values().filter(|node| fit.knows(**node)).count();
        let metrics = &self.network.0.metrics;
        metrics.fit_seconds.set(took.as_secs_f64());
        metrics.fit_nodes.set(known as i64);
        self.flag(&fit);
        self.fit = Some(Arc::clone(&fit));
        let fitted = Fitted::new(fit, ids, now);
        self.network.0.fitted.store(Some(Arc::new(fitted)));
    }

    /// Labels may change while a node lives.
    fn relabel(&mut self) {
        let snapshot = self.network.0.feed.snapshot();
        let nodes: Vec<(NodeId, Arc<str>)> = {
            let ledger = self.network.0.ledger.lock();
            let all = self.ids.iter();
            all.filter_map(|(id, known)| Some((known.node, ledger.get(*id)?.node.clone())))
                .collect()
        };
        for (id, node) in nodes {
            let labels = labels(&snapshot, &node, &self.network.0.settings.rack_label);
            self.model.relabel(id, labels);
        }
    }

    fn choose(&mut self, id: Id) {
        if let Some(known) = self.ids.get_mut(&id) {
            let k = self.network.0.settings.targets;
            let fit = self.fit.as_deref();
            self.model.targets(fit, known.node, k, &mut known.targets);
        }
    }

    fn publish_targets(&self) {
        let before = self.network.0.targets.load();
        let by_node = &self.by_node;
        let all = self.ids.iter().map(|(id, known)| {
            let targets = known.targets.iter().filter_map(|t| by_node.get(t).copied());
            let targets: Arc<[Id]> = targets.collect();
            match before.get(id) {
                Some(same) if *same == targets => (*id, Arc::clone(same)),
                _ => (*id, targets),
            }
        });
        self.network.0.targets.store(Arc::new(all.collect()));
        self.network.0.assign.notify_one();
    }

    /// Counts the nodes that the fit finds something against, and names the new ones.
    fn flag(&mut self, fit: &Fit) {
        let ledger = self.network.0.ledger.lock();
        let mut flagged = BTreeMap::new();
        for (node, what) in fit.contradicted() {
            let id = self.by_node.get(&node);
            if let Some(instance) = id.and_then(|id| ledger.get(*id)) {
                flagged.insert(Arc::clone(&instance.node), what);
            }
        }
        drop(ledger);
        let count = |of| flagged.values().filter(|what| **what == of).count();
        let metrics = &self.network.0.metrics;
        metrics.flagged(count(Contradiction::Labels), count(Contradiction::Reports));
        for (node, what) in &flagged {
            if self.flagged.get(node) == Some(what) {
                continue;
            }
            match what {
                Contradiction::Labels => tracing::info!(
                    %node,
                    "the node's round-trip times contradict its zone or rack label"
                ),
                Contradiction::Reports => tracing::info!(
                    %node,
                    "other nodes' round-trip times to this one contradict its own"
                ),
            }
        }
        self.flagged = flagged;
    }

    /// Keeps the model in the state file, if there is to be one.
    pub fn save(&self) {
        let Some(path) = &self.network.0.settings.state else {
            return;
        };
        match state::write(path, &self.network, &self.model) {
            Ok(()) => {}
            Err(error) => tracing::warn!(path = %path.display(), %error, "state is not kept"),
        }
    }
}

fn labels<'a>(snapshot: &'a Snapshot, node: &str, rack: &str) -> Labels<'a> {
    let node: Option<&model::Node> = snapshot.node(node).map(Arc::as_ref);
    let label = |key| node?.labels.get(key).filter(|value| !value.is_empty());
    Labels {
        region: label(REGION),
        zone: label(ZONE),
        rack: label(rack),
    }
}
