//! Places further pods on trial, one after the other, as the provider would.

use std::{borrow::Cow, collections::BTreeMap, time::Instant};

use serde::Serialize;
use tautline_gpu_placement::{
    CostCache, Inventory, NodeCapacity, Shape, Shortage,
    inventory::{CardPool, Holder},
};
use tautline_sdk::{ProviderError, Rule};

use crate::{
    RULE,
    cluster_inventory::NodeEntry,
    cost::{self, PreparedRequest},
    fit::{Fit, Location},
    gpu_request::{Amount, GpuRequest},
    inspection::Inspection,
    report::format,
};

/// The greatest number of pods in one question.
pub const MAX_PODS: usize = 256;
/// The greatest number of nodes that are named because too little CPU or memory is free.
const MAX_SHORT_NODES: usize = 20;

/// The places of further pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// The pods in the order of the requests; there are fewer pods than requests if time was short.
    pub pods: Vec<WhatIfPod>,
    /// True if all pods were tried.
    pub complete: bool,
    /// The number of nodes on which too little CPU or memory is free for one of the pods.
    pub short_total: usize,
    /// The first 20 of these nodes by name, with the reason, such as `free cpu 500m, asked 2`.
    pub short: BTreeMap<String, String>,
}

/// One further pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfPod {
    /// The request of the pod, written like a rule's request.
    pub request: String,
    /// The node and cards of the pod; `None`: the pod fits nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placed: Option<Placed>,
    /// The number of nodes by reason code, if the pod fits nowhere.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<&'static str, usize>,
}

/// A pod's node and cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placed {
    /// The node's name.
    pub node: String,
    /// The indexes of the cards; empty if only their number is known.
    pub cards: Vec<String>,
}

/// Reasons why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// A request cannot be read.
    #[error("{0}")]
    Request(#[from] ProviderError),
    /// A request is for no GPU.
    #[error("{0:?} requests no GPU; write 250m, 2, 20Gi or mig-1g.10gb")]
    Nothing(String),
    /// There are too many pods.
    #[error("{0} pods, and at most {MAX_PODS} can be placed")]
    TooMany(usize),
}

impl Inspection {
    /// Places pods that request cards, and each the CPU and memory of `host`, a shape without cards,
    /// on what is free now; cordoned nodes are left out. The `requests` are written like those of a
    /// rule `gpu-slice`. Pods that are not tried by the deadline are left out.
    pub fn what_if(
        &self,
        requests: &[String],
        host: &Shape,
        deadline: Instant,
    ) -> Result<WhatIf, WhatIfError> {
        if requests.len() > MAX_PODS {
            return Err(WhatIfError::TooMany(requests.len()));
        }
        let parsed = requests.iter().map(|text| self.parse(text, host));
        let parsed: Vec<GpuRequest> = parsed.collect::<Result<_, _>>()?;
        let mut trial = Trial::new(self, host);
        let short = trial.short_nodes();
        let mut answer = WhatIf {
            short_total: short.len(),
            short: short.into_iter().take(MAX_SHORT_NODES).collect(),
            ..WhatIf::default()
        };
        for (text, request) in requests.iter().zip(&parsed) {
            if Instant::now() >= deadline {
                return Ok(answer);
            }
            let (placed, refused) = trial.place(request);
            answer.pods.push(WhatIfPod {
                request: text.clone(),
                placed,
                refused,
            });
        }
        answer.complete = true;
        Ok(answer)
    }

    fn parse(&self, text: &str, host: &Shape) -> Result<GpuRequest, WhatIfError> {
        let rule = Rule {
            name: RULE.to_owned(),
            request: text.to_owned(),
            limit: String::new(),
        };
        let mut request = GpuRequest::new(&rule, None)?;
        (request.cpu_milli, request.memory_bytes) = (host.cpu_milli, host.memory_bytes);
        match request.amount {
            Amount::Nothing => Err(WhatIfError::Nothing(text.to_owned())),
            _ => Ok(request),
        }
    }
}

/// The nodes and their costs, with the pods placed so far.
struct Trial<'a> {
    /// The nodes, sorted by name.
    nodes: Vec<(&'a str, Cow<'a, NodeEntry>)>,
    costs: CostCache,
    /// The CPU and memory of each pod.
    host: &'a Shape,
}

impl<'a> Trial<'a> {
    fn new(inspection: &'a Inspection, host: &'a Shape) -> Self {
        let snapshot = inspection.snapshot();
        let cordoned = |name: &str| snapshot.node(name).is_none_or(|n| n.unschedulable);
        let inventory = &inspection.state.inventory;
        let nodes = inventory.nodes.iter().filter(|(name, _)| !cordoned(name));
        let mut nodes: Vec<_> = nodes
            .map(|(name, entry)| (&**name, Cow::Borrowed(entry)))
            .collect();
        nodes.sort_unstable_by_key(|(name, _)| *name);
        let known = &inventory.costs;
        let mut costs = CostCache::new(inspection.policy.build());
        for kind in known.kinds() {
            costs.kind_index(kind);
        }
        costs.plan_for(known.classes().to_vec());
        for (_, entry) in &nodes {
            for slot in &entry.slots {
                costs.set_position(*slot, entry.position);
                costs.set_capacity(*slot, known.capacity(*slot).cloned());
            }
        }
        Self { nodes, costs, host }
    }

