//! A stream of WatchCosts, as the extender uses it.

mod heard;

use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use tautline_proto::ruleprovider::{
    CostUpdate, CostWatch, EndpointCostResponse, IndexedNode, OpenedQuestion,
};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Code, Streaming};

use self::heard::Heard;
pub(crate) use self::heard::Subject;
use crate::{
    failure::{Answer, Answered, CallFailure, GONE, Verdict, skip, wrong},
    lines::{Completeness, difference, names},
    questions::{Question, for_all_pods},
    session::Session,
};

/// The id of the question with which a stream opens.
pub(crate) const FIRST_ID: u64 = 7;
/// The maximum number of attempts to compare while figures change.
const MAX_ATTEMPTS: usize = 8;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(300);
const STAYS_OPEN: &str = "it to stay open";

pub(crate) struct CostStream<'a> {
    pub session: &'a Session,
    pub heard: Heard,
    out: UnboundedSender<CostWatch>,
    updates: Streaming<CostUpdate>,
}

impl<'a> CostStream<'a> {
    /// Opens a stream about the nodes with the plain question, and waits for its costs.
    pub(crate) async fn open(session: &'a Session, nodes: Vec<IndexedNode>) -> Verdict<Self> {
        let ((out, messages), mut heard) = (unbounded(), Heard::default());
        let first = CostWatch {
            added_nodes: nodes,
            opened_questions: vec![opened(FIRST_ID, for_all_pods(session.questions.plain()))],
            ..CostWatch::default()
        };
        // The message precedes the call, because some servers open a stream with their first
        // update.
        _ = out.unbounded_send(heard.tell(first));
        let (mut client, patience) = (session.provider(), session.config.patience);
        // The call carries no deadline, because that would end the stream.
        let call = async {
            let opened = timeout(patience, client.watch_costs(messages)).await;
            let opened = opened.map_err(|_| CallFailure::NoAnswer(patience))?;
            Ok(opened?.into_inner())
        };
        let updates = match session.unless_gone(call).await {
            Ok(updates) => updates,
            Err(failure) => return ended(failure, &heard),
        };
        let mut stream = Self {
            session,
            heard,
            out,
            updates,
        };
        stream.settle().await?;
        Ok(stream)
    }

    pub(crate) fn send(&mut self, fill: impl FnOnce(&mut CostWatch)) {
        let mut message = CostWatch::default();
        fill(&mut message);
        // The send fails only if the stream has ended, which the next read reports.
        _ = self.out.unbounded_send(self.heard.tell(message));
    }

    pub(crate) fn send_question(&mut self, id: u64, question: &Question) {
        self.send(|m| m.opened_questions.push(opened(id, question.clone())));
    }

    /// Waits until `through` reaches the last message.
    pub(crate) async fn settle(&mut self) -> Verdict {
        let patience = self.session.config.patience;
        let end = Instant::now() + patience;
        while self.heard.through < self.heard.sequence {
            if !self.next(end).await? {
                let subject = format!("message {}", self.heard.sequence);
                let seen = format!("no through of it within {patience:?}");
                return wrong(&subject, seen, "one");
            }
        }
        Ok(())
    }

    /// Sends a message, and waits until `through` reaches it.
    pub(crate) async fn tell(&mut self, fill: impl FnOnce(&mut CostWatch)) -> Verdict {
        self.send(fill);
        self.settle().await
    }

    /// Opens a question, and waits for its costs.
    pub(crate) async fn ask(&mut self, id: u64, question: &Question) -> Verdict {
        self.send_question(id, question);
        self.settle().await
    }

    /// Applies the updates that come within a time.
    pub(crate) async fn listen(&mut self, time: Duration) -> Verdict {
        let end = Instant::now() + time;
        while self.next(end).await? {}
        Ok(())
    }

