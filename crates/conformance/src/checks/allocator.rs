//! Reservations at bind.

use std::time::Duration;

use tautline_proto::allocator::{ReserveRequest, ReserveResponse};
use tonic::{Code, transport::Channel};

use crate::{
    check::{Check, Finding, Verdict, fail, skip},
    checks::questions::refuses_bad_rules,
    failure::CallFailure,
    lines::{Completeness, names},
    session::Session,
};

/// Hold of reservations that a check ends itself.
const HOLD_MILLIS: i64 = 10_000;
const SHORT_HOLD_MILLIS: i64 = 300;
/// Beyond the end of the short hold.
const AFTER_HOLD: Duration = Duration::from_millis(1_500);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        group: "allocator",
        name: "in-flight",
        requires: "a question with a pod in flight has one line for each eligible node",
        fix: "count the pods of inFlight in the line of their node; a node has no second line",
        needs_answers: true,
        run: |session| Box::pin(in_flight(session)),
    },
    Check {
        group: "allocator",
        name: "release-unknown",
        requires: "Release of an unknown id is OK, also twice",
        fix: "return OK if there is nothing to release: the reservation has ended by its hold",
        needs_answers: true,
        run: |session| Box::pin(release_unknown(session)),
    },
    Check {
        group: "allocator",
        name: "confirm-unknown",
        requires: "Confirm of an unknown id is NOT_FOUND",
        fix: "return NOT_FOUND for every id that is not held: the extender must not believe that \
              the pod has its device",
        needs_answers: true,
        run: |session| Box::pin(confirm_unknown(session)),
    },
    Check {
        group: "allocator",
        name: "repeats",
        requires: "a repeated Reserve for one pod UID, node and rule returns the same id and \
                   annotations, also after the caller has crashed; another pod gets another id",
        fix: "look the reservation up by UID, node and rule before you make one",
        needs_answers: true,
        run: |session| Box::pin(repeats(session)),
    },
    Check {
        group: "allocator",
        name: "release",
        requires: "a Release cancels one Reserve; after as many as there were Reserves, Confirm is \
                   NOT_FOUND and another Release OK",
        fix: "count the Reserves of a reservation, and end it with the last Release",
        needs_answers: true,
        run: |session| Box::pin(release(session)),
    },
    Check {
        group: "allocator",
        name: "new-id",
        requires: "after a reservation has ended, Reserve returns a new id, and Release of the old \
                   one has no effect",
        fix: "never use an id again: a late Confirm or Release may still come",
        needs_answers: true,
        run: |session| Box::pin(new_id(session)),
    },
    Check {
        group: "allocator",
        name: "hold",
        requires: "a reservation without Confirm ends with its hold: then Confirm is NOT_FOUND",
        fix: "compare the hold with the clock at each Confirm, not only in a sweep",
        needs_answers: true,
        run: |session| Box::pin(hold(session)),
    },
    Check {
        group: "allocator",
        name: "confirm",
        requires: "a repeated Confirm is OK, also after the caller has crashed; Release does not \
                   end what is confirmed",
        fix: "keep a confirmed reservation until your watch shows that the pod is gone",
        needs_answers: true,
        run: |session| Box::pin(confirm(session)),
    },
    Check {
        group: "allocator",
        name: "unknown-node",
        requires: "Reserve on an unknown node is FAILED_PRECONDITION",
        fix: "grant only what a node has; refuse a node that you do not know",
        needs_answers: true,
        run: |session| Box::pin(unknown_node(session)),
    },
    Check {
        group: "allocator",
        name: "bad-rule",
        requires: "Reserve refuses an unreadable request or limit with INVALID_ARGUMENT and a \
                   message",
        fix: "read the rule as EndpointCost does, before you reserve",
        needs_answers: true,
        run: |session| Box::pin(bad_rule(session)),
    },
];

pub(crate) async fn must_be_allocator(session: &Session) -> Verdict {
    match session.is_allocator().await {
        true => Ok(()),
        false => skip("the provider serves no Allocator"),
    }
}

