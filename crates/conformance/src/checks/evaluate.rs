//! The compliance of placed pods.

use tautline_proto::ruleprovider::{
    EvaluateRequest, EvaluateResponse, evaluate_response::ComplianceState,
};
use tonic::Code;

use crate::{
    check::{Check, Finding, Verdict, fail, skip},
    checks::questions::refuses_bad_rules,
    session::Session,
};

/// Equal requests until two answers in a row agree.
const REPEATS: usize = 8;

pub(crate) const CHECKS: &[Check] = &[
    Check {
        group: "evaluate",
        name: "placed",
        requires: "placed pods have one of the five states; Limit, Violation and Error a reason",
        fix: "return Pending, Compliant, Limit, Violation or Error, and say why: people see the \
              reason; Compliant if the rule counts only when a pod is placed",
        needs_answers: true,
        run: |session| Box::pin(placed(session)),
    },
    Check {
        group: "evaluate",
        name: "unplaced",
        requires: "a pod with an empty node is no Violation",
        fix: "return Pending while a pod has no node: a Violation may evict pods",
        needs_answers: true,
        run: |session| Box::pin(unplaced(session)),
    },
    Check {
        group: "evaluate",
        name: "unknown",
        requires: "unknown pods on unknown nodes have a state, and no Violation",
        fix: "return Error or Pending for what you do not know, instead of an error status",
        needs_answers: true,
        run: |session| Box::pin(unknown(session)),
    },
    Check {
        group: "evaluate",
        name: "no-targets",
        requires: "a binding without targets has a state, or is refused with INVALID_ARGUMENT",
        fix: "check that the targets that you read are there",
        needs_answers: true,
        run: |session| Box::pin(no_targets(session)),
    },
    Check {
        group: "evaluate",
        name: "turnbuckle",
        requires: "a request without targetNodes has a state",
        fix: "look the pods' nodes up, or return Pending if you cannot",
        needs_answers: true,
        run: |session| Box::pin(turnbuckle(session)),
    },
    Check {
        group: "evaluate",
        name: "repeats",
        requires: "equal requests in a row have the same state, unless figures have changed",
        fix: "make the state a function of the request and your data",
        needs_answers: true,
        run: |session| Box::pin(repeats(session)),
    },
    Check {
        group: "evaluate",
        name: "bad-rule",
        requires: "Evaluate refuses an unreadable request or limit with INVALID_ARGUMENT and a \
                   message",
        fix: "read the rule as EndpointCost does, before anything else",
        needs_answers: true,
        run: |session| Box::pin(bad_rule(session)),
    },
    Check {
        group: "evaluate",
        name: "expected",
        requires: "the pods of --expect have the states that it names",
        fix: "compare with the rule's request and limit, and use targetNodes for the nodes",
        needs_answers: true,
        run: |session| Box::pin(expected(session)),
    },
];

fn state(what: &str, answer: &EvaluateResponse) -> Result<ComplianceState, Finding> {
    ComplianceState::try_from(answer.compliance).map_err(|_| {
        let seen = answer.compliance;
        Finding::Failed(format!("{what}: seen state {seen}; expected 0 to 4"))
    })
}

async fn evaluated(
    session: &Session,
    what: &str,
    request: EvaluateRequest,
) -> Result<(ComplianceState, String), Finding> {
    let answer = session.evaluate(request).await;
    let answer = answer.map_err(|failure| Finding::unanswered(what, &failure))?;
    Ok((state(what, &answer)?, answer.reason))
}

/// Otherwise one fault would fail every check.
async fn must_answer(session: &Session) -> Verdict {
    match session.placed().await {
        Ok(_) => Ok(()),
        Err(_) => skip("Evaluate is not answered: see evaluate/placed"),
    }
}

/// Whether Evaluate says the same of pods that nobody knows, as the SDKs do for rules that count
/// only when a pod is placed.
async fn complies_always(session: &Session) -> bool {
    let unknown = session.evaluate(session.questions.of_unknown_pods()).await;
    match (session.placed().await, unknown) {
        (Ok(placed), Ok(unknown)) => {
            *placed == unknown && placed.compliance == ComplianceState::Compliant as i32
        }
        _ => false,
    }
}

