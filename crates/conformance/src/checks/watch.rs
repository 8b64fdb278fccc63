//! Costs that the provider sends before a pod asks.

mod agreement;

use std::time::Duration;

use tautline_proto::ruleprovider::{CostWatch, EndpointCostRequest, IndexedNode};

use self::agreement::{must_agree, must_be_complete};
use crate::{
    check::{Check, Finding, Verdict, fail, skip},
    checks::{allocator::must_be_allocator, questions::bad_rules},
    lines::describe,
    questions::for_all_pods,
    session::Session,
    stream::{CostStream, Subject, adding, closing, indexed, opening, removing},
};

/// Ids of questions.
const FIRST: u64 = 7;
const SECOND: u64 = 8;
const MORE: u64 = 20;
/// Longest time without `through`: a second, and what a busy machine adds.
const BEAT: Duration = Duration::from_millis(2_500);
/// Times to wait for it.
const BEATS: usize = 4;
/// Pods that are placed one after the other: a line may change for other reasons.
const PODS: usize = 3;
/// The time in which a late change comes.
const LATE: Duration = Duration::from_millis(1_500);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        group: "watch",
        name: "first-costs",
        requires: "a question of WatchCosts has one line for each node, or fails as EndpointCost \
                   does, before through passes its message; lines without perPod are those of \
                   EndpointCost, whichever pod asks for whichever nodes",
        fix: "send the line of every node by its index before through; send perPod instead of \
              lines if costs depend on the pod's name or UID, or on the other nodes",
        needs_answers: true,
        run: |session| Box::pin(first_costs(session)),
    },
    Check {
        group: "watch",
        name: "through",
        requires: "through is the number of a message that came, never goes back, and comes at \
                   least once a second",
        fix: "keep the sequence of the last message whose content all sent costs have, and send it \
              each second while nothing changes",
        needs_answers: true,
        run: |session| Box::pin(through(session)),
    },
    Check {
        group: "watch",
        name: "nodes",
        requires: "an added node has a line before through passes its message, a removed one has \
                   none afterwards, and an index that comes again is the new node's",
        fix: "apply removedNodes before addedNodes, and forget what you have sent for an index \
              that is removed",
        needs_answers: true,
        run: |session| Box::pin(nodes(session)),
    },
    Check {
        group: "watch",
        name: "questions",
        requires: "a question that is opened later gets its costs, a closed one none once through \
                   has passed, and one with an unreadable rule fails as EndpointCost does while \
                   the stream stays open",
        fix: "keep questions by their ids until closedQuestions names them, and send a \
              QuestionFailure instead of ending the stream",
        needs_answers: true,
        run: |session| Box::pin(questions(session)),
    },
    Check {
        group: "watch",
        name: "placed",
        requires: "a pod of placedPods changes its node's line before through passes its message, \
                   or not at all; after endedPods the line is as before",
        fix: "count pods of placedPods by their UIDs before you send through, until endedPods \
              names them or your watch shows them",
        needs_answers: true,
        run: |session| Box::pin(placed(session)),
    },
];

/// Opens a stream with the plain question for all pods about the nodes.
async fn begin(session: &Session, nodes: Vec<IndexedNode>) -> Result<CostStream<'_>, Finding> {
    let first = CostWatch {
        added_nodes: nodes,
        ..opening(FIRST, &for_all_pods(session.questions.plain()))
    };
    CostStream::open(session, first).await
}

fn must_have_costs(stream: &CostStream<'_>) -> Verdict {
    match stream.heard.said(FIRST) {
        Some(said) if said.per_pod => skip("costs depend on which pod asks: perPod"),
        Some(said) if said.failure.is_some() => skip("no costs to judge: see watch/first-costs"),
        _ => must_be_complete(stream, FIRST),
    }
}

async fn first_costs(session: &Session) -> Verdict {
    let plain = session.questions.plain();
    let mut stream = begin(session, indexed(&plain.eligible_nodes)).await?;
    must_be_complete(&stream, FIRST)?;
    stream.heard.must_lack(Subject::Indexes)?;
    stream.heard.must_lack(Subject::Repeats)?;
    let all_pods = for_all_pods(plain.clone());
    let one_node = plain.eligible_nodes.iter().map(|node| {
        let request = EndpointCostRequest {
            eligible_nodes: vec![node.clone()],
            ..plain.clone()
        };
        ("the question for one node", request)
    });
    let requests = [
        ("the question for all pods", all_pods),
        ("the question of one pod", plain.clone()),
    ];
    for (what, request) in requests.into_iter().chain(one_node) {
        must_agree(&mut stream, session, (what, FIRST), &request).await?;
    }
    Ok(())
}

