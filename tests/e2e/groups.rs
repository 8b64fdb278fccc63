//! Groups of pods under the real scheduler: they are bound together, or not at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{Pod, PodSchedulingGroup},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use tautline_sdk::{
    Allocator, AllocatorError, CostAnswer, CostRequest, Evaluation, EvaluationRequest,
    ProviderError, ReservationRef, ReservationRequest, Reserved, RuleProvider,
    testkit::{self, TestServer},
};
use tautline_tests::{
    PATIENCE,
    control_plane::{ControlPlane, skipped_on_oldest},
    eventually, objects,
};

use crate::{World, in_flight::node_name, placement::wait_for_provider};

/// Five sites of two nodes.
const NODES: usize = 10;
/// The only site with room for a group of four.
const FREE_SITE: [&str; 2] = ["n6", "n7"];
/// The label of the pods that the offer selects.
const WORKERS: &str = "app=train";
/// The longest time for which a group may be bound in part, while its bindings are written.
const WRITE_TIME: Duration = Duration::from_secs(5);

/// The rule `near`: a node must be of the peers' site. Its allocator refuses while `refuses`.
#[derive(Clone, Default)]
pub struct Sites {
    refuses: Arc<AtomicBool>,
}

pub fn site_of(node: &str) -> usize {
    node[1..].parse::<usize>().unwrap() / 2
}

impl RuleProvider for Sites {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let peers: BTreeSet<usize> = request
            .peers
            .iter()
            .filter_map(|p| p.node.as_deref())
            .map(site_of)
            .collect();
        let mut answer = CostAnswer::default();
        for node in &request.eligible_nodes {
            if request.rule.name == "near" && peers.iter().any(|peer| *peer != site_of(node)) {
                answer.unusable(node, "OverLimit", "another site", false);
            } else {
                answer.usable(node, 1, "");
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::default())
    }
}

impl Allocator for Sites {
    async fn reserve(&self, request: ReservationRequest) -> Result<Reserved, AllocatorError> {
        let is_last = request.workload.name.ends_with("-3");
        if is_last && self.refuses.load(Ordering::SeqCst) {
            return Err(AllocatorError::Exhausted("no device is left".into()));
        }
        Ok(Reserved {
            id: request.uid,
            ..Reserved::default()
        })
    }

    async fn confirm(&self, _: ReservationRef) -> Result<(), AllocatorError> {
        Ok(())
    }

    async fn release(&self, _: ReservationRef) -> Result<(), AllocatorError> {
        Ok(())
    }
}

/// A cluster in which only one site has room for four pods of the group, which this rule of the
/// offer names.
pub async fn cluster(sites: &Sites, group: Value) -> (World, TestServer) {
    let plane = ControlPlane::start().await.unwrap();
    cluster_on(plane, sites, group).await
}

async fn cluster_on(plane: ControlPlane, sites: &Sites, group: Value) -> (World, TestServer) {
    let names: Vec<String> = (0..NODES).map(node_name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let args = [
        "--bind",
        "--allocator-annotations=device=tautline.io/device",
    ];
    let world = World::on(plane, "gated-gpu.yaml", &names, &args).await;
    let world = world.unwrap();
    let client = &world.plane.client;
    let running = testkit::start_with_allocator(sites.clone(), sites.clone())
        .await
        .unwrap();
    let port = running.address.port();
    let service = |name: &str, rule: &str, allocator: bool| {
        let mut service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "default",
                "labels": {format!("constraint.ciena.com/constraint-{rule}"): "enabled"}},
            "spec": {"type": "ExternalName", "externalName": "localhost",
                     "ports": [{"name": "ruleprovider", "port": port}]}});
        if allocator {
            service["metadata"]["annotations"] =
                json!({"constraint.ciena.com/allocator": "enabled"});
        }
        service
    };
    for service in [
        service("sites", "near", false),
        service("devices", "device", true),
    ] {
        objects::apply_one(client, service).await.unwrap();
    }
    // Every other site has room for three.
    for node in ["n0", "n2", "n4", "n8"] {
        let taken = pod(
            &format!("taken-{node}"),
            json!({"app": "other"}),
            Some(node),
        );
        create(client, taken).await;
    }
    let policy = |name: &str| {
        json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicy",
               "metadata": {"name": name, "namespace": "default"},
               "spec": {"rules": [{"name": name}]}})
    };
    for name in ["near", "device"] {
        objects::apply_one(client, policy(name)).await.unwrap();
    }
    let offer = |name: &str, spec: Value| {
        json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
               "metadata": {"name": name, "namespace": "default"}, "spec": spec})
    };
    let train = json!({
        "group": group,
        "targets": [
            {"name": "worker", "kind": "Pod", "labelSelector": {"matchLabels": {"app": "train"}}},
            {"name": "mates", "kind": "Pod", "peers": "group"}],
        "policies": ["near", "device"]});
    // Pods of this offer are placed alone, so a request about one shows that the providers are known.
    let probe = json!({
        "targets": [{"kind": "Pod", "labelSelector": {"matchLabels": {"app": "probe"}}}],
        "policies": ["near", "device"]});
    for (name, spec) in [("train", train), ("probe", probe)] {
        objects::apply_one(client, offer(name, spec)).await.unwrap();
    }
    wait_for_provider(&world, "probe").await;
    (world, running)
}

