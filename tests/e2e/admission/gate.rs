//! The gate: pods that an offer selects get the governed resource; older pending pods are
//! reported.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use kube::{
    ResourceExt,
    api::{WatchEvent, WatchParams},
};
use tautline_api::ConstraintPolicyOffer;
use tautline_tests::{balancer::Balancer, loopback, objects::post};

use super::*;
use crate::governed_cluster::for_a_while;

const GATE: &[&str] = &["tautline-governed"];
const RESOURCE: &str = "constraint.ciena.com/governed";

fn pod(name: &str, app: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {"automountServiceAccountToken": false,
                 "containers": [{"name": "main", "image": "example.com/app:1"}]}})
}

fn has_resource(pod: &Value) -> bool {
    let resources = &pod["spec"]["containers"][0]["resources"];
    ["requests", "limits"]
        .iter()
        .all(|side| resources[side][RESOURCE] == "1")
}

#[tokio::test]
async fn governed_pods_get_the_resource_and_older_pods_are_reported() {
    let world = AdmissionCluster::start(GATE, &["--governed"])
        .await
        .unwrap();
    let client = world.client();
    // No scheduler runs, so the pod stays pending.
    objects::pod(client, "default", "old", "web").await.unwrap();
    objects::policy(client, "default", "web", json!({"name": "far"}), json!({}))
        .await
        .unwrap();
    let check = async || {
        let response = gpu_sharing::create(&world, &pod("new", "web"), true).await;
        has_resource(&response.body).then_some(())
    };
    let what = "a governed pod gets the resource";
    eventually(what, PATIENCE, check, async || world.state()).await;
    let response = gpu_sharing::create(&world, &pod("new", "db"), true).await;
    assert_eq!(
        response.body["spec"]["containers"][0]["resources"],
        json!({}),
        "{response:?}"
    );

    let offers: Api<ConstraintPolicyOffer> = Api::namespaced(client.clone(), "default");
    let gated = async |state: &str, text: &str| {
        let check = async || {
            let status = offers.get("web").await.ok()?.status?;
            let gated = status.conditions.into_iter().find(|c| c.type_ == "Gated")?;
            (gated.status == state && gated.message.contains(text)).then_some(())
        };
        let what = format!("the offer is gated: {state}");
        eventually(&what, PATIENCE, check, async || world.state()).await;
    };
    gated("False", "old; the scheduler").await;
    let check = async || {
        let events = objects::events(client, "default", "web").await;
        events.contains("PodsBeforeOffer").then_some(())
    };
    eventually("an event says so", PATIENCE, check, async || world.state()).await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), "default");
    let now = kube::api::DeleteParams::default().grace_period(0);
    pods.delete("old", &now).await.unwrap();
    gated("True", "every pending pod requests").await;
}

#[tokio::test]
async fn governed_pods_get_the_second_scheduler_unless_their_namespace_opts_out() {
    let world = AdmissionCluster::start(GATE, &["--scheduler-name=tautline-scheduler"])
        .await
        .unwrap();
    let client = world.client();
    let out = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "out", "labels": {"tautline.io/second-scheduler": "disabled"}}});
    let response = post(client, "/api/v1/namespaces", &out).await.unwrap();
    assert_eq!(response.status, 201, "{response:?}");
    for namespace in ["default", "out"] {
        objects::policy(client, namespace, "web", json!({"name": "far"}), json!({}))
            .await
            .unwrap();
    }
    let scheduler = async |namespace: &str, app: &str| {
        let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
        let mut pod = pod("new", app);
        pod["metadata"]["namespace"] = namespace.into();
        let response = post(client, &path, &pod).await.unwrap();
        assert_eq!(response.status, 201, "{response:?}");
        response.body["spec"]["schedulerName"].clone()
    };
    let check = async || (scheduler("default", "web").await == "tautline-scheduler").then_some(());
    let what = "a governed pod gets the scheduler";
    eventually(what, PATIENCE, check, async || world.state()).await;
    assert_eq!(scheduler("default", "db").await, "default-scheduler");
    assert_eq!(scheduler("out", "web").await, "default-scheduler");
}

/// Pods before a replica is killed, and after.
const PODS: usize = 100;
const WORKERS: usize = 4;

