//! `cargo build --release -p tautline && cargo run --release -p tautline-bench --bin
//! tautline-bench-groups`: groups of pods under the real kube-scheduler, next to the same pods without
//! groups. Nodes run by kwok; the extender binds, and the providers `latency` and `gpu-slice` are the
//! release binary too.
//!
//! Measured: pods a second from the first creation to the last binding, and how long a group is
//! bound in part, as a watch sees it every 50 ms.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Parser;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt};
use kube_runtime::{WatchStreamExt, reflector, watcher};
use serde_json::{Value, json};
use tautline_bench::{Output, cluster, node_name, table};
use tautline_tests::{control_plane::ControlPlane, eventually, objects, root, servers::Server};

/// The interval between two looks at the groups.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The longest time for all pods of a round.
const PATIENCE: Duration = Duration::from_secs(180);
/// The number of zones; only the nodes of one zone are near each other.
const ZONES: usize = 10;

#[derive(Parser)]
#[command(name = "tautline-bench-groups")]
struct Args {
    /// The binary to measure [default: target/release/tautline]
    #[arg(long)]
    bin: Option<PathBuf>,
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    #[arg(long, default_value_t = 20)]
    groups: usize,
    /// Pods of each group
    #[arg(long, default_value_t = 16)]
    pods: usize,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[command(flatten)]
    output: Output,
}

/// The result of one round.
#[derive(Default)]
struct Round {
    pods_a_second: f64,
    looks: usize,
    /// The looks at which a group was bound in part.
    partial_looks: usize,
    longest_partial: Duration,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let bin = cluster::release_binary(args.bin.clone())?;
    eprintln!("starting etcd and kube-apiserver (built first if need be) ...");
    let mut plane = ControlPlane::start().await?;
    cluster::deploy(&plane.client).await?;
    let role = std::fs::read_to_string(root().join("deploy/with-bind/role.yaml"))?;
    objects::apply(&plane.client, &role).await?;
    plane.start_kwok().await?;
    nodes(&plane.client, args.nodes).await?;
    let _providers = providers(&plane, &bin).await?;
    let (cert, key) = tautline_tests::servers::certificate(plane.dir.path())?;
    let tls = [
        format!("--tls-cert={}", cert.display()),
        format!("--tls-key={}", key.display()),
    ];
    let extender = ["extender", &tls[0], &tls[1], "--bind"];
    let extender = Server::start_binary(&plane, &bin, "extender", &extender).await?;
    let url = format!("https://127.0.0.1:{}", extender.port);
    plane
        .start_scheduler(Some(("gated-gpu.yaml", &url, &cert)))
        .await?;
    let (mut alone, mut grouped) = (Vec::new(), Vec::new());
    // The first round warms up.
    for nth in 0..=args.rounds {
        for (is_grouped, rounds) in [(false, &mut alone), (true, &mut grouped)] {
            let namespace = format!("round-{nth}-{is_grouped}");
            let round = run(&plane.client, &args, &namespace, is_grouped).await?;
            eprintln!(
                "{namespace}: {:.0} pods/s, partly bound at {} of {} looks, for {:.0?} at most",
                round.pods_a_second, round.partial_looks, round.looks, round.longest_partial
            );
            if nth > 0 {
                rounds.push(round);
            }
        }
    }
    report(&args, &alone, &grouped)
}

fn report(args: &Args, alone: &[Round], grouped: &[Round]) -> Result<()> {
    let median = |rounds: &[Round]| {
        let mut speeds: Vec<f64> = rounds.iter().map(|r| r.pods_a_second).collect();
        speeds.sort_by(f64::total_cmp);
        speeds.get(speeds.len() / 2).copied().unwrap_or_default()
    };
    let (without, with) = (median(alone), median(grouped));
    let longest = grouped.iter().map(|r| r.longest_partial).max();
    let longest = longest.unwrap_or_default().as_millis();
    let sum = |of: fn(&Round) -> usize| grouped.iter().map(of).sum::<usize>();
    let (partial, looks) = (sum(|r| r.partial_looks), sum(|r| r.looks));
    let rows = [
        (
            "without groups, pods a second".to_owned(),
            format!("{without:.0}"),
        ),
        ("as groups, pods a second".to_owned(), format!("{with:.0}")),
        ("ratio".to_owned(), format!("{:.2}", with / without)),
        (
            "looks at a group bound in part".to_owned(),
            format!("{partial} of {looks}"),
        ),
        (
            "longest time bound in part".to_owned(),
            format!("{longest} ms"),
        ),
    ];
    let head = format!(
        "{} groups of {} pods, {} nodes",
        args.groups, args.pods, args.nodes
    );
    let figures = json!({"withoutGroups": without, "asGroups": with, "ratio": with / without,
        "partialLooks": partial, "looks": looks, "longestPartialMillis": longest as u64});
    args.output
        .write("groups", &table([&head, ""], rows), &figures)
}

/// Nodes with eight shared cards each.
async fn nodes(client: &Client, count: usize) -> Result<()> {
    let one = async |i: usize| {
        let capacity = json!({"cpu": "32", "memory": "256Gi", "pods": "110",
                              "nvidia.com/gpu.shared": "32"});
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node_name(i), "labels": {
                "topology.kubernetes.io/zone": format!("zone-{}", i % ZONES),
                "nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.memory": "23034",
                "nvidia.com/gpu.replicas": "4"}},
            "status": {"capacity": capacity, "allocatable": capacity}});
        cluster::create(client, "/api/v1/nodes", &node).await
    };
    cluster::each(count, one).await
}

