use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use tautline_conformance::{Config, run};
use tautline_test_report::Report;

use crate::{
    failed,
    fake::{Fake, Fault, NODES, RULE},
    passes, patient, skipped,
};

/// The fault, the check that finds it, and others that may: they judge the same.
const FAULTS: &[(Fault, &str, &[&str])] = &[
    (Fault::NeverServing, "connection/health", &[]),
    (Fault::LeavesOutANode, "nodes/every-node", &["versions/"]),
    (
        Fault::RepeatsANode,
        "nodes/once",
        &["nodes/many", "versions/"],
    ),
    (Fault::AddsANode, "nodes/no-other", &["nodes/many"]),
    (Fault::FailsForUnknownNodes, "nodes/unknown", &[]),
    (Fault::SmallMessages, "nodes/many", &["time/many-nodes"]),
    (Fault::FiguresInCodes, "nodes/codes", &[]),
    (Fault::NanCost, "nodes/costs", &[]),
    (Fault::NeedsPeers, "questions/no-peers", &[]),
    (Fault::NeedsAWorkload, "questions/turnbuckle", &[]),
    (
        Fault::CountsQuestions,
        "questions/repeats",
        &["versions/", "validity/"],
    ),
    (
        Fault::SharesState,
        "questions/concurrent",
        &["nodes/", "time/"],
    ),
    (Fault::AcceptsBadRules, "questions/bad-rule", &[]),
    (Fault::CallsBadRulesInternal, "questions/bad-rule", &[]),
    (Fault::Slow, "time/deadline", &["time/many-nodes"]),
    (Fault::IgnoresCancellation, "time/cancellation", &["time/"]),
    (Fault::RanksNodes, "validity/other-nodes", &["versions/"]),
    (Fault::VersionGoesBack, "versions/changes", &["versions/"]),
    (Fault::KnowsAnyVersion, "versions/foreign", &["versions/"]),
    (Fault::ForgetsAChange, "versions/reservation", &[]),
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
    (
        Fault::ReservesAlone,
        "allocator/release-unknown",
        &["allocator/", "versions/"],
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
