//! A provider's port under a flood of connections.

// Helpers of tests are no tests to the lint.
#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use tautline_proto::ruleprovider::{
    EndpointCostRequest, PolicyRule, rule_provider_client::RuleProviderClient,
};
use tautline_runtime::tasks::Tasks;
use tautline_sdk::{
    Config, CostAnswer, CostQuestion, EvaluateQuestion, Evaluation, ProviderError, RuleProvider,
    Server, testkit,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::transport::Channel;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

const PATIENCE: Duration = Duration::from_secs(60);

struct Sample;

impl RuleProvider for Sample {
    async fn endpoint_cost(&self, _: CostQuestion) -> Result<CostAnswer, ProviderError> {
        Ok(CostAnswer::default())
    }
    async fn evaluate(&self, _: EvaluateQuestion) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::compliant(""))
    }
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.unwrap()
}

#[tokio::test]
async fn floods_keep_no_caller_out_and_end_no_stream() {
    let config = Config {
        connections: 8,
        ..testkit::loopback()
    };
    let server = Server::bind(config).await.unwrap();
    let (address, readiness) = (server.address(), server.readiness.clone());
    readiness.expect("the test");
    let mut tasks = Tasks::default();
    let stop = tasks.stop_token();
    server.spawn(Arc::new(Sample), &mut tasks).unwrap();
    tokio::spawn(tasks.run(std::future::pending()));
    let connect = async || {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        in_time(channel.connect()).await.unwrap()
    };

    // A stream that stays open, as agents' do.
    let mut health = HealthClient::new(connect().await);
    let service = "ruleprovider.RuleProvider".to_owned();
    let watch = in_time(health.watch(HealthCheckRequest { service })).await;
    let mut stream = watch.unwrap().into_inner();
    let status = |message: Option<tonic_health::pb::HealthCheckResponse>| message.unwrap().status();
    let first = in_time(stream.message()).await.unwrap();
    assert_eq!(status(first), ServingStatus::NotServing);

    let mut open = Vec::new();
    for at in 0..100 {
        let mut silent = TcpStream::connect(address).await.unwrap();
        if at % 2 == 0 {
            // Half a preface.
            _ = silent.write_all(b"PRI * HTTP/2.0\r\n").await;
        }
        open.push(silent);
    }
    // Beyond the bound the idlest has gone; a reset is an end too.
    _ = in_time(open[1].read_to_end(&mut Vec::new())).await;
    readiness.done("the test");
    let next = in_time(stream.message()).await.unwrap();
    assert_eq!(status(next), ServingStatus::Serving);
    let mut client = RuleProviderClient::new(connect().await);
    let ask = EndpointCostRequest {
        rule: Some(PolicyRule::default()),
        ..EndpointCostRequest::default()
    };
    in_time(client.endpoint_cost(ask)).await.unwrap();
    stop.cancel();
}
