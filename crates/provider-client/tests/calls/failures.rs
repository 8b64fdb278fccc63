//! Error messages of failed calls, and the circuit breaker.

use std::time::{Duration, Instant};

use tautline_core::Snapshot;
use tautline_provider_client::{ClientConfig, Metrics, ProviderClient};
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider, testkit,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{Counting, cluster, code, plan, plan_on};

/// The error of a round's only rule.
async fn error(providers: &ProviderClient, snapshot: &Snapshot) -> String {
    let round = plan(providers, snapshot).await;
    round.rules[0].error.clone().unwrap_or_default()
}

fn impatient() -> ProviderClient {
    let config = ClientConfig {
        deadline: Duration::from_millis(500),
        ..ClientConfig::single_tenant()
    };
    ProviderClient::new(config, Metrics::default()).unwrap()
}

/// A port that nothing listens on.
fn closed_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A server that answers every connection with `answer`, or nothing if it is empty.
async fn answering(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            if !answer.is_empty() {
                let mut request = [0; 1024];
                _ = stream.read(&mut request).await;
                _ = stream.write_all(answer.as_bytes()).await;
            }
            open.push(stream);
        }
    });
    port
}

#[tokio::test]
async fn call_errors_have_address_and_cause() {
    let at = |port: u16| cluster(&[("127.0.0.1", port)]);
    let providers = impatient();
    let port = closed_port();
    let text = error(&providers, &at(port)).await;
    assert_eq!(text, format!("127.0.0.1:{port}: connection refused"));

    let port = answering("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    let text = error(&providers, &at(port)).await;
    let expected = format!("127.0.0.1:{port}: the other side does not speak gRPC over HTTP/2");
    assert!(text.starts_with(&expected), "{text}");

    let port = answering("").await;
    let text = error(&providers, &at(port)).await;
    assert_eq!(
        text,
        format!("no answer from 127.0.0.1:{port} within 500ms")
    );
}

#[tokio::test]
async fn open_breaker_reports_the_last_error() {
    let port = closed_port();
    let (providers, snapshot) = (impatient(), cluster(&[("127.0.0.1", port)]));
    let mut text = String::new();
    for _ in 0..8 {
        text = error(&providers, &snapshot).await;
    }
    let expected = format!(
        "not called: every address has failed repeatedly; the last time: \
         127.0.0.1:{port}: connection refused"
    );
    assert_eq!(text, expected);
}

/// A provider that never answers costs callers a few deadlines; then only probes wait for it.
#[tokio::test]
async fn open_breaker_delays_no_caller() {
    let snapshot = cluster(&[("127.0.0.1", answering("").await)]);
    let providers = impatient();
    for _ in 0..8 {
        plan(&providers, &snapshot).await;
    }
    // Several of the breaker's pauses, in which it is probed.
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        // A waiting caller would exceed this.
        let round = plan(&providers, &snapshot).await;
        assert_eq!(code(&round), "ProviderBreakerOpen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn breaker_probes_in_the_background() {
    let port = closed_port();
    let (providers, snapshot) = (impatient(), cluster(&[("127.0.0.1", port)]));
    for _ in 0..8 {
        plan(&providers, &snapshot).await;
    }
    assert_eq!(
        code(&plan(&providers, &snapshot).await),
        "ProviderBreakerOpen"
    );
    let config = tautline_sdk::Config {
        listen: ([127, 0, 0, 1], port).into(),
        ..testkit::loopback()
    };
    let provider = Counting::default();
    let _running = testkit::start_with(provider.clone(), config).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while provider.calls() == 0 {
        assert!(Instant::now() < deadline, "it was never probed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The probe succeeded.
    while code(&plan(&providers, &snapshot).await) != "OK" {
        assert!(Instant::now() < deadline, "the breaker never closed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A replica on a node without power does not even refuse a connection.
#[tokio::test]
async fn silent_replica_costs_no_answer_while_another_lives() {
    let provider = Counting::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let silent = answering("").await;
    let snapshot = cluster(&[("127.0.0.1", silent), ("127.0.0.1", running.address.port())]);
    let config = ClientConfig {
        deadline: Duration::from_secs(4),
        ..ClientConfig::single_tenant()
    };
    let providers = ProviderClient::new(config, Metrics::default()).unwrap();
    for i in 0..12 {
        let round = plan(&providers, &snapshot).await;
        assert_eq!(code(&round), "OK", "call {i}: {:?}", round.rules);
    }
    assert!(provider.calls() >= 12);
}

/// Rejects, hangs or answers, depending on the requested nodes.
#[derive(Clone, Default)]
struct Moody;

impl RuleProvider for Moody {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let mut answer = CostAnswer::default();
        for node in request.eligible_nodes {
            match node.as_str() {
                "refused" => return Err(ProviderError::Internal("this one fails".into())),
                "slow" => tokio::time::sleep(Duration::from_secs(60)).await,
                _ => answer.usable(node, 1, ""),
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::default())
    }
}

#[tokio::test]
async fn rejected_requests_do_not_open_the_breaker() {
    let running = testkit::start(Moody).await.unwrap();
    let snapshot = cluster(&[("127.0.0.1", running.address.port())]);
    let providers = impatient();
    for _ in 0..20 {
        let round = plan_on(&providers, &snapshot, &["refused"]).await;
        assert_eq!(code(&round), "ProviderFailed");
    }
    let round = plan_on(&providers, &snapshot, &["n1"]).await;
    assert_eq!(code(&round), "OK", "{:?}", round.rules[0].error);
}

#[tokio::test]
async fn probe_repeats_the_last_request() {
    let running = testkit::start(Moody).await.unwrap();
    let snapshot = cluster(&[("127.0.0.1", running.address.port())]);
    let providers = impatient();
    for _ in 0..8 {
        plan_on(&providers, &snapshot, &["slow"]).await;
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while code(&plan_on(&providers, &snapshot, &["n1"]).await) != "OK" {
        assert!(Instant::now() < deadline, "the slow question keeps it shut");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
