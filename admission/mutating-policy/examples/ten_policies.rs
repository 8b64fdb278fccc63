//! Measures how long ten policies, including PFN's three, take for a pod. The example evaluates the
//! policies ten thousand times and prints the median and the 99th percentile. Run it with `cargo
//! run --release -p tautline-mutating-policy --example ten_policies`.

use std::error::Error;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tautline_mutating_policy::{Policies, Request, Settings, StaticCluster, Verdict, defaults};

const ROUND_COUNT: usize = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut manifests: Vec<Value> = Vec::new();
    for yaml in [
        include_str!("../tests/pfn/gpu-none.yaml"),
        include_str!("../tests/pfn/rdma.yaml"),
        include_str!("../tests/pfn/labels.yaml"),
    ] {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
        manifests.extend(documents);
    }
    for i in 0..7 {
        let name = format!("label-{i}");
        manifests.push(json!({"apiVersion": "tautline.io/v1alpha1", "kind": "MutationPolicy",
            "metadata": {"name": name}, "spec": {"reinvocationPolicy": "IfNeeded",
                "matchConditions": [{"name": "c", "expression": "object.metadata.name.startsWith('train')"}],
                "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                    "operations": ["CREATE"], "resources": ["pods"]}]},
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                    format!("Object{{metadata: Object.metadata{{labels: {{'l{i}': object.metadata.namespace}}}}}}")}}]}}));
        manifests.push(
            json!({"apiVersion": "tautline.io/v1alpha1", "kind": "MutationPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name}}),
        );
    }
    let (policies, report) = Policies::load(&manifests);
    for fault in &report.faults {
        println!("{fault}");
    }
    let container = |i: usize| {
        json!({"name": format!("c{i}"), "image": "example.com/app:1",
            "env": (0..20).map(|e| json!({"name": format!("E{e}"), "value": "x"})).collect::<Vec<_>>(),
            "resources": {"limits": {"cpu": "4", "memory": "16Gi", "preferred.jp/rdma": "1",
                "nvidia.com/gpu": i.to_string()}}})
    };
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "train-1", "namespace": "default"},
        "spec": {"containers": (0..4).map(container).collect::<Vec<_>>()}});
    let mut request = Request::create(pod.clone()).ok_or("no pod")?;
    defaults::set(&request.kind, &mut pod);
    request.object = pod.into();
    let world: StaticCluster = manifests.into_iter().collect();
    let settings = Settings::default();
    let mut times: Vec<Duration> = Vec::with_capacity(ROUND_COUNT);
    for _ in 0..ROUND_COUNT {
        let start = Instant::now();
        let outcome = policies.mutate(&request, &world, &settings);
        times.push(start.elapsed());
        if !matches!(outcome.verdict, Verdict::Changed { .. }) {
            return Err(format!("{:?}", outcome.verdict).into());
        }
    }
    times.sort_unstable();
    let at = |share: usize| {
        times
            .get(ROUND_COUNT * share / 100)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "{} policies, {ROUND_COUNT} rounds: p50 {:?}, p99 {:?}",
        policies.len(),
        at(50),
        at(99)
    );
    Ok(())
}
