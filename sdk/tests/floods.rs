//! A provider's port under a flood of connections.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::{Message, bytes::Bytes};
use tautline_proto::ruleprovider::{
    EndpointCostRequest, PolicyRule, rule_provider_client::RuleProviderClient,
};
use tautline_sdk::{
    Config, CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
    testkit,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
};
use tonic::{Code, Status, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

const PATIENCE: Duration = Duration::from_secs(60);

/// Blocks requests with nodes until `go`.
#[derive(Clone, Default)]
struct Held {
    called: Arc<Notify>,
    go: Arc<Notify>,
}

impl RuleProvider for Held {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        if !request.eligible_nodes.is_empty() {
            self.called.notify_one();
            self.go.notified().await;
        }
        Ok(CostAnswer::default())
    }
    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::compliant(""))
    }
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.unwrap()
}

#[tokio::test]
async fn server_survives_floods() {
    let config = Config {
        connections: 8,
        ..testkit::loopback()
    };
    let provider = Held::default();
    let running = testkit::start_with(provider.clone(), config).await.unwrap();
    let address = running.address;
    let connect = async || {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        in_time(channel.connect()).await.unwrap()
    };
    let cost_request = |nodes: &[&str]| EndpointCostRequest {
        rule: Some(PolicyRule::default()),
        eligible_nodes: nodes.iter().map(|n| (*n).to_owned()).collect(),
        ..EndpointCostRequest::default()
    };

    // A call in progress, and a stream that every client may hold for ever.
    let mut blocked = RuleProviderClient::new(connect().await);
    let question = cost_request(&["n1"]);
    let blocked = tokio::spawn(async move { blocked.endpoint_cost(question).await });
    in_time(provider.called.notified()).await;
    let mut health = HealthClient::new(connect().await);
    let watch = in_time(health.watch(HealthCheckRequest::default())).await;
    let mut watch = watch.unwrap().into_inner();
    in_time(watch.message()).await.unwrap().unwrap();

    let mut open = Vec::new();
    for at in 0..100 {
        let mut silent = TcpStream::connect(address).await.unwrap();
        if at % 2 == 0 {
            // Half a preface.
            _ = silent.write_all(b"PRI * HTTP/2.0\r\n").await;
        }
        open.push(silent);
    }
    // Beyond the bound the idlest is closed; a reset is an end too.
    _ = in_time(open[1].read_to_end(&mut Vec::new())).await;
    let ended = in_time(watch.message()).await;
    assert!(!matches!(ended, Ok(Some(_))), "{ended:?}");

    let mut newcomer = RuleProviderClient::new(connect().await);
    in_time(newcomer.endpoint_cost(cost_request(&[])))
        .await
        .unwrap();
    provider.go.notify_one();
    in_time(blocked).await.unwrap().unwrap();
}

#[tokio::test]
async fn stop_finishes_calls_in_progress() {
    let provider = Held::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let mut blocked = running.client.clone();
    let address = running.address;
    let question = EndpointCostRequest {
        eligible_nodes: vec!["n1".into()],
        ..EndpointCostRequest::default()
    };
    let blocked = tokio::spawn(async move { blocked.endpoint_cost(question).await });
    in_time(provider.called.notified()).await;
    let stopped = tokio::spawn(running.stop());
    // The port closes first.
    let closed = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    in_time(closed).await;
    assert!(!stopped.is_finished());
    provider.go.notify_one();
    in_time(blocked).await.unwrap().unwrap();
    in_time(stopped).await.unwrap();
}

#[tokio::test]
async fn call_ends_when_its_caller_no_longer_waits() {
    let running = testkit::start(Held::default()).await.unwrap();
    let stream = TcpStream::connect(running.address).await.unwrap();
    // hyper sends the header and does not act on it, as tonic's client does.
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let question = EndpointCostRequest {
        eligible_nodes: vec!["n1".into()],
        ..EndpointCostRequest::default()
    };
    let message = question.encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    let request = Request::post("http://x/ruleprovider.RuleProvider/EndpointCost")
        .header("content-type", "application/grpc")
        .header("grpc-timeout", "50m")
        .body(Full::<Bytes>::from(frame))
        .unwrap();
    let answer = in_time(client.send_request(request)).await.unwrap();
    let status = Status::from_header_map(answer.headers()).unwrap();
    let found = (status.code(), status.message());
    assert_eq!(found, (Code::Cancelled, "Timeout expired"));
}