#[tokio::test]
async fn replicas_report_older_pods_once_and_one_is_enough() {
    let plane = ControlPlane::start().await.unwrap();
    let mut world = AdmissionCluster::on(plane, &["--governed"]).await.unwrap();
    let other = Server::admission(&world.plane, "admission-b", &["--governed"]);
    let other = other.await.unwrap();
    let both = [world.server.port, other.port].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let balancer = Balancer::start(both.to_vec()).await.unwrap();
    let url = format!("https://{}", balancer.address);
    world.install_webhooks(GATE, &url).await.unwrap();
    // Every pod must pass the webhook.
    failure_policy::policy(&world, GATE[0], "governed.tautline.io", "Fail").await;
    let client = world.client().clone();

    objects::pod(&client, "default", "old", "web")
        .await
        .unwrap();
    let gated_writes = gated_writes(&client).await;
    objects::policy(&client, "default", "web", json!({"name": "far"}), json!({}))
        .await
        .unwrap();
    let check = async || (!gated_writes.lock().unwrap().is_empty()).then_some(());
    let what = "the offer reports the older pod";
    eventually(what, PATIENCE, check, async || world.state()).await;
    for port in [world.server.port, other.port] {
        let check = async || knows(port).await.ok()?.then_some(());
        let what = "the replica knows the offer";
        eventually(what, PATIENCE, check, async || world.state()).await;
    }
    let check = async || {
        let response = gpu_sharing::create(&world, &pod("new", "web"), true).await;
        has_resource(&response.body).then_some(())
    };
    let what = "the webhook is called";
    eventually(what, PATIENCE, check, async || world.state()).await;

    // Refused pods are retried, as a Deployment's controller does.
    let (next, last) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let worker = async || {
        let mut again = 0;
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i > last.load(Ordering::Relaxed) {
                return again;
            }
            let pod = pod(&format!("pod-{i}"), "web");
            loop {
                let response = post(&client, "/api/v1/namespaces/default/pods", &pod).await;
                let response = response.unwrap();
                if response.status == 201 {
                    assert!(has_resource(&response.body), "{response:?}");
                    break;
                }
                assert!(
                    response.message().contains("failed calling webhook"),
                    "{response:?}"
                );
                again += 1;
                assert!(again < PODS, "{response:?}");
            }
        }
    };
    let workers = futures::future::join_all((0..WORKERS).map(|_| worker()));
    let reviews = "tautline_admission_reviews_total{handler=\"governed\"";
    let killed = async {
        let check = async || {
            let served = [
                world.server.metric(reviews).await,
                other.metric(reviews).await,
            ];
            let enough = next.load(Ordering::Relaxed) >= PODS;
            (enough && served.iter().all(|n| *n >= 1.0)).then_some(())
        };
        eventually("both replicas serve", PATIENCE, check, async || "").await;
        world.server.process.kill();
        last.store(next.load(Ordering::Relaxed) + PODS, Ordering::Relaxed);
    };
    let (again, ()) = tokio::join!(workers, killed);
    // Only requests in flight at the killed replica were refused.
    let again: usize = again.iter().sum();
    assert!(again <= WORKERS * 2, "{again} refused");

    // The condition is not written again.
    let once = async || {
        let gated_writes = gated_writes.lock().unwrap().clone();
        assert_eq!(gated_writes.len(), 1, "{gated_writes:?}");
    };
    for_a_while(Duration::from_secs(2), once).await;
    let events = objects::events(&client, "default", "web").await;
    assert_eq!(events.matches("PodsBeforeOffer").count(), 1, "{events}");
}

/// True if the server at a port adds the gate's resource to a governed pod.
async fn knows(port: u16) -> Result<bool> {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": "default", "operation": "CREATE", "object": pod("new", "web")}});
    let url = format!("https://127.0.0.1:{port}/mutate-governed");
    let answer = loopback::insecure_post(&url, review.to_string().as_bytes()).await?;
    let answer: Value = serde_json::from_str(&answer)?;
    Ok(answer["response"]["patch"].is_string())
}

/// Records the writes of the offer's condition `Gated` from now on.
async fn gated_writes(client: &Client) -> Arc<Mutex<Vec<Value>>> {
    let gated_writes = Arc::new(Mutex::new(Vec::new()));
    let offers: Api<ConstraintPolicyOffer> = Api::namespaced(client.clone(), "default");
    let changes = offers.watch(&WatchParams::default(), "0").await.unwrap();
    let seen = Arc::clone(&gated_writes);
    tokio::spawn(async move {
        let mut changes = std::pin::pin!(changes);
        let mut before = None;
        while let Some(Ok(event)) = changes.next().await {
            let (WatchEvent::Added(offer) | WatchEvent::Modified(offer)) = event else {
                continue;
            };
            // Managed fields show a write even if the condition is the same.
            let ours = |f: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
                f.manager.as_deref() == Some("tautline-admission")
            };
            let version = offer.resource_version();
            let written = offer.managed_fields().iter().find(ours).map(|f| json!(f));
            let status = offer.status.unwrap_or_default();
            let gated = status.conditions.into_iter().find(|c| c.type_ == "Gated");
            let now = written.zip(gated.map(|g| json!(g)));
            if now.is_some() && now != before {
                seen.lock().unwrap().push(json!([version, now]));
                before = now;
            }
        }
    });
    gated_writes
}
