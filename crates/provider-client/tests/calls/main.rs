//! Calls to providers: balancing, limits, retries, deadlines.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

mod clusters;
mod failures;
mod guards;
mod in_flight;
mod streams;
mod tls;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tautline_core::{
    Index, Snapshot,
    constraints::{PodIdentity, pod_constraints},
    index::Object,
    model::{
        EndpointSlice, Offer, Policy, ProviderUnavailable, Rule, Service, ServicePort, Target,
        TargetKind,
    },
    nodes::NodeSet,
    planning::RuleOutcome,
    selector::Selector,
};
use tautline_proto::ruleprovider as wire;
use tautline_provider_client::{
    ClientConfig, Metrics, PlanningQuestion, PlanningRound, ProviderClient,
    allocate::{Reservation, ReserveError},
};
use tautline_sdk::{
    Allocator, AllocatorError, CostAnswer, CostRequest, Evaluation, EvaluationRequest,
    ProviderError, ReservationRef, ReservationRequest, Reserved, RuleProvider, testkit,
};

#[derive(Clone, Default)]
struct Counting {
    calls: Arc<Mutex<u32>>,
    delay: Duration,
    bytes: usize,
}

impl Counting {
    fn calls(&self) -> u32 {
        *self.calls.lock().unwrap()
    }
}

impl RuleProvider for Counting {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        *self.calls.lock().unwrap() += 1;
        tokio::time::sleep(self.delay).await;
        let mut answer = CostAnswer::default();
        for node in request.eligible_nodes {
            answer.usable(node, 1, "x".repeat(self.bytes));
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        *self.calls.lock().unwrap() += 1;
        Ok(Evaluation::default())
    }
}

/// A cluster with a provider of the rule `r` at these loopback addresses.
fn cluster(addresses: &[(&str, u16)]) -> Snapshot {
    cluster_index(addresses).snapshot()
}

fn cluster_index(addresses: &[(&str, u16)]) -> Index {
    let mut index = Index::default();
    index.apply(Object::Service(Service {
        namespace: "ns".into(),
        name: "p".into(),
        rules: vec!["r".into()],
        has_selector: true,
        allocator: true,
        ..Service::default()
    }));
    for (i, (host, port)) in addresses.iter().enumerate() {
        index.apply(Object::EndpointSlice(EndpointSlice {
            namespace: "ns".into(),
            name: format!("p-{i}").as_str().into(),
            service: "p".into(),
            ports: vec![ServicePort {
                name: "ruleprovider".into(),
                port: *port,
            }],
            ready: vec![(*host).to_owned()],
            ..EndpointSlice::default()
        }));
    }
    let rule = Rule {
        name: "r".into(),
        weight: 1,
        ..Rule::default()
    };
    index.apply(Object::Policy(Policy {
        namespace: "ns".into(),
        name: "p".into(),
        rules: vec![rule],
    }));
    index.apply(Object::Offer(Offer {
        namespace: "ns".into(),
        name: "o".into(),
        uid: "".into(),
        created_unix: 0,
        targets: vec![Target {
            name: "default".into(),
            kind: TargetKind::Pod,
            api_version: "v1".into(),
            selector: Selector::default(),
        }],
        policies: vec!["p".into()],
        period: Duration::from_secs(60),
        grace: Duration::ZERO,
        provider_unavailable: None,
        ..Offer::default()
    }));
    index
}

fn providers() -> ProviderClient {
    ProviderClient::new(ClientConfig::single_tenant(), Metrics::default()).unwrap()
}

/// A client that does not ask again because this machine is busy.
fn patient() -> ProviderClient {
    let config = ClientConfig {
        deadline: Duration::from_secs(60),
        ..ClientConfig::single_tenant()
    };
    ProviderClient::new(config, Metrics::default()).unwrap()
}

async fn plan(providers: &ProviderClient, snapshot: &Snapshot) -> PlanningRound {
    plan_on(providers, snapshot, &["n1", "n2"]).await
}

async fn plan_on(providers: &ProviderClient, snapshot: &Snapshot, nodes: &[&str]) -> PlanningRound {
    providers.plan_pod(snapshot, question(nodes)).await
}

fn question(nodes: &[&str]) -> PlanningQuestion {
    let subject = PodIdentity {
        namespace: "ns".into(),
        name: "pod".into(),
        ..PodIdentity::default()
    };
    let nodes: NodeSet = nodes.iter().copied().collect();
    PlanningQuestion {
        subject,
        nodes: Arc::new(nodes),
        ..PlanningQuestion::default()
    }
}

