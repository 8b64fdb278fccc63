//! Answers that other pods use, too.

use tautline_proto::ruleprovider::{EndpointCostRequest, EndpointCostResponse};

use crate::{
    check::{Check, Finding, Verdict, fail, skip},
    lines::difference,
    session::Session,
};

const LONGEST_MILLIS: i64 = 60_000;
/// Attempts to compare two answers while figures do not change.
const ATTEMPTS: usize = 8;

pub(crate) const CHECKS: &[Check] = &[
    Check {
        group: "validity",
        name: "range",
        requires: "validForMillis is 0 to 60,000",
        fix: "set validForMillis to the time in which figures may be reused, in milliseconds, or \
              leave it out",
        needs_answers: true,
        run: |session| Box::pin(range(session)),
    },
    Check {
        group: "validity",
        name: "other-pod",
        requires: "answers with validForMillis or version are the same for another pod with the \
                   same labels, annotations and requests",
        fix: "leave validForMillis and version out if the cost depends on the pod's name or UID",
        needs_answers: true,
        run: |session| Box::pin(other_pod(session)),
    },
    Check {
        group: "validity",
        name: "refresh",
        requires: "with validForMillis, the question of a refresh, without name and UID, has the \
                   same lines",
        fix: "accept an empty source.name and workload.uid",
        needs_answers: true,
        run: |session| Box::pin(refresh(session)),
    },
    Check {
        group: "validity",
        name: "other-nodes",
        requires: "with validForMillis or version, a line is the same beside other eligible nodes",
        fix: "leave validForMillis and version out if a node's cost depends on the others, as a \
              rank or a share does",
        needs_answers: true,
        run: |session| Box::pin(other_nodes(session)),
    },
];

fn is_reused(answer: &EndpointCostResponse) -> bool {
    answer.valid_for_millis != 0 || answer.version != 0
}

async fn plain(session: &Session) -> Result<&EndpointCostResponse, Finding> {
    let sample = &session.samples().await.plain;
    let answer = sample.answer.as_ref();
    answer.map_err(|failure| Finding::unanswered(sample.label, failure))
}

async fn range(session: &Session) -> Verdict {
    match plain(session).await?.valid_for_millis {
        0 => skip("answers count for one call: no validForMillis"),
        1..=LONGEST_MILLIS => Ok(()),
        other => fail(format!(
            "seen validForMillis {other}; expected 0 to {LONGEST_MILLIS}"
        )),
    }
}

/// The lines of `question`, a part of the plain one, must be those of the plain question.
async fn same_lines(session: &Session, what: &str, question: EndpointCostRequest) -> Verdict {
    let ask = async || {
        let plain = session.questions.plain();
        session.ask("a plain question", plain).await
    };
    let mut before = ask().await?;
    for _ in 0..ATTEMPTS {
        let other = session.ask(what, question.clone()).await?;
        let after = ask().await?;
        if difference(&before.node_and_cost, &after.node_and_cost).is_none() {
            return match difference(&other.node_and_cost, &after.node_and_cost) {
                None => Ok(()),
                Some(difference) => fail(format!(
                    "{what}: seen {difference} in the plain question; expected equal lines"
                )),
            };
        }
        before = after;
    }
    skip("the costs changed between all calls")
}

async fn other_pod(session: &Session) -> Verdict {
    if !is_reused(plain(session).await?) {
        return skip("answers count for one call: neither validForMillis nor version");
    }
    let question = session.questions.of_another_pod();
    same_lines(session, "the question of another pod", question).await
}

async fn refresh(session: &Session) -> Verdict {
    if plain(session).await?.valid_for_millis == 0 {
        return skip("answers are not refreshed: no validForMillis");
    }
    let question = session.questions.refresh();
    same_lines(session, "a refresh", question).await
}

async fn other_nodes(session: &Session) -> Verdict {
    if !is_reused(plain(session).await?) {
        return skip("answers count for one call: neither validForMillis nor version");
    }
    for node in &session.questions.nodes {
        let question = EndpointCostRequest {
            eligible_nodes: vec![node.clone()],
            ..session.questions.plain()
        };
        same_lines(session, "the question for one node", question).await?;
    }
    Ok(())
}
