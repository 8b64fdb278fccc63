//! The rule provider of `gpu-slice`: nodes that can really give a pod its GPUs,
//! and of those the ones whose rest is of most use to the pods to come.
//!
//! What a pod needs comes from its own requests (`nvidia.com/gpu`,
//! `nvidia.com/gpu-shared`, `nvidia.com/mig-<profile>`); the rule's request may
//! state it instead (see [`need`]). What a node has left is kept card by card (see
//! [`ledger`]), and a policy says what a place costs ([`tautline_gpu::policy`]).

mod cost;
mod evaluate;
mod ledger;
mod need;

use std::sync::Arc;

use parking_lot::Mutex;
use tautline_core::{Snapshot, model::Pod};
use tautline_gpu::{Names, Room, TaskType, inventory, policy};
use tautline_runtime::feed::Feed;
use tautline_sdk::{
    Compliance, CostAnswer, CostQuestion, EvaluateQuestion, Evaluation, ProviderError, RuleProvider,
};

use crate::{
    cost::Fit,
    ledger::{Entry, Ledger},
    need::Need,
};

/// How the provider chooses.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub policy: policy::Name,
    pub names: Names,
    /// The distribution of requests to plan for; `None`: learned from the cluster.
    pub classes: Option<Vec<(TaskType, f64)>>,
}

/// The provider. Clones are one.
#[derive(Clone, Debug)]
pub struct GpuSlice {
    feed: Feed,
    ledger: Arc<Mutex<Ledger>>,
}

impl GpuSlice {
    /// A provider that knows nodes and pods from `feed`.
    pub fn new(feed: Feed, config: Config) -> Self {
        let mut ledger = Ledger::new(config.names, config.policy.policy());
        if let Some(classes) = config.classes {
            ledger.fix(classes);
        }
        Self {
            feed,
            ledger: Arc::new(Mutex::new(ledger)),
        }
    }

    fn sync(&self, ledger: &mut Ledger) -> Arc<Snapshot> {
        let snapshot = self.feed.snapshot();
        ledger.sync(Arc::clone(&snapshot), &[], |_| Vec::new());
        snapshot
    }
}

impl RuleProvider for GpuSlice {
    async fn endpoint_cost(&self, ask: CostQuestion) -> Result<CostAnswer, ProviderError> {
        let mut ledger = self.ledger.lock();
        let need = Need::of(&ledger.names, &ask.rule, ask.workload.as_ref())?;
        let snapshot = self.sync(&mut ledger);
        let uid = ask.workload.as_ref().map_or("", |w| w.uid.as_str());
        ledger.asked(uid, &need);
        let own = snapshot
            .pod(&ask.source.namespace, &ask.source.name)
            .filter(|p| p.node.is_some());
        let mut answer = CostAnswer::default();
        answer.nodes.reserve(ask.eligible_nodes.len());
        for name in &ask.eligible_nodes {
            let freed = own
                .filter(|p| p.node.as_deref() == Some(name))
                .and_then(|pod| freed(&mut ledger, &snapshot, pod));
            let (names, nodes, board) = ledger.parts();
            let Some(entry) = nodes.get(name.as_str()) else {
                answer.unusable(name, "UnknownNode", "not in the provider's view yet", false);
                continue;
            };
            let fit = match &freed {
                Some((entry, rooms)) => cost::fit(names, board, entry, &need, Some(rooms)),
                None => cost::fit(names, board, entry, &need, None),
            };
            match fit {
                Fit::Yes { cost, detail, .. } => answer.usable(name, cost, detail),
                Fit::No(no) => answer.unusable(name, no.code, no.detail, no.freeable),
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, ask: EvaluateQuestion) -> Result<Evaluation, ProviderError> {
        let mut ledger = self.ledger.lock();
        let snapshot = self.sync(&mut ledger);
        let need = Need::of(&ledger.names, &ask.rule, None)?;
        let mut parts = Vec::new();
        for target in ask.targets.values().filter(|t| t.kind == "Pod") {
            parts.push(match snapshot.pod(&target.namespace, &target.name) {
                None => Evaluation::new(
                    Compliance::Error,
                    format!("pod {} is not known", target.name),
                ),
                Some(pod) => evaluate::pod(&ledger, &snapshot, pod, &need),
            });
        }
        if parts.is_empty() {
            return Ok(Evaluation::compliant("no pod is among the targets"));
        }
        let compliance = Compliance::of_parts(parts.iter().map(|p| p.compliance));
        let worst = parts.into_iter().find(|p| p.compliance == compliance);
        Ok(Evaluation {
            compliance,
            reason: worst.map(|p| p.reason).unwrap_or_default(),
        })
    }
}

/// A placed pod's node as it would be without the pod, for one that asks again.
fn freed(ledger: &mut Ledger, snapshot: &Snapshot, pod: &Pod) -> Option<(Entry, Vec<Room>)> {
    let name = pod.node.as_deref()?;
    let node = snapshot.node(name)?;
    let others = snapshot.pods_on(name).iter().map(|p| &**p);
    let others = others.filter(|p| p.uid != pod.uid || p.name != pod.name);
    let inventory = inventory::read(&ledger.names, node, others, &[]);
    let (_, nodes, board) = ledger.parts();
    let known = nodes.get(name)?;
    let rooms = inventory
        .pools
        .iter()
        .map(|pool| inventory.room(pool, board.kind(&pool.kind)))
        .collect();
    let entry = Entry {
        slots: known.slots.clone(),
        rank: known.rank,
        inventory,
    };
    Some((entry, rooms))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
