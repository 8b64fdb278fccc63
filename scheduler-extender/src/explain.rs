//! Records of planning rounds: the JSON of `/explain/NAMESPACE/POD`.

pub(crate) mod pod;
mod record;

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

pub use self::{
    pod::PodNow,
    record::{
        AnswerRecord, CostRecord, NodeRecord, Record, RuleRecord, UnderlayOffer, UnderlayRecord,
    },
};
use crate::plans::PodPlan;

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

    /// The last rounds of a pod, the newest first.
    pub fn rounds(&self, namespace: &str, name: &str) -> Vec<Record> {
        let is_pod = |p: &&Arc<PodPlan>| p.subject.namespace == namespace && p.subject.name == name;
        let rounds = self.rounds.lock();
        let newest = rounds.plans.iter().rev().filter(is_pod).take(ROUNDS);
        let newest: Vec<Arc<PodPlan>> = newest.cloned().collect();
        drop(rounds);
        newest.iter().map(|plan| record::record(plan)).collect()
    }
}