async fn through(session: &Session) -> Verdict {
    let plain = session.questions.plain();
    let mut stream = begin(session, indexed(&plain.eligible_nodes)).await?;
    for id in MORE..MORE + 3 {
        stream.send(opening(
            id,
            &for_all_pods(session.questions.without_peers()),
        ));
        stream.send(closing(id));
    }
    stream.settle().await?;
    let mut in_time = 0;
    for _ in 0..BEATS {
        let beats = stream.beats_within(BEAT).await?;
        in_time = if beats { in_time + 1 } else { 0 };
        // The first may have been on its way.
        if in_time == 2 {
            break;
        }
    }
    stream.heard.must_lack(Subject::Through)?;
    match in_time {
        2 => Ok(()),
        _ => fail(format!(
            "seen no through for {BEAT:?}; expected one each second"
        )),
    }
}

async fn nodes(session: &Session) -> Verdict {
    let plain = session.questions.plain();
    let mut all = plain.eligible_nodes.clone();
    all.push(session.questions.unique("unknown-watched"));
    let mut nodes = indexed(&all);
    let (added, unknown) = (nodes.remove(0), nodes[nodes.len() - 1].index);
    let mut stream = begin(session, nodes).await?;
    must_have_costs(&stream)?;
    stream.tell(adding(&added)).await?;
    must_be_complete(&stream, FIRST)?;
    stream.tell(removing(added.index)).await?;
    // A provider that has kept the node sends its line for this question, too.
    let second = for_all_pods(session.questions.without_peers());
    stream.tell(opening(SECOND, &second)).await?;
    stream.heard.must_lack(Subject::Indexes)?;
    let moved = IndexedNode {
        index: unknown,
        ..added
    };
    let moving = CostWatch {
        added_nodes: vec![moved],
        ..removing(unknown)
    };
    stream.tell(moving).await?;
    for id in [FIRST, SECOND] {
        must_be_complete(&stream, id)?;
    }
    let request = EndpointCostRequest {
        eligible_nodes: stream.heard.nodes(),
        ..for_all_pods(plain)
    };
    let what = "the question with a node that has another's index";
    must_agree(&mut stream, session, (what, FIRST), &request).await
}

async fn questions(session: &Session) -> Verdict {
    let plain = session.questions.plain();
    let mut stream = begin(session, indexed(&plain.eligible_nodes)).await?;
    let second = for_all_pods(session.questions.without_peers());
    stream.tell(opening(SECOND, &second)).await?;
    must_be_complete(&stream, SECOND)?;
    let what = ("a second question", SECOND);
    must_agree(&mut stream, session, what, &second).await?;
    stream.tell(closing(FIRST)).await?;
    // All open questions have a line for it.
    let node = IndexedNode {
        index: 0,
        name: session.questions.unique("unknown-asked"),
    };
    stream.tell(adding(&node)).await?;
    must_be_complete(&stream, SECOND)?;
    stream.heard.must_lack(Subject::Questions)?;
    stream.tell(removing(node.index)).await?;
    for (id, (what, rule, _)) in (MORE..).zip(bad_rules(session)) {
        let bad = EndpointCostRequest {
            rule: Some(rule),
            ..for_all_pods(plain.clone())
        };
        stream.tell(opening(id, &bad)).await?;
        must_agree(&mut stream, session, (&what, id), &bad).await?;
    }
    stream.tell(closing(MORE)).await
}

async fn placed(session: &Session) -> Verdict {
    let nodes = &session.questions.nodes;
    let mut stream = begin(session, indexed(nodes)).await?;
    must_be_allocator(session).await?;
    must_have_costs(&stream)?;
    let lines = stream.heard.lines(FIRST);
    let usable = lines.iter().find(|line| line.cost >= 0);
    let node = usable.map_or(&nodes[0], |line| &line.node);
    let line = |stream: &CostStream<'_>| {
        let lines = stream.heard.lines(FIRST);
        let line = lines.iter().find(|line| line.node == *node);
        line.map_or("no line".into(), describe)
    };
    let mut verdict = Ok(());
    for i in 0..PODS {
        let before = line(&stream);
        let pod = session.questions.promised(&format!("placed-{i}"), node);
        let uid = pod.workload.as_ref().map(|w| w.uid.clone());
        let placing = CostWatch {
            placed_pods: vec![pod],
            ..CostWatch::default()
        };
        stream.tell(placing).await?;
        let counted = line(&stream);
        stream.listen(LATE).await?;
        let late = line(&stream);
        let ending = CostWatch {
            ended_pods: uid.into_iter().collect(),
            ..CostWatch::default()
        };
        stream.tell(ending).await?;
        let after = line(&stream);
        verdict = if late != counted {
            fail(format!(
                "{node}: seen {late} after through had passed a placed pod with {counted}; \
                 expected it before"
            ))
        } else if after != before {
            fail(format!(
                "{node}: seen {after} once through has passed endedPods; expected {before}, as \
                 before the pod was placed"
            ))
        } else {
            return Ok(());
        };
    }
    verdict
}