fn by_label() -> Value {
    json!({"by": "train", "minimum": 4})
}

/// A pod of which a node takes two.
fn pod(name: &str, labels: Value, node: Option<&str>) -> Pod {
    let gate = json!({"constraint.ciena.com/governed": "1"});
    let requests = json!({"cpu": "15", "constraint.ciena.com/governed": "1"});
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "example.com/app:1",
                            "resources": {"requests": requests, "limits": gate}}]}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    serde_json::from_value(pod).unwrap()
}

async fn create(client: &Client, pod: Pod) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

async fn worker(client: &Client, at: usize) {
    let labels = json!({"app": "train", "train": "first"});
    create(client, pod(&format!("train-{at}"), labels, None)).await;
}

/// The pods that this label selects, by name.
pub async fn pods(client: &Client, label: &str) -> BTreeMap<String, Pod> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let of = ListParams::default().labels(label);
    let list = pods.list(&of).await.unwrap();
    list.into_iter().map(|pod| (pod.name_any(), pod)).collect()
}

/// The nodes of the bound pods that this label selects, by pod.
async fn bound(client: &Client, label: &str) -> BTreeMap<String, String> {
    let nodes = pods(client, label).await.into_iter();
    nodes
        .filter_map(|(name, pod)| Some((name, pod.spec?.node_name?)))
        .collect()
}

/// Waits until four pods that this label selects are bound, and checks that fewer are for a moment
/// at most.
pub async fn wait_until_all_are_bound(world: &World, label: &str) -> BTreeMap<String, String> {
    let client = &world.plane.client;
    let partly_since = std::sync::Mutex::new(None::<Instant>);
    let check = async || {
        let bound = bound(client, label).await;
        let mut since = partly_since.lock().unwrap();
        if bound.is_empty() || bound.len() == 4 {
            *since = None;
        } else {
            let since = since.get_or_insert_with(Instant::now);
            assert!(since.elapsed() < WRITE_TIME, "bound in part: {bound:?}");
        }
        (bound.len() == 4).then_some(bound)
    };
    let state = async || {
        let mut text = String::new();
        for name in pods(client, label).await.keys() {
            text += &objects::events(client, "default", name).await;
        }
        text + &world.state()
    };
    eventually("all four pods are bound", PATIENCE, check, state).await
}

/// Checks that all pods are on the site with room for a group.
pub fn assert_on_free_site(nodes: &BTreeMap<String, String>) {
    let is_free = |node: &String| FREE_SITE.contains(&&**node);
    assert!(nodes.values().all(is_free), "{nodes:?}");
}

async fn wait_for_event(world: &World, pod: &str, text: &str) {
    let client = &world.plane.client;
    let check = async || {
        let events = objects::events(client, "default", pod).await;
        events.contains(text).then_some(())
    };
    let state = async || objects::events(client, "default", pod).await + &world.state();
    eventually(
        &format!("an event of {pod} has {text:?}"),
        PATIENCE,
        check,
        state,
    )
    .await;
}

/// Waits until the explanation of one of the first three workers has the size of the group.
async fn wait_until_three_of_four_exist(world: &World) {
    let check = async || {
        for at in 0..3 {
            let path = format!("/explain/default/train-{at}");
            let (_, page) = world.extender.admin(&path).await.ok()?;
            if page.contains("3 of 4 pods exist") {
                return Some(());
            }
        }
        None
    };
    let what = "three of four pods exist";
    eventually(what, PATIENCE, check, async || world.state()).await;
}

#[tokio::test]
async fn group_waits_for_its_last_pod_and_is_bound_where_all_have_room() {
    let (world, provider) = cluster(&Sites::default(), by_label()).await;
    let client = &world.plane.client;
    for at in 0..3 {
        worker(client, at).await;
    }
    wait_for_event(&world, "train-0", "group/Waiting").await;
    wait_until_three_of_four_exist(&world).await;
    assert!(bound(client, WORKERS).await.is_empty());
    worker(client, 3).await;
    let nodes = wait_until_all_are_bound(&world, WORKERS).await;
    assert_on_free_site(&nodes);

    // A worker that dies is placed alone, near the others.
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete("train-2", &DeleteParams::default())
        .await
        .unwrap();
    let gone = async || pods.get_opt("train-2").await.ok()?.is_none().then_some(());
    eventually("train-2 is gone", PATIENCE, gone, async || world.state()).await;
    worker(client, 2).await;
    let again = wait_until_all_are_bound(&world, WORKERS).await;
    assert_eq!(again, nodes);
    provider.stop().await;
}

