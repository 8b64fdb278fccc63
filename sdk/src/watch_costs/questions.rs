//! The provider's side of one stream: the nodes and questions that the caller named, and the costs
//! to ask for again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use prost::Message;
use tautline_proto::ruleprovider as wire;
use tonic::Status;

use crate::{CostAnswer, CostRequest, NodeCost};

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
    /// The failures of questions beyond the bounds.
    pub(super) refused: Vec<wire::QuestionFailure>,
    nodes: BTreeMap<u32, String>,
    indexes: HashMap<String, u32>,
    open: BTreeMap<u64, Question>,
}

#[derive(Debug, Default)]
struct Question {
    request: CostRequest,
    bytes: usize,
    /// The nodes whose costs are to be sent, by index; `None` means all.
    due: Option<BTreeSet<u32>>,
    /// The hash of the line of each node that the caller has, by index.
    sent: HashMap<u32, u64>,
    /// The resolution, request cost and `per_pod` that the caller has; `None` if the question is
    /// new or has failed.
    scale: Option<(i64, Option<i64>, bool)>,
}

impl Question {
    /// Records that a node's costs have changed. A caller without lines needs the costs of all
    /// nodes.
    fn add(&mut self, index: u32) {
        let has_lines = self.scale.is_some_and(|(_, _, per_pod)| !per_pod);
        match &mut self.due {
            Some(nodes) if has_lines => _ = nodes.insert(index),
            due => *due = None,
        }
    }
}

impl Questions {
    /// Applies a message of the caller, except for its pods.
    pub(super) fn apply(&mut self, message: wire::CostWatch) -> Result<(), Status> {
        if message.sequence <= self.through {
            return Err(Status::invalid_argument(format!(
                "sequence: {} after {}; number the messages 1, 2, 3",
                message.sequence, self.through
            )));
        }
        self.through = message.sequence;
        for index in message.removed_nodes {
            self.remove_node(index);
        }
        for wire::IndexedNode { index, name } in message.added_nodes {
            self.remove_node(index);
            if self.nodes.len() >= MAX_NODES || name.len() > MAX_NAME_BYTES {
                let what = format!(
                    "addedNodes: more than {MAX_NODES} nodes, or a name longer than {MAX_NAME_BYTES} bytes"
                );
                return Err(Status::resource_exhausted(what));
            }
            self.indexes.insert(name.clone(), index);
            self.nodes.insert(index, name);
            self.open.values_mut().for_each(|q| q.add(index));
        }
        for id in message.closed_questions {
            self.open.remove(&id);
        }
        for wire::OpenedQuestion { id, question } in message.opened_questions {
            self.open.remove(&id);
            let question = question.unwrap_or_default();
            let bytes = question.encoded_len();
            let all_bytes = self.open.values().map(|q| q.bytes).sum::<usize>() + bytes;
            if self.open.len() >= MAX_QUESTIONS || all_bytes > MAX_QUESTION_BYTES {
                let what = format!(
                    "more than {MAX_QUESTIONS} questions, or {MAX_QUESTION_BYTES} bytes of them, are open on this stream"
                );
                let status = Status::resource_exhausted(what);
                self.refused.push(failure(id, &status));
                continue;
            }
            let question = Question {
                request: question.into(),
                bytes,
                ..Question::default()
            };
            self.open.insert(id, question);
        }
        Ok(())
    }

    fn remove_node(&mut self, index: u32) {
        let Some(name) = self.nodes.remove(&index) else {
            return;
        };
        // The name may have another index by now.
        if self.indexes.get(&name) == Some(&index) {
            self.indexes.remove(&name);
        }
        for question in self.open.values_mut() {
            question.sent.remove(&index);
        }
    }

    /// Records that the costs of nodes have changed; `None` means all.
    pub(super) fn change(&mut self, changed: Option<&BTreeSet<Arc<str>>>) {
        for question in self.open.values_mut() {
            match changed {
                None => question.due = None,
                Some(nodes) => {
                    let known = nodes.iter().filter_map(|name| self.indexes.get(&**name));
                    known.for_each(|index| question.add(*index));
                }
            }
        }
    }

