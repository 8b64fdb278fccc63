//! Numbered answers.

use tautline_proto::ruleprovider::EndpointCostResponse;

use crate::{
    check::{Check, Finding, Verdict, fail, skip},
    checks::allocator,
    lines::{Completeness, apply, difference, names},
    session::Session,
};

/// Attempts to compare two answers of one version.
const ATTEMPTS: usize = 20;
/// Versions that no provider has given.
const FOREIGN: [u64; 2] = [1, u64::MAX];

pub(crate) const CHECKS: &[Check] = &[
    Check {
        group: "versions",
        name: "first",
        requires: "an answer to a question without knownVersion has changedSince 0",
        fix: "set changedSince only to the question's own knownVersion",
        needs_answers: true,
        run: |session| Box::pin(first(session)),
    },
    Check {
        group: "versions",
        name: "foreign",
        requires: "a knownVersion that this process has not given is answered with changedSince 0 \
                   and the eligible nodes",
        fix: "start numbers at the process's start time in nanoseconds, and answer changes only \
              since versions that your log still has",
        needs_answers: true,
        run: |session| Box::pin(foreign(session)),
    },
    Check {
        group: "versions",
        name: "changes",
        requires: "an answer with the changes since it are the lines of the later version; one \
                   number has one set of lines, and numbers grow",
        fix: "record a change once lines show it, and read the version before the lines or all \
              under one lock",
        needs_answers: true,
        run: |session| Box::pin(changes(session)),
    },
    Check {
        group: "versions",
        name: "reservation",
        requires: "a reservation that changes a node's line is a change, with one line even if the \
                   node is eligible, too",
        fix: "record the node in the log of changes at Reserve and Release, and return each node \
              once",
        needs_answers: true,
        run: |session| Box::pin(reservation(session)),
    },
];

const NOT_NUMBERED: &str = "answers are not numbered: no version";

/// All lines.
async fn full(session: &Session) -> Result<EndpointCostResponse, Finding> {
    let question = session.questions.plain();
    let answer = session.ask("a plain question", question).await?;
    match answer.version {
        0 => skip(NOT_NUMBERED),
        _ => Ok(answer),
    }
}

/// The changes since a version, and the lines of `nodes`.
async fn since(
    session: &Session,
    known: u64,
    nodes: &[String],
) -> Result<EndpointCostResponse, Finding> {
    let what = format!("the question for changes since {known}");
    let question = session.questions.changes(known, nodes);
    let answer = session.ask(&what, question).await?;
    let lines = Completeness {
        // Other checks judge missing lines; changed nodes may have any name.
        missing: Vec::new(),
        others: Vec::new(),
        ..Completeness::of(nodes, &answer.node_and_cost)
    };
    if let Some(faults) = lines.faults() {
        return fail(format!("{what}: seen {faults}"));
    }
    let changed_since = answer.changed_since;
    if changed_since != 0 && changed_since != known {
        return fail(format!(
            "{what}: seen changedSince {changed_since}; expected {known}, or 0"
        ));
    }
    if changed_since != 0 && answer.version < known {
        return fail(format!(
            "{what}: seen version {}; expected {known} or a later one",
            answer.version
        ));
    }
    Ok(answer)
}

async fn first(session: &Session) -> Verdict {
    match full(session).await?.changed_since {
        0 => Ok(()),
        other => fail(format!(
            "seen changedSince {other} without knownVersion; expected 0"
        )),
    }
}

async fn foreign(session: &Session) -> Verdict {
    let all = full(session).await?;
    let all: Vec<String> = all
        .node_and_cost
        .into_iter()
        .map(|line| line.node)
        .collect();
    for known in FOREIGN {
        let answer = since(session, known, &session.questions.nodes).await?;
        if answer.changed_since != 0 {
            return fail(format!(
                "seen the changes since {known}, which is of another process; expected \
                 changedSince 0"
            ));
        }
        let missing = Completeness::of(&all, &answer.node_and_cost).missing;
        if !missing.is_empty() {
            return fail(format!(
                "the question with knownVersion {known}: seen no line for {}; expected those of \
                 the eligible nodes",
                names(&missing)
            ));
        }
    }
    Ok(())
}

async fn changes(session: &Session) -> Verdict {
    let mut earlier = full(session).await?;
    for _ in 0..ATTEMPTS {
        let changes = since(session, earlier.version, &[]).await?;
        let later = full(session).await?;
        let comparable = changes.changed_since != 0 && changes.version == later.version;
        if comparable || earlier.version == later.version {
            let known = match comparable {
                true => apply(&earlier.node_and_cost, &changes.node_and_cost),
                false => earlier.node_and_cost,
            };
            return match difference(&later.node_and_cost, &known) {
                None => Ok(()),
                Some(difference) => fail(format!(
                    "version {}: seen {difference} by the answer {} with the changes since; \
                     expected equal lines",
                    later.version, earlier.version
                )),
            };
        }
        earlier = later;
    }
    skip("no version was seen twice: the lines changed between all calls")
}

async fn reservation(session: &Session) -> Verdict {
    let before = full(session).await?;
    let (node, id) = allocator::grant(session, "numbered").await?;
    let beside = since(session, before.version, std::slice::from_ref(&node)).await?;
    if !beside.node_and_cost.iter().any(|line| line.node == node) {
        return fail(format!(
            "the question for changes and {node}: seen no line for {node}; expected one"
        ));
    }
    let changes = since(session, before.version, &[]).await?;
    let after = full(session).await?;
    if changes.changed_since == 0 {
        return skip("the provider answers without changes after a reservation");
    }
    let known = apply(&before.node_and_cost, &changes.node_and_cost);
    if changes.version == after.version
        && let Some(difference) = difference(&after.node_and_cost, &known)
    {
        return fail(format!(
            "after a reservation on {node}: seen {difference} by the changes; expected equal lines"
        ));
    }
    let released = session.release(&session.channel, &id).await;
    released.map_err(|failure| Finding::unanswered("Release", &failure))?;
    let changes = since(session, after.version, &[]).await?;
    let last = full(session).await?;
    let known = apply(&after.node_and_cost, &changes.node_and_cost);
    if changes.changed_since != 0
        && changes.version == last.version
        && let Some(difference) = difference(&last.node_and_cost, &known)
    {
        return fail(format!(
            "after the release on {node}: seen {difference} by the changes; expected equal lines"
        ));
    }
    Ok(())
}
