//! The caller's side of one stream of costs: its open questions, and the tables of costs that are
//! current.

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasher,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tautline_core::{
    index::node_indexes::IndexChanges,
    planning::{CostDetail, Costs},
    text,
};
use tautline_proto::ruleprovider as wire;
use tokio::{sync::mpsc::UnboundedSender, time::Instant};
use tonic::{Code, Status};

use crate::codec::LONGEST_DETAIL_CHARS;

/// The time without a sign of life after which a stream is of no use.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time without a pod that asks after which a question, or the stream, is closed.
const UNUSED_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of open questions; beyond it the least recently used one is closed.
const MAX_QUESTIONS: usize = 64;
/// The maximum size of all tables in bytes; other costs need calls.
const MAX_BYTES: usize = 64 << 20;
/// The maximum number of questions that are remembered as asked once.
const MAX_ASKED_ONCE: usize = 1024;

#[derive(Debug)]
struct Question {
    id: u64,
    /// The sequence number of the message that opened it.
    opened: u64,
    costs: Costs,
    failure: Option<Status>,
    per_pod: bool,
    /// True if the table is over the bound, so that it is not stored while the question is open.
    is_too_large: bool,
    used: Instant,
}

impl Question {
    fn new(id: u64, opened: u64, used: Instant) -> Self {
        Self {
            id,
            opened,
            costs: Costs::default(),
            failure: None,
            per_pod: false,
            is_too_large: false,
            used,
        }
    }
}

/// The answer of a stream to a question.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// The costs, and the time since the provider said that they hold.
    Costs(Costs, Duration),
    Failed(Status),
    /// The costs will arrive soon.
    Wait,
    /// The stream has no costs for the question: the provider must be called.
    Call,
}

/// A stream, and the tables of its questions, which each [`begin`](Self::begin) empties.
#[derive(Debug, Default)]
pub(crate) struct CostStream {
    out: Option<UnboundedSender<wire::CostWatch>>,
    /// The number of the last message.
    sequence: u64,
    /// The number of the last message that changes the nodes, or the pods that costs count.
    counts: u64,
    /// The number of the last message that the provider's costs count.
    through: u64,
    /// The time of the provider's last valid update.
    heard: Option<Instant>,
    /// The time when a pod last asked, or when the first stream began.
    asked: Option<Instant>,
    last_id: u64,
    nodes_end: u32,
    questions: HashMap<Bytes, Question>,
    /// The hashes of questions that were asked once: most pods with labels of their own ask only
    /// once.
    asked_once: VecDeque<u64>,
}

impl CostStream {
    /// Begins a new stream, whose provider knows nothing yet.
    pub(crate) fn begin(
        &mut self,
        out: UnboundedSender<wire::CostWatch>,
        nodes: IndexChanges,
        placed: Vec<wire::InFlightPod>,
        now: Instant,
    ) {
        self.questions.retain(|_, q| now < q.used + UNUSED_TIMEOUT);
        (self.sequence, self.through, self.heard) = (0, 0, None);
        self.out = Some(out);
        self.asked.get_or_insert(now);
        let mut opened = Vec::new();
        for (key, question) in &mut self.questions {
            self.last_id += 1;
            *question = Question::new(self.last_id, 1, question.used);
            opened.push(open(question.id, key));
        }
        self.nodes_end = 0;
        let message = wire::CostWatch {
            placed_pods: placed,
            opened_questions: opened,
            ..self.of_nodes(nodes)
        };
        self.counts = 1;
        self.send(message);
    }

    /// Records that the stream is broken.
    pub(crate) fn end(&mut self) {
        self.out = None;
    }

    pub(crate) fn open_questions(&self) -> usize {
        self.questions.len()
    }

    fn of_nodes(&mut self, nodes: IndexChanges) -> wire::CostWatch {
        for (index, _) in &nodes.added {
            self.nodes_end = self.nodes_end.max(*index + 1);
        }
        let added = nodes.added.into_iter();
        wire::CostWatch {
            removed_nodes: nodes.removed,
            added_nodes: added
                .map(|(index, name)| wire::IndexedNode {
                    index,
                    name: name.to_string(),
                })
                .collect(),
            ..wire::CostWatch::default()
        }
    }

    fn send(&mut self, mut message: wire::CostWatch) {
        let Some(out) = &self.out else { return };
        self.sequence += 1;
        message.sequence = self.sequence;
        // The receiver is gone once the stream is broken, which its task reports.
        _ = out.send(message);
    }

    /// Tells the provider about nodes that came or went.
    pub(crate) fn change_nodes(&mut self, changes: &IndexChanges) {
        if self.out.is_none() {
            return;
        }
        for question in self.questions.values_mut() {
            let removed = changes.removed.iter().map(|index| *index as usize);
            removed.for_each(|at| question.costs.remove(at));
        }
        let message = self.of_nodes(changes.clone());
        self.send(message);
        self.counts = self.sequence;
    }

    /// Tells the provider about pods that were placed, or ended.
    pub(crate) fn change_pods(&mut self, changes: wire::CostWatch) {
        self.send(changes);
        self.counts = self.sequence;
    }

