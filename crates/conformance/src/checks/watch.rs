//! Checks of WatchCosts, by which the provider sends costs before a pod asks.

use std::time::Duration;

use tautline_proto::ruleprovider::{CostWatch, IndexedNode};

use super::{allocator::must_be_allocator, questions::bad_rules};
use crate::{
    check::checks,
    failure::{Verdict, fail, skip, wrong},
    lines::describe,
    questions::for_all_pods,
    session::Session,
    stream::{CostStream, FIRST_ID, Subject, indexed},
};

/// The ids of further questions.
const SECOND_ID: u64 = 8;
const FURTHER_ID: u64 = 20;
/// The longest time between two `through`: a second, and the delay of a busy machine.
const MAX_THROUGH_INTERVAL: Duration = Duration::from_millis(2_500);
/// The maximum number of waits for a `through`.
const MAX_THROUGH_WAITS: usize = 4;
/// The maximum number of pods that are placed one after the other, because a line may change for
/// other reasons.
const MAX_PLACED_PODS: usize = 3;
/// The time to wait for a late change.
const LATE_CHANGE_WAIT: Duration = Duration::from_millis(1_500);

checks! { "watch":
    "first-costs" first_costs;
    "through" through;
    "nodes" nodes;
    "questions" questions;
    "placed" placed;
}

fn must_have_costs(stream: &CostStream<'_>) -> Verdict {
    match stream.heard.said(FIRST_ID) {
        Some(Ok(costs)) if costs.per_pod => skip("costs depend on which pod asks: perPod"),
        Some(Err(_)) => skip("no costs to judge: see watch/first-costs"),
        _ => stream.must_be_complete(FIRST_ID),
    }
}

async fn first_costs(session: &Session) -> Verdict {
    let plain = session.questions.plain();
    let mut stream = CostStream::open(session, indexed(&plain.eligible_nodes)).await?;
    stream.must_be_complete(FIRST_ID)?;
    stream.heard.must_lack(Subject::UnknownIndex)?;
    stream.heard.must_lack(Subject::SameLine)?;
    let all_pods = for_all_pods(plain.clone());
    let what = "the question for all pods";
    stream.must_agree(what, FIRST_ID, &all_pods).await?;
    let what = "the question of one pod";
    stream.must_agree(what, FIRST_ID, &plain).await?;
    for node in &plain.eligible_nodes {
        let mut request = plain.clone();
        request.eligible_nodes = vec![node.clone()];
        let what = "the question for one node";
        stream.must_agree(what, FIRST_ID, &request).await?;
    }
    Ok(())
}

async fn through(session: &Session) -> Verdict {
    let mut stream = CostStream::open(session, indexed(&session.questions.nodes)).await?;
    let question = for_all_pods(session.questions.without_peers());
    for id in FURTHER_ID..FURTHER_ID + 3 {
        stream.send_question(id, &question);
        stream.send(|m| m.closed_questions.push(id));
    }
    stream.settle().await?;
    let mut before = false;
    for _ in 0..MAX_THROUGH_WAITS {
        let beats = stream.beats_within(MAX_THROUGH_INTERVAL).await?;
        // The first `through` may have been on its way before.
        if beats && before {
            return stream.heard.must_lack(Subject::Through);
        }
        before = beats;
    }
    stream.heard.must_lack(Subject::Through)?;
    let limit = MAX_THROUGH_INTERVAL;
    fail(format!(
        "seen no through for {limit:?}; expected one each second"
    ))
}

async fn nodes(session: &Session) -> Verdict {
    let mut all = session.questions.nodes.clone();
    all.push(session.questions.unique("unknown-watched"));
    let mut nodes = indexed(&all);
    let (mut node, unknown) = (nodes.remove(0), nodes[nodes.len() - 1].index);
    let mut stream = CostStream::open(session, nodes).await?;
    must_have_costs(&stream)?;
    stream.tell(|m| m.added_nodes.push(node.clone())).await?;
    stream.must_be_complete(FIRST_ID)?;
    stream.tell(|m| m.removed_nodes.push(node.index)).await?;
    // A provider that did not remove the node sends its line for this question, too.
    let second = for_all_pods(session.questions.without_peers());
    stream.ask(SECOND_ID, &second).await?;
    stream.heard.must_lack(Subject::UnknownIndex)?;
    node.index = unknown;
    let moving = |message: &mut CostWatch| {
        message.removed_nodes.push(unknown);
        message.added_nodes.push(node);
    };
    stream.tell(moving).await?;
    stream.must_be_complete(FIRST_ID)?;
    stream.must_be_complete(SECOND_ID)?;
    let mut request = for_all_pods(session.questions.plain());
    request.eligible_nodes = stream.heard.nodes();
    let what = "the question with a node that has another's index";
    stream.must_agree(what, FIRST_ID, &request).await
}

async fn questions(session: &Session) -> Verdict {
    let mut stream = CostStream::open(session, indexed(&session.questions.nodes)).await?;
    let second = for_all_pods(session.questions.without_peers());
    stream.ask(SECOND_ID, &second).await?;
    stream.must_be_complete(SECOND_ID)?;
    let what = "a second question";
    stream.must_agree(what, SECOND_ID, &second).await?;
    stream.tell(|m| m.closed_questions.push(FIRST_ID)).await?;
    // Each open question gets a line for this node.
    let (index, name) = (0, session.questions.unique("unknown-asked"));
    let node = IndexedNode { index, name };
    stream.tell(|m| m.added_nodes.push(node)).await?;
    stream.must_be_complete(SECOND_ID)?;
    stream.heard.must_lack(Subject::ClosedQuestion)?;
    stream.tell(|m| m.removed_nodes.push(index)).await?;
    for (id, (what, bad, _)) in (FURTHER_ID..).zip(bad_rules(session)) {
        let bad = for_all_pods(bad.plain());
        stream.ask(id, &bad).await?;
        stream.must_agree(&what, id, &bad).await?;
    }
    stream.tell(|m| m.closed_questions.push(FURTHER_ID)).await
}

async fn placed(session: &Session) -> Verdict {
    let nodes = &session.questions.nodes;
    let mut stream = CostStream::open(session, indexed(nodes)).await?;
    must_be_allocator(session).await?;
    must_have_costs(&stream)?;
    let lines = stream.heard.lines(FIRST_ID);
    let usable = lines.iter().find(|line| line.cost >= 0);
    let node = usable.map_or(&nodes[0], |line| &line.node);
    let line = |stream: &CostStream<'_>| {
        let lines = stream.heard.lines(FIRST_ID);
        let line = lines.iter().find(|line| line.node == *node);
        line.map_or("no line".into(), describe)
    };
    let mut verdict = Ok(());
    for i in 0..MAX_PLACED_PODS {
        let before = line(&stream);
        let who = format!("placed-{i}");
        let pod = session.questions.promised(&who, node);
        stream.tell(|m| m.placed_pods.push(pod)).await?;
        let counted = line(&stream);
        stream.listen(LATE_CHANGE_WAIT).await?;
        let late = line(&stream);
        let uid = session.questions.unique(who);
        stream.tell(|m| m.ended_pods.push(uid)).await?;
        let after = line(&stream);
        verdict = if late != counted {
            let seen = format!("{late} after through had passed a placed pod with {counted}");
            wrong(node, seen, "it before")
        } else if after != before {
            let seen = format!("{after} once through has passed endedPods");
            let expected = format!("{before}, as before the pod was placed");
            wrong(node, seen, expected)
        } else {
            return Ok(());
        };
    }
    verdict
}
