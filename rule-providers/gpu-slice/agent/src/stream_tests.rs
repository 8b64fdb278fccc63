//! Streams to the real provider.

use std::{convert::Infallible, path::PathBuf, time::Duration};

use kube::client::Body;
use serde_json::{Value, json};
use tautline_agent_link::{AgentAuth, Token, TokenReviewer};
use tautline_core::{index::Object, model};
use tautline_gpu_placement::{
    names::DEVICES_ANNOTATION,
    node_inventory::{INVENTORY_ANNOTATION, InventoryCard, NodeInventory},
};
use tautline_gpu_slice::{GpuSlice, agents::AUDIENCE};
use tautline_proto::gpu::{CardUse, ContainerUse, Use};
use tautline_runtime::{cluster_store::ClusterStore, tasks::Tasks, tls::ClientFiles};
use tautline_sdk::{
    Compliance, Evaluation, EvaluationRequest, Reference, Rule, RuleProvider, Server, testkit,
};
use tokio::time::Instant;

use super::*;

/// Nobody waits longer for anything here.
const PATIENCE: Duration = Duration::from_secs(30);
const GIB: u64 = 1 << 30;

/// The node `n7` with a card of 40 GiB, a quarter of which the pod `web` has.
fn cluster() -> ClusterStore {
    let cards = NodeInventory {
        cards: vec![InventoryCard {
            uuid: "GPU-a".into(),
            memory_bytes: 40 * GIB,
            ..InventoryCard::default()
        }],
        ..NodeInventory::default()
    };
    let cards = serde_json::to_string(&cards).unwrap();
    let store = ClusterStore::default();
    store.apply(Object::Node(model::Node {
        name: "n7".into(),
        uid: "n7".into(),
        annotations: [(INVENTORY_ANNOTATION, &*cards)].into_iter().collect(),
        ..model::Node::default()
    }));
    store.apply(Object::Pod(model::Pod {
        namespace: "ml".into(),
        name: "web".into(),
        uid: "uid-web".into(),
        node: Some("n7".into()),
        annotations: [(DEVICES_ANNOTATION, "GPU-a:250")].into_iter().collect(),
        ..model::Pod::default()
    }));
    store
}

