//! A provider's port under a flood of connections.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

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
use tonic::transport::Channel;
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
