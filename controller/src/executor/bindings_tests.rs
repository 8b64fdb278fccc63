//! The task of the reconciler with an API server that answers in this process.

use std::{sync::Arc, time::Duration};

use hyper::{Method, Request, Response};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tautline_core::{
    Compliance,
    index::Object,
    model::{Offer, Pod, Target, TargetKind},
    selector::Selector,
};
use tautline_provider_client::ProviderClient;
use tautline_runtime::{
    admin::Readiness, cluster_store::ClusterStore, dynamic_watch::WatchedKinds, events::Events,
    history::FigureHistory, lease,
};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Context, bindings::run};
use crate::{
    app::admin_page,
    config::Config,
    decisions::Decisions,
    metrics::Metrics,
    reconciler::{BindingEvent, Counts},
};

/// Answers a request, and reports writes of bindings by method and path.
async fn answer(
    request: Request<Body>,
    writes: mpsc::UnboundedSender<String>,
) -> Result<Response<Body>, std::convert::Infallible> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let body = request.into_body().collect_bytes().await.unwrap();
    let mut body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let is_binding = path.contains("/constraintpolicybindings");
    if is_binding && method != Method::GET {
        _ = writes.send(format!("{method} {path}"));
    }
    let status = match method {
        Method::GET => {
            body = json!({"kind": "Status", "status": "Failure", "code": 404,
                          "reason": "NotFound", "message": "not found"});
            404
        }
        Method::PATCH => {
            body["spec"] = json!({"offer": "o", "targets": {}});
            200
        }
        _ => {
            body["metadata"]["uid"] = "u".into();
            200
        }
    };
    let response = Response::builder().status(status);
    Ok(response
        .body(Body::from(body.to_string().into_bytes()))
        .unwrap())
}

fn context(client: Client) -> Arc<Context> {
    let config = Config::new("tautline-system", "test".to_owned());
    let providers = ProviderClient::new(
        config.provider_client.clone(),
        tautline_provider_client::Metrics::default(),
    );
    let (events, _) = Events::new();
    let store = ClusterStore::default();
    store.apply(Object::Pod(Pod {
        namespace: "shop".into(),
        name: "web-0".into(),
        labels: [("app", "web")].into_iter().collect(),
        ..Pod::default()
    }));
    store.apply(Object::Offer(Offer {
        namespace: "shop".into(),
        name: "o".into(),
        targets: vec![Target {
            name: "default".into(),
            kind: TargetKind::Pod,
            api_version: String::new(),
            selector: Selector::default(),
        }],
        policies: vec!["absent".into()],
        ..Offer::default()
    }));
    Arc::new(Context {
        config,
        store,
        client,
        provider_client: providers.unwrap(),
        metrics: Metrics::default(),
        events,
        kinds: WatchedKinds::default(),
        decisions: Decisions::default(),
        readiness: Readiness::default(),
        violation_history: FigureHistory::new("violations", "bindings"),
        violations: Mutex::default(),
        eviction_turn: Semaphore::new(1),
        leader: watch::Sender::new(None),
    })
}

#[tokio::test]
async fn executor_of_a_leader_creates_evaluates_and_writes_and_ends_when_stopped() {
    let (sender, mut writes) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request| answer(request, sender.clone()));
    let client = Client::new(service, "default");
    let context = context(client.clone());
    let stop = CancellationToken::new();
    let (bindings, receiver) = mpsc::channel(8);
    let task = tokio::spawn(run(Arc::clone(&context), receiver, stop.clone()));
    bindings.send(BindingEvent::All(Vec::new())).await.unwrap();
    let config = context.config.lease.clone();
    let leader = context.leader.clone();
    let election = tokio::spawn(lease::run(client, config, leader, stop.clone()));
    let mut next = async || {
        let next = tokio::time::timeout(Duration::from_secs(30), writes.recv());
        next.await.expect("a write").unwrap()
    };
    let all = "/apis/constraint.ciena.com/v1alpha1/namespaces/shop/constraintpolicybindings";
    assert_eq!(next().await, format!("POST {all}"));
    let status = next().await;
    assert!(status.starts_with(&format!("PATCH {all}/o-")), "{status}");
    assert!(status.ends_with("/status"), "{status}");
    let counted = async {
        while context.violations_of_leader().is_none() {
            tokio::task::yield_now().await;
        }
    };
    let counted = tokio::time::timeout(Duration::from_secs(30), counted).await;
    counted.expect("the leader counts bindings");
    stop.cancel();
    task.await.unwrap();
    election.await.unwrap().unwrap();
}

#[tokio::test]
async fn history_of_a_standby_has_no_samples() {
    let (sender, _writes) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request| answer(request, sender.clone()));
    let context = context(Client::new(service, "default"));
    let mut counts = Counts::default();
    counts.bindings[Compliance::Violation as usize] = 3;
    context.metrics.counted(&counts);
    assert_eq!(context.metrics.violations(), Some(3));
    let sampling = context
        .violation_history
        .sample(|| context.violations_of_leader());
    _ = tokio::time::timeout(Duration::ZERO, sampling).await;
    let page = admin_page(&context, "/history").unwrap();
    assert_eq!(page.status(), 200);
    assert_eq!(context.violation_history.series().samples, []);
    assert!(admin_page(&context, "/other").is_none());
}
