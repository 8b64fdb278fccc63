//! Records planning rounds, and makes the JSON of `/explain/NAMESPACE/POD` and `/explain`.

pub(crate) mod pod;
mod record;
mod summary;
mod what_if;

use std::sync::Arc;

use parking_lot::Mutex;
use tautline_provider_client::status::unix_millis;

pub(crate) use self::record::{mode_name, node_records, rule_records};
pub use self::{
    pod::PodNow,
    record::{
        AnswerRecord, CostRecord, NodeRecord, Record, RuleRecord, UnderlayOffer, UnderlayRecord,
    },
    summary::Summary,
    what_if::RecordedAnswers,
};
pub use crate::groups::RULE as GROUP_RULE;
use crate::{plans::PodPlan, shares::Shares};

/// The maximum number of rounds that are shown of one pod.
const MAX_SHOWN_ROUNDS: usize = 5;

/// The last planning rounds, bounded by memory.
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

    /// The last round of each pod, the newest first, up to a bound.
    pub fn summaries(&self) -> Vec<Summary> {
        let rounds = self.rounds.lock();
        let newest = rounds.newest(summary::MAX_ROUNDS);
        let newest: Vec<Arc<PodPlan>> = newest.into_iter().cloned().collect();
        drop(rounds);
        summary::summaries(&newest)
    }

    /// Returns the last rounds of a pod, the newest first. With `nodes_at` only one round has its
    /// nodes: the round that began then, in milliseconds since 1970, or the newest round if no
    /// round did.
    pub fn rounds(&self, namespace: &str, name: &str, nodes_at: Option<u64>) -> Vec<Record> {
        let is_pod = |p: &&Arc<PodPlan>| p.subject.name == name;
        let rounds = self.rounds.lock();
        let newest = rounds.of(namespace).filter(is_pod).take(MAX_SHOWN_ROUNDS);
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
