//! Spans of rounds with two providers, at a collector on loopback.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;
use tautline_core::{
    index::Object,
    model::{Offer, Policy, Rule, Service, ServicePort, Target, TargetKind},
    selector::Selector,
    trust::TrustedNamespaces,
};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_scheduler_extender::Config;
use tautline_sdk::{CostAnswer, CostRequest, ProviderError, testkit};
use tautline_traces::Traces;
use tokio::net::TcpListener;

use crate::{
    collector::{Collector, Span},
    served::{Served, http_with},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const ENDPOINT_COST: &str = "ruleprovider.RuleProvider/EndpointCost";

/// n3 is too far.
async fn near(request: CostRequest) -> Result<CostAnswer, ProviderError> {
    let mut answer = CostAnswer::default();
    for node in &request.eligible_nodes {
        match node.as_str() {
            "n3" => answer.unusable(node, "OverLimit", "31ms > 20ms", false),
            _ => answer.usable(node, 5, ""),
        }
    }
    Ok(answer)
}

async fn broken(_: CostRequest) -> Result<CostAnswer, ProviderError> {
    Err(ProviderError::Internal("no table".into()))
}

struct World {
    served: Served,
    _providers: [testkit::TestServer; 2],
}

/// Pods of the offer `web` have the rule `latency`, by a provider with traces, and `odd`, by one
/// that fails.
async fn world(extender: &Traces, provider: &Traces) -> World {
    let config = tautline_sdk::Config {
        traces: provider.clone(),
        ..testkit::loopback()
    };
    let providers = [
        testkit::start_with(near, config).await.unwrap(),
        testkit::start(broken).await.unwrap(),
    ];
    let store = ClusterStore::default();
    for (name, server) in ["latency", "odd"].into_iter().zip(&providers) {
        store.apply(Object::Service(Service {
            namespace: "shop".into(),
            name: format!("{name}-provider").as_str().into(),
            rules: vec![name.into()],
            external_name: Some("localhost".into()),
            ports: vec![ServicePort {
                name: "grpc".into(),
                port: server.address.port(),
            }],
            ..Service::default()
        }));
    }
    let rule = |name: &str| Rule {
        name: name.into(),
        weight: 1,
        ..Rule::default()
    };
    store.apply(Object::Policy(Policy {
        namespace: "shop".into(),
        name: "near".into(),
        rules: vec![rule("latency"), rule("odd")],
    }));
    let selector = Selector {
        match_labels: vec![("app".into(), "web".into())],
        ..Selector::default()
    };
    store.apply(Object::Offer(Offer {
        namespace: "shop".into(),
        name: "web".into(),
        uid: "".into(),
        created_unix: 0,
        targets: vec![Target {
            name: "default".into(),
            kind: TargetKind::Pod,
            api_version: "v1".into(),
            selector,
        }],
        policies: vec!["near".into()],
        period: Duration::from_secs(60),
        grace: Duration::ZERO,
        provider_unavailable: None,
        ..Offer::default()
    }));
    let mut config = Config {
        traces: extender.clone(),
        ..Config::default()
    };
    config.providers.trusted = TrustedNamespaces::all();
    World {
        served: Served::start(config, store).await,
        _providers: providers,
    }
}

impl World {
    async fn post(&self, verb: &str, headers: &str, app: &str) {
        let pod = json!({
            "metadata": {"namespace": "shop", "name": "web-0", "uid": "u-1", "labels": {"app": app}},
        });
        // Prioritize gets those of filter's answer.
        let nodes = match verb {
            "/filter" => &["n1", "n2", "n3"][..],
            _ => &["n1", "n2"],
        };
        let body = json!({"pod": pod, "nodenames": nodes}).to_string();
        let (status, text) = http_with(self.served.port, "POST", verb, headers, &body).await;
        assert_eq!(status, 200, "{text}");
    }
}

fn traceparent() -> String {
    format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n")
}

fn one(spans: &[Span], is: impl Fn(&Span) -> bool) -> &Span {
    let mut found = spans.iter().filter(|s| is(s));
    match (found.next(), found.next()) {
        (Some(span), None) => span,
        _ => panic!("not one such span: {spans:#?}"),
    }
}

#[tokio::test]
async fn filter_has_a_span_with_one_below_it_for_each_providers_call() {
    let (collector, url) = Collector::start().await;
    let traces = Traces::start("tautline-extender", Some(&url)).unwrap();
    let of_provider = Traces::start("latency-provider", Some(&url)).unwrap();
    let world = world(&traces, &of_provider).await;
    world.post("/filter", &traceparent(), "web").await;
    // An ungoverned pod.
    world.post("/filter", &traceparent(), "other").await;
    of_provider.end().await;
    traces.end().await;
    let spans = collector.wait_for(4).await;
    assert_eq!(spans.len(), 4, "{spans:#?}");
    assert!(spans.iter().all(|s| s.trace == TRACE), "{spans:#?}");

    let root = one(&spans, |s| s.name == "filter");
    assert_eq!(
        (&*root.service, &*root.parent),
        ("tautline-extender", CALLER)
    );
    assert_eq!(root.kind, SpanKind::Server);
    for (key, value) in [
        ("k8s.namespace.name", "shop"),
        ("k8s.pod.name", "web-0"),
        ("k8s.pod.uid", "u-1"),
        ("tautline.nodes.posted", "3"),
        ("tautline.nodes.usable", "2"),
        ("tautline.nodes.chosen", "n1|n2"),
        ("tautline.reasons", "latency/OverLimit: 1"),
        ("tautline.rules", "web/latency: OK|web/odd: ProviderFailed"),
    ] {
        assert_eq!(
            root.attributes.get(key).map(String::as_str),
            Some(value),
            "{root:#?}"
        );
    }

    let call = |rule: &str| {
        let is = |s: &Span| s.attributes.get("tautline.rule").is_some_and(|r| r == rule);
        one(&spans, is).clone()
    };
    let (near, odd) = (call("latency"), call("odd"));
    for (call, rule) in [(&near, "latency"), (&odd, "odd")] {
        assert_eq!((&*call.name, &call.parent), (ENDPOINT_COST, &root.id));
        assert_eq!(call.kind, SpanKind::Client);
        let provider = format!("shop/{rule}-provider");
        assert_eq!(call.attributes["tautline.provider"], provider);
    }
    assert_eq!(near.failure, None);
    assert_eq!(odd.attributes["error.type"], "ProviderFailed");
    assert!(
        odd.failure.as_ref().is_some_and(|f| f.contains("no table")),
        "{odd:#?}"
    );

    // The provider's own span: the call's metadata named its caller.
    let answered = one(&spans, |s| s.service == "latency-provider");
    assert_eq!(
        (&*answered.name, &answered.parent),
        (ENDPOINT_COST, &near.id)
    );
}

#[tokio::test]
async fn verbs_after_filter_are_in_its_trace() {
    let (collector, url) = Collector::start().await;
    let traces = Traces::start("tautline-extender", Some(&url)).unwrap();
    let world = world(&traces, &Traces::default()).await;
    world.post("/filter", "", "web").await;
    world.post("/prioritize", "", "web").await;
    world.post("/prioritize", &traceparent(), "web").await;
    traces.end().await;
    let spans = collector.wait_for(5).await;
    let filter = one(&spans, |s| s.name == "filter");
    assert_eq!(filter.parent, "");
    one(&spans, |s| s.name == "prioritize" && s.parent == filter.id);
    one(&spans, |s| s.name == "prioritize" && s.parent == CALLER);
}

#[tokio::test]
async fn nothing_is_sent_without_a_collector() {
    let off = Traces::start("tautline-extender", None).unwrap();
    assert!(!off.is_on());
    let (collector, url) = Collector::start().await;
    let of_provider = Traces::start("latency-provider", Some(&url)).unwrap();
    let world = world(&off, &of_provider).await;
    world.post("/filter", &traceparent(), "web").await;
    of_provider.end().await;
    let spans = collector.wait_for(1).await;
    // The call has no header, so this span begins a trace.
    let [span] = &spans[..] else {
        panic!("{spans:#?}")
    };
    assert_eq!((&*span.service, &*span.parent), ("latency-provider", ""));
    assert_ne!(span.trace, TRACE);
}

#[tokio::test]
async fn silent_collector_delays_neither_answers_nor_the_end() {
    // Accepts connections by its backlog, and answers none.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let traces = Traces::start("tautline-extender", Some(&url)).unwrap();
    let world = world(&traces, &Traces::default()).await;
    // More spans than the queue holds; `post` fails above the extender's deadline.
    for _ in 0..800 {
        world.post("/filter", "", "web").await;
    }
    let ended = tokio::time::timeout(Duration::from_secs(60), traces.end()).await;
    assert!(ended.is_ok());
}
