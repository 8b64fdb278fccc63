//! The provider's side of one stream: the nodes and questions that the caller named, and the costs
//! to ask for again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

use prost::Message;
use tautline_proto::ruleprovider as wire;
use tonic::Status;

use crate::{CostAnswer, CostRequest, NodeCost, cost_changes::Changed};

/// The maximum number of open questions of a stream.
const MAX_QUESTIONS: usize = 512;
/// The maximum number of nodes of a stream.
const MAX_NODES: usize = 100_000;
/// The maximum size of all questions of a stream, in bytes.
const MAX_QUESTION_BYTES: usize = 16 << 20;
/// The maximum length of a node's name, in bytes.
const MAX_NAME_BYTES: usize = 253;
/// The number of nodes that a provider is asked about at once: as many as kube-scheduler asks about
/// in a large cluster.
const CHUNK_NODES: usize = 500;

#[derive(Debug, Default)]
pub(super) struct Questions {
    /// The number of the last message.
    pub(super) through: u64,
    nodes: BTreeMap<u32, String>,
    indexes: HashMap<String, u32>,
    open: BTreeMap<u64, Question>,
    bytes: usize,
    /// The ids of questions beyond the bounds.
    refused: Vec<u64>,
}

#[derive(Debug, Default)]
struct Question {
    request: CostRequest,
    bytes: usize,
    due: Due,
    has_failed: bool,
    /// The hash of the line of each node that the caller has, by index.
    sent: HashMap<u32, u64>,
    /// The resolution, request cost and `per_pod` that the caller has.
    scale: Option<(i64, Option<i64>, bool)>,
}

/// The nodes whose costs are to be sent.
#[derive(Debug, Default)]
enum Due {
    #[default]
    All,
    /// The indexes of some nodes.
    Nodes(BTreeSet<u32>),
}

impl Question {
    /// Records that a node's costs have changed. A caller without lines needs the costs of all
    /// nodes.
    fn add(&mut self, index: u32) {
        let is_per_pod = self.scale.is_some_and(|(_, _, per_pod)| per_pod);
        match &mut self.due {
            Due::Nodes(nodes) if !is_per_pod && !self.has_failed => _ = nodes.insert(index),
            due => *due = Due::All,
        }
    }
}

/// The pods that a message names.
pub(super) struct Pods {
    pub(super) ended: Vec<String>,
    pub(super) placed: Vec<wire::InFlightPod>,
}

impl Questions {
    /// Applies a message of the caller.
    pub(super) fn apply(&mut self, message: wire::CostWatch) -> Result<Pods, Status> {
        if message.sequence <= self.through {
            return Err(Status::invalid_argument(format!(
                "sequence: {} after {}; number the messages 1, 2, 3",
                message.sequence, self.through
            )));
        }
        self.through = message.sequence;
        for index in message.removed_nodes {
            if let Some(name) = self.nodes.remove(&index)
                && self.indexes.get(&name) == Some(&index)
            {
                self.indexes.remove(&name);
            }
            self.open
                .values_mut()
                .for_each(|q| _ = q.sent.remove(&index));
        }
        for wire::IndexedNode { index, name } in message.added_nodes {
            let is_known = self.nodes.contains_key(&index);
            if (self.nodes.len() >= MAX_NODES && !is_known) || name.len() > MAX_NAME_BYTES {
                let what = format!(
                    "addedNodes: more than {MAX_NODES} nodes, or a name longer than {MAX_NAME_BYTES} bytes"
                );
                return Err(Status::resource_exhausted(what));
            }
            self.indexes.insert(name.clone(), index);
            if let Some(before) = self.nodes.insert(index, name) {
                self.indexes
                    .retain(|name, at| *at != index || *name != before);
            }
            self.open.values_mut().for_each(|q| q.add(index));
        }
        for id in message.closed_questions {
            self.close(id);
        }
        for wire::OpenedQuestion { id, question } in message.opened_questions {
            self.close(id);
            let question = question.unwrap_or_default();
            let bytes = question.encoded_len();
            if self.open.len() >= MAX_QUESTIONS || self.bytes + bytes > MAX_QUESTION_BYTES {
                self.refused.push(id);
                continue;
            }
            self.bytes += bytes;
            let question = Question {
                request: question.into(),
                bytes,
                ..Question::default()
            };
            self.open.insert(id, question);
        }
        Ok(Pods {
            ended: message.ended_pods,
            placed: message.placed_pods,
        })
    }

    fn close(&mut self, id: u64) {
        if let Some(question) = self.open.remove(&id) {
            self.bytes -= question.bytes;
        }
    }

