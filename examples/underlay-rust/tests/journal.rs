//! Allocations survive a restart.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tautline_example_underlay::{Underlay, Verb};
use tautline_proto::underlay::{
    AllocateRequest, DiscoverRequest, MitigateRequest, ReleaseRequest,
    underlay_controller_server::UnderlayController,
};
use tonic::{Code, Request};

#[tokio::test]
async fn journal_restores_allocations_and_no_offers() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let start = || {
        let underlay = Underlay::new([("n1", 1), ("n2", 2)], Duration::from_secs(30));
        underlay.open_journal(&journal).unwrap();
        underlay
    };
    let allocate = |id: &str| Request::new(AllocateRequest { id: id.into() });
    let release = |id: &str| Request::new(ReleaseRequest { id: id.into() });

    let first = start();
    let request = DiscoverRequest {
        eligible_nodes: vec!["n1".into(), "n2".into(), "n3".into()],
        ..DiscoverRequest::default()
    };
    let answer = first.discover(Request::new(request)).await.unwrap();
    let ids: Vec<String> = answer
        .into_inner()
        .offers
        .into_iter()
        .map(|o| o.id)
        .collect();
    assert_eq!(ids.len(), 2);
    first.allocate(allocate(&ids[0])).await.unwrap();
    let made = first
        .mitigate(Request::new(MitigateRequest::default()))
        .await;
    let made = made.unwrap().into_inner().id;
    first.release(release(&made)).await.unwrap();
    drop(first);

    let second = start();
    second.allocate(allocate(&ids[0])).await.unwrap();
    for id in [&ids[1], &made] {
        let refused = second.allocate(allocate(id)).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
    }
    let violation = MitigateRequest {
        id: vec!["gone".into(), ids[0].clone()],
        ..MitigateRequest::default()
    };
    let mitigated = second.mitigate(Request::new(violation)).await.unwrap();
    assert_eq!(mitigated.into_inner().id, ids[0]);
    second.release(release(&ids[0])).await.unwrap();
    assert_eq!(second.state().successes(Verb::Release, &ids[0]), 1);
    drop(second);

    let third = start();
    let again = third.release(release(&ids[0])).await.unwrap_err();
    assert_eq!(again.code(), Code::NotFound);
    assert!(third.state().allocated.is_empty());
}
