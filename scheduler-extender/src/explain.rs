//! Records of planning rounds: the JSON of `/explain/NAMESPACE/POD` and `/explain`.

pub(crate) mod pod;
mod record;
mod summary;
mod what_if;

use std::sync::Arc;

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
use crate::{plans::PodPlan, shares::Shares, status::unix_millis};

/// Maximum number of rounds shown of one pod.
const ROUNDS: usize = 5;

/// Planning rounds, bounded by memory.
#[derive(Debug)]
pub(crate) struct History {
    rounds: Mutex<Shares<Arc<PodPlan>>>,
    pub reader: pod::Reader,
}

impl History {
    pub fn new(max_bytes: usize) -> Self {
        Self {
            rounds: Mutex::new(Shares::new(max_bytes)),
            reader: pod::Reader::default(),
        }
    }

    pub fn push(&self, plan: &Arc<PodPlan>) {
        let mut rounds = self.rounds.lock();
        rounds.push(&plan.subject.namespace, plan.weight(), Arc::clone(plan));
    }

    /// The last round of each pod, the newest first; bounded.
    pub fn summaries(&self) -> Vec<Summary> {
        let rounds = self.rounds.lock();
        let newest = rounds.newest(summary::MAX_ROUNDS);
        let newest: Vec<Arc<PodPlan>> = newest.into_iter().cloned().collect();
        drop(rounds);
        summary::summaries(&newest)
    }

    /// The last rounds of a pod, the newest first. `nodes_at` limits the nodes to those of the round
    /// that began then, in milliseconds since 1970, or of the newest if there is none.
    pub fn rounds(&self, namespace: &str, name: &str, nodes_at: Option<u64>) -> Vec<Record> {
        let is_pod = |p: &&Arc<PodPlan>| p.subject.name == name;
        let rounds = self.rounds.lock();
        let newest = rounds.of(namespace).filter(is_pod).take(ROUNDS);
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