async fn may_reserve(session: &Session) -> Verdict {
    must_be_allocator(session).await?;
    match session.config.reserve {
        true => Ok(()),
        false => skip(
            "reserves on the nodes for pods that do not exist; allow it with --reserve, and a \
             provider that serves no cluster",
        ),
    }
}

fn unanswered(what: &str) -> impl Fn(CallFailure) -> Finding {
    move |failure| Finding::unanswered(what, &failure)
}

/// Reserves on the first node with room.
async fn grant(
    session: &Session,
    who: &str,
    hold_millis: i64,
) -> Result<(ReserveRequest, ReserveResponse), Finding> {
    may_reserve(session).await?;
    let mut refused = Vec::new();
    for node in &session.questions.nodes {
        let request = session.questions.reserve(who, node, hold_millis);
        match session.reserve(&session.channel, request.clone()).await {
            Ok(answer) if answer.id.is_empty() => {
                return fail(format!("Reserve on {node}: seen an empty id; expected one"));
            }
            Ok(answer) => return Ok((request, answer)),
            Err(failure) if failure.code() == Some(Code::FailedPrecondition) => {
                refused.push(format!("{node}: {failure}"));
            }
            Err(failure) => return Err(unanswered("Reserve")(failure)),
        }
    }
    skip(format!(
        "no node has room; name one with --nodes, or a smaller --request ({})",
        names(&refused)
    ))
}

async fn reserve_again(
    session: &Session,
    channel: &Channel,
    request: &ReserveRequest,
    first: &ReserveResponse,
) -> Verdict {
    let again = session.reserve(channel, request.clone()).await;
    let again = again.map_err(unanswered("a repeated Reserve"))?;
    if again.id != first.id {
        return fail(format!(
            "a repeated Reserve: seen id {:?}; expected {:?}",
            again.id, first.id
        ));
    }
    match again.annotations == first.annotations {
        true => Ok(()),
        false => fail(format!(
            "a repeated Reserve: seen annotations {:?}; expected {:?}",
            again.annotations, first.annotations
        )),
    }
}

async fn must_be_gone(session: &Session, what: &str, id: &str) -> Verdict {
    match session.confirm(&session.channel, id).await {
        Err(failure) if failure.code() == Some(Code::NotFound) => Ok(()),
        Err(failure) => fail(format!("{what}: seen {failure}; expected NOT_FOUND")),
        Ok(()) => fail(format!("{what}: seen OK; expected NOT_FOUND")),
    }
}

async fn in_flight(session: &Session) -> Verdict {
    must_be_allocator(session).await?;
    let what = "a question with a pod in flight";
    let question = session.questions.in_flight();
    let asked = question.eligible_nodes.clone();
    let answer = session.ask(what, question).await?;
    match Completeness::of(&asked, &answer.node_and_cost).faults() {
        Some(faults) => fail(format!("{what}: seen {faults}")),
        None => Ok(()),
    }
}

async fn release_unknown(session: &Session) -> Verdict {
    if session.config.reserve && !session.is_allocator().await {
        return fail("--reserve: seen UNIMPLEMENTED for every call; expected an Allocator");
    }
    must_be_allocator(session).await?;
    let id = session.questions.unique("unknown");
    for _ in 0..2 {
        let released = session.release(&session.channel, &id).await;
        released.map_err(unanswered("Release of an unknown id"))?;
    }
    Ok(())
}

async fn confirm_unknown(session: &Session) -> Verdict {
    must_be_allocator(session).await?;
    let id = session.questions.unique("unknown");
    must_be_gone(session, "Confirm of an unknown id", &id).await
}

