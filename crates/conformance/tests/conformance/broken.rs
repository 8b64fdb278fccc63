use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use tautline_conformance::{Config, run};
use tautline_report::{CaseResult, Report};

use crate::{
    failed,
    fake::{Fake, Fault, NODES, RULE},
    passes, patient, skipped,
};

/// The fault, the check that finds it, and others that may: they judge the same.
const FAULTS: &[(Fault, &str, &[&str])] = &[
    (Fault::NeverServing, "connection/health", &[]),
    (
        Fault::LeavesOutANode,
        "nodes/every-node",
        &["allocator/in-flight", "watch/"],
    ),
    (
        Fault::RepeatsANode,
        "nodes/once",
        &["nodes/many", "allocator/in-flight"],
    ),
    (
        Fault::AddsANode,
        "nodes/no-other",
        &["nodes/many", "allocator/in-flight", "watch/"],
    ),
    (Fault::FailsForUnknownNodes, "nodes/unknown", &[]),
    (Fault::SmallMessages, "nodes/many", &["time/many-nodes"]),
    (Fault::FiguresInCodes, "nodes/codes", &[]),
    (Fault::NanCost, "nodes/costs", &[]),
    (Fault::NeedsPeers, "questions/no-peers", &[]),
    (Fault::NeedsAWorkload, "questions/turnbuckle", &[]),
    (Fault::CountsQuestions, "questions/repeats", &["watch/"]),
    (
        Fault::SharesState,
        "questions/concurrent",
        &["nodes/", "time/", "watch/"],
    ),
    (Fault::AcceptsBadRules, "questions/bad-rule", &[]),
    (Fault::CallsBadRulesInternal, "questions/bad-rule", &[]),
    (Fault::Slow, "time/deadline", &["time/many-nodes"]),
    (Fault::IgnoresCancellation, "time/cancellation", &["time/"]),
    (Fault::RanksNodes, "watch/first-costs", &[]),
    (Fault::KnowsPods, "watch/first-costs", &[]),
    (Fault::StreamLacksANode, "watch/first-costs", &["watch/"]),
    (Fault::StreamRepeatsLines, "watch/first-costs", &[]),
    (
        Fault::StreamHasUnknownIndexes,
        "watch/first-costs",
        &["watch/nodes"],
    ),
    (
        Fault::StreamHasOtherCosts,
        "watch/first-costs",
        &["watch/nodes", "watch/questions"],
    ),
    (
        Fault::StreamFails,
        "watch/first-costs",
        &["watch/questions"],
    ),
    (Fault::ThroughIsAhead, "watch/through", &[]),
    (Fault::ThroughGoesBack, "watch/through", &[]),
    (Fault::SilentWithoutChanges, "watch/through", &[]),
    (
        Fault::AddedNodesAreLate,
        "watch/nodes",
        &["watch/questions"],
    ),
    (Fault::KeepsRemovedNodes, "watch/nodes", &[]),
    (Fault::AddsBeforeItRemoves, "watch/nodes", &[]),
    (Fault::KeepsClosedQuestions, "watch/questions", &[]),
    (Fault::EndsForBadRules, "watch/questions", &[]),
    (Fault::PlacedPodsAreLate, "watch/placed", &[]),
    (Fault::ForgetsEndedPods, "watch/placed", &[]),
    (
        Fault::EvaluatePanics,
        "evaluate/unknown",
        &["evaluate/expected"],
    ),
    (Fault::UnknownState, "evaluate/placed", &["evaluate/"]),
    (
        Fault::UnplacedIsAViolation,
        "evaluate/unplaced",
        &["evaluate/no-targets"],
    ),
    (
        Fault::ReserveIsNotIdempotent,
        "allocator/repeats",
        &["allocator/release", "allocator/new-id"],
    ),
    (Fault::ReusesIds, "allocator/new-id", &["allocator/"]),
    (
        Fault::ConfirmsAnything,
        "allocator/confirm-unknown",
        &["allocator/"],
    ),
    (Fault::HoldNeverEnds, "allocator/hold", &[]),
    (Fault::RepeatsNodesInFlight, "allocator/in-flight", &[]),
    (
        Fault::ReservesAlone,
        "allocator/release-unknown",
        &["allocator/"],
    ),
    (
        Fault::EvaluateFails,
        "evaluate/placed",
        &["evaluate/expected"],
    ),
    (Fault::EndsWithoutPeers, "questions/no-peers", &[]),
];

async fn config(fault: Fault) -> Config {
    let address = Fake::start(fault).await;
    let expected = [
        "Compliant source=shop/web-0@n1",
        "Error source=shop/web-0@gone",
    ];
    let mut config = Config {
        request: "1".into(),
        bad_request: Some("many".into()),
        nodes: NODES.map(str::to_owned).to_vec(),
        expectations: expected.map(|text| text.parse().unwrap()).to_vec(),
        reserve: true,
        ..patient(address, RULE)
    };
    match fault {
        Fault::NeverServing => config.start_within = Duration::from_millis(500),
        // A call takes 100 ms.
        Fault::Slow => config.deadline = Duration::from_millis(50),
        Fault::IgnoresCancellation => config.deadline = Duration::from_millis(500),
        _ => {}
    }
    config
}