async fn no_violation(session: &Session, what: &str, request: EvaluateRequest) -> Verdict {
    match evaluated(session, what, request).await? {
        (ComplianceState::Violation, reason) => fail(format!(
            "{what}: seen Violation ({reason}); expected another state, because nothing is known \
             of them"
        )),
        _ => Ok(()),
    }
}

async fn placed(session: &Session) -> Verdict {
    let what = "placed pods";
    let answer = session.placed().await.as_ref();
    let answer = answer.map_err(|failure| Finding::unanswered(what, failure))?;
    let state = state(what, answer)?;
    let bad = !matches!(state, ComplianceState::Pending | ComplianceState::Compliant);
    match bad && answer.reason.trim().is_empty() {
        true => fail(format!(
            "{what}: seen {} without a reason; expected one",
            state.as_str_name()
        )),
        false => Ok(()),
    }
}

async fn unplaced(session: &Session) -> Verdict {
    must_answer(session).await?;
    // Pods that a provider may have seen elsewhere would be another matter.
    let mut request = session.questions.of_unknown_pods();
    request.target_nodes.values_mut().for_each(String::clear);
    no_violation(session, "pods without a node", request).await
}

async fn unknown(session: &Session) -> Verdict {
    must_answer(session).await?;
    let request = session.questions.of_unknown_pods();
    no_violation(session, "unknown pods on unknown nodes", request).await
}

async fn no_targets(session: &Session) -> Verdict {
    must_answer(session).await?;
    let request = EvaluateRequest {
        rule: Some(session.questions.rule()),
        ..EvaluateRequest::default()
    };
    let what = "a binding without targets";
    match session.evaluate(request).await {
        Ok(answer) => state(what, &answer).map(drop),
        Err(failure) if failure.code() == Some(Code::InvalidArgument) => Ok(()),
        Err(failure) => Err(Finding::unanswered(what, &failure)),
    }
}

async fn turnbuckle(session: &Session) -> Verdict {
    must_answer(session).await?;
    let mut request = session.questions.placed();
    request.target_nodes.clear();
    let what = "a request without targetNodes";
    evaluated(session, what, request).await.map(drop)
}

async fn repeats(session: &Session) -> Verdict {
    must_answer(session).await?;
    let ask = async || {
        let request = session.questions.placed();
        let answer = evaluated(session, "placed pods", request).await;
        answer.map(|(state, _)| state)
    };
    let mut last = ask().await?;
    for _ in 1..REPEATS {
        let next = ask().await?;
        if next == last {
            return Ok(());
        }
        last = next;
    }
    fail(format!(
        "seen another state in each of {REPEATS} answers, at last {}; expected equal ones",
        last.as_str_name()
    ))
}

async fn bad_rule(session: &Session) -> Verdict {
    must_answer(session).await?;
    let ask = async |rule| {
        let request = EvaluateRequest {
            rule: Some(rule),
            ..session.questions.placed()
        };
        session.evaluate(request).await.map(drop)
    };
    match refuses_bad_rules(session, ask).await {
        Err(Finding::Failed(_)) if complies_always(session).await => skip(
            "Evaluate is Compliant for all pods alike: the rule seems to count only at placement",
        ),
        verdict => verdict,
    }
}

async fn expected(session: &Session) -> Verdict {
    let expectations = &session.config.expectations;
    if expectations.is_empty() {
        must_answer(session).await?;
        let request = session.questions.placed();
        let (seen, _) = evaluated(session, "placed pods", request).await?;
        let seen = seen.as_str_name();
        return skip(format!(
            "only {seen} was seen; give placed pods for each state that the rule has, as in \
             --expect 'Violation source=shop/web-0@far destination=shop/db-0@near'"
        ));
    }
    for expectation in expectations {
        let expected = expectation.state;
        let pods: Vec<String> = expectation
            .targets
            .iter()
            .map(ToString::to_string)
            .collect();
        let what = pods.join(" ");
        let request = session.questions.expected(expectation);
        let (seen, reason) = evaluated(session, &what, request).await?;
        if seen != expected {
            return fail(format!(
                "{what}: seen {} ({reason}); expected {}",
                seen.as_str_name(),
                expected.as_str_name()
            ));
        }
    }
    Ok(())
}
