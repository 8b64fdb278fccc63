//! The underlay: called if the rules leave no node; a finalizer keeps its allocations; it
//! mitigates violations, and every allocation is released.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::DeleteParams};
use serde_json::json;
use tautline_api::constraint::ConstraintPolicyBinding;
use tautline_example_underlay::{Underlay, Verb, serve};
use tautline_tests::{PATIENCE, eventually, objects, workloads};

use crate::{
    governed_cluster::{GovernedCluster, RULE, for_a_while},
    placement::gated_pod,
};

const FINALIZER: &str = "constraint.ciena.com/remove-underlay_";

async fn ids(world: &GovernedCluster, pod: &str) -> Vec<String> {
    let pods: Api<Pod> = Api::default_namespaced(world.client().clone());
    let found = pods.get_opt(pod).await.ok().flatten();
    let finalizers = found.and_then(|p| p.metadata.finalizers);
    finalizers
        .into_iter()
        .flatten()
        .filter_map(|f| f.strip_prefix(FINALIZER).map(str::to_owned))
        .collect()
}

async fn start(world: &GovernedCluster, underlay: &Underlay) -> tokio::task::JoinHandle<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = underlay.clone();
    let task = tokio::spawn(async move { serve(listener, server).await.unwrap() });
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "underlay", "namespace": "default",
                     "labels": {"constraint.ciena.com/underlay-controller": ""}},
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1",
                 "ports": [{"name": "underlay", "port": port}]}});
    objects::apply_one(world.client(), service).await.unwrap();
    task
}

#[tokio::test]
async fn underlay_allocates_mitigates_and_releases() {
    let nodes = [("n1", -1), ("n2", -1)];
    let mut world = GovernedCluster::with("gated-gpu.yaml", &nodes, &[], &["--bind"])
        .await
        .unwrap();
    let underlay = Underlay::new([("n2", 3)], Duration::from_secs(30));
    let server = start(&world, &underlay).await;
    let mediate = json!({"violationPolicy": "Mediate", "grace": "1s"});
    world.offer("web", mediate).await;
    world
        .extender
        .wait_for_rules("default", "web", |rule| rule["provider"].is_string())
        .await;

    // No node meets the rule: the underlay changes one so that it does.
    let client = world.client().clone();
    gated_pod(&client, "web-0", "web").await;
    let node = objects::wait_until_bound(&client, "default", "web-0", async || {
        world.state("web").await
    })
    .await;
    assert_eq!(node, "n2");
    let held = ids(&world, "web-0").await;
    let [id] = held.as_slice() else {
        panic!("{held:?}\n{}", world.state("web").await)
    };
    assert_eq!(underlay.state().successes(Verb::Allocate, id), 1);

    // The rule is still violated: the underlay gets mitigation requests with the pod's
    // allocations, and no pod is evicted.
    let since = Instant::now();
    let condition = async || (underlay.state().calls_of(Verb::Mitigate) >= 1).then_some(());
    eventually(
        "the underlay gets a mitigation request",
        PATIENCE,
        condition,
        async || world.state("web").await,
    )
    .await;
    let mitigation = underlay.state().mitigated[0].clone();
    assert_eq!(mitigation.id, held);
    assert_eq!(mitigation.src.unwrap().name, "n2");
    assert_eq!(mitigation.rules[0].name, RULE);
    let condition = async || {
        let all = workloads::bindings(&client, "default", "web").await;
        all[0].status.clone()?.last_mitigated_timestamp
    };
    eventually(
        "the mitigation is recorded",
        PATIENCE,
        condition,
        async || world.state("web").await,
    )
    .await;
    for_a_while(Duration::from_secs(3), async || {
        assert_eq!(
            objects::node_of(&client, "default", "web-0").await.unwrap(),
            "n2"
        );
        // At least 10 s lie between two requests.
        let most = 1 + usize::try_from(since.elapsed().as_secs() / 10).unwrap();
        let calls = underlay.state().calls_of(Verb::Mitigate);
        assert!(calls <= most, "{calls} requests in {:?}", since.elapsed());
    })
    .await;
    world.judge.set(&[("n1", -1), ("n2", 4)]);
    world.wait_for_compliance("web", 1, "Compliant").await;
    let forgotten = |b: &ConstraintPolicyBinding| {
        let status = b.status.as_ref();
        status.is_some_and(|s| s.last_mitigated_timestamp.is_none())
    };
    world
        .wait_for_bindings(
            "web",
            1,
            "the mitigation ends with the violation",
            forgotten,
        )
        .await;

    // A pod placed without the underlay, and mitigated by it: it holds the new allocation.
    world.judge.set(&[("n1", 2), ("n2", 4)]);
    world
        .offer("api", json!({"violationPolicy": "Mediate"}))
        .await;
    world
        .extender
        .wait_for_rules("default", "api", |rule| rule["outcome"] == "OK")
        .await;
    gated_pod(&client, "api-0", "api").await;
    objects::wait_until_bound(&client, "default", "api-0", async || {
        world.state("api").await
    })
    .await;
    world.wait_for_compliance("api", 1, "Compliant").await;
    world.judge.set(&[("n1", -1), ("n2", 4)]);
    let condition = async || ids(&world, "api-0").await.into_iter().next();
    let new_id = eventually(
        "the pod holds the mitigation",
        PATIENCE,
        condition,
        async || world.state("api").await,
    )
    .await;
    world.judge.set(&[("n1", 2), ("n2", 4)]);
    world.wait_for_compliance("api", 1, "Compliant").await;

    // The pods are deleted without a leader and with the underlay down: no allocation leaks.
    world.controllers[0].process.kill();
    underlay.state().unavailable.insert(Verb::Release);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for pod in ["web-0", "api-0"] {
        pods.delete(pod, &DeleteParams::default()).await.unwrap();
    }
    world.controllers[0].restart().await.unwrap();
    let condition = async || (underlay.state().calls_of(Verb::Release) >= 2).then_some(());
    eventually("a release is tried", PATIENCE * 2, condition, async || {
        world.state("web").await
    })
    .await;
    assert_eq!(
        ids(&world, "web-0").await,
        held,
        "the finalizer stays until the underlay is back"
    );
    world.controllers[0].process.kill();
    underlay.state().unavailable.clear();
    world.controllers[0].restart().await.unwrap();
    for pod in ["web-0", "api-0"] {
        let condition = async || pods.get_opt(pod).await.unwrap().is_none().then_some(());
        eventually("the pod is gone", PATIENCE * 2, condition, async || {
            world.state("web").await
        })
        .await;
    }
    let state = underlay.state();
    for id in [id, &new_id] {
        assert!(state.successes(Verb::Release, id) >= 1, "{id}");
    }
    assert!(state.allocated.is_empty(), "{:?}", state.allocated);
    drop(state);
    server.abort();
}
