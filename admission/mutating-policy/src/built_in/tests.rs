use serde_json::{Value, json};

use super::*;
use crate::static_cluster::StaticCluster;

fn pod(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"},
        "spec": spec})
}

/// An object as a cluster with these objects admits it, with what is left out.
fn admitted(object: Value, given: &[Value]) -> Result<(Value, Vec<String>), Refusal> {
    let request = Request::create(object.clone()).unwrap();
    let mut object = object;
    let given = Objects(given.iter().cloned().map(Into::into).collect());
    let notes = admit(&request, &mut object, &given)?;
    let mut again = object.clone();
    admit(&request, &mut again, &given)?;
    assert_eq!(again, object, "a second time changes nothing");
    Ok((object, notes))
}

fn spec_of(spec: Value, given: &[Value]) -> Value {
    admitted(pod(spec), given).unwrap().0["spec"].clone()
}

fn tolerations() -> Value {
    let on = |taint: &str| {
        json!({"key": format!("node.kubernetes.io/{taint}"),
        "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    };
    json!([on("not-ready"), on("unreachable")])
}

/// What every admitted pod has that mounts no token.
fn bare() -> Value {
    json!({"automountServiceAccountToken": false, "serviceAccountName": "default",
        "serviceAccount": "default", "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
        "tolerations": tolerations()})
}

#[test]
fn pod_is_admitted_as_by_a_new_cluster() {
    let mount = json!({"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "name": "kube-api-access-xxxxx", "readOnly": true});
    let own = json!({"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "own"});
    let spec = json!({"volumes": [{"name": "v"}], "initContainers": [{"name": "i"}],
        "containers": [{"name": "c", "volumeMounts": [{"mountPath": "/v", "name": "v"}]},
            {"name": "d", "volumeMounts": [own]}]});
    let namespace = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    let token = json!({"name": "kube-api-access-xxxxx", "projected": {"defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}],
                "name": "kube-root-ca.crt"}},
            {"downwardAPI": {"items": [{"fieldRef": namespace, "path": "namespace"}]}}]}});
    let mut expected = bare();
    expected
        .as_object_mut()
        .unwrap()
        .remove("automountServiceAccountToken");
    expected["volumes"] = json!([{"name": "v"}, token]);
    expected["initContainers"] = json!([{"name": "i", "volumeMounts": [mount]}]);
    expected["containers"] = json!([
        {"name": "c", "volumeMounts": [{"mountPath": "/v", "name": "v"}, mount]},
        {"name": "d", "volumeMounts": [own]}]);
    assert_eq!(spec_of(spec, &[]), expected);
    let bare_spec = json!({"automountServiceAccountToken": false});
    assert_eq!(spec_of(bare_spec, &[]), bare());
}

#[test]
fn service_account_decides_on_token_and_secrets() {
    let account = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": "shop"}, "automountServiceAccountToken": false,
            "imagePullSecrets": [{"name": "registry"}]})
    };
    let mut expected = bare();
    expected
        .as_object_mut()
        .unwrap()
        .remove("automountServiceAccountToken");
    expected["imagePullSecrets"] = json!([{"name": "registry"}]);
    assert_eq!(spec_of(json!({}), &[account("default")]), expected);
    expected["serviceAccountName"] = json!("robot");
    expected["serviceAccount"] = json!("robot");
    let robot = json!({"serviceAccount": "robot"});
    assert_eq!(spec_of(robot.clone(), &[account("robot")]), expected);
    let own = json!({"imagePullSecrets": [{"name": "own"}]});
    let own = spec_of(own, &[account("default")]);
    assert_eq!(own["imagePullSecrets"], json!([{"name": "own"}]));
    let notes = admitted(pod(robot), &[]).unwrap().1;
    assert_eq!(
        notes,
        [
            "ServiceAccount shop/robot is not given, so it counts as one without settings; \
          name its file by -f"
        ]
    );
    let mirror = json!({"kubernetes.io/config.mirror": "x"});
    let mut mirror = json!({"metadata": {"annotations": mirror}, "spec": {}});
    mirror["apiVersion"] = json!("v1");
    mirror["kind"] = json!("Pod");
    let mirror = admitted(mirror, &[]).unwrap().0;
    assert_eq!(mirror["spec"].get("serviceAccountName"), None);
}

#[test]
fn priority_is_that_of_the_class() {
    let class = |name: &str, value: i64, more: Value| {
        let mut class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value});
        class
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        class
    };
    let high = class("high", 1000, json!({"preemptionPolicy": "Never"}));
    let usual = class("usual", 10, json!({"globalDefault": true}));
    let given = [high, usual];
    let of = |spec: Value| {
        let spec = spec_of(spec, &given);
        ["priorityClassName", "priority", "preemptionPolicy"].map(|field| spec[field].clone())
    };
    assert_eq!(
        of(json!({"priorityClassName": "high"})),
        [json!("high"), json!(1000), json!("Never")]
    );
    assert_eq!(
        of(json!({})),
        [json!("usual"), json!(10), json!("PreemptLowerPriority")]
    );
    assert_eq!(
        of(json!({"priorityClassName": "system-node-critical"}))[1],
        2_000_001_000
    );
    let refused = admitted(pod(json!({"priority": 5})), &[])
        .unwrap_err()
        .to_string();
    assert_eq!(
        refused,
        "pods \"a\" is forbidden: the integer value of priority (5) must not be provided in pod \
         spec; priority admission controller computed 0 from the given PriorityClass name"
    );
    let (unknown, notes) = admitted(pod(json!({"priorityClassName": "x"})), &[]).unwrap();
    assert_eq!(unknown["spec"].get("priority"), None);
    assert!(
        notes[0].starts_with("PriorityClass x is not given"),
        "{notes:?}"
    );
}