async fn report(fault: Fault) -> Report {
    run(config(fault).await).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provider_without_a_fault_passes_every_check() {
    let report = passes(config(Fault::None).await).await;
    assert_eq!(skipped(&report), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_fails_at_its_check() {
    let judged = FAULTS.iter().map(async |(fault, check, others)| {
        let report = report(*fault).await;
        let failed = failed(&report);
        let is_strange = |name: &&String| {
            name.as_str() != *check && !others.iter().any(|part| name.starts_with(part))
        };
        let strange: BTreeSet<_> = failed.iter().filter(is_strange).collect();
        let found = failed.contains(*check) && strange.is_empty();
        (!found).then(|| {
            format!(
                "{fault:?}: failed {failed:?}, expected {check}\n{}",
                report.tap()
            )
        })
    });
    let wrong: Vec<String> = join_all(judged).await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn provider_without_the_stream_is_asked_by_endpoint_cost() {
    let report = passes(Config {
        filter: Some("watch/".into()),
        ..config(Fault::NoStream).await
    });
    let skipped = skipped(&report.await);
    let reason = "no WatchCosts: callers ask with EndpointCost";
    assert_eq!(skipped.matches(reason).count(), 5, "{skipped}");
}

#[tokio::test]
async fn findings_say_what_the_stream_has_sent() {
    let mut findings = String::new();
    for (fault, check) in [
        (Fault::StreamLacksANode, "watch/first-costs"),
        (Fault::StreamHasOtherCosts, "watch/first-costs"),
        (Fault::ThroughIsAhead, "watch/through"),
        (Fault::KeepsRemovedNodes, "watch/nodes"),
        (Fault::KeepsClosedQuestions, "watch/questions"),
        (Fault::EndsForBadRules, "watch/questions"),
        (Fault::PlacedPodsAreLate, "watch/placed"),
        (Fault::ForgetsEndedPods, "watch/placed"),
    ] {
        let report = run(Config {
            filter: Some(check.into()),
            ..config(fault).await
        });
        for case in report.await.unwrap().cases {
            if let CaseResult::Failed { message, .. } = case.result {
                findings += &format!("{message}\n");
            }
        }
    }
    insta::assert_snapshot!(findings, @r#"
    message 1: seen through without a line for n2; expected one for each of the 4 nodes
    the question for all pods: seen n1: cost 0, then cost 1 on the stream; expected the same
    seen through 8 after 7 messages; expected at most 7
    seen a line for index 3, which stands for no node
    seen costs of question 7, which is not open
    the stream: seen INVALID_ARGUMENT (request is "many"; write a number of seats); expected it to stay open
    n1: seen cost 1 tieBreak 1 after through had passed a placed pod with cost 0; expected it before
    n1: seen cost 3 tieBreak 1 once through has passed endedPods; expected cost 2 tieBreak 1, as before the pod was placed
    "#);
}

#[tokio::test]
async fn bad_limit_is_judged_if_any_request_is_accepted() {
    let report = run(Config {
        bad_request: None,
        bad_limit: Some("few".into()),
        filter: Some("questions/bad-rule".into()),
        ..config(Fault::AcceptsBadRules).await
    });
    let tap = report.await.unwrap().tap();
    let expected = r#"limit "few": seen OK; expected INVALID_ARGUMENT"#;
    assert!(tap.contains(expected), "{tap}");
}

#[tokio::test]
async fn rule_that_counts_at_placement_alone_need_not_be_read_by_evaluate() {
    let report = passes(Config {
        expectations: Vec::new(),
        filter: Some("evaluate/".into()),
        ..config(Fault::CompliesAlways).await
    });
    let skipped = skipped(&report.await);
    assert!(
        skipped.contains("evaluate/bad-rule: Evaluate is"),
        "{skipped}"
    );
}

#[tokio::test]
async fn failure_has_message_and_fix() {
    let address = Fake::start(Fault::LeavesOutANode).await;
    let report = run(Config {
        nodes: NODES.map(str::to_owned).to_vec(),
        filter: Some("nodes/every".into()),
        ..patient(address, RULE)
    });
    insta::assert_snapshot!(report.await.unwrap().tap(), @r#"
    TAP version 13
    1..1
    not ok 1 - nodes: every-node
      ---
      message: |
        a plain question: seen no line for n2; expected a line for each of the 4 nodes
      fix: |
        return a NodeCost for every name in eligibleNodes, also for nodes that cannot be used or are not known: cost -1 and a reason
      ...
    "#);
}

#[tokio::test]
async fn run_ends_at_its_deadline() {
    let report = run(Config {
        filter: Some("time/".into()),
        timeout: Duration::from_millis(1),
        ..config(Fault::Slow).await
    });
    let report = report.await.unwrap();
    assert_eq!(
        (report.failed(), report.cases.len()),
        (1, 5),
        "{}",
        report.tap()
    );
    assert_eq!(report.skipped(), 4);
}