    /// Returns whether a `through` comes within a time.
    pub(crate) async fn beats_within(&mut self, time: Duration) -> Verdict<bool> {
        let (end, before) = (Instant::now() + time, self.heard.beats);
        while self.heard.beats == before {
            if !self.next(end).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fails if the costs of a question lack a node.
    pub(crate) fn must_be_complete(&self, id: u64) -> Verdict {
        let (nodes, lines) = (self.heard.nodes(), self.heard.lines(id));
        let missing = Completeness::of(&nodes, &lines).missing;
        match self.heard.said(id) {
            Some(Ok(costs)) if costs.per_pod => Ok(()),
            Some(Err(_)) => Ok(()),
            _ if missing.is_empty() => Ok(()),
            _ => {
                let subject = format!("message {}", self.heard.sequence);
                let seen = format!("through without a line for {}", names(&missing));
                let expected = format!("one for each of the {} nodes", nodes.len());
                wrong(&subject, seen, expected)
            }
        }
    }

    /// Requires that the stream's costs become those of EndpointCost for the question.
    pub(crate) async fn must_agree(&mut self, what: &str, id: u64, question: &Question) -> Verdict {
        let (mut last, mut seen) = (None, None);
        for _ in 0..MAX_ATTEMPTS {
            let answer = self.session.ask(question.clone()).await;
            if let Err(failure @ (CallFailure::NotAsked | CallFailure::Broken(_))) = answer {
                return Err(failure).answered(what);
            }
            let Some(difference) = self.disagreement(id, &answer) else {
                return Ok(());
            };
            // If the answer has changed, the stream's update may still be on its way.
            if last.is_some_and(|last| is_same(&last, &answer)) {
                seen = Some(difference);
            }
            last = Some(answer);
            self.listen(ATTEMPT_PAUSE).await?;
        }
        let Some(seen) = seen else {
            return skip("the costs changed between all calls");
        };
        wrong(what, format!("{seen} on the stream"), "the same")
    }

    /// Describes an answer of EndpointCost, then the stream, if they differ.
    fn disagreement(&self, id: u64, answer: &Answer<EndpointCostResponse>) -> Option<String> {
        let (before, after) = match (answer, self.heard.said(id)?) {
            (_, Ok(costs)) if costs.per_pod => return None,
            (Ok(answer), Ok(costs)) => {
                let lines = self.heard.lines(id);
                let before = scale(answer.resolution, answer.request_cost);
                let after = scale(costs.resolution, costs.request_cost);
                // An answer for some of the nodes may have another scale.
                if answer.node_and_cost.len() != lines.len() || before == after {
                    return difference(&answer.node_and_cost, &lines);
                }
                (before, after)
            }
            (Err(failure), Err(status)) if failure.is(&[status.code()]) => return None,
            (answer, of_stream) => {
                let of_stream = of_stream.as_ref().map_err(|s| s.clone().into());
                (kind(answer.as_ref().err()), kind(of_stream.err().as_ref()))
            }
        };
        Some(format!("{before}, then {after}"))
    }

    /// Applies the next update. Returns false if no update comes until `end`.
    async fn next(&mut self, end: Instant) -> Verdict<bool> {
        let updates = &mut self.updates;
        let next = async {
            match timeout_at(end, updates.message()).await {
                Ok(update) => Ok(Some(update?)),
                Err(_) => Ok(None),
            }
        };
        match self.session.unless_gone(next).await {
            Ok(Some(Some(update))) => self.heard.apply(update),
            Ok(Some(None)) => return wrong("the stream", "its end", STAYS_OPEN),
            Ok(None) => return Ok(false),
            Err(failure) => return ended(failure, &self.heard),
        }
        Ok(true)
    }
}

fn ended<T>(failure: CallFailure, heard: &Heard) -> Verdict<T> {
    if matches!(failure, CallFailure::NotAsked) {
        return skip(GONE);
    }
    if failure.is(&[Code::Unimplemented]) && heard.beats == 0 {
        return skip("no WatchCosts: callers ask with EndpointCost");
    }
    wrong("the stream", failure, STAYS_OPEN)
}

fn opened(id: u64, mut question: Question) -> OpenedQuestion {
    // A question of a stream is about all its nodes.
    question.eligible_nodes.clear();
    let question = Some(question);
    OpenedQuestion { id, question }
}

/// Gives nodes indexes that neither start at 0 nor follow each other.
pub(crate) fn indexed(nodes: &[String]) -> Vec<IndexedNode> {
    let indexed = (3..).step_by(2).zip(nodes.iter().cloned());
    indexed
        .map(|(index, name)| IndexedNode { index, name })
        .collect()
}

fn is_same(last: &Answer<EndpointCostResponse>, next: &Answer<EndpointCostResponse>) -> bool {
    match (last, next) {
        (Ok(last), Ok(next)) => difference(&last.node_and_cost, &next.node_and_cost).is_none(),
        (Err(last), Err(next)) => last.code() == next.code(),
        _ => false,
    }
}

fn kind(failure: Option<&CallFailure>) -> String {
    failure.map_or("costs".into(), ToString::to_string)
}

fn scale(resolution: i64, request_cost: Option<i64>) -> String {
    let request_cost = request_cost.map_or("none".into(), |cost| cost.to_string());
    format!("resolution {resolution} and requestCost {request_cost}")
}