    /// Marks failed questions, so that they are asked again.
    pub(super) fn retry(&mut self) {
        for question in self.open.values_mut().filter(|q| q.scale.is_none()) {
            question.due = None;
        }
    }

    /// Takes the next nodes whose costs are to be sent: the id of their question, their indexes, and
    /// the request to the provider. They count as sent.
    pub(super) fn next_due(&mut self) -> Option<(u64, Vec<u32>, CostRequest)> {
        let is_due = |question: &Question| question.due.as_ref().is_none_or(|due| !due.is_empty());
        let (id, question) = self.open.iter_mut().find(|(_, q)| is_due(q))?;
        // A new question without nodes is asked too: it may be invalid, and the caller waits for
        // its costs.
        let all = || self.nodes.keys().copied().collect();
        let mut due = question.due.take().unwrap_or_else(all);
        let rest = due.iter().nth(CHUNK_NODES).copied();
        question.due = Some(rest.map_or_else(BTreeSet::new, |rest| due.split_off(&rest)));
        let named = |index| Some((index, self.nodes.get(&index)?.clone()));
        let (nodes, eligible_nodes) = due.into_iter().filter_map(named).unzip();
        let request = CostRequest {
            eligible_nodes,
            ..question.request.clone()
        };
        Some((*id, nodes, request))
    }

    /// Returns the message with the new costs in an answer of the provider about the nodes `asked`,
    /// if any.
    pub(super) fn costs(
        &mut self,
        id: u64,
        asked: &[u32],
        answer: &CostAnswer,
    ) -> Option<wire::QuestionCosts> {
        // A node that an answer does not name cannot be used.
        const NO_COST: NodeCost<'_> = NodeCost {
            node: "",
            cost: -1,
            code: "NoCost",
            detail: "",
            freeable: false,
            tie_break: 0,
        };
        let question = self.open.get_mut(&id)?;
        let scale = (answer.resolution, answer.request_cost, answer.per_pod);
        let is_new = question.scale.replace(scale) != Some(scale);
        let mut costs = BTreeMap::new();
        if answer.per_pod {
            question.due = Some(BTreeSet::new());
        } else {
            costs.extend(asked.iter().map(|index| (*index, NO_COST)));
            answer.for_each(|line| {
                let index = self.indexes.get(line.node);
                let cost = index.and_then(|index| costs.get_mut(index));
                // The first line counts.
                if let Some(cost) = cost.filter(|cost| cost.node.is_empty()) {
                    *cost = line;
                }
            });
        }
        costs.retain(|index, line| {
            let mut hasher = DefaultHasher::new();
            (line.cost, line.tie_break, line.freeable).hash(&mut hasher);
            (line.code, line.detail).hash(&mut hasher);
            let hash = hasher.finish();
            question.sent.insert(*index, hash) != Some(hash)
        });
        if costs.is_empty() && !is_new {
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
            lines: costs.into_iter().map(line).collect(),
            resolution: answer.resolution,
            request_cost: answer.request_cost,
            per_pod: answer.per_pod,
        })
    }

    /// Records that a question failed, and returns the message. Its next costs name all its nodes.
    pub(super) fn failed(&mut self, id: u64, status: &Status) -> wire::QuestionFailure {
        if let Some(question) = self.open.get_mut(&id) {
            question.due = Some(BTreeSet::new());
            question.scale = None;
            question.sent.clear();
        }
        failure(id, status)
    }
}

