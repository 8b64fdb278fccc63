//! Checks of the lines of an answer.

use tautline_proto::ruleprovider::NodeCost;

use crate::{
    check::checks,
    failure::{Answered, Verdict, fail, skip, wrong},
    lines::{Completeness, is_code, names, number_fault},
    questions::{Form, LARGE, UNKNOWN_NODES},
    session::Session,
};

checks! { "nodes":
    "every-node" has_no("no line for", |c| c.missing, "a line for each of the {} nodes");
    "once" has_no("several lines for", |c| c.repeated, "one for each node");
    "no-other" has_no("lines for", |c| c.others, "only eligible nodes");
    "unknown" is_answered(UNKNOWN_NODES);
    "many" is_complete(LARGE);
    "codes" codes;
    "usable" usable;
    "costs" costs;
}

/// Judges the nodes of each answer that have a fault.
async fn has_no(
    session: &Session,
    fault: &str,
    nodes: for<'a> fn(Completeness<'a>) -> Vec<&'a str>,
    expected: &str,
) -> Verdict {
    for (what, asked, answer) in session.samples().await {
        let Ok(answer) = answer else { continue };
        let nodes = names(&nodes(Completeness::of(asked, &answer.node_and_cost)));
        if !nodes.is_empty() {
            let expected = expected.replace("{}", &asked.len().to_string());
            return wrong(what, format!("{fault} {nodes}"), expected);
        }
    }
    Ok(())
}

pub(super) async fn is_answered(session: &Session, (what, _): Form) -> Verdict {
    let samples = session.samples().await.iter();
    let mut samples = samples.filter(|(name, ..)| *name == what);
    samples.try_for_each(|(.., answer)| answer.as_ref().answered(what).map(drop))
}

/// Judges whether the answer has one line for each node.
pub(super) async fn is_complete(session: &Session, (what, question): Form) -> Verdict {
    let question = question(&session.questions);
    let asked = question.eligible_nodes.clone();
    let answer = session.ask(question).await.answered(what)?;
    match Completeness::of(&asked, &answer.node_and_cost).faults() {
        Some(faults) => fail(format!("{what}: seen {faults}")),
        None => Ok(()),
    }
}

/// Returns the lines of all answers.
async fn lines(session: &Session) -> impl Iterator<Item = &NodeCost> {
    let answers = session.samples().await.iter();
    let answers = answers.filter_map(|(_, _, answer)| answer.as_ref().ok());
    answers.flat_map(|answer| &answer.node_and_cost)
}

async fn codes(session: &Session) -> Verdict {
    let lines = lines(session).await;
    let refused: Vec<&NodeCost> = lines.filter(|line| line.cost < 0).collect();
    let mut coded = refused.iter().filter(|line| !line.reason.is_empty());
    if let Some(line) = coded.clone().find(|line| !is_code(&line.reason)) {
        let reason = &line.reason;
        let seen = format!("reason {reason:?}, which people see as Unusable");
        return wrong(&line.node, seen, "a code such as OverLimit");
    }
    if refused.is_empty() {
        let reason = "no node was refused; name one that the rule refuses in --nodes, or a --limit";
        return skip(reason);
    }
    if coded.next().is_none() {
        return skip("no refused node has a reason; people see Unusable, no code of yours");
    }
    Ok(())
}

async fn usable(session: &Session) -> Verdict {
    let lines = lines(session).await;
    let usable: Vec<&NodeCost> = lines.filter(|line| line.cost >= 0).collect();
    let is_odd = |line: &&&NodeCost| !line.reason.is_empty() || line.freeable;
    if let Some(line) = usable.iter().find(is_odd) {
        let (cost, reason, freeable) = (line.cost, &line.reason, line.freeable);
        let seen = format!("cost {cost} with reason {reason:?} and freeable {freeable}");
        let expected = "none of both, because the node can be used";
        return wrong(&line.node, seen, expected);
    }
    if usable.is_empty() {
        return skip("no node is usable; name some in --nodes, with a good --request and --limit");
    }
    Ok(())
}

async fn costs(session: &Session) -> Verdict {
    if let Some(fault) = lines(session).await.find_map(number_fault) {
        return fail(format!("seen {fault}"));
    }
    for (what, _, answer) in session.samples().await {
        let resolution = answer.as_ref().map_or(0, |answer| answer.resolution);
        if resolution < 0 {
            return wrong(what, format!("resolution {resolution}"), "0 or more");
        }
    }
    Ok(())
}
