//! Checks of the reservations that a pod gets at its bind.

use std::{fmt::Debug, time::Duration};

use tautline_proto::allocator::{ReserveRequest, ReserveResponse};
use tonic::Code;

use self::Step::{Again, Confirm, Gone, NewId, OtherPod, Reconnect, Release, Wait};
use super::{nodes::is_complete, questions::refuses_bad_rules};
use crate::{
    check::checks,
    failure::{Answered, CallFailure, Verdict, fail, seen, skip, wrong},
    lines::names,
    questions::{IN_FLIGHT, Questions},
    session::Session,
};

/// The hold of reservations that a check ends itself.
const HOLD_MILLIS: i64 = 10_000;
const SHORT_HOLD_MILLIS: i64 = 300;
/// The time until a short hold has certainly ended.
const AFTER_SHORT_HOLD: Duration = Duration::from_millis(1_800);

checks! { "allocator":
    "in-flight" [must_be_allocator] is_complete(IN_FLIGHT);
    "release-unknown" release_unknown;
    "confirm-unknown" [must_be_allocator] confirm_unknown;
    "repeats" [may_reserve] steps("repeats", HOLD_MILLIS, &[
        Again(""), Reconnect, Again(""), OtherPod]);
    "release" [may_reserve] steps("release", HOLD_MILLIS, &[
        Again(""), Release("Release"), Again("after one Release of two Reserves: "),
        Release("Release"), Release("Release"), Gone("Confirm after the last Release"), Reconnect,
        Release("Release")]);
    "new-id" [may_reserve] steps("new-id", HOLD_MILLIS, &[
        Release("Release"), NewId, Release("a late Release of the old id"),
        Gone("a late Confirm of the old id"), Again("")]);
    "hold" [may_reserve] steps("hold", SHORT_HOLD_MILLIS, &[
        Wait(AFTER_SHORT_HOLD), Gone("Confirm after the hold of 300ms")]);
    "confirm" [may_reserve] steps("confirm", HOLD_MILLIS, &[
        Confirm("Confirm"), Reconnect, Confirm("a repeated Confirm"),
        Release("Release of a confirmed reservation"), Confirm("Confirm after that Release")]);
    "unknown-node" [may_reserve] unknown_node;
    "bad-rule" [may_reserve] bad_rule;
}

pub(super) async fn must_be_allocator(session: &Session) -> Verdict {
    if session.is_allocator().await {
        return Ok(());
    }
    skip("the provider serves no Allocator")
}

async fn may_reserve(session: &Session) -> Verdict {
    must_be_allocator(session).await?;
    if session.config.reserve {
        return Ok(());
    }
    skip(
        "reserves on the nodes for pods that do not exist; allow it with --reserve, and a provider \
         that serves no cluster",
    )
}

type Grant = (ReserveRequest, ReserveResponse);

/// Reserves on the first node with room.
async fn grant(session: &Session, who: &str, hold_millis: i64) -> Verdict<Grant> {
    let mut refused = Vec::new();
    for node in &session.questions.nodes {
        let request = session.questions.reserve(who, node, hold_millis);
        match session.reserve(&session.channel, request.clone()).await {
            Err(failure) if failure.is(&[Code::FailedPrecondition]) => {
                refused.push(format!("{node}: {failure}"));
            }
            answer => {
                let answer = answer.answered("Reserve")?;
                if answer.id.is_empty() {
                    return wrong(&format!("Reserve on {node}"), "an empty id", "one");
                }
                return Ok((request, answer));
            }
        }
    }
    let refused = names(&refused);
    skip(format!(
        "no node has room; name one with --nodes, or a smaller --request ({refused})"
    ))
}

async fn must_be_gone(session: &Session, what: &str, id: &str) -> Verdict {
    match session.confirm(&session.channel, id).await {
        Err(failure) if failure.is(&[Code::NotFound]) => Ok(()),
        answer => wrong(what, seen(answer), "NOT_FOUND"),
    }
}

