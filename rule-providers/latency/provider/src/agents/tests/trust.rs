//! Who is let in, and by what proof.

use std::convert::Infallible;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewStatus, UserInfo};
use kube::client::Body;
use tonic::codegen::http;

use super::*;

#[tokio::test]
async fn agent_without_proof_is_refused_with_the_fix() {
    let running = start(AgentAuth::default(), None).await;
    let refused = running.agent("a").await.end().await;
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("--trust-agents"), "{refused}");
    assert_eq!(running.network.metrics.agents_refused.get(), 1);
    assert!(!running.network.has_agents());
}

#[tokio::test]
async fn malformed_hello_is_refused_by_field() {
    let running = start(trusting(), None).await;
    for (bad, field) in [
        (
            Hello {
                node: String::new(),
                ..hello("a")
            },
            "node",
        ),
        (
            Hello {
                node: "a\u{1b}[2J".into(),
                ..hello("a")
            },
            "node",
        ),
        (
            Hello {
                boot_id: "x y".into(),
                ..hello("a")
            },
            "bootId",
        ),
        (
            Hello {
                address: "nowhere".into(),
                ..hello("a")
            },
            "address",
        ),
    ] {
        let refused = Agent::with(running.endpoint(), bad, None).await.end().await;
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(
            refused.message().contains(&format!(", {field}: expected")),
            "{refused}"
        );
    }
    let unknown = running.agent("x").await.end().await;
    assert_eq!(unknown.code(), Code::FailedPrecondition);
}

/// A CA in `dir`, and certificates of it.
struct Ca {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
    files: TlsFiles,
}

fn ca(dir: &Path) -> Ca {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);
    let own_key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    let own = own.signed_by(&own_key, &issuer).unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(dir.join(name), text).unwrap();
        dir.join(name)
    };
    let files = TlsFiles {
        cert: write("crt", &own.pem()),
        key: write("key", &own_key.serialize_pem()),
        client_ca: Some(write("ca", &pem)),
        alpn: vec![],
    };
    Ca { issuer, pem, files }
}

#[tokio::test]
async fn certificate_is_valid_for_its_node_only() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let auth = AgentAuth {
        certificates: true,
        ..AgentAuth::default()
    };
    let running = start(auth, Some(ca.files.clone())).await;
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "system:node:a");
    let own = params.signed_by(&key, &ca.issuer).unwrap();
    let tls = ClientTlsConfig::new()
        .domain_name("localhost")
        .ca_certificate(Certificate::from_pem(&ca.pem))
        .identity(Pem::from_pem(own.pem(), key.serialize_pem()));
    let endpoint = Channel::from_shared(format!("https://{}", running.address)).unwrap();
    let endpoint = endpoint.tls_config(tls).unwrap();

    let mut a = Agent::connect(endpoint.clone(), "a", None).await;
    a.targets(|_| true).await;
    let refused = Agent::connect(endpoint, "b", None).await.end().await;
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(
        refused.message().contains("names a, not node b"),
        "{refused}"
    );
}

/// A client of an API server that accepts the token "good", of the agent on node `a`.
fn api_server() -> kube::Client {
    let answer = async |request: http::Request<Body>| {
        let asked = request.into_body().collect_bytes().await.unwrap();
        let mut review: TokenReview = serde_json::from_slice(&asked).unwrap();
        let node = (
            "authentication.kubernetes.io/node-name",
            vec!["a".to_owned()],
        );
        let user = UserInfo {
            username: Some("system:serviceaccount:ns:agent".to_owned()),
            extra: Some([(node.0.to_owned(), node.1)].into()),
            ..UserInfo::default()
        };
        review.status = Some(TokenReviewStatus {
            authenticated: Some(review.spec.token == "good"),
            audiences: Some(vec![AUDIENCE.to_owned()]),
            user: Some(user),
            ..TokenReviewStatus::default()
        });
        let body = Body::from(serde_json::to_vec(&review).unwrap());
        Ok::<_, Infallible>(http::Response::new(body))
    };
    kube::Client::new(tower::service_fn(answer), "default")
}

#[tokio::test]
async fn token_is_valid_for_its_node_only() {
    let reviewer = TokenReviewer::new(api_server(), AUDIENCE, ("ns", "agent"));
    let auth = AgentAuth {
        tokens: Some(Arc::new(reviewer)),
        ..AgentAuth::default()
    };
    let running = start(auth, None).await;
    let with = |node: &'static str, token| Agent::connect(running.endpoint(), node, token);
    with("a", Some("good")).await.targets(|_| true).await;
    for (node, token) in [("b", Some("good")), ("a", Some("bad")), ("a", None)] {
        let refused = with(node, token).await.end().await;
        let expected = match token {
            Some(_) => Code::PermissionDenied,
            None => Code::Unauthenticated,
        };
        assert_eq!(refused.code(), expected, "{refused}");
    }
}
