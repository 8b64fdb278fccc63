//! Records of planning rounds: the JSON of `/explain/NAMESPACE/POD` and `/explain`.

pub(crate) mod pod;
mod record;
mod summary;
mod what_if;

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

pub(crate) use self::record::mode_name;
pub use self::{
    pod::PodNow,
    record::{
        AnswerRecord, CostRecord, NodeRecord, Record, RuleRecord, UnderlayOffer, UnderlayRecord,
    },
    summary::Summary,
    what_if::RecordedAnswers,
};
use crate::{plans::PodPlan, status::unix_millis};

/// Maximum number of rounds shown of one pod.
const ROUNDS: usize = 5;

/// Planning rounds, bounded by memory: the oldest are dropped first.
#[derive(Debug)]
pub(crate) struct History {
    rounds: Mutex<Rounds>,
    max_bytes: usize,
    pub reader: pod::Reader,
}

#[derive(Debug, Default)]
struct Rounds {
    plans: VecDeque<Arc<PodPlan>>,
    bytes: usize,
}

impl History {
    pub fn new(max_bytes: usize) -> Self {
        Self {
            rounds: Mutex::default(),
            max_bytes,
            reader: pod::Reader::default(),
        }
    }

    pub fn push(&self, plan: &Arc<PodPlan>) {
        let Rounds { plans, bytes } = &mut *self.rounds.lock();
        *bytes += plan.weight();
        plans.push_back(Arc::clone(plan));
        while *bytes > self.max_bytes && plans.len() > 1 {
            if let Some(oldest) = plans.pop_front() {
                *bytes -= oldest.weight();
            }
        }
    }

    /// The last round of each pod, the newest first; bounded.
    pub fn summaries(&self) -> Vec<Summary> {
        let rounds = self.rounds.lock();
        let newest = rounds.plans.iter().rev().take(summary::MAX_ROUNDS);
        let newest: Vec<Arc<PodPlan>> = newest.cloned().collect();
        drop(rounds);
        summary::summaries(&newest)
    }

    /// The last rounds of a pod, the newest first. `nodes_at` limits the nodes to those of the round
    /// that began then, in milliseconds since 1970, or of the newest if there is none.
    pub fn rounds(&self, namespace: &str, name: &str, nodes_at: Option<u64>) -> Vec<Record> {
        let is_pod = |p: &&Arc<PodPlan>| p.subject.namespace == namespace && p.subject.name == name;
        let rounds = self.rounds.lock();
        let newest = rounds.plans.iter().rev().filter(is_pod).take(ROUNDS);
        let newest: Vec<Arc<PodPlan>> = newest.cloned().collect();
        drop(rounds);
        let at = |plan: &Arc<PodPlan>| unix_millis(plan.at);
        let chosen = nodes_at.map(|wanted| {
            let found = newest.iter().position(|plan| at(plan) == wanted);
            found.unwrap_or_default()
        });
        let with_nodes = |i: usize| chosen.is_none_or(|chosen| chosen == i);
        let rounds = newest.iter().enumerate();
        rounds
            .map(|(i, plan)| record::record(plan, with_nodes(i)))
            .collect()
    }
}
