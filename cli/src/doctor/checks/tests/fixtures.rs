//! A healthy installation of `deploy/`, for tests to break.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, path::Path};

use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{Pod, PodTemplateSpec},
    },
    jiff::Timestamp,
};
use kube::ResourceExt;
use rcgen::{CertificateParams, KeyPair};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tautline_api::{crds, manifest};

use crate::doctor::{
    cluster::{Cluster, FilterRequests, WebhookConfiguration},
    rights,
};

pub(super) const NAMESPACE: &str = "tautline-system";
pub(super) const EXTENDER: &str = "tautline-extender.tautline-system.svc";

pub(super) fn now() -> Timestamp {
    "2026-01-02T12:00:00Z".parse().unwrap()
}

pub(super) fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A self-signed certificate and its key, in PEM, valid until the day `end`.
pub(super) fn certificate(name: &str, end: (i32, u8, u8)) -> (String, String) {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2025, 1, 1);
    params.not_after = rcgen::date_time_ymd(end.0, end.1, end.2);
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

pub(super) fn secret(name: &str, data: &[(&str, &str)]) -> k8s_openapi::api::core::v1::Secret {
    let bytes = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
    k8s_openapi::api::core::v1::Secret {
        data: Some(
            data.iter()
                .map(|(k, v)| ((*k).to_owned(), bytes(v)))
                .collect(),
        ),
        ..of(json!({"metadata": {"name": name, "namespace": NAMESPACE}}))
    }
}