    /// Looks up the costs of the nodes with these indexes. A question is opened when it is asked
    /// again.
    pub(crate) fn lookup(&mut self, key: &Bytes, nodes: &Arc<[u32]>, now: Instant) -> Lookup {
        self.asked = Some(now);
        let age = self.heard.map(|heard| now.saturating_duration_since(heard));
        let Some(age) = age.filter(|age| self.out.is_some() && *age < SILENCE_TIMEOUT) else {
            return Lookup::Call;
        };
        let (counts, through) = (self.counts, self.through);
        let Some(question) = self.questions.get_mut(key) else {
            if !self.is_asked_again(key) {
                return Lookup::Call;
            }
            self.open(key, now);
            return Lookup::Wait;
        };
        question.used = now;
        if through < counts.max(question.opened) {
            return Lookup::Wait;
        }
        if question.per_pod || question.is_too_large {
            return Lookup::Call;
        }
        if let Some(status) = &question.failure {
            return Lookup::Failed(status.clone());
        }
        Lookup::Costs(question.costs.of(Arc::clone(nodes)), age)
    }

    fn is_asked_again(&mut self, key: &Bytes) -> bool {
        let hash = self.questions.hasher().hash_one(key);
        if self.asked_once.contains(&hash) {
            return true;
        }
        self.asked_once.truncate(MAX_ASKED_ONCE - 1);
        self.asked_once.push_front(hash);
        false
    }

    fn open(&mut self, key: &Bytes, now: Instant) {
        if self.questions.len() >= MAX_QUESTIONS {
            let oldest = self.questions.values().min_by_key(|q| q.used);
            let oldest = oldest.map(|q| q.id);
            self.close(|q| Some(q.id) == oldest);
        }
        self.last_id += 1;
        self.send(wire::CostWatch {
            opened_questions: vec![open(self.last_id, key)],
            ..wire::CostWatch::default()
        });
        let question = Question::new(self.last_id, self.sequence, now);
        self.questions.insert(key.clone(), question);
    }

    fn close(&mut self, is_closed: impl Fn(&Question) -> bool) {
        let closed = self.questions.extract_if(|_, q| is_closed(q));
        let closed_questions: Vec<u64> = closed.map(|(_, q)| q.id).collect();
        if !closed_questions.is_empty() {
            self.send(wire::CostWatch {
                closed_questions,
                ..wire::CostWatch::default()
            });
        }
    }

    /// Closes the questions that no pod has asked for a long time.
    pub(crate) fn close_unused(&mut self, now: Instant) {
        self.close(|q| now >= q.used + UNUSED_TIMEOUT);
    }

    /// Returns whether no pod has asked anything for a long time.
    pub(crate) fn is_unused(&self, now: Instant) -> bool {
        self.asked.is_none_or(|asked| now > asked + UNUSED_TIMEOUT)
    }

    /// The open question with this number; there are few.
    fn question(&mut self, id: u64) -> Option<&mut Question> {
        self.questions.values_mut().find(|q| q.id == id)
    }

    /// Applies an update of the provider.
    pub(crate) fn apply(&mut self, update: wire::CostUpdate, now: Instant) {
        let nodes_end = self.nodes_end;
        for costs in update.costs {
            let question = self.question(costs.question);
            let Some(question) = question.filter(|q| !q.is_too_large) else {
                continue;
            };
            question.failure = None;
            question.per_pod = costs.per_pod;
            question.costs.resolution = costs.resolution;
            question.costs.request_cost = costs.request_cost;
            for line in costs.lines.iter().filter(|l| l.index < nodes_end) {
                let detail = CostDetail {
                    code: &line.reason,
                    detail: &text::sanitize(&line.detail, LONGEST_DETAIL_CHARS),
                    freeable: line.freeable,
                    tie_break: line.tie_break,
                };
                question.costs.put(line.index as usize, line.cost, detail);
            }
        }
        for failure in update.failures {
            if let Some(question) = self.question(failure.question) {
                question.failure = Some(Status::new(Code::from(failure.code), failure.message));
                question.costs = Costs::default();
            }
        }
        // The provider cannot have seen a number that was never sent.
        if (1..=self.sequence).contains(&update.through) {
            self.through = self.through.max(update.through);
            self.heard = Some(now);
        }
        self.bound_bytes();
    }

    fn bound_bytes(&mut self) {
        let bytes = |q: &Question| q.costs.heap_bytes();
        let mut all: usize = self.questions.values().map(bytes).sum();
        while all > MAX_BYTES {
            let largest = self.questions.values_mut().max_by_key(|q| bytes(q));
            let Some(largest) = largest else { return };
            all -= bytes(largest);
            largest.costs = Costs::default();
            largest.is_too_large = true;
        }
    }
}

fn open(id: u64, key: &Bytes) -> wire::OpenedQuestion {
    wire::OpenedQuestion {
        id,
        // It was encoded here, so it can be decoded.
        question: wire::EndpointCostRequest::decode(key.clone()).ok(),
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
