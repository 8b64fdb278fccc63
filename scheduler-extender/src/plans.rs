//! The cache of filter's plans for prioritize and bind, by the pod's UID.

use std::{collections::BTreeMap, ops::Deref, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tautline_core::{
    answer::{Answer, AnswerMode},
    nodes::NodeSet,
    planning::NodeVerdict,
};
use tautline_provider_client::{PlanningQuestion, PlanningRound};
use tautline_traces::Span;
use tokio::time::Instant;

use crate::{shares::Shares, underlay::UnderlayResult};

/// The lifetime of a plan. A scheduling cycle takes milliseconds, so an older plan belongs to an
/// earlier one.
const PLAN_TTL: Duration = Duration::from_secs(30);
/// The time after which another replica may have filtered the pod again.
const CYCLE_TIME: Duration = Duration::from_secs(1);
/// The maximum size of all plans; a plan on 5,000 nodes has some 300 KB.
const MAX_BYTES: usize = 32 << 20;
/// The maximum number of plans: kube-scheduler runs cycles one by one, so far fewer are in use.
const MAX_PLANS: usize = 256;

/// A pod's plan: the round of its rules, the underlay's offers if the rules left no node, and
/// filter's answer.
#[derive(Debug)]
pub(crate) struct PodPlan {
    pub round: PlanningRound,
    /// The underlay's offers; `None` if Discover was not needed.
    pub underlay: Option<UnderlayResult>,
    /// The nodes that filter returned.
    pub answer: Answer,
    pub mode: AnswerMode,
    /// The span of filter, for the spans of the verbs that follow.
    pub span: Span,
}

impl PodPlan {
    /// Returns whether all `nodes` are usable. Filter returns only usable nodes, so false means
    /// that another replica has filtered the pod since.
    pub fn allows_all(&self, nodes: &NodeSet) -> bool {
        let is_usable = |node| self.verdict(node).is_some_and(NodeVerdict::is_usable);
        nodes.iter().all(is_usable)
    }

    /// Returns whether the plan is of the same scheduling cycle as a bind that runs now.
    pub fn is_recent(&self) -> bool {
        let age = self.at.elapsed();
        age.is_ok_and(|age| age < self.took + CYCLE_TIME)
    }

    /// The approximate size of the plan, in bytes.
    pub fn weight(&self) -> usize {
        self.round.heap_bytes() + self.underlay.as_ref().map_or(0, UnderlayResult::weight)
    }
}

impl Deref for PodPlan {
    type Target = PlanningRound;

    fn deref(&self) -> &PlanningRound {
        &self.round
    }
}

/// The number of unusable nodes by reason. Neighbours mostly share their reason, so a run of equal
/// reasons is counted at once.
pub(crate) fn reason_counts(verdicts: &[NodeVerdict]) -> BTreeMap<&str, usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let is_same = |a: &NodeVerdict, b: &NodeVerdict| match (a, b) {
        (NodeVerdict::Unusable { reason: a, .. }, NodeVerdict::Unusable { reason: b, .. }) => {
            Arc::ptr_eq(a, b)
        }
        _ => false,
    };
    for run in verdicts.chunk_by(is_same) {
        if let [NodeVerdict::Unusable { reason, .. }, ..] = run {
            *counts.entry(reason).or_default() += run.len();
        }
    }
    counts
}

#[derive(Debug)]
pub(crate) struct PlanCache(Mutex<Shares<CachedPlan>>);

#[derive(Debug)]
struct CachedPlan {
    at: Instant,
    plan: Arc<PodPlan>,
    /// Filter's question without its nodes, for a reservation at bind.
    question: Option<Arc<PlanningQuestion>>,
}

impl Default for PlanCache {
    fn default() -> Self {
        Self(Mutex::new(Shares::new(MAX_BYTES)))
    }
}

impl PlanCache {
    /// Adds a plan, and returns the number of plans of current scheduling cycles that it displaced.
    pub fn insert(&self, plan: &Arc<PodPlan>, question: Option<PlanningQuestion>) -> u64 {
        let asked = question.as_ref().map_or(0, PlanningQuestion::heap_bytes);
        let bytes = (plan.weight() + asked).max(MAX_BYTES / MAX_PLANS);
        let cached = CachedPlan {
            at: Instant::now(),
            plan: Arc::clone(plan),
            question: question.map(Arc::new),
        };
        let namespace = &plan.subject.namespace;
        let displaced = self.0.lock().push(namespace, bytes, cached);
        let current = displaced.iter().filter(|cached| cached.plan.is_recent());
        current.count() as u64
    }

    fn find<T>(
        &self,
        namespace: &str,
        uid: &str,
        read: impl FnOnce(&CachedPlan) -> Option<T>,
    ) -> Option<T> {
        let plans = self.0.lock();
        let mut young = plans
            .of(namespace)
            .take_while(|cached| cached.at.elapsed() < PLAN_TTL);
        read(young.find(|cached| cached.plan.subject.uid == uid)?)
    }

    pub fn get(&self, namespace: &str, uid: &str) -> Option<Arc<PodPlan>> {
        self.find(namespace, uid, |cached| Some(Arc::clone(&cached.plan)))
    }

    /// The question about the pod that filter had in this scheduling cycle.
    pub fn question(&self, namespace: &str, uid: &str) -> Option<Arc<PlanningQuestion>> {
        self.find(namespace, uid, |cached| {
            cached.question.clone().filter(|_| cached.plan.is_recent())
        })
    }
}
