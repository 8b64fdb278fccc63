//! A provider over real gRPC: requests, errors, health, TLS.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tautline_proto::ruleprovider::{
    EndpointCostRequest, EvaluateRequest, PolicyRule, rule_provider_client::RuleProviderClient,
};
use tautline_sdk::{
    Compliance, CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError,
    RuleProvider, TlsFiles, testkit,
};
use tonic::{
    Code, Request,
    codegen::http::uri::PathAndQuery,
    transport::{Certificate, Channel, ClientTlsConfig, Identity},
};

struct Sample;

impl RuleProvider for Sample {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        request.rule.limit_duration()?;
        let mut answer = CostAnswer::default();
        for (i, node) in request.eligible_nodes.iter().enumerate() {
            match i {
                0 => answer.unusable(node, "OverLimit", "9ms > 5ms", true),
                _ => answer.usable(node, i as i64, ""),
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        match request.targets.is_empty() {
            true => Err(ProviderError::NotReady("no targets".into())),
            false => Ok(Evaluation {
                compliance: Compliance::Limit,
                reason: "close".into(),
            }),
        }
    }
}

fn limited(limit: &str) -> EndpointCostRequest {
    EndpointCostRequest {
        rule: Some(PolicyRule {
            name: "latency".into(),
            limit: limit.into(),
            ..PolicyRule::default()
        }),
        eligible_nodes: vec!["a".into(), "b".into()],
        ..EndpointCostRequest::default()
    }
}

/// The provider of the README.
async fn spread(request: CostRequest) -> Result<CostAnswer, ProviderError> {
    let peers = request.peer_counts();
    let nodes = request.eligible_nodes.iter();
    Ok(nodes.map(|node| (node, peers.on(node))).collect())
}

#[tokio::test]
async fn panic_is_answered_with_its_message() {
    struct Panics;

    impl RuleProvider for Panics {
        async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
            let first = &request.eligible_nodes[0];
            Ok([(first, 7)].into_iter().collect())
        }

        async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
            tokio::task::yield_now().await;
            panic!("no {}", "luck")
        }
    }

    let running = testkit::start(Panics).await.unwrap();
    let without_nodes = EndpointCostRequest::default();
    let failed = running.endpoint_cost(without_nodes).await.unwrap_err();
    assert_eq!(failed.code(), Code::Internal);
    let said = failed.message();
    assert!(
        said.starts_with("EndpointCost panicked: index out of bounds"),
        "{said}"
    );
    let failed = running.evaluate(EvaluateRequest::default()).await;
    let failed = failed.unwrap_err();
    assert_eq!(
        (failed.code(), failed.message()),
        (Code::Internal, "Evaluate panicked: no luck")
    );
    let answer = running.endpoint_cost(limited("5ms")).await.unwrap();
    assert_eq!(answer.node_and_cost[0].cost, 7);
}

#[tokio::test]
async fn function_of_costs_conforms() {
    let running = testkit::start(spread).await.unwrap();
    let long = Duration::from_secs(30);
    let config = tautline_conformance::Config {
        // For busy machines.
        deadline: long,
        evaluate_deadline: long,
        patience: long,
        start_within: long,
        timeout: 10 * long,
        ..tautline_conformance::Config::new(running.address.to_string(), "spread")
    };
    let report = tautline_conformance::run(config).await.unwrap();
    assert_eq!(report.failed(), 0, "{}", report.tap());
    let passed = report.cases.len() - report.skipped();
    assert!(passed > 10, "{}", report.tap());
    running.stop().await;
}

#[tokio::test]
async fn questions_and_errors() {
    let running = testkit::start(Sample).await.unwrap();
    let answer = running.endpoint_cost(limited("5ms")).await.unwrap();
    let [a, b] = &answer.node_and_cost[..] else {
        panic!("{answer:?}")
    };
    assert_eq!(
        (a.cost, a.reason.as_str(), a.freeable),
        (-1, "OverLimit", true)
    );
    assert_eq!((b.cost, b.reason.as_str()), (1, ""));

    let refused = running
        .endpoint_cost(limited("5 parsecs"))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused.message().contains("rule \"latency\", limit:"),
        "{refused}"
    );

    let unready = running
        .evaluate(EvaluateRequest::default())
        .await
        .unwrap_err();
    assert_eq!(unready.code(), Code::FailedPrecondition);
    running.stop().await;
}

/// Calls with a message of another shape, or an unknown method.
async fn misused(address: std::net::SocketAddr, method: &'static str) -> tonic::Status {
    let channel = Channel::from_shared(format!("http://{address}"));
    let channel = channel.unwrap().connect().await.unwrap();
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    // Its first field is a text instead of a message.
    let rule = PolicyRule {
        name: "latency".into(),
        ..PolicyRule::default()
    };
    let codec = tonic_prost::ProstCodec::<PolicyRule, PolicyRule>::default();
    let call = client.unary(Request::new(rule), PathAndQuery::from_static(method), codec);
    call.await.unwrap_err()
}

#[tokio::test]
async fn server_rejects_malformed_requests() {
    let running = testkit::start(Sample).await.unwrap();
    for (method, code) in [
        ("/ruleprovider.RuleProvider/EndpointCost", Code::Internal),
        ("/ruleprovider.RuleProvider/Evaluate", Code::Internal),
        ("/ruleprovider.RuleProvider/Guess", Code::Unimplemented),
    ] {
        let status = misused(running.address, method).await;
        assert_eq!(status.code(), code, "{method}: {status}");
    }
    running.endpoint_cost(limited("5ms")).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn health_says_serving() {
    let running = testkit::start(Sample).await.unwrap();
    let channel = Channel::from_shared(format!("http://{}", running.address))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let check = tonic_health::pb::HealthCheckRequest {
            service: "ruleprovider.RuleProvider".into(),
        };
        let status = health.check(check).await.unwrap().into_inner().status();
        if status == tonic_health::pb::health_check_response::ServingStatus::Serving {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "health is {status:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn mutual_tls_accepts_clients_of_the_ca() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(at("crt"), own.cert.pem()).unwrap();
    std::fs::write(at("key"), own.signing_key.serialize_pem()).unwrap();
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap();
    std::fs::write(at("ca"), ca.pem()).unwrap();
    let issuer = rcgen::Issuer::new(params, ca_key);
    let client_key = rcgen::KeyPair::generate().unwrap();
    let client = rcgen::CertificateParams::new(vec!["extender".into()])
        .unwrap()
        .signed_by(&client_key, &issuer)
        .unwrap();

    let tls = TlsFiles {
        cert: at("crt"),
        key: at("key"),
        client_ca: Some(at("ca")),
        alpn: vec![],
    };
    let config = tautline_sdk::Config {
        tls: Some(tls),
        ..testkit::loopback()
    };
    let running = testkit::start_with(Sample, config).await.unwrap();
    let connect = |identity: Option<Identity>| {
        let mut tls = ClientTlsConfig::new()
            .domain_name("localhost")
            .ca_certificate(Certificate::from_pem(own.cert.pem()));
        if let Some(identity) = identity {
            tls = tls.identity(identity);
        }
        let endpoint = Channel::from_shared(format!("https://{}", running.address)).unwrap();
        RuleProviderClient::new(endpoint.tls_config(tls).unwrap().connect_lazy())
    };
    let known = Identity::from_pem(client.pem(), client_key.serialize_pem());
    connect(Some(known))
        .endpoint_cost(limited("5ms"))
        .await
        .unwrap();
    connect(None)
        .endpoint_cost(limited("5ms"))
        .await
        .unwrap_err();
}
