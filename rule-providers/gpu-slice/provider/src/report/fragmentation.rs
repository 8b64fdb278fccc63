//! Reports which requests cannot use the idle GPU, as `tautline gpu fragmentation` prints it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use serde::Serialize;
use tautline_core::model::{Pod, key};
use tautline_gpu_placement::{
    NodeCapacity, PlannedClasses, RequestClass, inventory::CardPool, names,
    planned_classes::PlannedClass,
};

use super::{format, node_count};
use crate::{
    inspection::{CountedRequest, Inspection, NodeGpus},
    uses::Uses,
};

/// The idle GPU of the cluster, and the requests of its pods.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fragmentation {
    /// The number of nodes whose cards are known one by one.
    pub nodes_with_cards: usize,
    /// The thousandths of cards that are free.
    pub idle_milli: i64,
    /// The expected amount of free thousandths that the next request cannot use; absent while no
    /// request is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented_milli: Option<i64>,
    /// The expected requests, the most frequent first.
    pub classes: Vec<Class>,
    /// The sums of cards that are known one by one.
    pub products: Vec<Product>,
    /// The parts of cards that pods have; absent if no agent reports their use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given: Option<Given>,
    /// The pods behind the classes.
    pub counted: Counted,
}

/// The parts of cards that pods have, on nodes whose agents report their use.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Given {
    /// The thousandths of cards that pods have.
    pub milli: i64,
    /// The thousandths of cards that pods have and hardly use at this moment.
    pub idle_milli: i64,
    /// The pods that hardly use their parts, with the largest parts first.
    pub idle_pods: Vec<String>,
}

/// A class of requests to expect.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Class {
    /// The requested CPU, in thousandths of a core.
    pub cpu_milli: i64,
    /// The requested thousandths of each card; 1000: whole cards.
    pub card_milli: u16,
    /// The requested number of cards.
    pub cards: u16,
    /// The sharing mode that the cards must have.
    pub lane: String,
    /// The model names that a card may have; empty: any card.
    pub models: Vec<String>,
    /// The class's part of all requests, from 0 to 1.
    pub share: f64,
    /// The pods with a request of the class.
    pub pods: Vec<String>,
    /// The number of requests of the class that still fit if no other requests come.
    pub still_fit: i64,
    /// The free thousandths of cards that the class cannot use.
    pub unusable_milli: i64,
    /// The numbers of nodes with cards, by fit.
    pub nodes: NodeCounts,
    /// The request in words.
    #[serde(skip)]
    pub text: String,
}

/// The number of nodes that a class can run on, and the numbers of other nodes by reason.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// The number of nodes on which the class can run.
    pub runs: usize,
    /// The number of nodes whose cards are shared in another mode.
    pub other_lane: usize,
    /// The number of nodes that have no card of the models.
    pub no_such_model: usize,
    /// The number of nodes on which too little of the cards is free.
    pub gpu_short: usize,
    /// The number of nodes on which too little CPU is free.
    pub cpu_short: usize,
}

/// The sums of one product in one sharing mode.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Product {
    /// The product, or `unknown`.
    pub product: String,
    /// The sharing mode.
    pub lane: String,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of cards.
    pub cards: usize,
    /// The thousandths of cards that are free.
    pub idle_milli: i64,
    /// The expected amount of free thousandths that the next request cannot use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented_milli: Option<i64>,
}

/// The pods behind the classes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counted {
    /// The number of pods with a known request.
    pub pods: usize,
    /// The number of waiting pods whose request a rule of an offer states.
    pub pods_by_rule: usize,
    /// The pods that request GPUs of which only the number is known, or by a rule that no known card
    /// serves.
    pub pods_not_counted: Vec<String>,
    /// The number of classes to plan for.
    pub classes: usize,
    /// The number of classes that are too rare to plan for.
    pub classes_left_out: usize,
}

