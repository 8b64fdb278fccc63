//! Plans cached from filter for prioritize and bind, by the pod's UID.

use std::{ops::Deref, sync::Arc, time::Duration};

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Pod;
use tautline_core::{
    answer::{Answer, AnswerMode},
    nodes::NodeSet,
    planning::NodeVerdict,
};
use tautline_provider_client::PlanningRound;
use tautline_traces::Span;
use tokio::time::Instant;

use crate::underlay::UnderlayResult;

/// A scheduling cycle takes milliseconds; an older plan belongs to an earlier cycle.
const TTL: Duration = Duration::from_secs(30);
/// After this time another replica may have filtered the pod again.
const CYCLE: Duration = Duration::from_secs(1);
/// kube-scheduler runs cycles one by one, so far fewer plans are in use at a time.
const CAPACITY: usize = 256;

/// A pod's plan: the round of its rules, the underlay's offers if the rules left no node, and
/// filter's answer.
#[derive(Debug)]
pub(crate) struct PodPlan {
    pub round: PlanningRound,
    /// `None`: Discover was not needed.
    pub underlay: Option<UnderlayResult>,
    /// The nodes that filter returned.
    pub answer: Answer,
    pub mode: AnswerMode,
    /// The span of filter, for those of the verbs that follow.
    pub span: Span,
}

impl PodPlan {
    /// True if all `nodes` are usable. Filter returns only usable nodes, so false means
    /// that another replica has filtered the pod since.
    pub fn allows_all(&self, nodes: &NodeSet) -> bool {
        let is_usable = |node| self.verdict(node).is_some_and(NodeVerdict::is_usable);
        nodes.iter().all(is_usable)
    }

    /// True if the plan is of the same scheduling cycle as a bind that runs now.
    pub fn is_recent(&self) -> bool {
        let age = self.at.elapsed();
        age.is_ok_and(|age| age < self.took + CYCLE)
    }

    /// Approximate size in bytes.
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

#[derive(Debug, Default)]
pub(crate) struct PlanCache(DashMap<String, CachedPlan>);

#[derive(Debug)]
struct CachedPlan {
    at: Instant,
    plan: Arc<PodPlan>,
    /// The pod that filter was called with.
    posted: Arc<Pod>,
}

impl PlanCache {
    pub fn insert(&self, plan: &Arc<PodPlan>, posted: Pod) {
        let now = Instant::now();
        if self.0.len() >= CAPACITY {
            self.0
                .retain(|_, cached| now.duration_since(cached.at) < TTL);
            if self.0.len() >= CAPACITY {
                self.0.clear();
            }
        }
        let cached = CachedPlan {
            at: now,
            plan: Arc::clone(plan),
            posted: Arc::new(posted),
        };
        self.0.insert(plan.subject.uid.clone(), cached);
    }

    pub fn get(&self, uid: &str) -> Option<Arc<PodPlan>> {
        let cached = self.0.get(uid)?;
        (cached.at.elapsed() < TTL).then(|| Arc::clone(&cached.plan))
    }

    /// The pod as filter got it in this scheduling cycle.
    pub fn posted(&self, uid: &str) -> Option<Arc<Pod>> {
        let cached = self.0.get(uid)?;
        cached.plan.is_recent().then(|| Arc::clone(&cached.posted))
    }
}
