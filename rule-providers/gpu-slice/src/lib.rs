//! The rule provider of `gpu-slice`: nodes that can really give a pod its GPUs,
//! and of those the ones whose rest is of most use to the pods to come.
//!
//! What a pod needs comes from its own requests (`nvidia.com/gpu`,
//! `nvidia.com/gpu-shared`, `nvidia.com/mig-<profile>`); the rule's request may
//! state it instead (see [`need`]). What a node has left is kept card by card (see
//! [`ledger`]), and a policy says what a place costs ([`tautline_gpu::policy`]).

mod answers;
mod cost;
mod evaluate;
mod ledger;
mod need;
pub mod view;

use std::sync::Arc;

use parking_lot::Mutex;
use tautline_core::Snapshot;
use tautline_gpu::{Names, TaskType, policy};
use tautline_runtime::feed::Feed;
use tautline_sdk::{
    CostAnswer, CostQuestion, EvaluateQuestion, Evaluation, ProviderError, RuleProvider,
};

pub use crate::{
    answers::Verdict,
    cost::{At, Fit, No},
    view::View,
};

use crate::ledger::Ledger;

/// The rule that this provider answers for.
pub const RULE: &str = "gpu-slice";

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
        Self {
            feed,
            ledger: Arc::new(Mutex::new(Ledger::of(config))),
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
        let snapshot = self.sync(&mut ledger);
        let mut answer = CostAnswer::default();
        answer.nodes.reserve(ask.eligible_nodes.len());
        for Verdict { node, fit } in answers::costs(&mut ledger, &snapshot, &ask)? {
            match fit {
                Fit::Yes { cost, detail, .. } => answer.usable(node, cost, detail),
                Fit::No(no) => answer.unusable(node, no.code, no.detail, no.freeable),
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, ask: EvaluateQuestion) -> Result<Evaluation, ProviderError> {
        let mut ledger = self.ledger.lock();
        let snapshot = self.sync(&mut ledger);
        answers::evaluation(&ledger, &snapshot, &ask)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