fn failure(question: u64, status: &Status) -> wire::QuestionFailure {
    wire::QuestionFailure {
        question,
        code: status.code().into(),
        message: status.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(nodes: u32, questions: u64) -> Questions {
        let added_nodes = (0..nodes).map(|index| wire::IndexedNode {
            index,
            name: format!("n{index}"),
        });
        let opened_questions = (0..questions).map(|id| wire::OpenedQuestion { id, question: None });
        let mut all = Questions::default();
        let message = wire::CostWatch {
            sequence: 1,
            added_nodes: added_nodes.collect(),
            opened_questions: opened_questions.collect(),
            ..wire::CostWatch::default()
        };
        all.apply(message).unwrap();
        all
    }

    fn answer(request: &CostRequest, cost: i64) -> CostAnswer {
        let nodes = request.eligible_nodes.iter();
        nodes.map(|node| (node, cost)).collect()
    }

    #[test]
    fn next_due_gives_all_nodes_in_chunks() {
        let mut all = opened(1200, 2);
        for id in 0..2 {
            for expected in [500, 500, 200] {
                let (of, nodes, request) = all.next_due().unwrap();
                assert_eq!((of, nodes.len()), (id, expected));
                assert_eq!(request.eligible_nodes[0], format!("n{}", nodes[0]));
                let costs = all.costs(id, &nodes, &answer(&request, 1)).unwrap();
                assert_eq!(costs.lines.len(), expected);
            }
        }
        assert!(all.next_due().is_none());
        all.change(Some(&["n7".into(), "unknown".into()].into()));
        let (id, nodes, request) = all.next_due().unwrap();
        assert_eq!((id, &nodes[..]), (0, &[7][..]));
        assert_eq!(
            all.costs(id, &nodes, &answer(&request, 1)),
            None,
            "the same"
        );
        let (id, nodes, request) = all.next_due().unwrap();
        let changed = all.costs(id, &nodes, &answer(&request, 2)).unwrap();
        assert_eq!((id, changed.lines.len()), (1, 1));
        assert!(all.next_due().is_none());
    }

    #[test]
    fn next_due_asks_about_a_question_without_nodes() {
        let mut all = opened(0, 1);
        let (id, nodes, request) = all.next_due().unwrap();
        assert!(nodes.is_empty());
        assert!(all.costs(id, &nodes, &answer(&request, 1)).is_some());
        assert!(all.next_due().is_none());
    }

    #[test]
    fn failed_question_is_asked_again_about_all_nodes() {
        let mut all = opened(600, 1);
        let (id, ..) = all.next_due().unwrap();
        all.failed(id, &Status::internal("broken"));
        assert!(all.next_due().is_none(), "the other chunk waits, too");
        all.retry();
        for expected in [500, 100] {
            let (id, nodes, request) = all.next_due().unwrap();
            assert_eq!(nodes.len(), expected);
            all.costs(id, &nodes, &answer(&request, 1)).unwrap();
        }
        all.retry();
        assert!(all.next_due().is_none());
    }

    #[test]
    fn costs_per_pod_have_no_lines() {
        let mut all = opened(600, 1);
        let (id, nodes, request) = all.next_due().unwrap();
        let mut per_pod = answer(&request, 1);
        per_pod.per_pod = true;
        let costs = all.costs(id, &nodes, &per_pod).unwrap();
        assert!(costs.per_pod && costs.lines.is_empty());
        assert!(all.next_due().is_none());
        all.change(Some(&["n7".into()].into()));
        let (_, nodes, _) = all.next_due().unwrap();
        assert_eq!(
            nodes.len(),
            500,
            "if costs no longer depend on the pod, all are needed"
        );
    }

    #[test]
    fn costs_takes_the_first_line_of_a_node() {
        let mut all = opened(2, 1);
        let (id, nodes, _) = all.next_due().unwrap();
        let twice = [("n1", 4), ("n1", 5), ("other", 6)].into_iter().collect();
        let costs = all.costs(id, &nodes, &twice).unwrap();
        let lines: Vec<_> = costs.lines.iter().map(|l| (l.index, l.cost)).collect();
        assert_eq!(lines, [(0, -1), (1, 4)]);
    }
}
