//! The ten policies, their parameters, and the pod.

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// PFN's three policies of 2024, from the tests.
const PFN: [&str; 3] = [
    include_str!("../../../admission/mutating-policy/tests/pfn/gpu-none.yaml"),
    include_str!("../../../admission/mutating-policy/tests/pfn/rdma.yaml"),
    include_str!("../../../admission/mutating-policy/tests/pfn/labels.yaml"),
];

/// Everything: policies, bindings, parameters.
pub fn manifests() -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for text in PFN {
        let read: Vec<Value> = serde_saphyr::from_multiple(text).context("PFN's manifests")?;
        all.extend(read.into_iter().map(ours));
    }
    for (name, spec) in ordinary() {
        all.extend(
            [
                ("MutationPolicy", spec),
                ("MutationPolicyBinding", json!({"policyName": name})),
            ]
            .map(|(kind, spec)| {
                json!({"apiVersion": "tautline.io/v1alpha1", "kind": kind,
                "metadata": {"name": name}, "spec": spec})
            }),
        );
    }
    // A watch delivers objects with these.
    for (i, object) in all.iter_mut().enumerate() {
        object["metadata"]["uid"] = format!("uid-{i}").into();
        object["metadata"]["resourceVersion"] = "1".into();
    }
    Ok(all)
}

/// A manifest of Kubernetes' own kinds as our kinds.
fn ours(mut manifest: Value) -> Value {
    let kind = match manifest["kind"].as_str() {
        Some("MutatingAdmissionPolicy") => "MutationPolicy",
        Some("MutatingAdmissionPolicyBinding") => "MutationPolicyBinding",
        _ => return manifest,
    };
    manifest["apiVersion"] = "tautline.io/v1alpha1".into();
    manifest["kind"] = kind.into();
    manifest
}

fn spec(more: Value) -> Value {
    let mut spec = json!({
        "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["pods"]}]},
    });
    if let (Some(into), Value::Object(more)) = (spec.as_object_mut(), more) {
        into.extend(more);
    }
    spec
}

fn apply(expression: &str) -> Value {
    json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}])
}

fn patch(expression: &str) -> Value {
    json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}])
}

/// Seven typical policies.
fn ordinary() -> Vec<(&'static str, Value)> {
    let when = |expression: &str| json!([{"name": "when", "expression": expression}]);
    vec![
        (
            "env-of-all-containers",
            spec(json!({"mutations": apply(
            "Object{spec: Object.spec{containers: object.spec.containers.map(c, \
             Object.spec.containers{name: c.name, env: [\
             Object.spec.containers.env{name: 'CLUSTER', value: 'one'}, \
             Object.spec.containers.env{name: 'NAMESPACE', value: request.namespace}]})}}")})),
        ),
        (
            "volume-and-mounts",
            spec(json!({"mutations": apply(
            "Object{spec: Object.spec{volumes: [Object.spec.volumes{name: 'ca', \
             configMap: Object.spec.volumes.configMap{name: 'ca'}}], \
             containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, \
             volumeMounts: [Object.spec.containers.volumeMounts{name: 'ca', mountPath: '/ca'}]})}}")})),
        ),
        (
            "toleration",
            spec(json!({"mutations": patch(
            "!has(object.spec.tolerations) ? [JSONPatch{op: 'add', path: '/spec/tolerations', value: []}, \
             JSONPatch{op: 'add', path: '/spec/tolerations/-', value: \
             Object.spec.tolerations{key: 'batch', operator: 'Exists'}}] : []")})),
        ),
        (
            "annotation",
            spec(json!({"mutations": patch(
            "[JSONPatch{op: 'add', path: '/metadata/annotations/' + \
             jsonpatch.escapeKey('example.com/seen'), value: 'yes'}]")})),
        ),
        (
            "not-this-namespace",
            spec(
                json!({"matchConditions": when("request.namespace == 'elsewhere'"),
            "mutations": apply("Object{metadata: Object.metadata{labels: {'a': 'b'}}}")}),
            ),
        ),
        (
            "not-this-label",
            spec(
                json!({"matchConditions": when("'tier' in object.metadata.?labels.orValue({})"),
            "mutations": apply("Object{metadata: Object.metadata{labels: {'a': 'b'}}}")}),
            ),
        ),
        (
            "limits-by-variables",
            spec(json!({
            "variables": [
                {"name": "bare", "expression": "object.spec.containers.filter(c, !has(c.resources.limits))"},
                {"name": "any", "expression": "size(variables.bare) > 0"}],
            "matchConditions": when("variables.any"),
            "mutations": apply("Object{spec: Object.spec{containers: variables.bare.map(c, \
                Object.spec.containers{name: c.name, resources: Object.spec.containers.resources{\
                limits: {'memory': '1Gi'}}})}}")})),
        ),
    ]
}

/// A pod of four containers and an init container, about 3 kB.
pub fn pod() -> Value {
    let container = |name: &str, resources: Value| {
        json!({"name": name, "image": format!("registry.example.com/team/{name}:1.2.3"),
            "imagePullPolicy": "IfNotPresent", "resources": resources,
            "env": (0..6).map(|i| json!({"name": format!("KEY_{i}"), "value": format!("value {i}")})).collect::<Vec<_>>(),
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": true}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
    };
    let resources = |key: &str, count: &str| json!({"limits": {key: count, "cpu": "4"}, "requests": {key: count, "cpu": "4"}});
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "trains-0", "namespace": "ml", "uid": "u",
            "labels": {"app": "trains", "pod-template-hash": "5d4f8c7b9"},
            "annotations": {"example.com/owner": "team"}},
        "spec": {"containers": [
                container("main", resources("nvidia.com/gpu", "2")),
                container("net", resources("preferred.jp/rdma", "1")),
                container("log", json!({"limits": {"memory": "64Mi"}})),
                container("side", json!({}))],
            "initContainers": [container("warm", json!({}))],
            "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": []}}],
            "restartPolicy": "Always", "serviceAccountName": "default", "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": {},
            "enableServiceLinks": true, "priority": 0, "preemptionPolicy": "PreemptLowerPriority"},
        "status": {}})
}

/// The Namespace of the pod.
pub fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "uid": "n",
        "resourceVersion": "1", "labels": {"kubernetes.io/metadata.name": "ml"}}})
}

/// The slice policy: a hundred rules, of which the last is for the pod.
pub fn slices() -> String {
    let mut rules: Vec<Value> = (0..99)
        .map(|i| json!({"namespaces": [format!("team-{i}")], "workloadType": "inference"}))
        .collect();
    rules.push(json!({"labelSelector": {"app": "trains"}, "sliceRatio": 4}));
    json!({"rules": rules}).to_string()
}

/// An AdmissionReview of the pod, as the API server writes it.
pub fn review(uid: usize) -> Vec<u8> {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": format!("{uid:08x}-0000-4000-8000-000000000000"), "kind": kind, "resource": resource,
        "requestKind": kind, "requestResource": resource, "name": "trains-0", "namespace": "ml",
        "operation": "CREATE", "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller",
            "groups": ["system:serviceaccounts", "system:authenticated"]},
        "object": pod(), "oldObject": null, "dryRun": false,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}});
    review.to_string().into_bytes()
}
