//! The roles: baselines, a provider, the extender.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::Result;
use http_body_util::BodyExt;
use tautline_bench::{node_name, parent_gone};
use tautline_core::{
    index::{Kind, Object},
    model,
    selector::Selector,
};
use tautline_runtime::{cluster_store::ClusterStore, http, tasks::Tasks};
use tautline_scheduler_extender::{App, Config};
use tautline_sdk::{
    CostAnswer, CostChanges, CostRequest, Evaluation, EvaluationRequest, ProviderError,
    RuleProvider, testkit,
};
use tautline_tests::process::resident_bytes;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{noop, providers::Providers};

/// The resource version of all pods.
pub const POD_VERSION: u64 = 7;

/// Reads requests and answers nothing.
pub async fn reading() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?.port());
    let handle = |request: hyper::Request<http::Body>| async move {
        _ = request.into_body().collect().await;
        http::respond(200, "application/json", "{}")
    };
    let stop = CancellationToken::new();
    let port = http::Port::new(
        http::Limits::default(),
        32 << 20,
        http::PortMetrics::default(),
    );
    tokio::select! {
        result = http::serve(listener, None, handle, port, stop) => result,
        () = parent_gone() => Ok(()),
    }
}

/// The no-op extender.
pub async fn noop(shortlist: usize, providers: Option<Providers>) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?.port());
    tokio::select! {
        result = noop::accept(listener, shortlist, providers) => result,
        () = parent_gone() => Ok(()),
    }
}

/// A provider that generates a cost for each node. Costs of rules that are not named `streamed-` are for
/// one pod.
#[derive(Default)]
pub struct GeneratedCosts {
    changes: CostChanges,
}

impl RuleProvider for GeneratedCosts {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let mut answer: CostAnswer = request
            .eligible_nodes
            .into_iter()
            .enumerate()
            .map(|(i, n)| (n, i as i64 * 7 % 1000))
            .collect();
        answer.per_pod = !request.rule.name.starts_with("streamed-");
        Ok(answer)
    }

    fn changes(&self) -> Option<&CostChanges> {
        Some(&self.changes)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::compliant(""))
    }
}

pub async fn provider() -> Result<()> {
    let running = testkit::start(GeneratedCosts::default()).await?;
    println!("{}", running.address.port());
    parent_gone().await;
    Ok(())
}

/// 5,000 nodes.
fn with_nodes() -> ClusterStore {
    let store = ClusterStore::default();
    let nodes = (0..5000).map(|i| {
        Object::Node(model::Node {
            name: node_name(i).as_str().into(),
            ..model::Node::default()
        })
    });
    store.reset(Kind::Node, nodes.collect());
    store
}

/// The extender with 5,000 nodes and an offer of two rules.
pub async fn extender(ports: &[&str]) -> Result<()> {
    let store = with_nodes();
    for (i, port) in ports.iter().enumerate() {
        store.apply(Object::Service(model::Service {
            namespace: "default".into(),
            name: format!("provider-{i}").as_str().into(),
            rules: ["rule", "streamed"]
                .map(|kind| format!("{kind}-{i}").into())
                .into(),
            external_name: Some("127.0.0.1".into()),
            ports: vec![model::ServicePort {
                name: "ruleprovider".into(),
                port: port.parse()?,
            }],
            ..model::Service::default()
        }));
    }
    govern(&store, "governed", "rule");
    govern(&store, "streamed", "streamed");
    govern(&store, "unseen", "streamed");
    // kube-scheduler asks about pods that the watch has shown.
    store.apply(Object::Pod(model::Pod {
        namespace: "default".into(),
        name: "streamed".into(),
        uid: "streamed".into(),
        labels: [("app", "streamed"), ("pod-template-hash", "5d4f8c7b9")]
            .into_iter()
            .collect(),
        requests: [("cpu", 500), ("memory", 1 << 40)].into_iter().collect(),
        placement: Some(Box::new(model::NodeConstraints {
            observed: model::Observed {
                resource_version: POD_VERSION,
                ..model::Observed::default()
            },
            ..model::NodeConstraints::default()
        })),
        ..model::Pod::default()
    }));
    let loopback = (Ipv4Addr::LOCALHOST, 0).into();
    let config = Config {
        listen: loopback,
        admin: loopback,
        providers: tautline_provider_client::ClientConfig {
            streams: true,
            ..tautline_provider_client::ClientConfig::single_tenant()
        },
        ..Config::default()
    };
    let app = App::build(config, store, None).await?;
    println!("{}", app.address()?.port());
    let mut tasks = Tasks::default();
    app.spawn(&mut tasks);
    tasks.run(parent_gone()).await
}

/// An offer of two rules for the pods labelled with this app.
fn govern(store: &ClusterStore, app: &str, rules: &str) {
    let rule = |i| model::Rule {
        name: format!("{rules}-{i}").as_str().into(),
        weight: 1,
        ..model::Rule::default()
    };
    store.apply(Object::Policy(model::Policy {
        namespace: "default".into(),
        name: app.into(),
        rules: [0, 1].map(rule).into(),
    }));
    store.apply(Object::Offer(model::Offer {
        namespace: "default".into(),
        name: app.into(),
        targets: vec![model::Target {
            name: "default".into(),
            kind: model::TargetKind::Pod,
            api_version: "v1".into(),
            selector: Selector {
                match_labels: vec![("app".into(), app.into())],
                ..Selector::default()
            },
        }],
        policies: vec![app.into()],
        period: Duration::from_secs(60),
        ..model::Offer::default()
    }));
}

/// Prints the memory of an index of 150,000 pods on 5,000 nodes.
pub fn memory() {
    let resident = || resident_bytes(std::process::id());
    let before = resident();
    let store = with_nodes();
    for i in 0..150_000 {
        let hash = format!("{:010x}", i / 50 * 7919);
        let (ns, app) = (format!("team-{}", i % 200), format!("service-{}", i / 50));
        let labels = [
            ("app.kubernetes.io/name", app.as_str()),
            ("app.kubernetes.io/instance", app.as_str()),
            ("app.kubernetes.io/part-of", "shop"),
            ("app.kubernetes.io/managed-by", "Helm"),
            ("pod-template-hash", hash.as_str()),
            ("topology.kubernetes.io/zone", "eu-central-1a"),
        ];
        let requests = [("cpu", 500), ("memory", 1 << 40)];
        store.apply(Object::Pod(model::Pod {
            namespace: ns.as_str().into(),
            name: format!("{app}-{hash}-{:05}", i % 50).as_str().into(),
            uid: format!("{i:08x}-0000-4000-8000-{i:012x}").into(),
            labels: labels.into_iter().collect(),
            node: Some(node_name(i % 5000).as_str().into()),
            requests: requests.into_iter().collect(),
            ..model::Pod::default()
        }));
    }
    let grown = resident().saturating_sub(before);
    println!(
        "An index of 150,000 pods on 5,000 nodes holds {} MB.",
        grown / 1_000_000
    );
}