#[tokio::test]
async fn group_is_not_bound_while_one_pod_is_refused() {
    let sites = Sites::default();
    sites.refuses.store(true, Ordering::SeqCst);
    let (world, provider) = cluster(&sites, json!({})).await;
    let client = &world.plane.client;
    // The group is that of the Job, which states its size.
    let job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"parallelism": 4, "completions": 4, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/app:1"}]}}}});
    objects::apply_one(client, job).await.unwrap();
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let uid = jobs.get("train").await.unwrap().uid().unwrap();
    let of_job = async |at: usize| {
        let labels = json!({"app": "train", "batch.kubernetes.io/job-name": "train"});
        let mut pod = pod(&format!("train-{at}"), labels, None);
        pod.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "batch/v1".into(),
            kind: "Job".into(),
            name: "train".into(),
            uid: uid.clone(),
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        create(client, pod).await;
    };
    for at in 0..3 {
        of_job(at).await;
    }
    wait_until_three_of_four_exist(&world).await;
    of_job(3).await;
    wait_for_event(&world, "train-3", "no device is left").await;
    wait_for_event(&world, "train-0", "no device is left").await;
    assert!(bound(client, WORKERS).await.is_empty());
    sites.refuses.store(false, Ordering::SeqCst);
    wait_until_all_are_bound(&world, WORKERS).await;
    provider.stop().await;
}

#[tokio::test]
async fn group_is_bound_whole_after_the_extender_was_killed() {
    let (mut world, provider) = cluster(&Sites::default(), by_label()).await;
    let client = world.plane.client.clone();
    for at in 0..4 {
        worker(&client, at).await;
    }
    let planned = async || {
        let planned = "tautline_extender_group_plan_seconds_count";
        (world.extender.metric(planned).await >= 1.0).then_some(())
    };
    eventually("the group is planned", PATIENCE, planned, async || {
        world.state()
    })
    .await;
    world.extender.process.kill();
    world.extender.restart().await.unwrap();
    let nodes = wait_until_all_are_bound(&world, WORKERS).await;
    let of = nodes
        .values()
        .map(|node| site_of(node))
        .collect::<BTreeSet<_>>();
    assert_eq!(of.len(), 1, "{nodes:?}");
    provider.stop().await;
}

/// An extender that is killed between two bindings leaves such a group.
#[tokio::test]
async fn group_that_is_bound_in_part_is_completed() {
    let (world, provider) = cluster(&Sites::default(), by_label()).await;
    let client = &world.plane.client;
    let labels = json!({"app": "train", "train": "first"});
    for (at, node) in FREE_SITE.into_iter().enumerate() {
        let bound = pod(&format!("train-{at}"), labels.clone(), Some(node));
        create(client, bound).await;
    }
    for at in 2..4 {
        worker(client, at).await;
    }
    let all = async || {
        let nodes = bound(client, WORKERS).await;
        (nodes.len() == 4).then_some(nodes)
    };
    let what = "all four workers are bound";
    let nodes = eventually(what, PATIENCE, all, async || world.state()).await;
    assert_on_free_site(&nodes);
    provider.stop().await;
}

/// The PodGroup that the pods' field `schedulingGroup` names states the size.
#[tokio::test]
async fn gang_of_kubernetes_is_bound_whole() {
    if skipped_on_oldest("PodGroup of Kubernetes") {
        return;
    }
    let served = [
        "--feature-gates=GenericWorkload=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    ];
    let plane = ControlPlane::start_with(|_| Ok(served.map(str::to_owned).into()));
    let plane = plane.await.unwrap();
    let (world, provider) = cluster_on(plane, &Sites::default(), json!({})).await;
    let client = &world.plane.client;
    let gang = json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}});
    objects::apply_one(client, gang).await.unwrap();
    let member = async |at: usize| {
        let mut pod = pod(&format!("train-{at}"), json!({"app": "train"}), None);
        pod.spec.as_mut().unwrap().scheduling_group = Some(PodSchedulingGroup {
            pod_group_name: Some("gang".into()),
        });
        create(client, pod).await;
    };
    for at in 0..3 {
        member(at).await;
    }
    wait_until_three_of_four_exist(&world).await;
    assert!(bound(client, WORKERS).await.is_empty());
    member(3).await;
    let nodes = wait_until_all_are_bound(&world, WORKERS).await;
    assert_on_free_site(&nodes);
    provider.stop().await;
}
