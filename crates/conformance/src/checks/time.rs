//! Checks of deadlines. The fastest of several calls counts, because the machine that runs the
//! checks may be busy.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, timeout};

use crate::{
    check::checks,
    failure::{Answer, Answered, CallFailure, Verdict, fail, skip},
    questions::{Form, LARGE, PLAIN},
    session::Session,
    wire::{timed, within},
};

/// The number of calls of which the fastest counts.
const TIMED_CALLS: usize = 3;
const CANCELLED_CALLS: usize = 16;
const CANCEL_AFTER: Duration = Duration::from_millis(10);

checks! { "time":
    "deadline" costs_in_time(PLAIN, "connection/ready");
    "many-nodes" costs_in_time(LARGE, "nodes/many");
    "cancellation" cancellation;
    "evaluate" evaluate;
}

/// Passes with the first answer in time. Another check judges answers that are failures.
async fn in_time<T, F: Future<Output = Answer<T>>>(
    what: &str,
    judged_by: &str,
    deadline: Duration,
    call: impl Fn() -> F,
) -> Verdict {
    for _ in 0..TIMED_CALLS {
        match call().await {
            Err(failure) if failure.is_late() => {}
            Err(CallFailure::Status(_)) => {
                return skip(format!("no answer to judge: see {judged_by}"));
            }
            answer => return answer.answered(what).map(drop),
        }
    }
    fail(format!(
        "{what}: seen no answer within {deadline:?}, {TIMED_CALLS} times"
    ))
}

async fn costs_in_time(session: &Session, (what, question): Form, judged_by: &str) -> Verdict {
    let (deadline, question) = (session.config.deadline, question(&session.questions));
    let call = || async {
        let mut client = session.provider();
        let call = client.endpoint_cost(timed(deadline, question.clone()));
        session.unless_gone(within(deadline, call)).await
    };
    in_time(what, judged_by, deadline, call).await
}

async fn cancellation(session: &Session) -> Verdict {
    let timed = async |what: &str| {
        let start = Instant::now();
        let answer = session.ask(session.questions.plain()).await;
        answer.answered(what).map(|_| start.elapsed())
    };
    let mut before = Duration::MAX;
    for _ in 0..TIMED_CALLS {
        before = before.min(timed(PLAIN.0).await?);
    }
    let ask = |_| timeout(CANCEL_AFTER, session.ask(session.questions.plain()));
    join_all((0..CANCELLED_CALLS).map(ask)).await;
    let what = format!("the call after {CANCELLED_CALLS} cancelled ones");
    let after = timed(&what).await?;
    // The limit allows for a slow provider, which fails the other checks.
    let most = session.config.deadline + before * 3;
    if after <= most {
        return Ok(());
    }
    fail(format!(
        "{what}: seen an answer after {after:.1?}; a call before them took {before:.1?}, expected \
         at most {most:.1?}"
    ))
}

async fn evaluate(session: &Session) -> Verdict {
    let deadline = session.config.evaluate_deadline;
    let call = || async {
        let mut client = session.provider();
        let call = client.evaluate(timed(deadline, session.questions.placed()));
        session.unless_gone(within(deadline, call)).await
    };
    in_time("Evaluate", "evaluate/placed", deadline, call).await
}
