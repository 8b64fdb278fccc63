//! Compares the costs of a stream with those of EndpointCost.

use std::time::Duration;

use tautline_proto::ruleprovider::EndpointCostResponse;

use crate::{
    checks::{Answered, Verdict, skip, wrong},
    failure::{Answer, CallFailure},
    lines::{Completeness, difference, names},
    questions::Question,
    stream::CostStream,
};

/// The maximum number of attempts to compare while figures change.
const MAX_ATTEMPTS: usize = 8;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(300);

impl CostStream<'_> {
    /// Fails if the costs of a question lack a node.
    pub(super) fn must_be_complete(&self, id: u64) -> Verdict {
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
    pub(super) async fn must_agree(&mut self, what: &str, id: u64, question: &Question) -> Verdict {
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
