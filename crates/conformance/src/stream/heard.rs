//! Judges the updates of a stream by the messages that the provider was sent. Does no I/O.

use std::collections::BTreeMap;

use tautline_proto::ruleprovider::{CostUpdate, CostWatch, IndexedCost, NodeCost, QuestionCosts};
use tonic::{Code, Status};

use crate::failure::{Verdict, fail};

/// The part of an update that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A line names an index that no node has.
    UnknownIndex,
    /// A line repeats what was sent before.
    SameLine,
    /// The update has costs of a question that is not open.
    ClosedQuestion,
    /// `through` goes back, or names a message that was not sent.
    Through,
}

/// The state of a stream by its messages and updates, and the faults of the updates.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The number of the last message to the provider.
    pub sequence: u64,
    /// The number of the last message that all sent costs take into account.
    pub through: u64,
    /// The number of updates that had a `through`.
    pub beats: u64,
    nodes: BTreeMap<u32, String>,
    /// The last costs of each open question, without their lines, or its failure.
    questions: BTreeMap<u64, Result<QuestionCosts, Status>>,
    /// The lines, by question and index.
    lines: BTreeMap<(u64, u32), IndexedCost>,
    /// The number of the message that removed each index.
    removed: BTreeMap<u32, u64>,
    /// The number of the message that closed each question.
    closed: BTreeMap<u64, u64>,
    /// The first fault of each subject.
    faults: BTreeMap<Subject, String>,
}

impl Heard {
    /// Numbers a message to the provider, and notes its content.
    pub(crate) fn tell(&mut self, mut message: CostWatch) -> CostWatch {
        self.sequence += 1;
        message.sequence = self.sequence;
        for index in &message.removed_nodes {
            self.nodes.remove(index);
            self.removed.insert(*index, self.sequence);
            self.lines.retain(|(_, of), _| of != index);
        }
        for node in &message.added_nodes {
            self.nodes.insert(node.index, node.name.clone());
        }
        for id in &message.closed_questions {
            self.questions.remove(id);
            self.closed.insert(*id, self.sequence);
        }
        for opened in &message.opened_questions {
            self.lines.retain(|(of, _), _| *of != opened.id);
            self.questions
                .insert(opened.id, Ok(QuestionCosts::default()));
        }
        message
    }

    /// Applies an update as the extender does, and notes its faults.
    pub(crate) fn apply(&mut self, update: CostUpdate) {
        for costs in update.costs {
            self.apply_costs(costs);
        }
        for failure in update.failures {
            if let Some(said) = self.open(failure.question) {
                *said = Err(Status::new(Code::from(failure.code), failure.message));
                self.lines.retain(|(of, _), _| *of != failure.question);
            }
        }
        let (through, last, before) = (update.through, self.sequence, self.through);
        if through > last {
            let fault = format!("through {through} after {last} messages; expected at most {last}");
            self.note(Subject::Through, fault);
        } else if through > 0 {
            self.through = before.max(through);
            self.beats += 1;
            if through < before {
                let fault = format!("through {through} after {before}; expected at least {before}");
                self.note(Subject::Through, fault);
            }
        }
    }

    fn apply_costs(&mut self, mut costs: QuestionCosts) {
        let (id, lines) = (costs.question, std::mem::take(&mut costs.lines));
        let is_gone = |index: &u32| {
            let removed = self.removed.get(index);
            !self.nodes.contains_key(index) && removed.is_none_or(|at| *at <= self.through)
        };
        if let Some(index) = lines.iter().map(|line| line.index).find(is_gone) {
            let fault = format!("a line for index {index}, which stands for no node");
            self.note(Subject::UnknownIndex, fault);
        }
        let Some(said) = self.open(id) else {
            return;
        };
        *said = Ok(costs);
        let mut repeated = None;
        for line in lines {
            let before = self.lines.insert((id, line.index), line.clone());
            repeated = before.filter(|before| *before == line).or(repeated);
        }
        if let Some(IndexedCost { index, .. }) = repeated {
            let fault = format!("a line for index {index} again that has not changed");
            self.note(Subject::SameLine, fault);
        }
    }

    /// Returns the question if it is open. Otherwise notes a fault, unless `through` has not
    /// reached the message that closed the question.
    fn open(&mut self, id: u64) -> Option<&mut Result<QuestionCosts, Status>> {
        let closed = self.closed.get(&id);
        if !self.questions.contains_key(&id) && closed.is_none_or(|at| *at <= self.through) {
            let fault = format!("costs of question {id}, which is not open");
            self.note(Subject::ClosedQuestion, fault);
        }
        self.questions.get_mut(&id)
    }