    /// Returns the nodes with GPUs on which too little CPU or memory is free for one pod.
    fn short_nodes(&self) -> Vec<(String, String)> {
        let short = |(name, entry): &(&str, Cow<'_, NodeEntry>)| {
            let inventory = &entry.inventory;
            let has_gpus = !inventory.pools.is_empty() || !inventory.counted.is_empty();
            let shortage = inventory.host_shortage(self.host)?;
            has_gpus.then(|| ((*name).to_owned(), self.reason(inventory, shortage)))
        };
        self.nodes.iter().filter_map(short).collect()
    }

    /// Returns the free and the requested amount of what a node has too little of.
    fn reason(&self, free: &Inventory, shortage: Shortage) -> String {
        let (what, [free, asked]) = if shortage == Shortage::Memory {
            let bytes = [free.memory_bytes, self.host.memory_bytes];
            ("memory", bytes.map(format::bytes))
        } else {
            let milli = [free.cpu_milli, self.host.cpu_milli];
            ("cpu", milli.map(format::cores))
        };
        format!("free {what} {free}, asked {asked}")
    }

    fn place(&mut self, request: &GpuRequest) -> (Option<Placed>, BTreeMap<&'static str, usize>) {
        let mut prepared = PreparedRequest::new(request);
        let mut refused = BTreeMap::new();
        let mut best: Option<(i64, usize, Option<Location>)> = None;
        for (at, (_, entry)) in self.nodes.iter().enumerate() {
            match cost::fit(&mut self.costs, entry, true, &mut prepared) {
                Fit::Unusable(unfit) => *refused.entry(unfit.code).or_default() += 1,
                Fit::Usable { cost, location, .. } => {
                    // Where only units are counted, the provider leaves CPU and memory to kube-scheduler.
                    if let Some(shortage) = entry.inventory.host_shortage(self.host) {
                        let is_cpu = shortage == Shortage::Cpu;
                        let code = if is_cpu { "CpuShort" } else { "MemoryShort" };
                        *refused.entry(code).or_default() += 1;
                    } else if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                        best = Some((cost, at, location));
                    }
                }
            }
        }
        let Some((_, at, location)) = best else {
            return (None, refused);
        };
        let placed = Placed {
            node: self.nodes[at].0.to_owned(),
            cards: self.take(at, request, location),
        };
        (Some(placed), BTreeMap::new())
    }

    /// Gives the pod its cards, CPU and memory, and returns the names of the cards.
    fn take(&mut self, at: usize, request: &GpuRequest, location: Option<Location>) -> Vec<String> {
        let entry = self.nodes[at].1.to_mut();
        let mut cards = Vec::new();
        if let Some(location) = location {
            let slot = entry.slots.get(location.pool);
            let capacity = slot.and_then(|slot| self.costs.capacity(*slot).cloned());
            let pool = entry.inventory.pools.get_mut(location.pool);
            if let (Some(mut capacity), Some(pool)) = (capacity, pool) {
                cards = hold(pool, &mut capacity, &location);
            }
        } else {
            count_units(&mut entry.inventory, request);
        }
        entry.inventory.cpu_milli -= self.host.cpu_milli;
        entry.inventory.memory_bytes -= self.host.memory_bytes;
        // All pools of a node share its CPU and memory.
        for (pool, slot) in entry.inventory.pools.iter().zip(&entry.slots) {
            let kind = self.costs.kind_index(&pool.kind);
            let left = entry.inventory.capacity(pool, kind);
            self.costs.set_capacity(*slot, Some(left));
        }
        cards
    }
}

/// Adds the pod to the holders of the location's cards, and returns their names. The whole cards
/// are those that the node would choose.
fn hold(pool: &mut CardPool, capacity: &mut NodeCapacity, location: &Location) -> Vec<String> {
    let card = location.card.map(usize::from);
    let Ok(grant) = capacity.take(&location.shape, card) else {
        return Vec::new();
    };
    let mut names = Vec::new();
    for (index, milli) in grant {
        if let Some(card) = pool.cards.get_mut(usize::from(index)) {
            names.push(card.name.to_string());
            card.holders.push(Holder {
                pod: "".into(),
                milli,
                start: card.place(milli),
                annotated: true,
            });
        }
    }
    names
}

fn count_units(inventory: &mut Inventory, request: &GpuRequest) {
    let Amount::Units { resource, units } = &request.amount else {
        return;
    };
    let mut counted = inventory.counted.iter_mut();
    if let Some(counted) = counted.find(|c| *c.resource == **resource) {
        counted.used = counted.used.saturating_add(*units);
    }
}