/// Reserves all rules of the pod on the node n1.
async fn reserve(
    providers: &ProviderClient,
    snapshot: &Snapshot,
    question: &PlanningQuestion,
) -> Result<Vec<Reservation>, ReserveError> {
    let constraints = pod_constraints(snapshot, &question.subject);
    providers
        .reserve(snapshot, &constraints, question, "n1")
        .await
}

fn code(round: &PlanningRound) -> &'static str {
    outcome(&round.rules[0].outcome)
}

fn outcome(outcome: &RuleOutcome) -> &'static str {
    match outcome {
        RuleOutcome::Costs(_) => "OK",
        RuleOutcome::Unavailable { code, .. } => code,
    }
}

#[tokio::test]
async fn rule_without_provider_rejects_if_it_has_a_limit() {
    use ProviderUnavailable::{Ignore, Reject};
    // The offer's field, the flag, whether the rule has a limit, and the effect.
    let cases = [
        (None, None, true, Reject),
        (None, None, false, Ignore),
        (None, Some(Ignore), true, Ignore),
        (None, Some(Reject), false, Reject),
        (Some(Ignore), Some(Reject), true, Ignore),
        (Some(Reject), Some(Ignore), false, Reject),
    ];
    for (field, flag, limited, effect) in cases {
        let mut index = cluster_index(&[]);
        let mut offer = (*index.snapshot().offer("ns", "o").unwrap().offer).clone();
        offer.provider_unavailable = field;
        index.apply(Object::Offer(offer));
        index.apply(Object::Policy(Policy {
            namespace: "ns".into(),
            name: "p".into(),
            rules: vec![Rule {
                name: "r".into(),
                weight: 1,
                limit: if limited { "1".into() } else { String::new() },
                ..Rule::default()
            }],
        }));
        let config = ClientConfig {
            provider_unavailable: flag,
            ..ClientConfig::single_tenant()
        };
        let providers = ProviderClient::new(config, Metrics::default()).unwrap();
        let round = plan(&providers, &index.snapshot()).await;
        let usable = round.plan.usable().count();
        let case = (field, flag, limited);
        assert_eq!(usable > 0, effect == Ignore, "{case:?}: {:?}", round.rules);
    }
}

#[tokio::test]
async fn missing_policy_rejects_unless_the_offer_ignores() {
    let mut index = cluster_index(&[]);
    let mut offer = (*index.snapshot().offer("ns", "o").unwrap().offer).clone();
    offer.policies = vec!["absent".into()];
    index.apply(Object::Offer(offer.clone()));
    let round = plan(&providers(), &index.snapshot()).await;
    assert_eq!(round.plan.usable().count(), 0, "{:?}", round.rules);
    offer.provider_unavailable = Some(ProviderUnavailable::Ignore);
    index.apply(Object::Offer(offer));
    let round = plan(&providers(), &index.snapshot()).await;
    assert_eq!(round.plan.usable().count(), 2, "{:?}", round.rules);
}

#[tokio::test]
async fn calls_use_ready_addresses_in_turn() {
    let (a, b) = (Counting::default(), Counting::default());
    let (run_a, run_b) = (
        testkit::start(a.clone()).await.unwrap(),
        testkit::start(b.clone()).await.unwrap(),
    );
    let snapshot = cluster(&[
        ("127.0.0.1", run_a.address.port()),
        ("127.0.0.1", run_b.address.port()),
    ]);
    let providers = patient();
    for _ in 0..20 {
        assert_eq!(code(&plan(&providers, &snapshot).await), "OK");
    }
    assert_eq!((a.calls(), b.calls()), (10, 10));
    // One replica dies: no call is lost.
    run_a.stop().await;
    for _ in 0..20 {
        assert_eq!(code(&plan(&providers, &snapshot).await), "OK");
    }
    assert!(b.calls() >= 30);
}