    /// Records that costs have changed.
    pub(super) fn change(&mut self, changed: &Changed) {
        for question in self.open.values_mut() {
            match changed {
                Changed::All => question.due = Due::All,
                Changed::Nodes(nodes) => {
                    let known = nodes.iter().filter_map(|name| self.indexes.get(&**name));
                    known.for_each(|index| question.add(*index));
                }
            }
        }
    }

    /// Marks failed questions, so that they are asked again.
    pub(super) fn retry(&mut self) {
        for question in self.open.values_mut().filter(|q| q.has_failed) {
            question.due = Due::All;
        }
    }

    /// Takes the failures of questions beyond the bounds.
    pub(super) fn take_refused(&mut self) -> Vec<wire::QuestionFailure> {
        let refused = std::mem::take(&mut self.refused).into_iter();
        let what = format!(
            "more than {MAX_QUESTIONS} questions, or {MAX_QUESTION_BYTES} bytes of them, are open on this stream"
        );
        let status = Status::resource_exhausted(what);
        refused.map(|id| failure(id, &status)).collect()
    }

    /// Takes the questions whose costs are to be sent, each with its nodes in chunks. They count as
    /// sent.
    pub(super) fn take_due(&mut self) -> Vec<(u64, Vec<CostRequest>)> {
        let mut all = Vec::new();
        for (id, question) in &mut self.open {
            let due = std::mem::replace(&mut question.due, Due::Nodes(BTreeSet::new()));
            let names: Vec<&String> = match &due {
                Due::All => self.nodes.values().collect(),
                Due::Nodes(nodes) if nodes.is_empty() => continue,
                Due::Nodes(nodes) => nodes.iter().filter_map(|i| self.nodes.get(i)).collect(),
            };
            let request = |names: &[&String]| CostRequest {
                eligible_nodes: names.iter().map(|name| (*name).clone()).collect(),
                ..question.request.clone()
            };
            // A question without nodes is asked too: it may be invalid, and the caller waits for
            // its costs.
            let chunks = if names.is_empty() {
                vec![request(&[])]
            } else {
                names.chunks(CHUNK_NODES).map(request).collect()
            };
            all.push((*id, chunks));
        }
        all
    }

    /// Returns the message with the new costs in an answer of the provider about the nodes `asked`,
    /// if any.
    pub(super) fn costs(
        &mut self,
        id: u64,
        asked: &[String],
        answer: &CostAnswer,
    ) -> Option<wire::QuestionCosts> {
        let question = self.open.get_mut(&id)?;
        question.has_failed = false;
        let scale = (answer.resolution, answer.request_cost, answer.per_pod);
        let is_new = question.scale.replace(scale) != Some(scale);
        let mut lines = Vec::new();
        let mut missing: BTreeSet<u32> = BTreeSet::new();
        if !answer.per_pod {
            missing.extend(asked.iter().filter_map(|name| self.indexes.get(name)));
            answer.for_each(|line| {
                if let Some(index) = self.indexes.get(line.node).filter(|i| missing.remove(i)) {
                    lines.push((*index, line));
                }
            });
        }
        // A node that an answer does not name cannot be used.
        let no_cost = NodeCost {
            cost: -1,
            code: "NoCost",
            ..NodeCost::default()
        };
        lines.extend(missing.into_iter().map(|index| (index, no_cost)));
        lines.retain(|(index, line)| {
            let hash = hash_of(line);
            question.sent.insert(*index, hash) != Some(hash)
        });
        if lines.is_empty() && !is_new {
            return None;
        }
        let line = |(index, line): (u32, NodeCost<'_>)| wire::IndexedCost {
            index,
            cost: line.cost,
            reason: line.code.to_owned(),
            detail: line.detail.to_owned(),
            freeable: line.freeable,
            tie_break: line.tie_break,
        };
        Some(wire::QuestionCosts {
            question: id,
            lines: lines.into_iter().map(line).collect(),
            resolution: answer.resolution,
            request_cost: answer.request_cost,
            per_pod: answer.per_pod,
        })
    }

    /// Records that a question failed, and returns the message. Its next costs name all its nodes.
    pub(super) fn failed(&mut self, id: u64, status: &Status) -> wire::QuestionFailure {
        if let Some(question) = self.open.get_mut(&id) {
            question.has_failed = true;
            question.scale = None;
            question.sent.clear();
        }
        failure(id, status)
    }
}

fn hash_of(line: &NodeCost<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let NodeCost {
        node: _,
        cost,
        code,
        detail,
        freeable,
        tie_break,
    } = line;
    (cost, code, detail, freeable, tie_break).hash(&mut hasher);
    hasher.finish()
}

fn failure(question: u64, status: &Status) -> wire::QuestionFailure {
    wire::QuestionFailure {
        question,
        code: status.code().into(),
        message: status.message().to_owned(),
    }
}
