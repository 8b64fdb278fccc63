//! Plans kept from filter to prioritize and bind, by the pod's UID.

use std::{ops::Deref, sync::Arc, time::Duration};

use dashmap::DashMap;
use tautline_core::{nodes::NodeSet, planning::NodeVerdict};
use tautline_provider_client::PlanningRound;
use tokio::time::Instant;

use crate::underlay::Consulted;

/// A scheduling cycle is milliseconds; a plan older than this belongs to none.
const TTL: Duration = Duration::from_secs(30);
/// A pod that is bound this much later may have been filtered again since, by another
/// replica.
const CYCLE: Duration = Duration::from_secs(1);
/// Cycles run one by one, so far fewer are ever under way.
const MOST: usize = 256;

/// What is planned for a pod: by the rules, and by the underlay's word where the
/// rules left no node.
#[derive(Debug)]
pub(crate) struct Planned {
    pub round: PlanningRound,
    /// `None`: it was not called for.
    pub underlay: Option<Consulted>,
}

impl Planned {
    /// Whether the pod may use each of `nodes`. Filter lets no others pass, so if not,
    /// the plan is of a cycle before: another replica has filtered since.
    pub(crate) fn admits(&self, nodes: &NodeSet) -> bool {
        nodes.iter().all(|node| {
            let at = self.nodes.position(node);
            let verdict = at.and_then(|at| self.plan.verdicts.get(at));
            verdict.is_some_and(NodeVerdict::is_usable)
        })
    }

    /// Whether it was made so lately that it is of the cycle that binds.
    pub(crate) fn is_of_this_cycle(&self) -> bool {
        let since_begun = self.at.elapsed();
        since_begun.is_ok_and(|age| age < self.took + CYCLE)
    }

    /// Bytes held, roughly.
    pub(crate) fn weight(&self) -> usize {
        self.round.heap_bytes() + self.underlay.as_ref().map_or(0, Consulted::weight)
    }
}

impl Deref for Planned {
    type Target = PlanningRound;

    fn deref(&self) -> &PlanningRound {
        &self.round
    }
}

#[derive(Debug, Default)]
pub(crate) struct Plans(DashMap<String, (Instant, Arc<Planned>)>);

impl Plans {
    pub(crate) fn keep(&self, plan: &Arc<Planned>) {
        let now = Instant::now();
        if self.0.len() >= MOST {
            self.0.retain(|_, (at, _)| now.duration_since(*at) < TTL);
            if self.0.len() >= MOST {
                self.0.clear();
            }
        }
        self.0
            .insert(plan.subject.uid.clone(), (now, Arc::clone(plan)));
    }

    pub(crate) fn get(&self, uid: &str) -> Option<Arc<Planned>> {
        let entry = self.0.get(uid)?;
        let (at, plan) = entry.value();
        (at.elapsed() < TTL).then(|| Arc::clone(plan))
    }
}
