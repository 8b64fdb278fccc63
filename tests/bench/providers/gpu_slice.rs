//! The cost to `gpu-slice`, by placement policy.

use std::time::Instant;

use anyhow::Result;
use tautline_bench::Times;
use tautline_core::{
    index::{Kind, Object},
    model,
};
use tautline_gpu_placement::policy::PolicyName;
use tautline_gpu_slice::{Config, GpuSlice};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{CostRequest, Reference, Rule, RuleProvider, Workload};

const NODES: usize = 5_000;
const ROUNDS: usize = 400;
/// The pods' requests, in thousandths of a card.
const MIX: [&str; 8] = ["250", "460", "500", "810", "1000", "1000", "2000", "8000"];

fn node(i: usize) -> Object {
    let products = [
        "NVIDIA-H100-80GB-HBM3",
        "NVIDIA-A100-SXM4-40GB",
        "Tesla-T4",
        "NVIDIA-L40S",
    ];
    Object::Node(model::Node {
        name: format!("node-{i:05}").into(),
        labels: [("nvidia.com/gpu.product", products[i % 4])]
            .into_iter()
            .collect(),
        allocatable: [
            ("cpu", 96_000 + 32_000 * (i as i64 % 3)),
            ("memory", 1_000 << 40),
            ("tautline.io/gpu-cards", 8_000),
        ]
        .into_iter()
        .collect(),
        ..model::Node::default()
    })
}

fn pod(i: usize, node: Option<usize>) -> Object {
    let milli: u32 = MIX[i % MIX.len()].parse().unwrap_or(1000);
    let record = match milli {
        share @ 0..1000 => format!("{}:{share}", i % 8),
        whole => (0..whole / 1000)
            .map(|c| c.to_string())
            .collect::<Vec<_>>()
            .join(","),
    };
    Object::Pod(model::Pod {
        namespace: "ml".into(),
        name: format!("pod-{i}").into(),
        uid: format!("uid-{i}").into(),
        node: node.map(|n| format!("node-{n:05}").into()),
        annotations: [("tautline.io/gpu-devices", record)].into_iter().collect(),
        requests: [("cpu", 4_000 + 1_000 * (i as i64 % 5)), ("memory", 8 << 40)]
            .into_iter()
            .collect(),
        ..model::Pod::default()
    })
}

fn question(request: &str) -> CostRequest {
    let requests = [("cpu", "8"), ("memory", "16Gi")];
    let requests = requests.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    CostRequest {
        source: Reference::pod("ml", "asks"),
        rule: Rule {
            name: "gpu-slice".into(),
            request: request.into(),
            ..Rule::default()
        },
        eligible_nodes: (0..NODES).map(|i| format!("node-{i:05}")).collect(),
        workload: Some(Workload {
            uid: "asks".into(),
            requests,
            ..Workload::default()
        }),
        ..CostRequest::default()
    }
}

pub async fn run() -> Result<()> {
    println!("| policy | cached: median | cached: worst | all costs | first request |");
    println!("|---|---|---|---|---|");
    for policy in PolicyName::ALL {
        let store = ClusterStore::default();
        store.reset(Kind::Node, (0..NODES).map(node).collect());
        // Half of the nodes have a pod or two.
        store.reset(
            Kind::Pod,
            (0..NODES).map(|i| pod(i, Some(i / 2 * 2))).collect(),
        );
        let config = Config {
            policy,
            ..Config::default()
        };
        let provider = GpuSlice::new(store.clone(), config);
        let start = Instant::now();
        provider.endpoint_cost(question("250m")).await?;
        let first = start.elapsed();
        let recomputed = {
            let start = Instant::now();
            provider.endpoint_cost(question("1")).await?;
            start.elapsed()
        };
        let mut times = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            let (gone, request) = (round * 7 % NODES, ["250m", "1"][round % 2]);
            match round % 2 {
                0 => store.apply(pod(NODES + round, Some(gone))),
                _ => store.delete(Kind::Pod, &format!("ml/pod-{gone}")),
            }
            let request = question(request);
            let start = Instant::now();
            provider.endpoint_cost(request).await?;
            times.push(start.elapsed());
        }
        let times = Times::new(times);
        let (cached, worst) = (times.quantile(0.5), times.quantile(1.0));
        println!("| {policy} | {cached:.2?} | {worst:.2?} | {recomputed:.2?} | {first:.2?} |");
    }
    Ok(())
}
