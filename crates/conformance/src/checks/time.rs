//! Deadlines. The fastest of some calls counts: the machine of the suite may be busy.

use std::time::Duration;

use futures::future::join_all;
use tautline_proto::ruleprovider::EndpointCostRequest;
use tokio::time::Instant;

use crate::{
    check::{Check, Finding, Verdict, fail, skip},
    failure::CallFailure,
    questions::MANY,
    session::Session,
};

const TRIES: usize = 3;
const CANCELLED: usize = 16;
const CANCEL_AFTER: Duration = Duration::from_millis(10);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        group: "time",
        name: "deadline",
        requires: "EndpointCost answers within the extender's deadline, 500 ms by default",
        fix: "answer from memory and fetch in the background: kube-scheduler places no other pod \
              meanwhile",
        needs_answers: true,
        run: |session| Box::pin(deadline(session)),
    },
    Check {
        group: "time",
        name: "many-nodes",
        requires: "EndpointCost with 10,000 nodes answers within the same deadline",
        fix: "look nodes up by name in a map instead of a list, and do the work for peers once for \
              a question",
        needs_answers: true,
        run: |session| Box::pin(many_nodes(session)),
    },
    Check {
        group: "time",
        name: "cancellation",
        requires: "after 16 cancelled calls the next one is answered within the same deadline",
        fix: "stop working on a call whose caller has gone (the context of the call says so), and \
              hold no lock while you wait",
        needs_answers: true,
        run: |session| Box::pin(cancellation(session)),
    },
    Check {
        group: "time",
        name: "evaluate",
        requires: "Evaluate answers within the controller's deadline, 2 s",
        fix: "answer from memory, or end measurements before the deadline of the call",
        needs_answers: true,
        run: |session| Box::pin(evaluate(session)),
    },
];

/// Passes with the first answer in time.
async fn in_time<T, F>(
    (what, judged_by): (&str, &str),
    deadline: Duration,
    call: impl Fn() -> F,
) -> Verdict
where
    F: Future<Output = Result<T, CallFailure>>,
{
    for _ in 0..TRIES {
        match call().await {
            Ok(_) => return Ok(()),
            Err(failure) if failure.is_late() => {}
            Err(failure @ (CallFailure::Broken(_) | CallFailure::NotAsked)) => {
                return Err(Finding::unanswered(what, &failure));
            }
            // The time of an error says nothing.
            Err(_) => return skip(format!("no answer to judge: see {judged_by}")),
        }
    }
    fail(format!(
        "{what}: seen no answer within {deadline:?}, {TRIES} times"
    ))
}

async fn costs_in_time(
    session: &Session,
    what: (&str, &str),
    question: EndpointCostRequest,
) -> Verdict {
    let deadline = session.config.deadline;
    let call = || session.endpoint_cost_within(question.clone(), deadline);
    in_time(what, deadline, call).await
}

async fn deadline(session: &Session) -> Verdict {
    let what = ("a plain question", "connection/ready");
    costs_in_time(session, what, session.questions.plain()).await
}

async fn many_nodes(session: &Session) -> Verdict {
    let what = format!("a question with {MANY} nodes");
    costs_in_time(session, (&what, "nodes/many"), session.questions.many()).await
}

async fn cancellation(session: &Session) -> Verdict {
    let timed = async || {
        let start = Instant::now();
        let answer = session.endpoint_cost(session.questions.plain()).await;
        answer.map(|_| start.elapsed())
    };
    let mut before = Duration::MAX;
    for _ in 0..TRIES {
        let took = timed().await;
        let took = took.map_err(|failure| Finding::unanswered("a plain question", &failure))?;
        before = before.min(took);
    }
    let cancelled = (0..CANCELLED).map(|_| {
        let call = session.endpoint_cost(session.questions.plain());
        tokio::time::timeout(CANCEL_AFTER, call)
    });
    join_all(cancelled).await;
    let what = format!("the call after {CANCELLED} cancelled ones");
    let after = timed().await;
    let after = after.map_err(|failure| Finding::unanswered(&what, &failure))?;
    // A provider that is slow by itself fails the other checks.
    let most = session.config.deadline + before * 3;
    match after <= most {
        true => Ok(()),
        false => fail(format!(
            "{what}: seen an answer after {after:.1?}; a call before them took {before:.1?}, \
             expected at most {most:.1?}"
        )),
    }
}

async fn evaluate(session: &Session) -> Verdict {
    let deadline = session.config.evaluate_deadline;
    let call = || session.evaluate_within(session.questions.placed(), deadline);
    in_time(("Evaluate", "evaluate/placed"), deadline, call).await
}
