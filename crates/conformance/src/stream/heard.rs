//! Judges what a provider says on a stream by what it was told; pure.

use std::collections::BTreeMap;

use tautline_proto::ruleprovider::{
    CostUpdate, CostWatch, IndexedCost, NodeCost, QuestionCosts, QuestionFailure,
};
use tonic::{Code, Status};

use crate::check::{Verdict, fail};

/// The subject of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A line for an index without a node.
    Indexes,
    /// A line that is neither new nor changed.
    Repeats,
    /// Costs of a question that is not open.
    Questions,
    Through,
}

/// The provider's answers to a question.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub failure: Option<Status>,
    pub per_pod: bool,
    pub resolution: i64,
    pub request_cost: Option<i64>,
    lines: BTreeMap<u32, IndexedCost>,
}

#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The number of the last message.
    pub sequence: u64,
    /// The last message that all costs contain.
    pub through: u64,
    /// The number of updates with such a message.
    pub beats: u64,
    nodes: BTreeMap<u32, String>,
    questions: BTreeMap<u64, Said>,
    /// The number of the message that has removed an index.
    removed: BTreeMap<u32, u64>,
    /// The number of the message that has closed a question.
    closed: BTreeMap<u64, u64>,
    /// The first fault of each subject.
    faults: BTreeMap<Subject, String>,
}

impl Heard {
    /// Numbers a message and notes its content.
    pub(crate) fn tell(&mut self, message: CostWatch) -> CostWatch {
        self.sequence += 1;
        for index in &message.removed_nodes {
            self.nodes.remove(index);
            self.removed.insert(*index, self.sequence);
            let questions = self.questions.values_mut();
            questions.for_each(|said| _ = said.lines.remove(index));
        }
        let added = message.added_nodes.iter();
        self.nodes.extend(added.map(|n| (n.index, n.name.clone())));
        for id in &message.closed_questions {
            self.questions.remove(id);
            self.closed.insert(*id, self.sequence);
        }
        let opened = message.opened_questions.iter();
        self.questions
            .extend(opened.map(|opened| (opened.id, Said::default())));
        CostWatch {
            sequence: self.sequence,
            ..message
        }
    }

    /// Applies an update as the extender does, and notes its faults.
    pub(crate) fn apply(&mut self, update: CostUpdate) {
        for costs in update.costs {
            self.apply_costs(costs);
        }
        for failure in update.failures {
            let QuestionFailure {
                question,
                code,
                message,
            } = failure;
            if let Some(said) = self.open(question) {
                *said = Said {
                    failure: Some(Status::new(Code::from(code), message)),
                    ..Said::default()
                };
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

    fn apply_costs(&mut self, costs: QuestionCosts) {
        let is_gone = |index: &u32| {
            let removed = self.removed.get(index);
            !self.nodes.contains_key(index) && removed.is_none_or(|at| *at <= self.through)
        };
        let mut indexes = costs.lines.iter().map(|line| line.index);
        if let Some(index) = indexes.find(is_gone) {
            let fault = format!("a line for index {index}, which stands for no node");
            self.note(Subject::Indexes, fault);
        }
        let Some(said) = self.open(costs.question) else {
            return;
        };
        said.failure = None;
        said.per_pod = costs.per_pod;
        (said.resolution, said.request_cost) = (costs.resolution, costs.request_cost);
        let mut repeated = None;
        for line in costs.lines {
            if said.lines.get(&line.index) == Some(&line) {
                repeated = Some(line.index);
            }
            said.lines.insert(line.index, line);
        }
        if let Some(index) = repeated {
            let fault = format!("a line for index {index} again that has not changed");
            self.note(Subject::Repeats, fault);
        }
    }

    /// Returns the question if it is open, and notes a fault unless it was until `through`.
    fn open(&mut self, id: u64) -> Option<&mut Said> {
        let closed = self.closed.get(&id);
        if !self.questions.contains_key(&id) && closed.is_none_or(|at| *at <= self.through) {
            let fault = format!("costs of question {id}, which is not open");
            self.note(Subject::Questions, fault);
        }
        self.questions.get_mut(&id)
    }

    fn note(&mut self, subject: Subject, fault: String) {
        self.faults.entry(subject).or_insert(fault);
    }

    /// Fails if there was a fault of the subject.
    pub(crate) fn must_lack(&self, subject: Subject) -> Verdict {
        match self.faults.get(&subject) {
            Some(fault) => fail(format!("seen {fault}")),
            None => Ok(()),
        }
    }

    pub(crate) fn said(&self, id: u64) -> Option<&Said> {
        self.questions.get(&id)
    }

    /// Returns the names of all nodes.
    pub(crate) fn nodes(&self) -> Vec<String> {
        self.nodes.values().cloned().collect()
    }

    /// Returns the lines of a question, as in EndpointCost.
    pub(crate) fn lines(&self, id: u64) -> Vec<NodeCost> {
        let lines = self.questions.get(&id).map(|said| &said.lines);
        let lines = lines.into_iter().flat_map(BTreeMap::values).cloned();
        let named = lines.filter_map(|line| {
            Some(NodeCost {
                node: self.nodes.get(&line.index)?.clone(),
                cost: line.cost,
                reason: line.reason,
                detail: line.detail,
                freeable: line.freeable,
                tie_break: line.tie_break,
            })
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use tautline_proto::ruleprovider::{IndexedNode, OpenedQuestion};

    use super::*;

    const ALL: [Subject; 4] = [
        Subject::Indexes,
        Subject::Repeats,
        Subject::Questions,
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
        assert_eq!(late, [Subject::Indexes, Subject::Questions]);
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
        assert_eq!(heard.must_lack(Subject::Repeats), Ok(()));
        heard.apply(update(7, 3, 1, 0));
        assert!(heard.must_lack(Subject::Repeats).is_err());
        assert_eq!((heard.through, heard.beats), (0, 0));
    }
}