struct Replica {
    provider: GpuSlice,
    address: SocketAddr,
    stop: CancellationToken,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Replica {
    async fn start(auth: AgentAuth, listen: Option<SocketAddr>) -> Option<Self> {
        let mut config = testkit::loopback();
        config.listen = listen.unwrap_or(config.listen);
        let (mut server, mut tasks) = (Server::bind(config).await.ok()?, Tasks::default());
        let provider = GpuSlice::new(cluster(), tautline_gpu_slice::Config::default());
        provider.serve_agents(auth, &mut server, tasks.stop_token());
        let (address, stop) = (server.address(), tasks.stop_token());
        let served = Arc::new(provider.clone());
        server.spawn(served, &mut tasks).unwrap();
        tokio::spawn(tasks.run(std::future::pending()));
        Some(Self {
            provider,
            address,
            stop,
        })
    }

    async fn evaluate(&self) -> Evaluation {
        let request = EvaluationRequest {
            targets: [("default".to_owned(), Reference::pod("ml", "web"))].into(),
            rule: Rule {
                name: "gpu-slice".into(),
                ..Rule::default()
            },
            ..EvaluationRequest::default()
        };
        self.provider.evaluate(request).await.unwrap()
    }

    async fn until(&self, compliance: Compliance) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.evaluate().await;
            if found.compliance == compliance {
                return found.reason;
            }
            assert!(Instant::now() < deadline, "{found:?}, not {compliance:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn trusting() -> AgentAuth {
    AgentAuth {
        trust_all: true,
        ..AgentAuth::default()
    }
}

struct Agent {
    uses: watch::Sender<Option<Measured>>,
    context: Arc<StreamContext>,
    stop: CancellationToken,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Agent {
    fn start(node: &str, replica: SocketAddr, token: Option<PathBuf>) -> Self {
        let provider: Provider = format!("http://{replica}").parse().unwrap();
        let over_http = true;
        let token = token.map(|file| Token { file, over_http });
        let list = std::slice::from_ref(&provider);
        let dialer = Dialer::new(list, ClientFiles::default(), token).unwrap();
        let (uses, receiver) = watch::channel(None);
        let context = Arc::new(StreamContext {
            node: node.to_owned(),
            dialer,
            uses: receiver,
            streams: Gauge::default(),
        });
        let stop = CancellationToken::new();
        tokio::spawn(follow_provider(
            Arc::clone(&context),
            provider,
            stop.clone(),
        ));
        Self {
            uses,
            context,
            stop,
        }
    }

    fn measure(&self, memory_bytes: u64) {
        let container = ContainerUse {
            pod_uid: "uid-web".into(),
            namespace: "ml".into(),
            pod: "web".into(),
            container: "main".into(),
            card: "GPU-a".into(),
            memory_bytes,
            sm_milli: 250,
        };
        let card = CardUse {
            card: "GPU-a".into(),
            memory_bytes,
            busy_milli: 250,
        };
        self.uses.send_replace(Some(Measured {
            at: std::time::Instant::now(),
            used: Arc::new(Use {
                cards: vec![card],
                containers: vec![container],
            }),
        }));
    }
}

#[tokio::test]
async fn over_use_is_a_violation_with_the_next_report_and_ends_with_it() {
    let replica = Replica::start(trusting(), None).await.unwrap();
    let agent = Agent::start("n7", replica.address, None);
    agent.measure(GIB);
    replica.until(Compliance::Compliant).await;
    agent.measure(11 * GIB);
    let reason = replica.until(Compliance::Violation).await;
    assert_eq!(
        reason,
        "pod web uses 11.0 GiB of its 10.0 GiB on card GPU-a of node n7"
    );
    agent.measure(GIB);
    replica.until(Compliance::Compliant).await;
    assert_eq!(agent.context.streams.get(), 1);
}

#[tokio::test]
async fn a_replica_that_comes_back_gets_the_last_use() {
    let first = Replica::start(trusting(), None).await.unwrap();
    let (agent, address) = (Agent::start("n7", first.address, None), first.address);
    agent.measure(11 * GIB);
    first.until(Compliance::Violation).await;
    drop(first);
    let deadline = Instant::now() + PATIENCE;
    let second = loop {
        if let Some(second) = Replica::start(trusting(), Some(address)).await {
            break second;
        }
        assert!(Instant::now() < deadline, "the port is not free");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let again = async {
        loop {
            // A reading each 2 s in truth.
            agent.measure(11 * GIB);
            if second.evaluate().await.compliance == Compliance::Violation {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, again).await.expect("it has no use");
}

#[tokio::test]
async fn old_uses_are_not_sent() {
    let (sender, mut uses) = watch::channel(None);
    assert_eq!(fresh(&mut uses), None);
    let measured = |at| {
        let used = Arc::default();
        Some(Measured { at, used })
    };
    let now = std::time::Instant::now();
    sender.send_replace(measured(now));
    assert_eq!(fresh(&mut uses), Some(What::Use(Use::default())));
    sender.send_replace(now.checked_sub(MAX_MEASUREMENT_AGE).and_then(measured));
    assert_eq!(fresh(&mut uses), None);
}

#[tokio::test]
async fn the_token_proves_the_node() {
    // An API server that accepts the token "good", of the agent on node n7.
    let api_server = async |request: http::Request<Body>| {
        let asked = request.into_body().collect_bytes().await.unwrap();
        let mut review: Value = serde_json::from_slice(&asked).unwrap();
        review["status"] = json!({
            "authenticated": review["spec"]["token"] == "good",
            "audiences": [AUDIENCE],
            "user": {
                "username": "system:serviceaccount:ns:agent",
                "extra": {"authentication.kubernetes.io/node-name": ["n7"]},
            },
        });
        Ok::<_, Infallible>(http::Response::new(Body::from(
            review.to_string().into_bytes(),
        )))
    };
    let client = kube::Client::new(tower::service_fn(api_server), "default");
    let reviewer = TokenReviewer::new(client, AUDIENCE, ("ns", "agent"));
    let auth = AgentAuth {
        tokens: Some(Arc::new(reviewer)),
        ..AgentAuth::default()
    };
    let replica = Replica::start(auth, None).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let token = |text: &str| {
        let file = dir.path().join(text);
        std::fs::write(&file, text).unwrap();
        Some(file)
    };
    let bad = Agent::start("n7", replica.address, token("bad"));
    let other = Agent::start("n8", replica.address, token("good"));
    let good = Agent::start("n7", replica.address, token("good"));
    for agent in [&bad, &other, &good] {
        agent.measure(11 * GIB);
    }
    replica.until(Compliance::Violation).await;
    assert_eq!(good.context.streams.get(), 1);
}
