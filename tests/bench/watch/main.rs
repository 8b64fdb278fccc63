//! `cargo build --release -p tautline && cargo run --release -p tautline-bench --bin
//! tautline-bench-watch`: the cost of ungoverned pods to the processes that watch pods. The
//! API server and etcd are real. Pods are created, bound and reported ready at an even rate,
//! without calls of the extender or providers.
//!
//! Several `--bin` are measured interleaved, round by round, on the same API server.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Parser;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tautline_bench::cluster::{self, POD_EVENTS, create, each};
use tautline_tests::{control_plane::ControlPlane, servers::Server};

const SERVERS: [(&str, &[&str]); 3] = [
    ("extender", &["extender"]),
    ("gpu-slice", &["provider", "gpu-slice"]),
    ("latency", &["provider", "latency"]),
];
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Parser)]
#[command(name = "tautline-bench-watch")]
struct Args {
    /// The binaries to measure [default: target/release/tautline]
    #[arg(long)]
    bin: Vec<PathBuf>,
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    #[arg(long, default_value_t = 2000)]
    pods: usize,
    /// Pods per second
    #[arg(long, default_value_t = 200)]
    rate: u32,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Also measures the API server without Tautline
    #[arg(long)]
    bare: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = Args::parse();
    if args.bin.is_empty() {
        args.bin.push(cluster::release_binary(None)?);
    }
    let plane = ControlPlane::start().await?;
    cluster::deploy(&plane.client).await?;
    nodes(&plane.client, args.nodes).await?;
    println!(
        "CPU per pod in us, and memory afterwards in MB, {} pods",
        args.pods
    );
    println!(
        "| binary | {} | API server |",
        SERVERS.map(|s| s.0).join(" | ")
    );
    println!("|---|---|---|---|---|");
    for _ in 0..args.rounds {
        for bin in &args.bin {
            round(&plane, Some(bin), &args).await?;
        }
        if args.bare {
            round(&plane, None, &args).await?;
        }
    }
    Ok(())
}

/// One round of a binary.
async fn round(plane: &ControlPlane, bin: Option<&Path>, args: &Args) -> Result<()> {
    let mut servers = Vec::new();
    for (name, command) in SERVERS {
        if let Some(bin) = bin {
            servers.push(Server::start_binary(plane, bin, name, command).await?);
        }
    }
    // Warm-up.
    load(&plane.client, &servers, 100, args).await?;
    let cpu = || -> Vec<f64> { servers.iter().map(|s| s.process.cpu_seconds()).collect() };
    let (before, api_server) = (cpu(), plane.apiserver_cpu_seconds());
    load(&plane.client, &servers, args.pods, args).await?;
    let per_pod = |seconds: f64| format!("{:.0}", seconds * 1e6 / args.pods as f64);
    let api_server = per_pod(plane.apiserver_cpu_seconds() - api_server);
    let mut cells: Vec<String> = (cpu().iter().zip(&before).zip(&servers))
        .map(|((now, then), server)| {
            let megabytes = server.process.resident_bytes() as f64 / 1e6;
            format!("{}, {megabytes:.0} MB", per_pod(now - then))
        })
        .collect();
    cells.resize(SERVERS.len(), String::new());
    let name = bin.map_or("none".into(), |b| b.display().to_string());
    println!("| {name} | {} | {api_server} |", cells.join(" | "));
    let api: Api<Pod> = Api::namespaced(plane.client.clone(), "default");
    let now = DeleteParams::default().grace_period(0);
    api.delete_collection(&now, &ListParams::default()).await?;
    Ok(())
}

async fn nodes(client: &Client, count: usize) -> Result<()> {
    let node = async |i: usize| {
        let amounts =
            json!({"cpu": "64", "memory": "256Gi", "pods": "500", "nvidia.com/gpu.shared": "800"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("node-{i}"), "labels": {"zone": format!("zone-{}", i % 10)}},
            "status": {"capacity": amounts, "allocatable": amounts},
        });
        create(client, "/api/v1/nodes", &node).await
    };
    each(count, node).await
}

/// Creates, binds and runs `pods` pods at an even rate; returns once the servers have seen
/// all events.
async fn load(client: &Client, servers: &[Server], pods: usize, args: &Args) -> Result<()> {
    let start = Instant::now();
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");
    let run = async |i: usize| {
        let due = Duration::from_secs(1) / args.rate * u32::try_from(i)?;
        tokio::time::sleep(due.saturating_sub(start.elapsed())).await;
        let (name, path) = (format!("p{pods}-{i}"), "/api/v1/namespaces/default/pods");
        create(client, path, &pod(&name)).await?;
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"kind": "Node", "name": format!("node-{}", i % args.nodes)},
        });
        let path = format!("{path}/{name}/binding");
        create(client, &path, &binding).await?;
        let status = json!({"status": {
            "phase": "Running", "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "main", "image": "i", "imageID": "i", "ready": true,
                                   "restartCount": 0, "state": {"running": {}}}],
        }});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        anyhow::Ok(())
    };
    each(pods, run).await?;
    for server in servers {
        let (deadline, mut seen) = (Instant::now() + PATIENCE, -1.0);
        loop {
            let now = server.metric(POD_EVENTS).await;
            if now == seen {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "the pods are not seen within {PATIENCE:?}"
            );
            seen = now;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
    Ok(())
}

/// A typical pod with a share of a GPU.
fn pod(name: &str) -> Value {
    let env: Vec<Value> = (0..12)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value-{n}.team.svc")}))
        .collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    let amounts = json!({"cpu": "100m", "memory": "500Mi", "nvidia.com/gpu.shared": "1"});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "labels": {"app": "client", "pod-template-hash": "5d4f8c7b9"},
            "annotations": {"prometheus.io/scrape": "true"},
        },
        "spec": {
            "automountServiceAccountToken": false,
            // No scheduler has this name: only the benchmark binds the pod.
            "schedulerName": "none",
            "containers": [{
                "name": "main", "image": "registry.example.com/app:1.2.3", "env": env,
                "livenessProbe": probe, "readinessProbe": probe,
                "resources": {"requests": amounts, "limits": amounts},
            }],
        },
    })
}