    fn note(&mut self, subject: Subject, fault: String) {
        self.faults.entry(subject).or_insert(fault);
    }

    /// Fails if there was a fault of the subject.
    pub(crate) fn must_lack(&self, subject: Subject) -> Verdict {
        let fault = self.faults.get(&subject);
        fault.map_or(Ok(()), |fault| fail(format!("seen {fault}")))
    }

    pub(crate) fn said(&self, id: u64) -> Option<&Result<QuestionCosts, Status>> {
        self.questions.get(&id)
    }

    pub(crate) fn nodes(&self) -> Vec<String> {
        self.nodes.values().cloned().collect()
    }

    /// Returns the lines of an open question, as in EndpointCost.
    pub(crate) fn lines(&self, id: u64) -> Vec<NodeCost> {
        let lines = self.lines.range((id, 0)..=(id, u32::MAX));
        let named = lines.filter_map(|((_, index), line)| {
            Some(NodeCost {
                node: self.nodes.get(index)?.clone(),
                cost: line.cost,
                reason: line.reason.clone(),
                detail: line.detail.clone(),
                freeable: line.freeable,
                tie_break: line.tie_break,
            })
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use tautline_proto::ruleprovider::{IndexedNode, OpenedQuestion, QuestionFailure};

    use super::*;

    const ALL: [Subject; 4] = [
        Subject::UnknownIndex,
        Subject::SameLine,
        Subject::ClosedQuestion,
        Subject::Through,
    ];

    fn message() -> CostWatch {
        CostWatch {
            added_nodes: vec![IndexedNode {
                index: 3,
                name: "a".into(),
            }],
            opened_questions: vec![OpenedQuestion {
                id: 7,
                question: None,
            }],
            ..CostWatch::default()
        }
    }

    fn update(question: u64, index: u32, cost: i64, through: u64) -> CostUpdate {
        let line = IndexedCost {
            index,
            cost,
            ..IndexedCost::default()
        };
        CostUpdate {
            costs: vec![QuestionCosts {
                question,
                lines: vec![line],
                ..QuestionCosts::default()
            }],
            through,
            ..CostUpdate::default()
        }
    }

    fn faults(updates: &[CostUpdate]) -> Vec<Subject> {
        let mut heard = Heard::default();
        heard.tell(message());
        heard.apply(update(7, 3, 1, 1));
        heard.tell(CostWatch {
            removed_nodes: vec![3],
            closed_questions: vec![7],
            ..CostWatch::default()
        });
        updates.iter().cloned().for_each(|u| heard.apply(u));
        let is_fault = |subject: &Subject| heard.must_lack(*subject).is_err();
        ALL.into_iter().filter(is_fault).collect()
    }

    #[test]
    fn what_is_on_its_way_is_no_fault() {
        assert_eq!(faults(&[update(7, 3, 2, 1), update(7, 3, 3, 2)]), []);
        let late = faults(&[update(7, 3, 2, 2), update(7, 3, 3, 0)]);
        assert_eq!(late, [Subject::UnknownIndex, Subject::ClosedQuestion]);
        assert_eq!(faults(&[update(7, 3, 2, 3)]), [Subject::Through]);
        let back = [
            update(7, 3, 2, 2),
            CostUpdate {
                through: 1,
                ..CostUpdate::default()
            },
        ];
        assert_eq!(faults(&back), [Subject::Through]);
    }

    #[test]
    fn lines_count_until_a_failure() {
        let mut heard = Heard::default();
        heard.tell(message());
        heard.apply(update(7, 3, 1, 0));
        assert_eq!(heard.lines(7)[0].node, "a");
        heard.apply(CostUpdate {
            failures: vec![QuestionFailure {
                question: 7,
                code: 3,
                message: "write 5ms".into(),
            }],
            ..CostUpdate::default()
        });
        assert_eq!(heard.lines(7), []);
        heard.apply(update(7, 3, 1, 0));
        assert_eq!(heard.must_lack(Subject::SameLine), Ok(()));
        heard.apply(update(7, 3, 1, 0));
        assert!(heard.must_lack(Subject::SameLine).is_err());
        assert_eq!((heard.through, heard.beats), (0, 0));
    }
}
