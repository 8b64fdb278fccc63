//! Questions of all forms.

use futures::future::join_all;
use tautline_proto::ruleprovider::{EndpointCostRequest, PolicyRule};
use tonic::Code;

use crate::{
    check::{Check, Finding, Verdict, fail, skip},
    failure::CallFailure,
    lines::difference,
    questions::UNREADABLE,
    session::{Sample, Session},
};

const CONCURRENT: usize = 32;
/// Equal questions until two answers in a row agree: figures may change meanwhile.
const REPEATS: usize = 8;

pub(crate) const CHECKS: &[Check] = &[
    Check {
        group: "questions",
        name: "no-peers",
        requires: "a pod without peers is answered",
        fix: "return a cost for every node if peers and peerNodes are empty, for instance 0: the \
              first pod of an offer has no peers",
        needs_answers: true,
        run: |session| Box::pin(no_peers(session)),
    },
    Check {
        group: "questions",
        name: "peers",
        requires: "peers that are not pods, or on unknown nodes, do not fail the question",
        fix: "ignore peers with an empty node, and refuse nodes by a line with a reason instead of \
              an error status",
        needs_answers: true,
        run: |session| Box::pin(peers(session)),
    },
    Check {
        group: "questions",
        name: "turnbuckle",
        requires: "a question with the fields below 16 alone is answered, with kind and name of \
                   the source",
        fix: "use peerNodes if peers is empty, and do without workload, namespace and UID",
        needs_answers: true,
        run: |session| Box::pin(turnbuckle(session)),
    },
    Check {
        group: "questions",
        name: "repeats",
        requires: "equal questions in a row have equal lines, unless figures have changed",
        fix: "make the cost a function of the question and your data, without chance or counters",
        needs_answers: true,
        run: |session| Box::pin(repeats(session)),
    },
    Check {
        group: "questions",
        name: "concurrent",
        requires: "32 concurrent questions are answered, each for its own nodes",
        fix: "keep nothing of a request in variables that calls share",
        needs_answers: true,
        run: |session| Box::pin(concurrent(session)),
    },
    Check {
        group: "questions",
        name: "bad-rule",
        requires: "EndpointCost refuses an unreadable request or limit with INVALID_ARGUMENT and a \
                   message",
        fix: "return INVALID_ARGUMENT with the field and the fix; other codes count as failures of \
              the provider and are retried",
        needs_answers: true,
        run: |session| Box::pin(bad_rule(session)),
    },
];

fn answered(sample: &Sample) -> Verdict {
    match &sample.answer {
        Err(failure) => Err(Finding::unanswered(sample.label, failure)),
        Ok(_) => Ok(()),
    }
}

async fn no_peers(session: &Session) -> Verdict {
    answered(&session.samples().await.no_peers)
}

async fn peers(session: &Session) -> Verdict {
    answered(&session.samples().await.odd_peers)
}

async fn turnbuckle(session: &Session) -> Verdict {
    answered(&session.samples().await.turnbuckle)
}

async fn repeats(session: &Session) -> Verdict {
    let what = "a plain question";
    let ask = async || session.ask(what, session.questions.plain()).await;
    let (mut last, mut seen) = (ask().await?, String::new());
    for _ in 1..REPEATS {
        let next = ask().await?;
        match difference(&last.node_and_cost, &next.node_and_cost) {
            None => return Ok(()),
            Some(difference) => seen = difference,
        }
        last = next;
    }
    fail(format!(
        "seen {seen}, and a difference between all {REPEATS} answers; expected equal ones"
    ))
}

async fn concurrent(session: &Session) -> Verdict {
    let own = |i: usize| session.questions.unique(format_args!("own-{i}"));
    let what = format!("one of {CONCURRENT} concurrent questions");
    let calls = (0..CONCURRENT).map(|i| {
        let mut question = session.questions.plain();
        question.eligible_nodes = vec![own(i)];
        session.ask(&what, question)
    });
    let all: Vec<String> = (0..CONCURRENT).map(own).collect();
    for (i, answer) in join_all(calls).await.into_iter().enumerate() {
        let mut lines = answer?.node_and_cost.into_iter();
        let of_another = |node: &String| *node != all[i] && all.contains(node);
        if let Some(line) = lines.find(|line| of_another(&line.node)) {
            return fail(format!(
                "{what}: seen a line for {}, which another one asks for; expected one for {}",
                line.node, all[i]
            ));
        }
    }
    Ok(())
}

/// The rules to refuse; `true`: the configuration names it.
pub(crate) fn bad_rules(session: &Session) -> Vec<(String, PolicyRule, bool)> {
    let (config, rule) = (&session.config, session.questions.rule());
    let text = config.bad_request.as_deref();
    let request = text.unwrap_or(UNREADABLE);
    let mut rules = vec![(
        format!("request {request:?}"),
        PolicyRule {
            request: request.into(),
            ..rule.clone()
        },
        text.is_some(),
    )];
    rules.extend(config.bad_limit.as_ref().map(|limit| {
        let limit = limit.clone();
        (
            format!("limit {limit:?}"),
            PolicyRule { limit, ..rule },
            true,
        )
    }));
    rules
}

/// Asks with each bad rule. Passes if one is refused and none is wrongly accepted.
pub(crate) async fn refuses_bad_rules<F>(
    session: &Session,
    ask: impl Fn(PolicyRule) -> F,
) -> Verdict
where
    F: Future<Output = Result<(), CallFailure>>,
{
    let (mut skipped, mut refused) = (None, false);
    for (what, rule, must_refuse) in bad_rules(session) {
        match refusal(&what, ask(rule).await, must_refuse) {
            Ok(()) => refused = true,
            Err(Finding::Skipped(reason)) => skipped = skipped.or(Some(reason)),
            Err(failed) => return Err(failed),
        }
    }
    match skipped {
        Some(reason) if !refused => skip(reason),
        _ => Ok(()),
    }
}

/// Judges the answer to a bad rule.
fn refusal(what: &str, answer: Result<(), CallFailure>, must_refuse: bool) -> Verdict {
    match answer {
        Err(failure @ CallFailure::NotAsked) => Err(Finding::unanswered(what, &failure)),
        Ok(()) if must_refuse => fail(format!("{what}: seen OK; expected INVALID_ARGUMENT")),
        Ok(()) => skip(format!(
            "{what} is accepted; if the rule reads its request, name one that it must refuse with \
             --bad-request"
        )),
        Err(CallFailure::Status(status)) if status.code() == Code::InvalidArgument => {
            match status.message().is_empty() {
                true => fail(format!(
                    "{what}: seen INVALID_ARGUMENT without a message; expected the field and the \
                     fix"
                )),
                false => Ok(()),
            }
        }
        Err(failure) => fail(format!("{what}: seen {failure}; expected INVALID_ARGUMENT")),
    }
}

async fn bad_rule(session: &Session) -> Verdict {
    let ask = async |rule| {
        let question = EndpointCostRequest {
            rule: Some(rule),
            ..session.questions.plain()
        };
        session.endpoint_cost(question).await.map(drop)
    };
    refuses_bad_rules(session, ask).await
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
