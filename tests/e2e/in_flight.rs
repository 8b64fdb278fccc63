//! Pods that come together under the real scheduler: each answer knows of the answers before it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::available_parallelism,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
    testkit::{self, TestServer},
};
use tautline_tests::{eventually, objects, workloads};

use crate::{World, gpu, placement::wait_for_provider};

pub const NODES: usize = 10;
const PAIRS: usize = 200;
/// Hundreds of pods on a busy machine.
pub const LONG: Duration = Duration::from_secs(240);
const IN_FLIGHT: &str = "tautline_extender_pods_in_flight";
const WAITS: &str = "tautline_extender_placement_wait_seconds_count";

pub fn node_name(at: usize) -> String {
    format!("n{at}")
}

/// Two nodes are a site.
fn site(node: &str) -> usize {
    node[1..].parse::<usize>().unwrap() / 2
}

/// The rule `spread`: a node costs as much as it has peers, and a little unless the pod's label
/// `prefers` names it. The rule `near`: only the peers' site is within the limit.
struct Pairs;

impl RuleProvider for Pairs {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let peers: Vec<&String> = request
            .peers
            .iter()
            .filter_map(|p| p.node.as_ref())
            .collect();
        let labels = request.workload.map(|w| w.labels).unwrap_or_default();
        let prefers = labels.get("prefers");
        let mut answer = CostAnswer::default();
        for node in &request.eligible_nodes {
            if request.rule.name == "near" && peers.iter().any(|p| site(p) != site(node)) {
                answer.unusable(node, "OverLimit", "another site", false);
                continue;
            }
            let with = match request.rule.name.as_str() {
                "spread" => peers.iter().filter(|p| **p == node).count(),
                _ => 0,
            };
            let other = prefers.is_some_and(|name| name != node);
            answer.usable(node, 10 * with as i64 + i64::from(other), "");
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::default())
    }
}