/// The objects of a folder's files, by kind.
fn manifests(folder: &str) -> BTreeMap<String, Vec<Value>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all = BTreeMap::<String, Vec<Value>>::new();
    for entry in std::fs::read_dir(root.join(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("kustomization.yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.replace("image: tautline\n", "image: example.com/tautline:0.1.0\n");
        for document in manifest::documents(&text).unwrap() {
            let object = document.value;
            let kind = object["kind"].as_str().unwrap().to_owned();
            all.entry(kind).or_default().push(object);
        }
    }
    all
}

fn take<T: DeserializeOwned>(objects: &mut BTreeMap<String, Vec<Value>>, kind: &str) -> Vec<T> {
    let list = objects.remove(kind).unwrap_or_default();
    list.into_iter().map(of).collect()
}

pub(super) fn pod(namespace: &str, name: &str, labels: Value, spec: Value) -> Pod {
    of(json!({
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels,
                     "creationTimestamp": "2026-01-02T11:00:00Z"},
        "spec": spec,
        "status": {"phase": "Running", "startTime": "2026-01-02T10:00:00Z",
                   "conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

fn pod_of(template: &PodTemplateSpec, name: &str, node: &str) -> Pod {
    let labels = template.metadata.as_ref().unwrap().labels.clone();
    let mut spec = serde_json::to_value(&template.spec).unwrap();
    spec["nodeName"] = node.into();
    pod(NAMESPACE, name, json!(labels), spec)
}

fn webhook_configurations(bundle: &str) -> Vec<WebhookConfiguration> {
    let mut objects = manifests("deploy/webhooks");
    for hook in objects
        .values_mut()
        .flatten()
        .flat_map(|c| c["webhooks"].as_array_mut().unwrap())
    {
        let bytes = k8s_openapi::ByteString(bundle.as_bytes().to_vec());
        hook["clientConfig"]["caBundle"] = json!(bytes);
    }
    let kinds = [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ];
    let mut of_kind = |kind| {
        let mut list = objects.remove(kind).unwrap_or_default();
        for object in &mut list {
            // As in a list of the API server, which both kinds are parsed from.
            object.as_object_mut().unwrap().remove("kind");
        }
        let list = list.into_iter().map(of);
        list.map(|spec| WebhookConfiguration { kind, spec })
            .collect::<Vec<_>>()
    };
    kinds.map(&mut of_kind).concat()
}

/// `deploy` and `deploy/webhooks` on two nodes, and in the namespace `shop` a policy of the rule
/// latency, an offer of it, and a pod that it governs.
pub(super) fn healthy() -> Cluster {
    let mut objects = manifests("deploy/base");
    let (ca, _) = certificate("ca", (2027, 1, 1));
    let lease = |name: &str| {
        of(json!({"metadata": {"name": name, "namespace": NAMESPACE},
                  "spec": {"holderIdentity": "a_1", "leaseDurationSeconds": 12,
                           "renewTime": "2026-01-02T11:59:58.000000Z"}}))
    };
    let node = |name: &str| of(json!({"metadata": {"name": name}}));
    let mut cluster = Cluster {
        namespace: NAMESPACE.to_owned(),
        now: now(),
        version: "0.1.0".to_owned(),
        namespace_exists: Some(true),
        crds: Some(crds::all()),
        deployments: Some(take(&mut objects, "Deployment")),
        daemon_sets: Some(take(&mut objects, "DaemonSet")),
        leases: Some(vec![
            lease("tautline-controller"),
            lease("tautline-gpu-slice"),
        ]),
        secrets: BTreeMap::from([
            (
                "tautline-extender-generated-tls".to_owned(),
                Some(secret(
                    "tautline-extender-generated-tls",
                    &[("ca.crt", &ca)],
                )),
            ),
            (
                "tautline-admission-tls".to_owned(),
                Some(secret("tautline-admission-tls", &[("ca.crt", &ca)])),
            ),
        ]),
        nodes: Some(vec![node("n1"), node("n2")]),
        services: Some(take(&mut objects, "Service")),
        policies: Some(vec![of(json!({
            "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicy",
            "metadata": {"name": "near", "namespace": "shop"},
            "spec": {"rules": [{"name": "latency", "limit": "20ms"}]},
        }))]),
        offers: Some(vec![of(json!({
            "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"policies": ["near"], "targets": [
                {"kind": "Pod", "labelSelector": {"matchLabels": {"app": "web"}}}]},
        }))]),
        bindings: Some(vec![of(json!({
            "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyBinding",
            "metadata": {"name": "web-a", "namespace": "shop"},
            "spec": {"offer": "web", "targets": {}},
            "status": {"compliance": "Compliant", "firstReason": "", "details": []},
        }))]),
        workload_pods: Some(vec![pod(
            "shop",
            "web-0",
            json!({"app": "web"}),
            json!({"nodeName": "n1", "containers": []}),
        )]),
        webhooks: Some(webhook_configurations(&ca)),
        ..Cluster::default()
    };
    let workloads = cluster.workloads();
    let pods = workloads.iter().flat_map(|w| {
        let nodes = ["n1", "n2"].into_iter().take(w.desired.unwrap_or(2));
        nodes.map(|node| pod_of(w.template, &format!("{}-{node}", w.name), node))
    });
    let pods: Vec<Pod> = pods.collect();
    let rights = workloads.iter().flat_map(|w| rights::needed(w, NAMESPACE));
    let rights = rights.map(|right| (right, true)).collect();
    let slices = cluster.services.iter().flatten().map(|service| {
        let name = service.metadata.name.as_deref().unwrap();
        of(json!({
            "metadata": {"name": name, "namespace": NAMESPACE,
                         "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "ports": [{"port": 1}],
            "endpoints": [{"addresses": ["10.0.0.1"]}],
        }))
    });
    let slices = slices.collect();
    cluster.rights = Some(rights);
    cluster.slices = Some(slices);
    cluster.pods = Some(pods);
    let last = Timestamp::from_second(now().as_second() - 180).ok();
    let calls = |name: &str| (name.to_owned(), Ok(FilterRequests { count: 7, last }));
    cluster.filter_requests = ["tautline-extender-n1", "tautline-extender-n2"]
        .map(calls)
        .into();
    cluster
}

/// [`healthy`] with GPU agents that deliver by DRA; the node n1 has a card, and n2 has none.
pub(super) fn healthy_dra() -> Cluster {
    let mut cluster = healthy();
    let mut agents: Vec<Value> = take(&mut manifests("deploy/with-gpu"), "DaemonSet");
    for agent in &mut agents {
        let args = &mut agent["spec"]["template"]["spec"]["containers"][0]["args"];
        args.as_array_mut().unwrap().push("--delivery=dra".into());
    }
    let daemon_sets = cluster.daemon_sets.as_mut().unwrap();
    daemon_sets.extend(agents.into_iter().map(of::<DaemonSet>));
    let added = Cluster {
        daemon_sets: daemon_sets.pop().map(|agent| vec![agent]),
        ..Cluster::default()
    };
    let workload = &added.workloads()[0];
    let pods = ["n1", "n2"].map(|n| pod_of(workload.template, &format!("gpu-agent-{n}"), n));
    cluster.pods.as_mut().unwrap().extend(pods);
    let rights = rights::needed(workload, NAMESPACE).into_iter();
    let rights = rights.map(|right| (right, true));
    cluster.rights.as_mut().unwrap().extend(rights);
    daemon_sets.extend(added.daemon_sets.clone().unwrap());
    cluster.kubernetes = "v1.36.3".to_owned();
    let nodes = cluster.nodes.as_mut().unwrap();
    nodes[0]
        .labels_mut()
        .insert("nvidia.com/gpu.count".into(), "1".into());
    nodes[1]
        .labels_mut()
        .insert("nvidia.com/gpu.count".into(), "0".into());
    cluster.device_classes = Some(vec![of(json!({
        "metadata": {"name": "gpu.tautline.io"},
        "spec": {"extendedResourceName": "tautline.io/gpu"},
    }))]);
    cluster.resource_slices = Some(vec![of(json!({
        "metadata": {"name": "n1-gpu.tautline.io-0"},
        "spec": {"driver": "gpu.tautline.io", "nodeName": "n1",
                 "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
                 "devices": [{"name": "gpu-0", "allowMultipleAllocations": true,
                              "capacity": {"milli": {"value": "1k"}}}]},
    }))]);
    cluster
}
