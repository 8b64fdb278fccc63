//! Compares the costs of a stream with those of EndpointCost.

use std::time::Duration;

use tautline_proto::ruleprovider::{EndpointCostRequest, EndpointCostResponse};

use crate::{
    check::{Finding, Verdict, fail, skip},
    failure::CallFailure,
    lines::{Completeness, difference, names},
    session::Session,
    stream::CostStream,
};

/// Attempts to compare while figures change.
const ATTEMPTS: usize = 8;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(300);

type Answer = Result<EndpointCostResponse, CallFailure>;

/// Fails if costs of a question lack a node.
pub(super) fn must_be_complete(stream: &CostStream<'_>, id: u64) -> Verdict {
    let said = stream.heard.said(id);
    let nodes = stream.heard.nodes();
    let missing = Completeness::of(&nodes, &stream.heard.lines(id)).missing;
    if missing.is_empty() || said.is_some_and(|said| said.per_pod || said.failure.is_some()) {
        return Ok(());
    }
    fail(format!(
        "message {}: seen through without a line for {}; expected one for each of the {} nodes",
        stream.heard.sequence,
        names(&missing),
        nodes.len()
    ))
}

/// Requires that the stream's costs become those of EndpointCost for `request`.
pub(super) async fn must_agree(
    stream: &mut CostStream<'_>,
    session: &Session,
    (what, id): (&str, u64),
    request: &EndpointCostRequest,
) -> Verdict {
    let (mut last, mut seen) = (None, None);
    for _ in 0..ATTEMPTS {
        let answer = session.endpoint_cost(request.clone()).await;
        if let Err(failure @ (CallFailure::NotAsked | CallFailure::Broken(_))) = &answer {
            return Err(Finding::unanswered(what, failure));
        }
        let Some(difference) = disagreement(stream, id, &answer) else {
            return Ok(());
        };
        // Otherwise the change may be on its way.
        if last.is_some_and(|last| is_same(&last, &answer)) {
            seen = Some(difference);
        }
        last = Some(answer);
        stream.listen(ATTEMPT_PAUSE).await?;
    }
    match seen {
        Some(seen) => fail(format!(
            "{what}: seen {seen} on the stream; expected the same"
        )),
        None => skip("the costs changed between all calls"),
    }
}

fn is_same(last: &Answer, next: &Answer) -> bool {
    match (last, next) {
        (Ok(last), Ok(next)) => difference(&last.node_and_cost, &next.node_and_cost).is_none(),
        (Err(last), Err(next)) => last.code() == next.code(),
        _ => false,
    }
}

/// Tells what an answer of EndpointCost says, then the stream, if they differ.
fn disagreement(stream: &CostStream<'_>, id: u64, answer: &Answer) -> Option<String> {
    let (said, lines) = (stream.heard.said(id)?, stream.heard.lines(id));
    if said.per_pod {
        return None;
    }
    let then = |answer: String, stream: String| Some(format!("{answer}, then {stream}"));
    match (answer, &said.failure) {
        (Err(failure), Some(status)) if failure.code() == Some(status.code()) => None,
        (Err(failure), None) => then(failure.to_string(), "costs".into()),
        (answer, Some(status)) => {
            let answer = answer.as_ref().err().map(CallFailure::to_string);
            let failure = CallFailure::Status(status.clone());
            then(answer.unwrap_or("costs".into()), failure.to_string())
        }
        (Ok(answer), None) => {
            let of_answer = (answer.resolution, answer.request_cost);
            let of_stream = (said.resolution, said.request_cost);
            // A part of the nodes may have a scale of its own.
            let is_whole = answer.node_and_cost.len() == lines.len();
            if is_whole && of_answer != of_stream {
                return then(scale(of_answer), scale(of_stream));
            }
            difference(&answer.node_and_cost, &lines)
        }
    }
}

fn scale((resolution, request_cost): (i64, Option<i64>)) -> String {
    let request_cost = request_cost.map_or("none".into(), |cost| cost.to_string());
    format!("resolution {resolution} and requestCost {request_cost}")
}