/// Keeps every core busy until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn start() -> Self {
        let busy = Arc::new(AtomicBool::new(true));
        for _ in 0..available_parallelism().map_or(2, usize::from) {
            let busy = Arc::clone(&busy);
            std::thread::spawn(move || while busy.load(Ordering::Relaxed) {});
        }
        Self(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

async fn paired(extender: &[&str]) -> (World, TestServer) {
    let names: Vec<String> = (0..NODES).map(node_name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::start(&names, extender).await.unwrap();
    let client = &world.plane.client;
    let running = testkit::start(Pairs).await.unwrap();
    let port = running.address.port();
    objects::provider(client, "default", "pairs", port, &["spread", "near"])
        .await
        .unwrap();
    (world, running)
}

/// The pods labelled `app` are each other's peers.
async fn offer(client: &Client, app: &str, rule: &str) {
    let target = |name: &str| {
        json!({"name": name, "apiVersion": "v1", "kind": "Pod",
               "labelSelector": {"matchLabels": {"app": app}}})
    };
    let spec = json!({"targets": [target("one"), target("other")]});
    objects::policy(client, "default", app, json!({"name": rule}), spec)
        .await
        .unwrap();
}

pub fn pod(name: &str, app: &str, more: Value) -> Pod {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"automountServiceAccountToken": false, "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}]},
    });
    for (pointer, value) in more.as_object().unwrap() {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

pub async fn create(client: &Client, pod: Pod) {
    Api::default_namespaced(client.clone())
        .create(&PostParams::default(), &pod)
        .await
        .unwrap();
}

/// The nodes of all pods with `prefix`, once `count` of them are bound.
pub async fn bound(world: &World, prefix: &str, count: usize) -> BTreeMap<String, String> {
    let pods: Api<Pod> = Api::default_namespaced(world.plane.client.clone());
    let check = async || {
        let list = pods.list(&ListParams::default()).await.ok()?.items;
        let ours = list
            .into_iter()
            .filter(|p| p.name_any().starts_with(prefix));
        let bound: BTreeMap<String, String> = ours
            .filter_map(|p| Some((p.name_any(), p.spec?.node_name?)))
            .collect();
        (bound.len() == count).then_some(bound)
    };
    let what = format!("{count} pods {prefix} are bound");
    eventually(&what, LONG, check, async || world.state()).await
}

pub async fn nothing_in_flight(world: &World) {
    let check = async || (world.extender.metric(IN_FLIGHT).await == 0.0).then_some(());
    let state = async || world.extender.admin("/metrics").await.unwrap_or_default().1;
    eventually("nothing is in flight", LONG, check, state).await;
}

/// Creates pairs of pods, at once or right after each other, while all cores are busy.
async fn create_pairs(world: &World, rule: &str, prefers: bool) {
    let client = &world.plane.client;
    for at in 0..PAIRS {
        offer(client, &format!("{rule}-{at}"), rule).await;
    }
    // Pods of an offer that the extender does not see yet are not governed.
    wait_for_provider(world, &format!("{rule}-{}", PAIRS - 1)).await;
    let _busy = Busy::start();
    for at in 0..PAIRS {
        let app = format!("{rule}-{at}");
        let more = match prefers {
            true => json!({"/metadata/labels/prefers": node_name(at % NODES)}),
            false => json!({}),
        };
        let make = |name: &str| create(client, pod(&format!("{app}-{name}"), &app, more.clone()));
        match at % 2 {
            0 => _ = futures::join!(make("a"), make("b")),
            _ => {
                make("a").await;
                make("b").await;
            }
        }
    }
}

/// Pairs that break `holds`.
fn broken(bound: &BTreeMap<String, String>, holds: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let first = bound.iter().filter_map(|(name, node)| {
        let pair = name.strip_suffix("-a")?;
        let other = &bound[&format!("{pair}-b")];
        (!holds(node, other)).then(|| format!("{pair}: {node}, {other}"))
    });
    first.collect()
}

#[tokio::test]
async fn replicas_that_come_together_never_share_a_node() {
    let (world, _provider) = paired(&[]).await;
    create_pairs(&world, "spread", true).await;
    let nodes = bound(&world, "spread-", 2 * PAIRS).await;
    let shared = broken(&nodes, |a, b| a != b);
    assert_eq!(shared, Vec::<String>::new(), "{}", world.state());
    nothing_in_flight(&world).await;
}

#[tokio::test]
async fn pods_that_come_together_keep_the_limit_between_them() {
    let (world, _provider) = paired(&[]).await;
    create_pairs(&world, "near", false).await;
    let nodes = bound(&world, "near-", 2 * PAIRS).await;
    let apart = broken(&nodes, |a, b| site(a) == site(b));
    let (_, metrics) = world.extender.admin("/metrics").await.unwrap();
    let waits: Vec<&str> = metrics.lines().filter(|l| l.starts_with(WAITS)).collect();
    println!("{waits:#?}");
    assert_eq!(apart, Vec::<String>::new(), "{waits:#?}\n{}", world.state());
    nothing_in_flight(&world).await;
}

#[tokio::test]
async fn counted_cards_are_not_overcommitted_without_bind() {
    const PODS: usize = 300;
    let world = World::start(&[], &[]).await.unwrap();
    let client = &world.plane.client;
    let provider = gpu::provider(&world.plane).await;
    gpu::service(client, provider.port).await;
    for at in 0..NODES {
        gpu::node(client, &node_name(at), json!({gpu::CARDS: "8"})).await;
    }
    gpu::policy(&world, "quarter", "250m").await;
    let busy = Busy::start();
    let annotations =
        json!({"alibabacloud.com/gpu-milli": "250", "alibabacloud.com/gpu-count": "1"});
    let pods = (0..PODS).map(|at| {
        let more = json!({"/metadata/annotations": annotations});
        create(client, pod(&format!("quarter-{at}"), "quarter", more))
    });
    futures::future::join_all(pods).await;
    let nodes = bound(&world, "quarter-", PODS).await;
    drop(busy);
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    for node in nodes.values() {
        *used.entry(node).or_default() += 1;
    }
    let over: Vec<_> = used.iter().filter(|(_, pods)| **pods > 4 * 8).collect();
    assert_eq!(over, Vec::<(&&str, &usize)>::new(), "{}", world.state());
    nothing_in_flight(&world).await;
}

/// Preemption, a deleted node and a restart of kube-scheduler end flights: every pod lands, and
/// nothing stays in flight.
#[tokio::test]
async fn flights_end_whatever_happens_to_the_pods() {
    let (mut world, _provider) = paired(&[]).await;
    let client = world.plane.client.clone();
    for app in ["early", "high", "gone"] {
        offer(&client, app, "spread").await;
        wait_for_provider(&world, app).await;
    }

    // A restart of kube-scheduler while pods are in flight.
    for at in 0..40 {
        create(&client, pod(&format!("early-{at}"), "early", json!({}))).await;
    }
    world.plane.stop_scheduler();
    let ca = world.extender_ca.clone();
    let url = format!("https://127.0.0.1:{}", world.extender.port);
    let sample = Some(("all-pods.yaml", url.as_str(), ca.as_path()));
    world.plane.start_scheduler(sample).await.unwrap();
    let nodes = bound(&world, "early-", 40).await;
    for at in 0..NODES {
        let here = nodes.values().filter(|n| **n == node_name(at)).count();
        assert_eq!(here, 4, "{nodes:?}");
    }

    // Preemption: the pod is nominated for a node, and lands there once the victim is gone.
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "high"}, "value": 1000});
    objects::apply_one(&client, class).await.unwrap();
    let request = |cpu: &str| json!({"/spec/containers/0/resources": {"requests": {"cpu": cpu}}});
    for at in 0..NODES {
        create(&client, pod(&format!("low-{at}"), "low", request("30"))).await;
    }
    bound(&world, "low-", NODES).await;
    let mut more = request("20");
    more["/spec/priorityClassName"] = "high".into();
    for at in 0..2 {
        create(&client, pod(&format!("high-{at}"), "high", more.clone())).await;
    }
    let high = bound(&world, "high-", 2).await;
    assert_ne!(high["high-0"], high["high-1"]);

    // A node goes while pods are placed on it: it is the best for all of them.
    let prefers = json!({"/metadata/labels/prefers": "n9"});
    let nodes: Api<Node> = Api::all(client.clone());
    for at in 0..30 {
        create(&client, pod(&format!("gone-{at}"), "gone", prefers.clone())).await;
        if at == 15 {
            nodes.delete("n9", &DeleteParams::default()).await.unwrap();
        }
    }
    bound(&world, "gone-", 30).await;
    // A pod that is deleted while it waits.
    let nowhere = json!({"/spec/nodeSelector": {"no": "where"}});
    create(&client, pod("waits", "gone", nowhere)).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete("waits", &DeleteParams::default())
        .await
        .unwrap();
    nothing_in_flight(&world).await;
    assert!(
        !workloads::pods_of(&client, "default", "gone")
            .await
            .is_empty()
    );
}
