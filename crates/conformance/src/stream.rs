//! A stream of WatchCosts, as the extender uses it.

mod heard;

use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use tautline_proto::ruleprovider::{
    CostUpdate, CostWatch, EndpointCostRequest, IndexedNode, OpenedQuestion,
};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Streaming};

pub(crate) use self::heard::{Heard, Subject};
use crate::{
    check::{Finding, Verdict, fail},
    failure::{CallFailure, GONE},
    session::Session,
    wire::failure,
};

const NO_STREAM: &str = "no WatchCosts: callers ask with EndpointCost";

pub(crate) struct CostStream<'a> {
    session: &'a Session,
    out: UnboundedSender<CostWatch>,
    updates: Streaming<CostUpdate>,
    pub heard: Heard,
}

impl<'a> CostStream<'a> {
    /// Opens a stream, and waits until `through` passes its first message.
    pub(crate) async fn open(session: &'a Session, first: CostWatch) -> Result<Self, Finding> {
        let ((out, messages), mut heard) = (unbounded(), Heard::default());
        // Before the call: some servers open a stream with their first update.
        _ = out.unbounded_send(heard.tell(first));
        let updates = session.watch_costs(messages).await;
        let updates = updates.map_err(|failure| ended(failure, &heard))?;
        let mut stream = Self {
            session,
            out,
            updates,
            heard,
        };
        stream.settle().await?;
        Ok(stream)
    }

    pub(crate) fn send(&mut self, message: CostWatch) {
        // Without a receiver the stream has ended, which the next update tells.
        _ = self.out.unbounded_send(self.heard.tell(message));
    }

    /// Waits until `through` passes the last message.
    pub(crate) async fn settle(&mut self) -> Verdict {
        let patience = self.session.config.patience;
        let end = Instant::now() + patience;
        while self.heard.through < self.heard.sequence {
            if !self.next(end).await? {
                return fail(format!(
                    "message {}: seen no through of it within {patience:?}; expected one",
                    self.heard.sequence
                ));
            }
        }
        Ok(())
    }

    /// Sends a message, and waits until `through` passes it.
    pub(crate) async fn tell(&mut self, message: CostWatch) -> Verdict {
        self.send(message);
        self.settle().await
    }

    /// Reads what comes in a time.
    pub(crate) async fn listen(&mut self, time: Duration) -> Verdict {
        let end = Instant::now() + time;
        while self.next(end).await? {}
        Ok(())
    }

    /// Returns whether a `through` comes in time.
    pub(crate) async fn beats_within(&mut self, time: Duration) -> Result<bool, Finding> {
        let (end, before) = (Instant::now() + time, self.heard.beats);
        while self.heard.beats == before {
            if !self.next(end).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Applies the next update; false: none came in time.
    async fn next(&mut self, end: Instant) -> Result<bool, Finding> {
        let updates = &mut self.updates;
        let next = async {
            match timeout_at(end, updates.message()).await {
                Ok(update) => update.map(Some).map_err(failure),
                Err(_) => Ok(None),
            }
        };
        match self.session.unless_gone(next).await {
            Ok(Some(Some(update))) => self.heard.apply(update),
            Ok(Some(None)) => return fail("the stream: seen its end; expected it to stay open"),
            Ok(None) => return Ok(false),
            Err(failure) => return Err(ended(failure, &self.heard)),
        }
        Ok(true)
    }
}

fn ended(failure: CallFailure, heard: &Heard) -> Finding {
    match failure {
        CallFailure::NotAsked => Finding::Skipped(GONE.into()),
        failure if failure.code() == Some(Code::Unimplemented) && heard.beats == 0 => {
            Finding::Skipped(NO_STREAM.into())
        }
        failure => Finding::Failed(format!(
            "the stream: seen {failure}; expected it to stay open"
        )),
    }
}

/// Gives nodes indexes that neither start at 0 nor follow each other.
pub(crate) fn indexed(nodes: &[String]) -> Vec<IndexedNode> {
    let names = nodes.iter().cloned();
    let indexed = (3..).step_by(2).zip(names);
    indexed
        .map(|(index, name)| IndexedNode { index, name })
        .collect()
}

/// Opens a question.
pub(crate) fn opening(id: u64, question: &EndpointCostRequest) -> CostWatch {
    let question = EndpointCostRequest {
        eligible_nodes: Vec::new(),
        ..question.clone()
    };
    CostWatch {
        opened_questions: vec![OpenedQuestion {
            id,
            question: Some(question),
        }],
        ..CostWatch::default()
    }
}

/// Closes a question.
pub(crate) fn closing(id: u64) -> CostWatch {
    CostWatch {
        closed_questions: vec![id],
        ..CostWatch::default()
    }
}

/// Adds a node.
pub(crate) fn adding(node: &IndexedNode) -> CostWatch {
    CostWatch {
        added_nodes: vec![node.clone()],
        ..CostWatch::default()
    }
}

/// Removes a node.
pub(crate) fn removing(index: u32) -> CostWatch {
    CostWatch {
        removed_nodes: vec![index],
        ..CostWatch::default()
    }
}