impl Fragmentation {
    /// Reports on all nodes with cards that are known one by one.
    pub fn new(inspection: &Inspection, uses: &Uses) -> Self {
        let types = inspection.types();
        let all = inspection.nodes();
        let with: Vec<&NodeGpus<'_>> = all.iter().filter(|n| !n.capacities.is_empty()).collect();
        let rooms = || with.iter().flat_map(|n| &n.capacities);
        let requests = inspection.requests();
        let mut pods: HashMap<_, Vec<String>> = HashMap::new();
        for request in &requests {
            let class = RequestClass::of_shape(&request.shape);
            pods.entry(class).or_default().push(request.pod.clone());
        }
        let classes = types.iter().map(|class| {
            let pods = pods.remove(&class.request).unwrap_or_default();
            Class::of(class, pods, &with)
        });
        let fragmented: f64 = rooms().map(|r| types.fragmented_milli(r)).sum();
        let known = !types.is_empty();
        Self {
            nodes_with_cards: with.len(),
            idle_milli: rooms().map(|r| r.idle_milli()).sum(),
            fragmented_milli: known.then_some(fragmented.round() as i64),
            classes: classes.collect(),
            products: products(&with, known.then_some(&types)),
            given: Given::new(with.iter().copied(), uses),
            counted: Counted::of(inspection, &requests),
        }
    }
}

impl Class {
    fn of(class: &PlannedClass, pods: Vec<String>, nodes: &[&NodeGpus<'_>]) -> Self {
        let request = &class.request;
        let mut verdicts = NodeCounts::default();
        let (mut still_fit, mut unusable_milli) = (0, 0);
        for node in nodes {
            *verdicts.of(class_fit(class, node)) += 1;
            still_fit += copies_on(class, node);
            let rooms = node.capacities.iter();
            unusable_milli += rooms.map(|room| class.unusable_milli(room)).sum::<i64>();
        }
        Self {
            cpu_milli: request.cpu_milli,
            card_milli: request.milli,
            cards: request.cards,
            lane: format::sharing_mode(request.mode),
            models: request.models.iter().map(|m| m.to_string()).collect(),
            share: (class.probability * 1e4).round() / 1e4,
            pods,
            still_fit,
            unusable_milli,
            nodes: verdicts,
            text: format::class(request),
        }
    }
}

/// Returns the fit of a class on the best of the node's pools.
pub fn class_fit(class: &PlannedClass, node: &NodeGpus<'_>) -> ClassFit {
    let pools = node.inventory.pools.iter().zip(&node.capacities);
    let fits = pools.map(|(pool, room)| ClassFit::of(class, pool, room));
    fits.min().unwrap_or(ClassFit::OtherLane)
}

/// Returns the number of requests of a class that the node has room for if no other requests come.
pub fn copies_on(class: &PlannedClass, node: &NodeGpus<'_>) -> i64 {
    let rooms = node
        .capacities
        .iter()
        .filter(|room| class.may_run_on(room.kind()));
    let copies = rooms.filter_map(|room| room.max_copies(&class.request.shape()));
    // The pools of a node share its CPU.
    let by_cpu = node
        .inventory
        .cpu_milli
        .checked_div(class.request.cpu_milli);
    copies.sum::<i64>().min(by_cpu.unwrap_or(i64::MAX))
}

/// The fit of a class on a pool, in the order from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClassFit {
    /// The class can run on the pool.
    Runs,
    /// Too little CPU is free.
    CpuShort,
    /// Too little of the cards is free.
    GpuShort,
    /// The pool has no card of the class's models.
    NoSuchModel,
    /// The cards are shared in another mode.
    OtherLane,
}

impl ClassFit {
    fn of(class: &PlannedClass, pool: &CardPool, room: &NodeCapacity) -> Self {
        let request = &class.request;
        let enough = room.cards().iter().filter(|c| **c >= request.milli).count();
        match class {
            _ if PlannedClasses::runs_on(class, room) => Self::Runs,
            _ if request.mode != pool.kind.mode => Self::OtherLane,
            _ if !class.may_run_on(room.kind()) => Self::NoSuchModel,
            _ if enough < usize::from(request.cards) => Self::GpuShort,
            _ => Self::CpuShort,
        }
    }
}