async fn providers(plane: &ControlPlane, bin: &Path) -> Result<[Server; 2]> {
    let start = async |name: &str, rule: &str| {
        let server = Server::start_binary(plane, bin, name, &["provider", name]).await?;
        let mut service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "tautline-system",
                         "labels": {format!("constraint.ciena.com/constraint-{rule}"): "enabled"}},
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1",
                     "ports": [{"name": "ruleprovider", "port": server.port}]}});
        if rule == "gpu-slice" {
            service["metadata"]["annotations"] =
                json!({"constraint.ciena.com/allocator": "enabled"});
        }
        objects::apply_one(&plane.client, service).await?;
        anyhow::Ok(server)
    };
    let mut rows = "from,to,rtt\n".to_owned();
    for a in 0..ZONES {
        for b in a..ZONES {
            let rtt = if a == b { "80us" } else { "2ms" };
            rows += &format!("zone-{a},zone-{b},{rtt}\n");
        }
    }
    let delays = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "delays", "namespace": "tautline-system",
                     "labels": {"constraint.ciena.com/latency-table": "enabled"}},
        "data": {"table.csv": rows}});
    objects::apply_one(&plane.client, delays).await?;
    let latency = start("latency", "latency").await?;
    Ok([latency, start("gpu-slice", "gpu-slice").await?])
}

async fn run(client: &Client, args: &Args, namespace: &str, is_grouped: bool) -> Result<Round> {
    let namespaced =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    objects::apply_one(client, namespaced).await?;
    offers(client, args, namespace, is_grouped).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let (store, writer) = reflector::store();
    let watch = watcher(pods, watcher::Config::default()).reflect(writer);
    let watching = tokio::spawn(watch.for_each(|_| std::future::ready(())));
    store.wait_until_ready().await?;
    let begun = Instant::now();
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let one = async |i: usize| {
        let (group, nth) = (i / args.pods, i % args.pods);
        cluster::create(client, &path, &pod(group, nth)).await
    };
    let making = cluster::each(args.groups * args.pods, one);
    let looking = look(args, || bound(&store.state()), begun);
    let ((), round) = futures::future::try_join(making, looking).await?;
    let all: Api<Pod> = Api::namespaced(client.clone(), namespace);
    all.delete_collection(&Default::default(), &Default::default())
        .await?;
    let gone = async || store.state().is_empty().then_some(());
    let remain = async || format!("{:?}", bound(&store.state()));
    eventually("the pods of the round are gone", PATIENCE, gone, remain).await;
    watching.abort();
    Ok(round)
}

/// Looks at the groups until all pods are bound.
async fn look(
    args: &Args,
    bound: impl Fn() -> BTreeMap<String, usize>,
    begun: Instant,
) -> Result<Round> {
    let mut round = Round::default();
    let mut partial_since: BTreeMap<String, Instant> = BTreeMap::new();
    let total = args.groups * args.pods;
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let bound = bound();
        let now = Instant::now();
        round.looks += 1;
        let is_partial = |count: &usize| *count < args.pods;
        partial_since.retain(|group, _| bound.get(group).is_some_and(is_partial));
        for (group, _) in bound.iter().filter(|(_, count)| is_partial(count)) {
            let since = *partial_since.entry(group.clone()).or_insert(now);
            round.longest_partial = round.longest_partial.max(now - since + LOOK_INTERVAL);
        }
        round.partial_looks += usize::from(!partial_since.is_empty());
        let count: usize = bound.values().sum();
        if count == total {
            break;
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "{count} of {total} pods are bound: {bound:?}"
        );
    }
    round.pods_a_second = total as f64 / begun.elapsed().as_secs_f64();
    Ok(round)
}

/// The number of bound pods of each group that has any.
fn bound(pods: &[Arc<Pod>]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods {
        let is_bound = pod.spec.as_ref().is_some_and(|s| s.node_name.is_some());
        if let Some(group) = pod.labels().get("job").filter(|_| is_bound) {
            *counts.entry(group.clone()).or_default() += 1;
        }
    }
    counts
}

/// One offer with groups, or one for each group that says the same without.
async fn offers(client: &Client, args: &Args, namespace: &str, is_grouped: bool) -> Result<()> {
    let object = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": kind,
               "metadata": {"name": name, "namespace": namespace}, "spec": spec})
    };
    let rules = json!({"rules": [{"name": "latency", "request": "100us", "limit": "100us"},
                                 {"name": "gpu-slice", "request": "true"}]});
    objects::apply_one(client, object("ConstraintPolicy", "near", rules)).await?;
    let target = |name: &str, labels: Value| json!({"name": name, "kind": "Pod", "labelSelector": {"matchLabels": labels}});
    if is_grouped {
        let spec = json!({"group": {"by": "job", "minimum": args.pods},
            "targets": [target("worker", json!({"app": "train"})),
                        {"name": "others", "kind": "Pod", "peers": "group"}],
            "policies": ["near"]});
        let offer = object("ConstraintPolicyOffer", "train", spec);
        return objects::apply_one(client, offer).await;
    }
    for group in 0..args.groups {
        let job = json!({"job": format!("job-{group}")});
        let targets = json!([target("worker", job.clone()), target("others", job)]);
        let spec = json!({"targets": targets, "policies": ["near"]});
        let offer = object("ConstraintPolicyOffer", &format!("train-{group}"), spec);
        objects::apply_one(client, offer).await?;
    }
    Ok(())
}

fn pod(group: usize, nth: usize) -> Value {
    let resources = json!({"cpu": "100m", "memory": "500Mi", "nvidia.com/gpu.shared": "1",
                           "constraint.ciena.com/governed": "1"});
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("worker-{group}-{nth}"),
                     "labels": {"app": "train", "job": format!("job-{group}")}},
        "spec": {"automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "example.com/app:1",
                            "resources": {"requests": resources, "limits": resources}}]}})
}
