//! The rule provider of `gpu-slice`: nodes that can really give a pod its GPUs,
//! and of those the ones whose rest is of most use to the pods to come.
//!
//! What a pod needs comes from its own requests (`nvidia.com/gpu`,
//! `nvidia.com/gpu-shared`, `nvidia.com/mig-<profile>`); the rule's request may
//! state it instead (see [`need`]). What a node has left is kept card by card (see
//! [`ledger`]), and a policy says what a place costs ([`tautline_gpu::policy`]).

mod allocate;
mod cost;
mod evaluate;
mod ledger;
mod metrics;
mod need;
mod state;

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use tautline_gpu::{Names, TaskType, policy};
use tautline_runtime::feed::Feed;
use tautline_sdk::{
    Compliance, CostAnswer, CostQuestion, EvaluateQuestion, Evaluation, ProviderError,
    RuleProvider, reservations::Counts,
};
use tokio_util::sync::CancellationToken;

pub use metrics::Gauges;
pub use need::shape_of;

use crate::{
    cost::Fit,
    ledger::Ledger,
    need::Need,
    state::{Own, State},
};

/// How the provider chooses.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub policy: policy::Name,
    pub names: Names,
    /// The distribution of requests to plan for; `None`: learned from the cluster.
    pub classes: Option<Vec<(TaskType, f64)>>,
    /// A second annotation for a pod's cards, as indexes (`0-1`), for runtimes that
    /// read another than ours.
    pub also_record: Option<String>,
}

/// How often reservations are looked through when nobody asks.
const TICK: Duration = Duration::from_secs(1);

/// The provider. Clones are one.
#[derive(Clone, Debug)]
pub struct GpuSlice {
    feed: Feed,
    also_record: Option<String>,
    state: Arc<Mutex<State>>,
}

impl GpuSlice {
    /// A provider that knows nodes and pods from `feed`.
    pub fn new(feed: Feed, config: Config) -> Self {
        let mut ledger = Ledger::new(config.names, config.policy.policy());
        if let Some(classes) = config.classes {
            ledger.fix(classes);
        }
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let started = started.unwrap_or_default().as_nanos();
        let process = std::process::id();
        Self {
            feed,
            also_record: config.also_record,
            state: Arc::new(Mutex::new(State::new(
                ledger,
                &format!("{started:x}-{process:x}"),
            ))),
        }
    }

    /// What is reserved and not yet seen with a pod.
    pub fn reservations(&self) -> Counts {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.sync(&self.feed, now);
        state.book.counts(now)
    }

    /// Keeps reservations in step with the watch, and tells of them, until told to
    /// stop.
    pub async fn keep(self, gauges: Gauges, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(TICK) => gauges.set(self.reservations()),
            }
        }
    }
}

impl RuleProvider for GpuSlice {
    async fn endpoint_cost(&self, ask: CostQuestion) -> Result<CostAnswer, ProviderError> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let need = Need::of(&state.ledger.names, &ask.rule, ask.workload.as_ref())?;
        let snapshot = state.sync(&self.feed, now);
        let uid = ask.workload.as_ref().map_or("", |w| w.uid.as_str());
        state.ledger.asked(uid, &need);
        let own = Own::of(&state, &snapshot, &ask, uid, now);
        let mut answer = CostAnswer::default();
        answer.nodes.reserve(ask.eligible_nodes.len());
        for name in &ask.eligible_nodes {
            let freed = own.freed(&mut state, &snapshot, name, now);
            let (names, nodes, board) = state.ledger.parts();
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
        let mut state = self.state.lock();
        let snapshot = state.sync(&self.feed, Instant::now());
        let ledger = &state.ledger;
        let need = Need::of(&ledger.names, &ask.rule, None)?;
        let mut parts = Vec::new();
        for target in ask.targets.values().filter(|t| t.kind == "Pod") {
            parts.push(match snapshot.pod(&target.namespace, &target.name) {
                None => Evaluation::new(
                    Compliance::Error,
                    format!("pod {} is not known", target.name),
                ),
                Some(pod) => evaluate::pod(ledger, &snapshot, pod, &need),
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

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
