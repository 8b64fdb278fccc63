//! WatchCosts: asks the fake again and again, and sends what has changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use tautline_proto::ruleprovider::{
    CostUpdate, CostWatch, EndpointCostRequest, EndpointCostResponse, IndexedCost, QuestionCosts,
    QuestionFailure,
};
use tokio::{sync::mpsc, time::interval};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Fake, Fault};

const TICK: Duration = Duration::from_millis(20);
const BEAT: Duration = Duration::from_millis(200);
/// The time by which a late change comes after its `through`.
const LATE: Duration = Duration::from_millis(100);

pub(super) fn start(
    fake: &Fake,
    messages: Streaming<CostWatch>,
) -> ReceiverStream<Result<CostUpdate, Status>> {
    let (out, updates) = mpsc::channel(1);
    let stream = Stream {
        fake: fake.clone(),
        out,
        through: 0,
        nodes: BTreeMap::new(),
        questions: BTreeMap::new(),
        sent: BTreeMap::new(),
        failed: BTreeSet::new(),
    };
    tokio::spawn(async move {
        let out = stream.out.clone();
        if let Err(status) = stream.run(messages).await {
            _ = out.send(Err(status)).await;
        }
    });
    ReceiverStream::new(updates)
}

struct Stream {
    fake: Fake,
    out: mpsc::Sender<Result<CostUpdate, Status>>,
    through: u64,
    nodes: BTreeMap<u32, String>,
    questions: BTreeMap<u64, EndpointCostRequest>,
    /// The lines of each question, by index.
    sent: BTreeMap<(u64, u32), IndexedCost>,
    failed: BTreeSet<u64>,
}

impl Stream {
    /// Ends without an error when the caller has gone.
    async fn run(mut self, mut messages: Streaming<CostWatch>) -> Result<(), Status> {
        let (mut ticks, mut last) = (interval(TICK), Instant::now());
        while !self.out.is_closed() {
            let mut is_answer = false;
            tokio::select! {
                message = messages.message() => {
                    let Some(message) = message? else { return Ok(()) };
                    self.apply(message).await;
                    is_answer = true;
                }
                _ = ticks.tick() => {}
            }
            let mut update = self.update().await?;
            let is_beat = last.elapsed() >= BEAT && self.fake.fault != Fault::SilentWithoutChanges;
            let is_news = !update.costs.is_empty() || !update.failures.is_empty();
            if is_answer || is_beat || is_news {
                update.through = match self.fake.fault {
                    Fault::ThroughIsAhead if !is_answer => self.through + 1,
                    Fault::ThroughGoesBack if !is_answer => self.through - 1,
                    _ => self.through,
                };
                last = Instant::now();
                self.send(update).await;
            }
        }
        Ok(())
    }

    async fn send(&self, update: CostUpdate) {
        // A caller that has gone ends the stream.
        _ = self.out.send(Ok(update)).await;
    }

    async fn apply(&mut self, message: CostWatch) {
        let is_late = match self.fake.fault {
            Fault::AddedNodesAreLate => !message.added_nodes.is_empty(),
            Fault::PlacedPodsAreLate => !message.placed_pods.is_empty(),
            _ => false,
        };
        self.through = message.sequence;
        if is_late && self.through > 1 {
            self.send(CostUpdate {
                through: self.through,
                ..CostUpdate::default()
            })
            .await;
            tokio::time::sleep(LATE).await;
        }
        let added = message.added_nodes.into_iter();
        let mut added: Vec<_> = added.map(|node| (node.index, node.name)).collect();
        if self.fake.fault == Fault::AddsBeforeItRemoves {
            self.nodes.extend(std::mem::take(&mut added));
        }
        if self.fake.fault != Fault::KeepsRemovedNodes {
            for index in message.removed_nodes {
                self.nodes.remove(&index);
                self.sent.retain(|(_, at), _| *at != index);
            }
        }
        self.nodes.extend(added);
        {
            let mut state = self.fake.state.lock().unwrap();
            if self.fake.fault != Fault::ForgetsEndedPods {
                let ended = message.ended_pods.iter();
                ended.for_each(|uid| _ = state.placed.remove(uid));
            }
            let placed = message.placed_pods.into_iter();
            let placed = placed.map(|pod| (pod.workload.unwrap_or_default().uid, pod.node));
            state.placed.extend(placed);
        }
        if self.fake.fault != Fault::KeepsClosedQuestions {
            let closed = message.closed_questions.iter();
            closed.for_each(|id| _ = self.questions.remove(id));
        }
        let opened = message.opened_questions.into_iter();
        self.questions
            .extend(opened.map(|opened| (opened.id, opened.question.unwrap_or_default())));
    }

    /// What is new.
    async fn update(&mut self) -> Result<CostUpdate, Status> {
        let mut update = CostUpdate::default();
        for (id, question) in self.questions.clone() {
            let question = EndpointCostRequest {
                eligible_nodes: self.nodes.values().cloned().collect(),
                ..question
            };
            let answer = match self.fake.fault {
                Fault::StreamFails => Err(Status::internal("no column")),
                _ => self.fake.answer(question).await,
            };
            match answer {
                Ok(answer) => update.costs.extend(self.costs(id, &answer)),
                Err(status) if self.fake.fault == Fault::EndsForBadRules => return Err(status),
                Err(status) => {
                    if self.failed.insert(id) {
                        update.failures.push(QuestionFailure {
                            question: id,
                            code: status.code().into(),
                            message: status.message().into(),
                        });
                    }
                    self.sent.retain(|(of, _), _| *of != id);
                }
            }
        }
        Ok(update)
    }

    fn costs(&mut self, id: u64, answer: &EndpointCostResponse) -> Option<QuestionCosts> {
        self.failed.remove(&id);
        let mut lines = Vec::new();
        for (index, name) in &self.nodes {
            let line = answer.node_and_cost.iter().find(|line| line.node == *name);
            let Some(line) = line.filter(|_| !self.lacks(name)) else {
                continue;
            };
            let line = IndexedCost {
                index: *index,
                cost: match self.fake.fault {
                    Fault::StreamHasOtherCosts if line.cost >= 0 => line.cost + 1,
                    _ => line.cost,
                },
                reason: line.reason.clone(),
                detail: line.detail.clone(),
                freeable: line.freeable,
                tie_break: line.tie_break,
            };
            if self.sent.insert((id, *index), line.clone()).as_ref() != Some(&line) {
                lines.push(line);
            }
        }
        if lines.is_empty() {
            return None;
        }
        match self.fake.fault {
            Fault::StreamRepeatsLines => lines.extend(lines.clone()),
            Fault::StreamHasUnknownIndexes => lines.push(IndexedCost::default()),
            _ => {}
        }
        Some(QuestionCosts {
            question: id,
            lines,
            ..QuestionCosts::default()
        })
    }

    fn lacks(&self, name: &str) -> bool {
        self.fake.fault == Fault::StreamLacksANode && name == "n2"
    }
}
