//! Checks of questions in all forms.

use futures::future::join_all;
use tautline_proto::ruleprovider::NodeCost;
use tonic::Code;

use super::nodes::is_answered;
use crate::{
    check::checks,
    failure::{Answer, Answered, CallFailure, Finding, Verdict, fail, seen, skip, wrong},
    lines::difference,
    questions::{NO_PEERS, ODD_PEERS, PLAIN, Questions, TURNBUCKLE, UNREADABLE},
    session::Session,
};

/// The number of questions that are asked at the same time.
const CONCURRENT_QUESTIONS: usize = 32;
/// The maximum number of equal requests until two answers in a row agree: figures may change
/// meanwhile.
pub(super) const MAX_EQUAL_REQUESTS: usize = 8;

checks! { "questions":
    "no-peers" is_answered(NO_PEERS);
    "peers" is_answered(ODD_PEERS);
    "turnbuckle" is_answered(TURNBUCKLE);
    "repeats" repeats;
    "concurrent" concurrent;
    "bad-rule" bad_rule;
}

async fn repeats(session: &Session) -> Verdict {
    let ask = || async {
        let answer = session.ask(session.questions.plain()).await;
        Ok(answer.answered(PLAIN.0)?.node_and_cost)
    };
    let seen = |last: &Vec<NodeCost>, next: &Vec<NodeCost>| {
        let seen = difference(last, next)?;
        Some(format!(
            "{seen}, and a difference between all {MAX_EQUAL_REQUESTS} answers"
        ))
    };
    must_repeat(ask, seen).await
}

/// Asks until two answers in a row agree. The last difference counts if none do.
pub(super) async fn must_repeat<T, F: Future<Output = Verdict<T>>>(
    ask: impl Fn() -> F,
    difference: impl Fn(&T, &T) -> Option<String>,
) -> Verdict {
    let (mut last, mut seen) = (ask().await?, String::new());
    for _ in 1..MAX_EQUAL_REQUESTS {
        let next = ask().await?;
        match difference(&last, &next) {
            None => return Ok(()),
            Some(difference) => seen = difference,
        }
        last = next;
    }
    fail(format!("seen {seen}; expected equal ones"))
}

async fn concurrent(session: &Session) -> Verdict {
    let what = format!("one of {CONCURRENT_QUESTIONS} concurrent questions");
    let own = |i: usize| session.questions.unique(format!("own-{i}"));
    let all: Vec<String> = (0..CONCURRENT_QUESTIONS).map(own).collect();
    let calls = all.iter().map(|node| {
        let mut question = session.questions.plain();
        question.eligible_nodes = vec![node.clone()];
        session.ask(question)
    });
    for (own, answer) in all.iter().zip(join_all(calls).await) {
        let mut lines = answer.answered(&what)?.node_and_cost.into_iter();
        if let Some(line) = lines.find(|line| line.node != *own && all.contains(&line.node)) {
            let seen = format!("a line for {}, which another one asks for", line.node);
            return wrong(&what, seen, format!("one for {own}"));
        }
    }
    Ok(())
}

async fn bad_rule(session: &Session) -> Verdict {
    refuses_bad_rules(session, |bad| session.ask(bad.plain())).await
}

/// Returns requests with rules that the provider should refuse, each with a description. The bool
/// is true if the configuration names the bad value, and the provider must refuse it.
pub(super) fn bad_rules(session: &Session) -> Vec<(String, Questions, bool)> {
    let (config, questions) = (&session.config, &session.questions);
    let request = config.bad_request.as_deref().unwrap_or(UNREADABLE);
    let bad = questions.with_rule(Some(request), None);
    let (what, must_refuse) = (format!("request {request:?}"), config.bad_request.is_some());
    let mut rules = vec![(what, bad, must_refuse)];
    if let Some(limit) = &config.bad_limit {
        let bad = questions.with_rule(None, Some(limit));
        rules.push((format!("limit {limit:?}"), bad, true));
    }
    rules
}

/// Asks with each bad rule. Passes if one is refused and none is wrongly accepted.
pub(super) async fn refuses_bad_rules<T, F: Future<Output = Answer<T>>>(
    session: &Session,
    ask: impl Fn(Questions) -> F,
) -> Verdict {
    let (mut skipped, mut refused) = (None, false);
    for (what, bad, must_refuse) in bad_rules(session) {
        match refusal(&what, ask(bad).await, must_refuse) {
            Ok(()) => refused = true,
            Err(Finding::Skipped(reason)) => skipped = skipped.or(Some(reason)),
            failed => return failed,
        }
    }
    skipped.filter(|_| !refused).map_or(Ok(()), skip)
}

/// Judges the answer to a bad rule.
fn refusal<T>(what: &str, answer: Answer<T>, must_refuse: bool) -> Verdict {
    match answer {
        Err(failure @ CallFailure::NotAsked) => Err(failure).answered(what),
        Ok(_) if !must_refuse => skip(format!(
            "{what} is accepted; if the rule reads its request, name one that it must refuse with \
             --bad request=TEXT"
        )),
        Err(CallFailure::Status(status)) if status.code() == Code::InvalidArgument => {
            if status.message().is_empty() {
                let seen = "INVALID_ARGUMENT without a message";
                return wrong(what, seen, "the field and the fix");
            }
            Ok(())
        }
        answer => wrong(what, seen(answer), "INVALID_ARGUMENT"),
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    #[test]
    fn refusal_is_invalid_argument_with_a_message() {
        let judge = |answer: Result<(), Status>, must| {
            refusal("request \"x\"", answer.map_err(CallFailure::Status), must)
        };
        assert_eq!(
            judge(Err(Status::invalid_argument("write 5ms")), true),
            Ok(())
        );
        let skipped = judge(Ok(()), false);
        assert!(matches!(skipped, Err(Finding::Skipped(_))), "{skipped:?}");
        for answer in [
            Ok(()),
            Err(Status::invalid_argument("")),
            Err(Status::internal("broken")),
        ] {
            let failed = judge(answer, true);
            assert!(matches!(failed, Err(Finding::Failed(_))), "{failed:?}");
        }
    }
}
