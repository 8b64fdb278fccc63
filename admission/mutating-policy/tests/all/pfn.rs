//! PFN's three cases by its own manifests of 2024 with the indentation restored,
//! as they were written and with apiVersion and kind changed to ours.
//! <https://tech.preferred.jp/ja/blog/kubernetes-mutating-admission-policy/>

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests are no tests to the lint"
)]

use serde_json::{Value, json};
use tautline_mutating_policy::{
    Outcome, Policies, Request, Settings, StaticCluster, Verdict, defaults,
};

const GPU_NONE: &str = include_str!("../pfn/gpu-none.yaml");
const RDMA: &str = include_str!("../pfn/rdma.yaml");
const RDMA_VARIABLES: &str = include_str!("../pfn/rdma-variables.yaml");
const LABELS: &str = include_str!("../pfn/labels.yaml");

fn documents(yaml: &str) -> Vec<Value> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_multiple_with_options(yaml, options).unwrap()
}

/// The same under our kinds.
fn as_tautline_kinds(mut manifests: Vec<Value>) -> Vec<Value> {
    for manifest in &mut manifests {
        let kind = match manifest["kind"].as_str() {
            Some("MutatingAdmissionPolicy") => "MutationPolicy",
            Some("MutatingAdmissionPolicyBinding") => "MutationPolicyBinding",
            _ => continue,
        };
        manifest["kind"] = kind.into();
        manifest["apiVersion"] = "tautline.io/v1alpha1".into();
    }
    manifests
}

fn pod(containers: Value, init: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "gpu-zero", "namespace": "default"},
        "spec": {"containers": containers}});
    if !init.is_null() {
        pod["spec"]["initContainers"] = init;
    }
    pod
}

fn container(name: &str, limits: Value) -> Value {
    let mut container = json!({"name": name, "image": "busybox"});
    if !limits.is_null() {
        container["resources"] = json!({"limits": limits});
    }
    container
}

/// What the manifests, in both kinds, make of a pod.
fn outcome(manifests: &[Value], pod: Value) -> Outcome {
    let settings = Settings::default();
    let run = |manifests: &[Value]| {
        let (policies, report) = Policies::load(manifests);
        assert_eq!(report.faults, []);
        let mut odd = report.warnings.iter().map(ToString::to_string);
        assert!(!odd.any(|w| w.contains("undefined field")));
        assert!(!policies.is_empty());
        let mut request = Request::create(pod.clone()).unwrap();
        let mut object = pod.clone();
        defaults::set(&request.kind, &mut object);
        request.object = object.into();
        let world: StaticCluster = manifests.iter().cloned().collect();
        policies.mutate(&request, &world, &settings)
    };
    let theirs = run(manifests);
    let ours = run(&as_tautline_kinds(manifests.to_vec()));
    assert_eq!(ours, theirs);
    ours
}

fn changed(manifests: &[Value], pod: Value) -> Value {
    match outcome(manifests, pod).verdict {
        Verdict::Changed { object, .. } => (*object).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_gpu_is_visible_to_containers_without_one() {
    let manifests = documents(GPU_NONE);
    let none = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}]);
    let gpus = |count: i32| json!({"nvidia.com/gpu": count});
    let mut all = container("all", Value::Null);
    all["env"] =
        json!([{"name": "X", "value": "1"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]);
    let containers = json!([
        container("zero", gpus(0)),
        container("one", gpus(1)),
        container("absent", Value::Null),
        container("cpu", json!({"cpu": "1"})),
        all,
    ]);
    let init = json!([
        container("init", Value::Null),
        container("init-one", gpus(1))
    ]);
    let after = changed(&manifests, pod(containers, init));
    let env = |pointer: &str| after.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(env("/spec/containers/0/env"), none);
    assert_eq!(env("/spec/containers/1/env"), Value::Null);
    assert_eq!(env("/spec/containers/2/env"), none);
    assert_eq!(env("/spec/containers/3/env"), none);
    let unchanged =
        json!([{"name": "X", "value": "1"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}]);
    assert_eq!(env("/spec/containers/4/env"), unchanged);
    assert_eq!(env("/spec/initContainers/0/env"), none);
    assert_eq!(env("/spec/initContainers/1/env"), Value::Null);

    // The binding leaves one namespace out.
    let mut exempt = pod(json!([container("zero", gpus(0))]), Value::Null);
    exempt["metadata"]["namespace"] = "nvidia-gpu".into();
    assert_eq!(outcome(&manifests, exempt).verdict, Verdict::Unchanged);
}

#[test]
fn rdma_jobs_get_their_networks() {
    // The appendix is the policy alone.
    let mut appendix = documents(RDMA);
    appendix[0] = documents(RDMA_VARIABLES).remove(0);
    for manifests in [documents(RDMA), appendix] {
        let rdma = |count: i32| json!({"preferred.jp/rdma": count});
        let containers = json!([
            container("a", rdma(1)),
            container("b", rdma(0)),
            container("c", Value::Null)
        ]);
        let original = pod(containers, Value::Null);
        let after = changed(&manifests, original.clone());
        let limits = json!({"preferred.jp/rdma": "1", "preferred.jp/net1": "1",
            "preferred.jp/net2": "1", "preferred.jp/net3": "1", "preferred.jp/net4": "1"});
        assert_eq!(
            after["spec"]["containers"][0]["resources"]["limits"],
            limits
        );
        assert_eq!(
            after["spec"]["containers"][1]["resources"]["limits"],
            json!({"preferred.jp/rdma": "0"})
        );
        assert_eq!(after["spec"]["containers"][2]["resources"], json!({}));
        let networks =
            "networking-rdma/net1 networking-rdma/net2 networking-rdma/net3 networking-rdma/net4";
        let annotation = "k8s.v1.cni.cncf.io/networks";
        assert_eq!(after["metadata"]["annotations"][annotation], networks);

        let mut own = original;
        own["metadata"]["annotations"] = json!({annotation: "mine"});
        let after = changed(&manifests, own);
        assert_eq!(after["metadata"]["annotations"][annotation], "mine");

        let without = pod(json!([container("c", Value::Null)]), Value::Null);
        assert_eq!(outcome(&manifests, without).verdict, Verdict::Unchanged);
    }
}

#[test]
fn extended_resources_become_labels() {
    let manifests = documents(LABELS);
    let containers = json!([
        container("a", json!({"cpu": "200m", "preferred.jp/mncore": 1})),
        container(
            "b",
            json!({"preferred.jp/mncore": 1, "preferred.jp/with-binarysi": "1Mi",
            "example.com/zero": 0, "hugepages-2Mi": "4Mi", "memory": "1Gi"})
        ),
        container("c", Value::Null),
    ]);
    let init = json!([container("init", json!({"nvidia.com/gpu": 1}))]);
    let original = pod(containers, init);
    // As printed, the expression leaves the prefix of the wanted labels out.
    let after = changed(&manifests, original.clone());
    let labels = json!({"preferred.jp--mncore": "", "preferred.jp--with-binarysi": "",
        "nvidia.com--gpu": ""});
    assert_eq!(after["metadata"]["labels"], labels);

    let prefixed = LABELS.replace(
        "k.replace('/', '--', -1)",
        "'pod-resource.preferred.jp/' + k.replace('/', '--', -1)",
    );
    let after = changed(&documents(&prefixed), original);
    let labels = json!({
        "pod-resource.preferred.jp/preferred.jp--mncore": "",
        "pod-resource.preferred.jp/preferred.jp--with-binarysi": "",
        "pod-resource.preferred.jp/nvidia.com--gpu": "",
    });
    assert_eq!(after["metadata"]["labels"], labels);
}