/// A provider may decide by its earlier observations.
#[tokio::test]
async fn evaluate_uses_the_same_replica() {
    let counts = [Counting::default(), Counting::default()];
    let a = testkit::start(counts[0].clone()).await.unwrap();
    let b = testkit::start(counts[1].clone()).await.unwrap();
    let snapshot = cluster(&[
        ("127.0.0.1", a.address.port()),
        ("127.0.0.1", b.address.port()),
    ]);
    let (providers, service) = (patient(), snapshot.service("ns", "p").unwrap());
    let mut by = [0, 0];
    for pod in 0..20 {
        let before = counts.each_ref().map(Counting::calls);
        let target = wire::Target {
            kind: "Pod".into(),
            name: format!("web-{pod}"),
            ..wire::Target::default()
        };
        for _ in 0..3 {
            let request = wire::EvaluateRequest {
                targets: [("web".to_owned(), target.clone())].into(),
                ..wire::EvaluateRequest::default()
            };
            providers
                .evaluate(&snapshot, service, request)
                .await
                .unwrap();
        }
        let calls = [0, 1].map(|i| counts[i].calls() - before[i]);
        assert!(calls == [3, 0] || calls == [0, 3], "{pod}: {calls:?}");
        by[usize::from(calls[1] > 0)] += 1;
    }
    assert!(by.iter().all(|n| *n > 0), "spread over both: {by:?}");
    // The other replica replaces it.
    a.stop().await;
    let before = counts[1].calls();
    for pod in 0..20 {
        let target = wire::Target {
            name: format!("web-{pod}"),
            ..wire::Target::default()
        };
        let request = wire::EvaluateRequest {
            targets: [("web".to_owned(), target)].into(),
            ..wire::EvaluateRequest::default()
        };
        providers
            .evaluate(&snapshot, service, request)
            .await
            .unwrap();
    }
    assert_eq!(counts[1].calls() - before, 20);
    b.stop().await;
}

#[tokio::test]
async fn breaker_opens_for_an_absent_provider_and_probes_it() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let snapshot = cluster(&[("127.0.0.1", port)]);
    let providers = providers();
    let mut codes = Vec::new();
    for _ in 0..8 {
        codes.push(code(&plan(&providers, &snapshot).await));
    }
    assert_eq!(codes[0], "ProviderFailed");
    assert_eq!(codes[7], "ProviderBreakerOpen", "{codes:?}");
    // It starts: a probe finds it within the breaker's pauses.
    let config = tautline_sdk::Config {
        listen: ([127, 0, 0, 1], port).into(),
        ..testkit::loopback()
    };
    let _running = testkit::start_with(Counting::default(), config)
        .await
        .unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(15);
    while code(&plan(&providers, &snapshot).await) != "OK" {
        assert!(
            std::time::Instant::now() < deadline,
            "the breaker never closed"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn slow_and_huge_answers_are_errors() {
    let slow = Counting {
        delay: Duration::from_secs(60),
        ..Counting::default()
    };
    let running = testkit::start(slow).await.unwrap();
    let round = plan(
        &providers(),
        &cluster(&[("127.0.0.1", running.address.port())]),
    )
    .await;
    assert_eq!(code(&round), "ProviderTimeout");
    let text = format!("no answer from {} within 500ms", running.address);
    assert_eq!(round.rules[0].error, Some(text));

    let huge = Counting {
        bytes: 5 << 20,
        ..Counting::default()
    };
    let running = testkit::start(huge).await.unwrap();
    let config = ClientConfig {
        deadline: Duration::from_secs(20),
        ..ClientConfig::single_tenant()
    };
    let providers = ProviderClient::new(config, Metrics::default()).unwrap();
    let round = plan(
        &providers,
        &cluster(&[("127.0.0.1", running.address.port())]),
    )
    .await;
    assert_eq!(
        code(&round),
        "ProviderBadAnswer",
        "{:?}",
        round.rules[0].error
    );
}

#[tokio::test]
async fn provider_without_ready_address_has_its_own_code() {
    let providers = providers();
    let round = plan(&providers, &cluster(&[])).await;
    assert_eq!(code(&round), "ProviderNotReady");
    assert_eq!(
        round.plan.usable().count(),
        2,
        "by default such a rule does not count"
    );
}

/// Always returns Unavailable.
struct NoLeader;

impl Allocator for NoLeader {
    async fn reserve(&self, _: ReservationRequest) -> Result<Reserved, AllocatorError> {
        Err(AllocatorError::Unavailable("no replica leads".into()))
    }
    async fn confirm(&self, _: ReservationRef) -> Result<(), AllocatorError> {
        Ok(())
    }
    async fn release(&self, _: ReservationRef) -> Result<(), AllocatorError> {
        Ok(())
    }
}

#[tokio::test]
async fn unavailable_allocator_still_gives_costs() {
    let running = testkit::start_with_allocator(Counting::default(), NoLeader)
        .await
        .unwrap();
    let snapshot = cluster(&[("127.0.0.1", running.address.port())]);
    let providers = patient();
    let question = PlanningQuestion {
        subject: PodIdentity {
            namespace: "ns".into(),
            name: "pod".into(),
            uid: "u".into(),
            ..PodIdentity::default()
        },
        ..PlanningQuestion::default()
    };
    for _ in 0..10 {
        let error = reserve(&providers, &snapshot, &question).await.unwrap_err();
        assert!(error.to_string().contains("no replica leads"), "{error}");
    }
    assert_eq!(code(&plan(&providers, &snapshot).await), "OK");
    running.stop().await;
}
