//! The lines of an answer.

use tautline_proto::ruleprovider::{EndpointCostResponse, NodeCost};

use crate::{
    check::{Check, Finding, Verdict, fail, skip},
    lines::{Completeness, is_code, names, number_fault},
    questions::MANY,
    session::{Sample, Session},
};

pub(crate) const CHECKS: &[Check] = &[
    Check {
        group: "nodes",
        name: "every-node",
        requires: "each eligible node has a line",
        fix: "return a NodeCost for every name in eligibleNodes, also for nodes that cannot be \
              used or are not known: cost -1 and a reason",
        needs_answers: true,
        run: |session| Box::pin(every_node(session)),
    },
    Check {
        group: "nodes",
        name: "once",
        requires: "no node has several lines",
        fix: "return one NodeCost for each name: of several the worst counts",
        needs_answers: true,
        run: |session| Box::pin(once(session)),
    },
    Check {
        group: "nodes",
        name: "no-other",
        requires: "no other node has a line",
        fix: "answer the names in eligibleNodes alone: kube-scheduler has excluded the others",
        needs_answers: true,
        run: |session| Box::pin(no_other(session)),
    },
    Check {
        group: "nodes",
        name: "unknown",
        requires: "unknown nodes do not fail the question",
        fix: "return a line with cost -1 and a reason such as UnknownNode instead of an error \
              status: other nodes can still be used",
        needs_answers: true,
        run: |session| Box::pin(unknown(session)),
    },
    Check {
        group: "nodes",
        name: "many",
        requires: "10,000 nodes in one question are answered, in at most 8 MiB",
        fix: "raise the server's limit of a received message to 16 MiB, and keep details short",
        needs_answers: true,
        run: |session| Box::pin(many(session)),
    },
    Check {
        group: "nodes",
        name: "codes",
        requires: "the reason of a refused node is a capital letter and letters, 40 at most",
        fix: "write a fixed word in CamelCase such as OverLimit; figures and names belong into \
              detail",
        needs_answers: true,
        run: |session| Box::pin(codes(session)),
    },
    Check {
        group: "nodes",
        name: "usable",
        requires: "a node with a cost of 0 or more has no reason and is not freeable",
        fix: "set reason and freeable of refused nodes alone, and give those a negative cost",
        needs_answers: true,
        run: |session| Box::pin(usable(session)),
    },
    Check {
        group: "nodes",
        name: "costs",
        requires: "costs below -1 have a reason; tieBreak is 0 to cost; resolution is not negative",
        fix: "convert differences, NaN and infinities before they become a cost; a negative cost \
              makes the node unusable",
        needs_answers: true,
        run: |session| Box::pin(costs(session)),
    },
];

/// Judges all answers; the first fault counts.
async fn each(
    session: &Session,
    fault: impl Fn(&Sample, &EndpointCostResponse) -> Option<String>,
) -> Verdict {
    let samples = session.samples().await;
    let mut faults = samples.answered().filter_map(|(sample, answer)| {
        let fault = fault(sample, answer)?;
        Some(format!("{}: {fault}", sample.label))
    });
    faults.next().map_or(Ok(()), fail)
}

fn completeness(sample: &Sample, answer: &EndpointCostResponse) -> Completeness {
    Completeness::of(&sample.asked, &answer.node_and_cost)
}

fn list(what: &str, nodes: &[String], expected: &str) -> Option<String> {
    (!nodes.is_empty()).then(|| format!("{what} {}; expected {expected}", names(nodes)))
}

async fn every_node(session: &Session) -> Verdict {
    let fault = |sample: &Sample, answer: &_| {
        let missing = completeness(sample, answer).missing;
        let expected = format!("a line for each of the {} nodes", sample.asked.len());
        list("seen no line for", &missing, &expected)
    };
    each(session, fault).await
}

async fn once(session: &Session) -> Verdict {
    let fault = |sample: &Sample, answer: &_| {
        let repeated = completeness(sample, answer).repeated;
        list("seen several lines for", &repeated, "one for each node")
    };
    each(session, fault).await
}

async fn no_other(session: &Session) -> Verdict {
    let fault = |sample: &Sample, answer: &_| {
        let others = completeness(sample, answer).others;
        list("seen lines for", &others, "only eligible nodes")
    };
    each(session, fault).await
}

async fn unknown(session: &Session) -> Verdict {
    let sample = &session.samples().await.unknown_nodes;
    match &sample.answer {
        Err(failure) => Err(Finding::unanswered(sample.label, failure)),
        Ok(_) => Ok(()),
    }
}

async fn many(session: &Session) -> Verdict {
    let what = format!("a question with {MANY} nodes");
    let question = session.questions.many();
    let asked = question.eligible_nodes.clone();
    let answer = session.ask(&what, question).await?;
    match Completeness::of(&asked, &answer.node_and_cost).faults() {
        Some(faults) => fail(format!("{what}: seen {faults}")),
        None => Ok(()),
    }
}

async fn lines(session: &Session) -> Vec<&NodeCost> {
    let answered = session.samples().await.answered();
    answered.flat_map(|(_, a)| &a.node_and_cost).collect()
}

async fn codes(session: &Session) -> Verdict {
    let lines = lines(session).await;
    let refused: Vec<&NodeCost> = lines.into_iter().filter(|line| line.cost < 0).collect();
    let mut bad = refused
        .iter()
        .filter(|line| !line.reason.is_empty() && !is_code(&line.reason));
    if let Some(NodeCost { node, reason, .. }) = bad.next() {
        return fail(format!(
            "{node}: seen reason {reason:?}, which people see as Unusable; expected a code such \
             as OverLimit"
        ));
    }
    if refused.is_empty() {
        return skip(
            "no node was refused; name one that the rule refuses in --nodes, or a --limit",
        );
    }
    match refused.iter().all(|line| line.reason.is_empty()) {
        true => skip("no refused node has a reason; people see Unusable, no code of yours"),
        false => Ok(()),
    }
}

async fn usable(session: &Session) -> Verdict {
    let lines = lines(session).await;
    let usable: Vec<&NodeCost> = lines.into_iter().filter(|line| line.cost >= 0).collect();
    let odd = |line: &&&NodeCost| !line.reason.is_empty() || line.freeable;
    if let Some(line) = usable.iter().find(odd) {
        let NodeCost {
            node,
            cost,
            reason,
            freeable,
            ..
        } = line;
        return fail(format!(
            "{node}: seen cost {cost} with reason {reason:?} and freeable {freeable}; expected \
             none of both, because the node can be used"
        ));
    }
    match usable.is_empty() {
        true => skip("no node is usable; name some in --nodes, with a good --request and --limit"),
        false => Ok(()),
    }
}

async fn costs(session: &Session) -> Verdict {
    if let Some(fault) = lines(session).await.into_iter().find_map(number_fault) {
        return fail(format!("seen {fault}"));
    }
    let negative = |_: &Sample, answer: &EndpointCostResponse| {
        let resolution = answer.resolution;
        (resolution < 0).then(|| format!("seen resolution {resolution}; expected 0 or more"))
    };
    each(session, negative).await
}