async fn release_unknown(session: &Session) -> Verdict {
    if session.config.reserve && !session.is_allocator().await {
        let seen = "UNIMPLEMENTED for every call";
        return wrong("--reserve", seen, "an Allocator");
    }
    must_be_allocator(session).await?;
    let id = session.questions.unique("unknown");
    for _ in 0..2 {
        let released = session.release(&session.channel, &id).await;
        released.answered("Release of an unknown id")?;
    }
    Ok(())
}

async fn confirm_unknown(session: &Session) -> Verdict {
    let id = session.questions.unique("unknown");
    must_be_gone(session, "Confirm of an unknown id", &id).await
}

/// A step of a check with one reservation.
enum Step {
    /// Reserves again, which must return the same; a failure's text begins with the step's.
    Again(&'static str),
    /// Reserves again, which must return another id.
    NewId,
    /// Reserves for another pod, which must not get the same id.
    OtherPod,
    Confirm(&'static str),
    /// Confirms, which must be NOT_FOUND.
    Gone(&'static str),
    Release(&'static str),
    /// Opens another connection, as the caller does after a crash.
    Reconnect,
    Wait(Duration),
}

/// Reserves, and takes the steps. They confirm and release the first id.
async fn steps(session: &Session, who: &str, hold_millis: i64, steps: &[Step]) -> Verdict {
    let (request, mut held) = grant(session, who, hold_millis).await?;
    let (id, mut channel) = (held.id.clone(), session.channel.clone());
    for step in steps {
        match *step {
            Again(after) => {
                let what = format!("{after}a repeated Reserve");
                let again = session.reserve(&channel, request.clone()).await;
                let again = again.answered(&what)?;
                must_equal(&what, "id", &again.id, &held.id)?;
                must_equal(&what, "annotations", &again.annotations, &held.annotations)?;
            }
            NewId => {
                let what = "Reserve after Release";
                let new = session.reserve(&channel, request.clone()).await;
                held = new.answered(what)?;
                if held.id == id {
                    return wrong(what, format!("the old id {id:?}"), "a new one");
                }
            }
            OtherPod => {
                let (what, node) = ("Reserve of another pod", &request.node);
                let other = session.questions.reserve("other", node, hold_millis);
                let answer = session.reserve(&channel, other).await;
                // The node may be full now.
                let is_full = |f: &CallFailure| f.is(&[Code::FailedPrecondition]);
                if !answer.as_ref().is_err_and(is_full) && answer.answered(what)?.id == id {
                    return wrong(what, format!("the same id {id:?}"), "another one");
                }
            }
            Confirm(what) => session.confirm(&channel, &id).await.answered(what)?,
            Gone(what) => must_be_gone(session, what, &id).await?,
            Release(what) => session.release(&channel, &id).await.answered(what)?,
            Reconnect => channel = session.another_connection().await?,
            Wait(time) => tokio::time::sleep(time).await,
        }
    }
    Ok(())
}

fn must_equal<T: Debug + PartialEq>(what: &str, name: &str, seen: T, expected: T) -> Verdict {
    if seen == expected {
        return Ok(());
    }
    wrong(what, format!("{name} {seen:?}"), format!("{expected:?}"))
}

async fn unknown_node(session: &Session) -> Verdict {
    let node = session.questions.unique("unknown-node");
    let request = session.questions.reserve("nowhere", &node, HOLD_MILLIS);
    let unknown = &[Code::NotFound, Code::InvalidArgument];
    match session.reserve(&session.channel, request).await {
        Err(f) if f.is(&[Code::FailedPrecondition]) || f.is(unknown) => Ok(()),
        answer => {
            let seen = seen(answer);
            fail(format!("seen {seen}; expected FAILED_PRECONDITION"))
        }
    }
}

async fn bad_rule(session: &Session) -> Verdict {
    // The node must have room, because a provider may report a full node before a bad rule.
    let (room, _) = grant(session, "room", HOLD_MILLIS).await?;
    session.release_all().await;
    let ask = |bad: Questions| {
        let request = bad.reserve("bad-rule", &room.node, HOLD_MILLIS);
        session.reserve(&session.channel, request)
    };
    refuses_bad_rules(session, ask).await
}
