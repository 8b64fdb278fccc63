//! Checks of the compliance of placed pods.

use tautline_proto::ruleprovider::{
    EvaluateRequest, EvaluateResponse, evaluate_response::ComplianceState,
};
use tonic::Code;

use super::questions::{MAX_EQUAL_REQUESTS, must_repeat, refuses_bad_rules};
use crate::{
    check::checks,
    failure::{Answered, Finding, Verdict, skip, wrong},
    questions::{Form, Questions},
    session::Session,
};

checks! { "evaluate":
    "placed" placed;
    "unplaced" [must_answer] no_violation(("pods without a node", Questions::of_unplaced_pods));
    "unknown" [must_answer] no_violation((
        "unknown pods on unknown nodes", Questions::of_unknown_pods));
    "no-targets" [must_answer] no_targets;
    "turnbuckle" [must_answer] turnbuckle;
    "repeats" [must_answer] repeats;
    "bad-rule" [must_answer] bad_rule;
    "expected" expected;
}

fn state(what: &str, answer: &EvaluateResponse) -> Verdict<ComplianceState> {
    let seen = answer.compliance;
    let state = ComplianceState::try_from(seen);
    state.or_else(|_| wrong(what, format!("state {seen}"), "0 to 4"))
}

/// A state and its reason.
type Evaluated = (ComplianceState, String);

async fn evaluated(session: &Session, what: &str, request: EvaluateRequest) -> Verdict<Evaluated> {
    let answer = session.evaluate(request).await.answered(what)?;
    Ok((state(what, &answer)?, answer.reason))
}

/// Skips a check while Evaluate is not answered, so that one fault does not fail every check.
async fn must_answer(session: &Session) -> Verdict {
    match session.placed().await {
        Ok(_) => Ok(()),
        Err(_) => skip("Evaluate is not answered: see evaluate/placed"),
    }
}

/// Returns whether Evaluate answers Compliant, even for pods that do not exist. The SDKs do so for
/// rules that count only when a pod is placed.
async fn complies_always(session: &Session) -> bool {
    let request = session.questions.of_unknown_pods();
    let unknown = session.evaluate(request).await;
    matches!((session.placed().await, unknown), (Ok(placed), Ok(unknown))
        if *placed == unknown && unknown.compliance() == ComplianceState::Compliant)
}

async fn no_violation(session: &Session, (what, request): Form<EvaluateRequest>) -> Verdict {
    match evaluated(session, what, request(&session.questions)).await? {
        (ComplianceState::Violation, reason) => {
            let expected = "another state, because nothing is known of them";
            wrong(what, format!("Violation ({reason})"), expected)
        }
        _ => Ok(()),
    }
}

async fn placed(session: &Session) -> Verdict {
    let what = "placed pods";
    let answer = session.placed().await.as_ref().answered(what)?;
    let state = state(what, answer)?;
    let good = matches!(state, ComplianceState::Pending | ComplianceState::Compliant);
    if !good && answer.reason.trim().is_empty() {
        let state = state.as_str_name();
        return wrong(what, format!("{state} without a reason"), "one");
    }
    Ok(())
}

async fn no_targets(session: &Session) -> Verdict {
    let what = "a binding without targets";
    let request = session.questions.evaluate(&[]);
    match session.evaluate(request).await {
        Err(failure) if failure.is(&[Code::InvalidArgument]) => Ok(()),
        answer => state(what, &answer.answered(what)?).map(drop),
    }
}

async fn turnbuckle(session: &Session) -> Verdict {
    let mut request = session.questions.placed();
    request.target_nodes.clear();
    let what = "a request without targetNodes";
    evaluated(session, what, request).await.map(drop)
}

async fn repeats(session: &Session) -> Verdict {
    let ask = || evaluated(session, "placed pods", session.questions.placed());
    let seen = |last: &Evaluated, (next, _): &Evaluated| {
        let seen = format!("another state in each of {MAX_EQUAL_REQUESTS} answers, at last");
        (last.0 != *next).then(|| format!("{seen} {}", next.as_str_name()))
    };
    must_repeat(ask, seen).await
}

async fn bad_rule(session: &Session) -> Verdict {
    match refuses_bad_rules(session, |bad| session.evaluate(bad.placed())).await {
        Err(Finding::Failed(_)) if complies_always(session).await => skip(
            "Evaluate is Compliant for all pods alike: the rule seems to count only at placement",
        ),
        verdict => verdict,
    }
}

async fn expected(session: &Session) -> Verdict {
    let (expectations, questions) = (&session.config.expectations, &session.questions);
    if expectations.is_empty() {
        must_answer(session).await?;
        let (seen, _) = evaluated(session, "placed pods", questions.placed()).await?;
        return skip(format!(
            "only {} was seen; give placed pods for each state that the rule has, as in \
             --expect 'Violation source=shop/web-0@far destination=shop/db-0@near'",
            seen.as_str_name()
        ));
    }
    for expected in expectations {
        let pods: Vec<String> = expected.targets.iter().map(ToString::to_string).collect();
        let what = pods.join(" ");
        let ruled = questions.with_rule(expected.request.as_deref(), expected.limit.as_deref());
        let request = ruled.evaluate(&expected.targets);
        let (seen, reason) = evaluated(session, &what, request).await?;
        if seen != expected.state {
            let seen = format!("{} ({reason})", seen.as_str_name());
            return wrong(&what, seen, expected.state.as_str_name());
        }
    }
    Ok(())
}
