//! The stream over real gRPC, with scripted agents.

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewStatus, UserInfo};
use kube::client::Body;
use tautline_agent_link::{AgentAuth, TokenReviewer};
use tautline_core::{index::Object, model};
use tautline_proto::gpu::{
    CardUse, FromAgent, Hello, ToAgent, Use, agents_client::AgentsClient, from_agent::What,
};
use tautline_runtime::{cluster_store::ClusterStore, tasks::Tasks};
use tautline_sdk::{Server, testkit};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status, Streaming, codegen::http};

use super::AUDIENCE;
use crate::{cluster_inventory::Config, provider::GpuSlice};

/// Nobody waits longer for anything here.
const DEADLINE: Duration = Duration::from_secs(30);

struct Running {
    url: String,
    provider: GpuSlice,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn trusting() -> AgentAuth {
    AgentAuth {
        trust_all: true,
        ..AgentAuth::default()
    }
}

async fn start(auth: AgentAuth) -> Running {
    let store = ClusterStore::default();
    for name in ["a", "b"] {
        store.apply(Object::Node(model::Node {
            name: name.into(),
            uid: name.into(),
            ..model::Node::default()
        }));
    }
    let mut server = Server::bind(testkit::loopback()).await.unwrap();
    let mut tasks = Tasks::default();
    let provider = GpuSlice::new(store, Config::default());
    provider.serve_agents(auth, &mut server, tasks.stop_token());
    let (url, stop) = (format!("http://{}", server.address()), tasks.stop_token());
    server
        .spawn(Arc::new(provider.clone()), &mut tasks)
        .unwrap();
    tokio::spawn(tasks.run(std::future::pending()));
    Running {
        url,
        provider,
        stop,
    }
}

struct Agent {
    send: mpsc::Sender<FromAgent>,
    stream: Streaming<ToAgent>,
}

impl Running {
    async fn agent(&self, node: &str, token: Option<&str>) -> Agent {
        let hello = What::Hello(Hello { node: node.into() });
        self.saying(hello, token).await
    }

    async fn saying(&self, first: What, token: Option<&str>) -> Agent {
        let (send, messages) = mpsc::channel(64);
        let mut client = AgentsClient::connect(self.url.clone()).await.unwrap();
        let mut request = Request::new(ReceiverStream::new(messages));
        if let Some(token) = token {
            let header = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", header);
        }
        let stream = client.follow(request).await.unwrap().into_inner();
        let agent = Agent { send, stream };
        agent.say(first).await;
        agent
    }

    /// Memory in use of the node's first card.
    fn used(&self, node: &str) -> Option<u64> {
        let state = self.provider.state.lock();
        let used = state.uses.fresh(node, std::time::Instant::now())?;
        Some(used.cards.first()?.memory_bytes)
    }

    fn agents(&self) -> i64 {
        self.provider.state.lock().uses.metrics.agents.get()
    }
}

impl Agent {
    async fn say(&self, what: What) {
        _ = self.send.send(FromAgent { what: Some(what) }).await;
    }

    async fn report(&self, memory_bytes: u64) {
        let card = CardUse {
            card: "GPU-a".into(),
            memory_bytes,
            busy_milli: 0,
        };
        self.say(What::Use(Use {
            cards: vec![card],
            containers: vec![],
        }))
        .await;
    }

    /// Why its stream ended.
    async fn end(&mut self) -> Status {
        let message = timeout(DEADLINE, self.stream.message()).await;
        message.expect("it goes on").unwrap_err()
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn uses_are_stored_and_a_newer_stream_replaces_the_older() {
    let running = start(trusting()).await;
    let mut older = running.agent("a", None).await;
    older.report(5).await;
    until("a use", || running.used("a") == Some(5)).await;
    let newer = running.agent("a", None).await;
    newer.report(6).await;
    until("the newer use", || running.used("a") == Some(6)).await;
    older.report(7).await;
    assert_eq!(older.end().await.code(), Code::Aborted);
    assert_eq!(running.used("a"), Some(6));
    until("one is open", || running.agents() == 1).await;
    drop(newer);
    until("none is open", || running.agents() == 0).await;
    assert_eq!(running.used("a"), Some(6), "its figures still hold");
}

#[tokio::test]
async fn what_is_wrong_is_refused_with_the_mend() {
    let running = start(trusting()).await;
    for (first, code, text) in [
        (What::Use(Use::default()), Code::InvalidArgument, "Hello"),
        (
            What::Hello(Hello { node: "x\n".into() }),
            Code::InvalidArgument,
            "Hello, node",
        ),
        (
            What::Hello(Hello { node: "x".into() }),
            Code::FailedPrecondition,
            "not known",
        ),
    ] {
        let refused = running.saying(first, None).await.end().await;
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(text), "{refused}");
    }
    let mut agent = running.agent("a", None).await;
    let wrong = CardUse {
        card: "GPU a".into(),
        ..CardUse::default()
    };
    agent
        .say(What::Use(Use {
            cards: vec![wrong],
            containers: vec![],
        }))
        .await;
    let refused = agent.end().await;
    assert!(refused.message().contains("cards, card"), "{refused}");
    until("none is open", || running.agents() == 0).await;
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
async fn a_token_is_valid_for_its_node_only() {
    let reviewer = TokenReviewer::new(api_server(), AUDIENCE, ("ns", "agent"));
    let running = start(AgentAuth {
        tokens: Some(Arc::new(reviewer)),
        ..AgentAuth::default()
    })
    .await;
    let a = running.agent("a", Some("good")).await;
    a.report(5).await;
    until("a use", || running.used("a") == Some(5)).await;
    for (node, token) in [("b", Some("good")), ("a", Some("bad")), ("a", None)] {
        let refused = running.agent(node, token).await.end().await;
        let expected = match token {
            Some(_) => Code::PermissionDenied,
            None => Code::Unauthenticated,
        };
        assert_eq!(refused.code(), expected, "{refused}");
        let audience = refused.message().contains(AUDIENCE);
        assert!(node == "b" || audience, "{refused}");
    }
    let closed = start(AgentAuth::default()).await;
    let refused = closed.agent("a", None).await.end().await;
    assert!(refused.message().contains("--agent-tokens"), "{refused}");
}
