//! The extender's memory after many pods. A process of its own: its resident memory is measured.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

// The other tests use more of it.
#[allow(dead_code)]
#[path = "http/served.rs"]
mod served;

use std::time::Duration;

use serde_json::{Value, json};
use tautline_core::{
    index::Object,
    model::{Offer, Policy, ProviderUnavailable, Rule, Service, ServicePort, Target, TargetKind},
    selector::Selector,
    trust::TrustedNamespaces,
};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_scheduler_extender::Config;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider, testkit,
};

use served::{Served, http};

const NODES: usize = 20;
/// Pods that fill the plans, the history and the pods in flight, and so many more.
const ORDINARY: usize = 5_000;
const HUGE: usize = 60;
/// A pod of the largest size has so many entries in `env`.
const ENTRIES: usize = 45_000;

/// Every node costs the same.
#[derive(Clone)]
struct Even;

impl RuleProvider for Even {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let mut answer = CostAnswer::default();
        for node in &request.eligible_nodes {
            answer.usable(node, 5, "");
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::default())
    }
}

async fn serve(provider: &testkit::TestServer) -> Served {
    let store = ClusterStore::default();
    store.apply(Object::Service(Service {
        namespace: "shop".into(),
        name: "p".into(),
        rules: vec!["latency".into()],
        external_name: Some("localhost".into()),
        ports: vec![ServicePort {
            name: "grpc".into(),
            port: provider.address.port(),
        }],
        ..Service::default()
    }));
    let rule = Rule {
        name: "latency".into(),
        limit: "20ms".into(),
        weight: 1,
        ..Rule::default()
    };
    store.apply(Object::Policy(Policy {
        namespace: "shop".into(),
        name: "near".into(),
        rules: vec![rule],
    }));
    store.apply(Object::Offer(Offer {
        namespace: "shop".into(),
        name: "web".into(),
        targets: vec![Target {
            name: "default".into(),
            kind: TargetKind::Pod,
            api_version: "v1".into(),
            selector: Selector {
                match_labels: vec![("app".into(), "web".into())],
                ..Selector::default()
            },
        }],
        policies: vec!["near".into()],
        period: Duration::from_secs(60),
        provider_unavailable: Some(ProviderUnavailable::Reject),
        ..Offer::default()
    }));
    let mut config = Config {
        bind: true,
        ..Config::default()
    };
    config.providers.trusted = TrustedNamespaces::all();
    Served::start(config, store).await
}

fn pod(name: &str, spec: &Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-of-{name}"),
            "resourceVersion": "7", "labels": {"app": "web", "pod-template-hash": "6c8b8b9d5f"},
            "annotations": {"team": "shop", "prometheus.io/scrape": "true"},
            "managedFields": [{"manager": "kubectl", "operation": "Update",
                "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:x": {}}}}],
        },
        "spec": spec,
    })
}

fn ordinary() -> Value {
    let env: Vec<Value> = (0..20)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": "some value of it"}))
        .collect();
    let spec = json!({
        "containers": [{"name": "web", "image": "registry.example/web:1", "env": env,
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 300}],
        "schedulerName": "default-scheduler", "priority": 0,
    });
    pod("NAME", &spec)
}

/// Pods whose JSON is small beside what it takes as objects.
fn huge(shape: &str) -> Value {
    let many = |one: &Value| vec![one.clone(); ENTRIES];
    let spec = match shape {
        "env" => {
            let env: Vec<Value> = (0..ENTRIES)
                .map(|n| json!({"name": format!("E{n}")}))
                .collect();
            json!({"containers": [{"name": "c", "image": "i", "env": env}]})
        }
        "affinity" => json!({"containers": [], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": many(&json!({}))}}}}),
        "anti-affinity" => {
            let term = json!({"topologyKey": "z"});
            json!({"containers": [], "affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": many(&term)}}})
        }
        _ => json!({"containers": [], "tolerations": many(&json!({"operator": "Exists"}))}),
    };
    pod("NAME", &spec)
}

fn body(pod: &Value) -> String {
    let nodes: Vec<String> = (0..NODES).map(|n| format!("node-{n}")).collect();
    json!({"Pod": pod, "Nodes": null, "NodeNames": nodes}).to_string()
}

async fn filter(served: &Served, body: &str) {
    let (status, answer) = http(served.port, "POST", "/filter", body).await;
    assert!(
        status == 200 && answer.contains("node-19"),
        "{status}: {answer}"
    );
}

fn resident_mib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib: i64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib >> 10
}

/// Filter's plans, its history and the pods in flight keep of a pod what is used of it.
#[tokio::test]
async fn memory_is_bounded_after_huge_and_after_ordinary_pods() {
    let provider = testkit::start(Even).await.unwrap();
    let served = serve(&provider).await;
    for shape in ["env", "affinity", "anti-affinity", "tolerations"] {
        let body = body(&huge(shape));
        // The body is this process' too: one before the first measurement.
        filter(&served, &body).await;
        let before = resident_mib();
        for i in 0..HUGE {
            filter(&served, &body.replace("NAME", &format!("{shape}-{i}"))).await;
        }
        let grown = resident_mib() - before;
        println!("{HUGE} pods with much {shape}: {grown} MiB more");
        assert!(
            grown < 40,
            "{HUGE} pods with much {shape}: {grown} MiB more"
        );
    }
    let body = body(&ordinary());
    let before = resident_mib();
    for i in 0..ORDINARY {
        filter(&served, &body.replace("NAME", &format!("web-{i}"))).await;
    }
    let grown = resident_mib() - before;
    println!("{ORDINARY} ordinary pods: {grown} MiB more");
    assert!(grown < 80, "{ORDINARY} ordinary pods: {grown} MiB more");
}