async fn repeats(session: &Session) -> Verdict {
    let (request, first) = grant(session, "repeats", HOLD_MILLIS).await?;
    reserve_again(session, &session.channel, &request, &first).await?;
    let channel = session.another_connection().await?;
    reserve_again(session, &channel, &request, &first).await?;
    // The node may be full now.
    let other = session
        .questions
        .reserve("other", &request.node, HOLD_MILLIS);
    match session.reserve(&session.channel, other).await {
        Ok(other) if other.id == first.id => fail(format!(
            "Reserve of another pod: seen the same id {:?}; expected another one",
            other.id
        )),
        Err(failure) if failure.code() != Some(Code::FailedPrecondition) => {
            Err(unanswered("Reserve of another pod")(failure))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

async fn release(session: &Session) -> Verdict {
    let (request, first) = grant(session, "release", HOLD_MILLIS).await?;
    let (channel, id) = (&session.channel, first.id.as_str());
    let release = async |channel| {
        let released = session.release(channel, id).await;
        released.map_err(unanswered("Release"))
    };
    reserve_again(session, channel, &request, &first).await?;
    release(channel).await?;
    let still = reserve_again(session, channel, &request, &first).await;
    still.map_err(|finding| match finding {
        Finding::Failed(text) => {
            Finding::Failed(format!("after one Release of two Reserves: {text}"))
        }
        skipped @ Finding::Skipped(_) => skipped,
    })?;
    release(channel).await?;
    release(channel).await?;
    must_be_gone(session, "Confirm after the last Release", id).await?;
    let crashed = session.another_connection().await?;
    release(&crashed).await
}

async fn new_id(session: &Session) -> Verdict {
    let (request, old) = grant(session, "new-id", HOLD_MILLIS).await?;
    let (channel, id) = (&session.channel, old.id.as_str());
    let released = session.release(channel, id).await;
    released.map_err(unanswered("Release"))?;
    let new = session.reserve(channel, request.clone()).await;
    let new = new.map_err(unanswered("Reserve after Release"))?;
    if new.id == old.id {
        return fail(format!(
            "Reserve after Release: seen the old id {id:?}; expected a new one"
        ));
    }
    let late = session.release(channel, id).await;
    late.map_err(unanswered("a late Release of the old id"))?;
    must_be_gone(session, "a late Confirm of the old id", id).await?;
    reserve_again(session, channel, &request, &new).await
}

async fn hold(session: &Session) -> Verdict {
    let (_, first) = grant(session, "hold", SHORT_HOLD_MILLIS).await?;
    let hold = Duration::from_millis(SHORT_HOLD_MILLIS.unsigned_abs());
    tokio::time::sleep(hold + AFTER_HOLD).await;
    let what = format!("Confirm after the hold of {hold:?}");
    must_be_gone(session, &what, &first.id).await
}

async fn confirm(session: &Session) -> Verdict {
    let (_, first) = grant(session, "confirm", HOLD_MILLIS).await?;
    let id = first.id.as_str();
    let confirm = async |what, channel| {
        let confirmed = session.confirm(channel, id).await;
        confirmed.map_err(unanswered(what))
    };
    confirm("Confirm", &session.channel).await?;
    let crashed = session.another_connection().await?;
    confirm("a repeated Confirm", &crashed).await?;
    let released = session.release(&crashed, id).await;
    released.map_err(unanswered("Release of a confirmed reservation"))?;
    confirm("Confirm after that Release", &session.channel).await
}

async fn unknown_node(session: &Session) -> Verdict {
    may_reserve(session).await?;
    let node = session.questions.unique("unknown-node");
    let request = session.questions.reserve("nowhere", &node, HOLD_MILLIS);
    let refused = [
        Code::FailedPrecondition,
        Code::NotFound,
        Code::InvalidArgument,
    ];
    match session.reserve(&session.channel, request).await {
        Err(failure) if failure.code().is_some_and(|code| refused.contains(&code)) => Ok(()),
        Err(failure) => fail(format!("seen {failure}; expected FAILED_PRECONDITION")),
        Ok(_) => fail("seen OK; expected FAILED_PRECONDITION"),
    }
}

async fn bad_rule(session: &Session) -> Verdict {
    may_reserve(session).await?;
    // A node without room may be told first.
    let (request, _) = grant(session, "room", HOLD_MILLIS).await?;
    session.release_all().await;
    let ask = async |rule| {
        let request = ReserveRequest {
            rule: Some(rule),
            ..session
                .questions
                .reserve("bad-rule", &request.node, HOLD_MILLIS)
        };
        session.reserve(&session.channel, request).await.map(drop)
    };
    refuses_bad_rules(session, ask).await
}
