//! Nodes with GPUs, pods that request some, and the provider that allocates them.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tautline_proto::{
    allocator::{ReleaseRequest, ReserveRequest, allocator_client::AllocatorClient},
    ruleprovider::PolicyRule,
};
use tautline_tests::{PATIENCE, control_plane::ControlPlane, eventually, objects, servers::Server};
use tonic::{Status, transport::Channel};

use crate::World;

/// The resource of nodes whose cards the provider allocates.
pub const CARDS: &str = "tautline.io/gpu-cards";
/// The annotation with a pod's cards.
pub const DEVICES: &str = "tautline.io/gpu-devices";

/// A node with these resources in addition to CPU and memory.
pub async fn node(client: &Client, name: &str, offers: Value) {
    labelled(client, name, offers, json!({})).await;
}

/// The same, with labels of its own.
pub async fn labelled(client: &Client, name: &str, offers: Value, mut labels: Value) {
    let mut room = json!({"cpu": "32", "memory": "64Gi", "pods": "110"});
    for (all, more) in [
        (&mut room, offers),
        (&mut labels, json!({"kubernetes.io/hostname": name})),
    ] {
        let (all, more) = (all.as_object_mut().unwrap(), more);
        all.extend(more.as_object().unwrap().clone());
    }
    let node: Node = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"capacity": room, "allocatable": room},
    }))
    .unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &node).await.unwrap();
}

/// Sets a node's allocatable amount of one resource.
pub async fn set_allocatable(client: &Client, node: &str, resource: &str, count: &str) {
    let patch = Patch::Merge(json!({"status": {"allocatable": {resource: count}}}));
    let nodes: Api<Node> = Api::all(client.clone());
    let params = PatchParams::default();
    nodes.patch_status(node, &params, &patch).await.unwrap();
}

/// A governed pod labelled `app` with these requests, optionally for one node.
pub fn gpu_pod(name: &str, app: &str, requests: Value, node: Option<&str>) -> Pod {
    let mut all = json!({"constraint.ciena.com/governed": "1", "cpu": "10m"});
    let more = requests.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(more);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {"automountServiceAccountToken": false, "containers": [
            {"name": "main", "image": "example.com/app:1",
             "resources": {"requests": all, "limits": all}}]},
    });
    if let Some(node) = node {
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    }
    serde_json::from_value(pod).unwrap()
}

/// Creates a pod; returns its UID.
pub async fn create(client: &Client, pod: &Pod) -> String {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let made = pods.create(&PostParams::default(), pod).await.unwrap();
    made.metadata.uid.unwrap()
}

/// Creates a pod governed by the policy of `app`, for one node.
pub async fn pod(client: &Client, name: &str, app: &str, node: &str) {
    create(client, &gpu_pod(name, app, json!({}), Some(node))).await;
}

/// Deletes a pod at once, as a kubelet would have it, and waits until it is gone.
pub async fn delete(client: &Client, name: &str) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let now = DeleteParams::default().grace_period(0);
    pods.delete(name, &now).await.unwrap();
    let gone = async || pods.get_opt(name).await.ok()?.is_none().then_some(());
    eventually(&format!("{name} is gone"), PATIENCE, gone, async || "").await;
}

/// The cards of a pod, from its annotation.
pub async fn devices(client: &Client, name: &str) -> String {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let annotations = pods.get(name).await.unwrap().metadata.annotations;
    let record = annotations.and_then(|mut all| all.remove(DEVICES));
    record.unwrap_or_default()
}

/// Waits until a pod is bound to the node, and compares its annotation with `expected`.
pub async fn expect_devices(world: &World, name: &str, node: &str, expected: &str) {
    assert_eq!(world.bound(name).await, node);
    assert_eq!(devices(&world.plane.client, name).await, expected, "{name}");
}