impl NodeCounts {
    /// Formats the numbers of nodes on which the class cannot run: `2 GPU short, 1 CPU short`.
    pub fn others(&self) -> String {
        let all = [
            (self.gpu_short, "GPU short"),
            (self.cpu_short, "CPU short"),
            (self.no_such_model, "no such model"),
            (self.other_lane, "other mode"),
        ];
        let there = all.into_iter().filter(|(n, _)| *n > 0);
        let texts: Vec<String> = there.map(|(n, what)| format!("{n} {what}")).collect();
        texts.join(", ")
    }

    fn of(&mut self, why: ClassFit) -> &mut usize {
        match why {
            ClassFit::Runs => &mut self.runs,
            ClassFit::CpuShort => &mut self.cpu_short,
            ClassFit::GpuShort => &mut self.gpu_short,
            ClassFit::NoSuchModel => &mut self.no_such_model,
            ClassFit::OtherLane => &mut self.other_lane,
        }
    }
}

fn products(nodes: &[&NodeGpus<'_>], types: Option<&PlannedClasses>) -> Vec<Product> {
    let mut all: BTreeMap<_, Vec<(&str, &NodeCapacity)>> = BTreeMap::new();
    for node in nodes {
        for (pool, room) in node.inventory.pools.iter().zip(&node.capacities) {
            let key = (&*pool.kind.product, format::sharing_mode(pool.kind.mode));
            all.entry(key).or_default().push((&**node.name, room));
        }
    }
    let product = |((product, lane), of_nodes): (_, Vec<(&str, &NodeCapacity)>)| {
        let rooms = || of_nodes.iter().map(|(_, room)| room);
        let lost = types.map(|t| rooms().map(|r| t.fragmented_milli(r)).sum::<f64>());
        Product {
            product: format::product(product).to_owned(),
            lane,
            nodes: node_count(&of_nodes),
            cards: rooms().map(|r| r.cards().len()).sum(),
            idle_milli: rooms().map(|r| r.idle_milli()).sum(),
            fragmented_milli: lost.map(|f| f.round() as i64),
        }
    };
    all.into_iter().map(product).collect()
}

impl Given {
    /// Sums the parts of cards that pods have; `None`: no agent of the nodes reports.
    pub fn new<'a>(nodes: impl Iterator<Item = &'a NodeGpus<'a>>, uses: &Uses) -> Option<Self> {
        let (mut known, mut milli) = (false, 0);
        let mut idle: BTreeMap<&str, i64> = BTreeMap::new();
        for node in nodes {
            let Some(used) = uses.node(node.name) else {
                continue;
            };
            known = true;
            for pool in &node.inventory.pools {
                for card in &pool.cards {
                    for holder in &card.holders {
                        milli += i64::from(holder.milli);
                        if used.is_idle(pool, card, holder) {
                            *idle.entry(&holder.pod).or_default() += i64::from(holder.milli);
                        }
                    }
                }
            }
        }
        let mut pods: Vec<(&str, i64)> = idle.into_iter().collect();
        pods.sort_by_key(|(_, milli)| Reverse(*milli));
        known.then(|| Self {
            milli,
            idle_milli: pods.iter().map(|(_, milli)| milli).sum(),
            idle_pods: pods.into_iter().map(|(pod, _)| pod.to_owned()).collect(),
        })
    }
}

impl Counted {
    fn of(inspection: &Inspection, requests: &[CountedRequest]) -> Self {
        let counted: HashSet<&str> = requests.iter().map(|r| r.pod.as_str()).collect();
        let inventory = &inspection.state.inventory;
        let requests_gpu = |pod: &&Arc<Pod>| {
            let mut requests = pod.requests.iter();
            requests.any(|(r, milli)| milli >= 1000 && names::is_gpu(r))
                || inspection
                    .by_rule
                    .contains_key(&key(&pod.namespace, &pod.name))
        };
        let pods = inspection.snapshot().pods().filter(requests_gpu);
        let pods = pods.map(|p| key(&p.namespace, &p.name));
        let mut left: Vec<String> = pods.filter(|p| !counted.contains(p.as_str())).collect();
        left.sort_unstable();
        let classes = inspection.classes().len();
        Self {
            pods: requests.len(),
            pods_by_rule: requests.iter().filter(|r| r.by_rule).count(),
            pods_not_counted: left,
            classes,
            classes_left_out: inventory.learner.class_count().saturating_sub(classes),
        }
    }
}
