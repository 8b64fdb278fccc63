//! The result of underlay calls after each kind of failure.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

use std::{net::Ipv4Addr, time::Duration};

use tautline_core::{
    Index, Snapshot,
    index::Object,
    model::{Service, ServicePort},
};
use tautline_example_underlay::{Underlay, Verb, serve};
use tautline_provider_client::{AllocateError, CallError, ClientConfig, Metrics, ProviderClient};
use tokio::net::TcpListener;

fn providers() -> ProviderClient {
    let config = ClientConfig {
        underlay_deadline: Duration::from_millis(400),
        ..ClientConfig::single_tenant()
    };
    ProviderClient::new(config, Metrics::default()).unwrap()
}

/// An underlay with the offer `p1`, and its cluster.
async fn running() -> (Underlay, Snapshot) {
    let underlay = Underlay::new([("n1", 1)], Duration::from_secs(30));
    let end = std::time::SystemTime::now() + Duration::from_secs(30);
    let offered = ("n1".to_owned(), end);
    underlay.state().offered.insert("p1".into(), offered);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(serve(listener, underlay.clone()));
    let mut index = Index::default();
    index.apply(Object::Service(Service {
        namespace: "net".into(),
        name: "paths".into(),
        underlay: true,
        external_name: Some("localhost".into()),
        ports: vec![ServicePort {
            name: "underlay".into(),
            port,
        }],
        ..Service::default()
    }));
    (underlay, index.snapshot())
}

#[tokio::test]
async fn allocate_underlay_is_idempotent() {
    let (underlay, snapshot) = running().await;
    let providers = providers();
    let service = providers.underlay(&snapshot, "shop").unwrap();
    for _ in 0..2 {
        let allocated = providers.allocate_underlay(&snapshot, service, "p1").await;
        allocated.unwrap();
    }
    assert!(underlay.state().allocated.contains_key("p1"));
    for _ in 0..2 {
        let released = providers.release_underlay(&snapshot, service, "p1").await;
        released.unwrap(); // One that is unknown is back already.
    }
    assert_eq!(underlay.state().successes(Verb::Release, "p1"), 1);
    let again = providers.allocate_underlay(&snapshot, service, "p1").await;
    assert!(matches!(again, Err(AllocateError::Refused(_))), "{again:?}");
}

#[tokio::test]
async fn allocate_underlay_distinguishes_unknown_from_refused() {
    let (underlay, snapshot) = running().await;
    let providers = providers();
    let service = providers.underlay(&snapshot, "shop").unwrap();
    let allocate = async |id: &str| providers.allocate_underlay(&snapshot, service, id).await;

    let unknown = allocate("p9").await;
    assert!(
        matches!(unknown, Err(AllocateError::Refused(_))),
        "{unknown:?}"
    );

    underlay.state().unavailable.insert(Verb::Allocate);
    let down = allocate("p1").await;
    assert!(matches!(down, Err(AllocateError::Unknown(_))), "{down:?}");

    underlay.state().unavailable.clear();
    let late = Duration::from_secs(30);
    underlay.state().delays.insert(Verb::Allocate, late);
    let lost = allocate("p1").await;
    let lost = lost.unwrap_err();
    assert!(
        matches!(lost, AllocateError::Unknown(CallError::Timeout(_))),
        "{lost}"
    );
    assert!(lost.to_string().ends_with(" within 400ms"), "{lost}");
    assert!(underlay.state().allocated.contains_key("p1"), "it may be");

    underlay.state().unavailable.insert(Verb::Release);
    let released = providers.release_underlay(&snapshot, service, "p1").await;
    assert!(
        released.is_err(),
        "an underlay that is away has released nothing"
    );
}

#[tokio::test]
async fn allocate_underlay_refused_without_a_call() {
    let mut index = Index::default();
    index.apply(Object::Service(Service {
        namespace: "net".into(),
        name: "paths".into(),
        underlay: true,
        has_selector: true,
        ..Service::default()
    }));
    let (providers, snapshot) = (providers(), index.snapshot());
    let service = providers.underlay(&snapshot, "shop").unwrap();
    let error = providers.allocate_underlay(&snapshot, service, "p1").await;
    assert!(matches!(
        error,
        Err(AllocateError::Refused(CallError::NotReady))
    ));
}