/// A policy with the request of the pods of `app`; waits until the extender knows it.
pub async fn policy(world: &World, app: &str, request: &str) {
    let rule = json!({"name": "gpu-slice", "request": request});
    objects::policy(&world.plane.client, "default", app, rule, json!({}))
        .await
        .unwrap();
    crate::placement::wait_for_provider(world, app).await;
}

/// The Service of the provider, as an allocator.
pub async fn service(client: &Client, port: u16) {
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "gpu-slice", "namespace": "default",
                     "labels": {"constraint.ciena.com/constraint-gpu-slice": "enabled"},
                     "annotations": {"constraint.ciena.com/allocator": "enabled"}},
        "spec": {"type": "ExternalName", "externalName": "localhost",
                 "ports": [{"name": "ruleprovider", "port": port}]}});
    objects::apply_one(client, service).await.unwrap();
}

/// The only provider, under its deployed role.
pub async fn provider(plane: &ControlPlane) -> Server {
    Server::start(plane, "gpu-slice", &["provider", "gpu-slice"])
        .await
        .unwrap()
}

/// Waits until the provider at a port reserves: no reservation from before its start can
/// be under way any more.
pub async fn wait_until_reserving(port: u16, node: &str, state: impl AsyncFnOnce() -> String) {
    let check = async || probe(port, node).await?.ok();
    eventually("the provider reserves", PATIENCE, check, state).await;
}

/// Waits until the provider knows that a node is gone.
pub async fn wait_until_forgotten(port: u16, node: &str, state: impl AsyncFnOnce() -> String) {
    let check = async || {
        let refused = probe(port, node).await?.err()?;
        let gone = refused.message().contains("not in the provider's view");
        gone.then_some(())
    };
    eventually("the provider forgets the node", PATIENCE, check, state).await;
}

/// Reserves for a pod without requests, and releases; `None`: no connection.
async fn probe(port: u16, node: &str) -> Option<Result<(), Status>> {
    let channel = Channel::from_shared(format!("http://127.0.0.1:{port}")).ok()?;
    let mut client = AllocatorClient::new(channel.connect().await.ok()?);
    let request = ReserveRequest {
        uid: "probe".into(),
        node: node.into(),
        rule: Some(PolicyRule {
            name: "gpu-slice".into(),
            request: "true".into(),
            ..PolicyRule::default()
        }),
        hold_millis: 1_000,
        ..ReserveRequest::default()
    };
    let id = match client.reserve(request).await {
        Ok(reserved) => reserved.into_inner().id,
        Err(status) => return Some(Err(status)),
    };
    Some(client.release(ReleaseRequest { id }).await.map(drop))
}

/// The provider's reservations of pods that its watch does not show bound; `None` without metrics.
async fn held(provider: &Server) -> Option<f64> {
    let (_, text) = provider.admin("/metrics").await.ok()?;
    let ours = |l: &&str| l.starts_with("tautline_gpu_reservations{");
    let values: Vec<f64> = text
        .lines()
        .filter(ours)
        .map(|l| l.rsplit(' ').next()?.parse().ok())
        .collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum())
}

/// Waits until the provider has a reservation.
pub async fn wait_until_reserved(provider: &Server) {
    let some = async || held(provider).await.filter(|h| *h > 0.0).map(drop);
    let state = async || provider.process.tail();
    eventually("something is reserved", PATIENCE, some, state).await;
}

/// Waits until the provider has no reservation, for longer than its metric may lag.
pub async fn wait_until_released(provider: &Server) {
    const BEHIND: Duration = Duration::from_millis(1500);
    let since = std::cell::Cell::new(None::<Instant>);
    let check = async || {
        if held(provider).await != Some(0.0) {
            since.set(None);
            return None;
        }
        let from = since.get().unwrap_or_else(Instant::now);
        since.set(Some(from));
        (from.elapsed() > BEHIND).then_some(())
    };
    eventually("nothing is reserved", PATIENCE, check, async || {
        format!("{:?}\n{}", held(provider).await, provider.process.tail())
    })
    .await;
}