#[test]
fn tolerations_are_added_for_taints_that_none_tolerates() {
    let of = |tolerations: Value| {
        spec_of(json!({"tolerations": tolerations}), &[])["tolerations"].take()
    };
    let all = json!([{"operator": "Exists"}]);
    assert_eq!(of(all.clone()), all);
    let other = json!({"operator": "Exists", "effect": "NoSchedule"});
    let own = json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists",
        "tolerationSeconds": 5});
    let expected = json!([other, own, tolerations()[0]]);
    assert_eq!(of(json!([other, own])), expected);
}

#[test]
fn limit_range_sets_requests_and_limits() {
    let range = json!({"apiVersion": "v1", "kind": "LimitRange",
        "metadata": {"name": "r", "namespace": "shop"}, "spec": {"limits": [
            {"type": "Pod", "max": {"cpu": 8}},
            {"type": "Container", "default": {"cpu": 1}, "max": {"memory": "1024Mi"},
             "defaultRequest": {"cpu": "0.1"}, "min": {"ephemeral-storage": "1Gi"}}]}});
    let containers = json!([{"name": "c", "resources": {"limits": {"cpu": "2"}}}]);
    let object = pod(json!({"containers": containers, "initContainers": [{"name": "i"}]}));
    let (object, _) = admitted(object, &[range]).unwrap();
    let requests = json!({"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "1Gi"});
    assert_eq!(
        object["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": requests})
    );
    assert_eq!(
        object["spec"]["initContainers"][0]["resources"],
        json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": requests})
    );
    assert_eq!(
        object["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu, ephemeral-storage, memory request for container c; \
         memory limit for container c; cpu, ephemeral-storage, memory request for init container \
         i; cpu, memory limit for init container i"
    );
}

#[test]
fn runtime_class_adds_overhead_and_nodes() {
    let taint = json!({"key": "gpu", "operator": "Exists"});
    let narrow = json!({"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"});
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "kata"}, "overhead": {"podFixed": {"cpu": "0.25"}},
        "scheduling": {"nodeSelector": {"runtime": "kata"}, "tolerations": [taint]}});
    let spec = json!({"runtimeClassName": "kata", "nodeSelector": {"zone": "a"},
        "tolerations": [narrow]});
    let given = [class];
    let spec = spec_of(spec, &given);
    assert_eq!(spec["overhead"], json!({"cpu": "250m"}));
    assert_eq!(
        spec["nodeSelector"],
        json!({"zone": "a", "runtime": "kata"})
    );
    let mut expected = tolerations();
    expected.as_array_mut().unwrap().push(taint);
    assert_eq!(spec["tolerations"], expected);
    let other = json!({"runtimeClassName": "kata", "nodeSelector": {"runtime": "runc"}});
    let refused = admitted(pod(other), &given).unwrap_err().to_string();
    assert!(
        refused.contains("nodeSelector[runtime] = kata"),
        "{refused}"
    );
}

#[test]
fn nodes_are_tainted_and_volumes_protected() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let node = admitted(node, &[]).unwrap().0;
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    assert_eq!(node["spec"]["taints"], json!([taint]));
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "finalizers": ["own"]}, "spec": {}});
    let claim = admitted(claim, &[]).unwrap().0;
    let finalizers = json!(["own", "kubernetes.io/pvc-protection"]);
    assert_eq!(claim["metadata"]["finalizers"], finalizers);
}

#[test]
fn pod_is_completed_for_its_node_and_keeps_its_priority() {
    let given = [
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r", "namespace": "shop"},
            "spec": {"limits": [
                {"type": "Container", "defaultRequest": {"cpu": "1"}, "max": {"memory": "1Gi"}},
                {"type": "Pod", "max": {"cpu": "3"}, "maxLimitRequestRatio": {"cpu": "2"}}]}}),
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "high"}, "value": 1000}),
    ];
    let given = StaticCluster::from_iter(given);
    let completed = |limits: Value, more: Value| {
        let mut object =
            pod(json!({"containers": [{"name": "c", "resources": {"limits": limits}}]}));
        let more = more.as_object().unwrap().clone();
        object["spec"].as_object_mut().unwrap().extend(more);
        let done = given.complete_pod("shop", &mut object);
        done.map(|()| object["spec"].take())
            .map_err(|e| e.to_string())
    };
    let limits = || json!({"cpu": "2"});
    let spec = completed(limits(), json!({"priorityClassName": "high"})).unwrap();
    let resources =
        json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
    assert_eq!(spec["containers"][0]["resources"], resources);
    assert_eq!(spec["priority"], 1000);
    let own = completed(limits(), json!({"priority": 7})).unwrap();
    assert_eq!(own["priority"], 7);
    for (limits, why) in [
        (
            json!({}),
            "[maximum cpu usage per Pod is 3.  No limit is specified, cpu max limit to \
                     request ratio per Pod is 2, but no limit is specified or limit is 0]",
        ),
        (
            json!({"cpu": "2500m"}),
            "cpu max limit to request ratio per Pod is 2, but provided ratio \
                                   is 2.500000",
        ),
        (
            json!({"cpu": "2", "memory": "2Gi"}),
            "maximum memory usage per Container is 1Gi, but \
                                                limit is 2Gi",
        ),
    ] {
        let refused = completed(limits, json!({})).unwrap_err();
        assert_eq!(refused, format!("pods \"a\" is forbidden: {why}"));
    }
}
