//! Rules of Kubernetes that decide about a pod's node, and the fields that `plan` does not consider.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

/// Plans the pods of these specs, on node a1 of zone a and node b1 of zone b.
fn plan(objects: &[Value], specs: &[Value], args: &[&str]) -> Output {
    let mut items: Vec<Value> = [("a1", "a"), ("b1", "b")]
        .iter()
        .map(|(name, zone)| {
            json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"zone": zone}},
                "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}})
        })
        .collect();
    items.extend_from_slice(objects);
    for (i, spec) in specs.iter().enumerate() {
        let mut spec = spec.clone();
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "c", "image": "i"}]);
        }
        items.push(json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": format!("p{i}"), "namespace": "shop", "labels": {"app": "w"}}}));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let mut child = Command::new(env!("CARGO_BIN_EXE_tautline"))
        .args([&["plan", "-f", "-"], args].concat())
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(list.to_string().as_bytes()).unwrap();
    drop(input);
    child.wait_with_output().unwrap()
}

/// Returns the lines of the plan about pods, without those about offers.
fn lines(objects: &[Value], specs: &[Value]) -> Vec<String> {
    let out = plan(objects, specs, &[]);
    let text = String::from_utf8(out.stdout).unwrap();
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("no offer"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn spread_and_host_ports_count_the_pods_before() {
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "w"}}}]});
    let placed = ["pod shop/p0 goes to a1", "pod shop/p1 goes to b1"];
    assert_eq!(lines(&[], &[spread.clone(), spread]), placed);
    let port = json!({"containers": [{"name": "c", "image": "i",
        "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    let found = lines(&[], &[port.clone(), port.clone(), port]);
    assert_eq!(found[..2], placed);
    let message = "0/2 nodes are available: 2 no free host port 80/TCP.";
    let why = "Kubernetes' own rules exclude both nodes: no free host port 80/TCP.";
    assert_eq!(found[2..], ["pod shop/p2 stays pending", why, message]);
}

#[test]
fn volumes_decide_about_nodes() {
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["b"]}]}]});
    let objects = [
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
            "spec": {"storageClassName": "", "nodeAffinity": {"required": required}}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "shop"},
            "spec": {"volumeName": "pv", "storageClassName": ""}}),
    ];
    let uses = |claim: &str| json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]});
    let found = lines(&objects, &[uses("data"), uses("absent")]);
    let message = "0/2 nodes are available: 2 PersistentVolumeClaim absent does not exist.";
    let pending = "pod shop/p1 stays pending";
    assert_eq!(found[..2], ["pod shop/p0 goes to b1", pending]);
    assert_eq!(found[3..], [message]);
}

#[test]
fn gated_pod_waits_without_an_exit_code() {
    let gated = json!({"schedulingGates": [{"name": "example.com/quota"}]});
    let out = plan(&[], std::slice::from_ref(&gated), &["-o", "json"]);
    assert_eq!(out.status.code(), Some(0));
    let plan: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(plan["pods"][0]["gates"], json!(["example.com/quota"]));
    let waits = "waits for its scheduling gates: example.com/quota";
    assert_eq!(lines(&[], &[gated]), ["pod shop/p0 stays pending", waits]);
}

#[test]
fn pods_of_higher_priority_are_placed_first() {
    let of = |priority: i32| {
        json!({"priority": priority, "nodeSelector": {"zone": "b"}, "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]})
    };
    let found = lines(&[], &[of(0), of(1000)]);
    assert_eq!(
        found[..2],
        ["pod shop/p1 goes to b1", "pod shop/p0 stays pending"]
    );
}

#[test]
fn fields_that_are_not_considered_are_named_and_strict_refuses_them() {
    let specs = [json!({"schedulerName": "volcano", "runtimeClassName": "kata"})];
    let found = lines(&[], &specs);
    let fields = "not considered: schedulerName volcano, runtimeClassName kata";
    assert_eq!(found, ["pod shop/p0 goes to a1", fields]);
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}});
    let card = json!({"containers": [{"name": "c", "image": "i",
        "resources": {"limits": {"nvidia.com/gpu": "1"}}}]});
    let devices = "not considered: nvidia.com/gpu (devices of a DeviceClass)";
    assert_eq!(
        lines(&[class], &[card]),
        ["pod shop/p0 goes to a1", devices]
    );
    let claiming = json!({"containers": [], "resourceClaims": [
        {"name": "gpu", "resourceClaimTemplateName": "absent"}]});
    let unknown = "not considered: resourceClaims";
    assert_eq!(lines(&[], &[claiming]), ["pod shop/p0 goes to a1", unknown]);
    let out = plan(&[], &specs, &["--strict"]);
    assert_eq!(out.status.code(), Some(2));
    let error = String::from_utf8(out.stderr).unwrap();
    let text = "--strict: pods with fields that are not considered: 1";
    assert!(error.contains(text), "{error}");
    assert_eq!(
        plan(&[], &[json!({})], &["--strict"]).status.code(),
        Some(0)
    );
}

/// A pod template, so that the API server has not completed the pods.
fn deployment(spec: Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": spec});
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "shop"}, "spec": {"template": template}})
}

#[test]
fn runtime_class_completes_the_pods_of_templates() {
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": "1500m"}},
        "scheduling": {"nodeSelector": {"zone": "b"},
            "tolerations": [{"key": "kata", "operator": "Exists"}]}});
    let tainted = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "b0", "labels": {"zone": "b"}},
        "spec": {"taints": [{"key": "kata", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
    let of = |cpu: &str, more: Value| {
        let mut spec = json!({"runtimeClassName": "kata", "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]});
        let fields = more.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(fields);
        lines(&[class.clone(), tainted.clone(), deployment(spec)], &[])
    };
    assert_eq!(of("2500m", json!({})), ["pod shop/d-0 goes to b0"]);
    assert_eq!(
        of("2501m", json!({})),
        [
            "pod shop/d-0 stays pending",
            "Kubernetes' own rules exclude all three nodes: insufficient cpu on two, \
             node affinity or selector does not match on one.",
            "0/3 nodes are available: 2 insufficient cpu, 1 node affinity or selector does not match."
        ]
    );
    let conflict = "pods \"d-0\" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[zone] \
                    = b; pod.spec.nodeSelector[zone] = a";
    assert_eq!(
        of("1", json!({"nodeSelector": {"zone": "a"}})),
        ["pod shop/d-0 stays pending", conflict]
    );
}

#[test]
fn limit_range_completes_and_refuses_the_pods_of_templates() {
    let range = |namespace: &str| {
        json!({"apiVersion": "v1", "kind": "LimitRange",
            "metadata": {"name": "r", "namespace": namespace}, "spec": {"limits": [
                {"type": "Container", "default": {"cpu": "4"}, "defaultRequest": {"cpu": "3"},
                 "max": {"cpu": "4"}, "min": {"cpu": "100m"}}]}})
    };
    let of = |namespace: &str, resources: Value| {
        let mut two = deployment(json!({"containers": [
            {"name": "c", "image": "i", "resources": resources}]}));
        two["spec"]["replicas"] = json!(3);
        lines(&[range(namespace), two], &[])
    };
    // A node has room for one pod of 3 CPU.
    let found = of("shop", json!({}));
    assert_eq!(
        found,
        [
            "pod shop/d-0 goes to a1",
            "pod shop/d-1 goes to b1",
            "pod shop/d-2 stays pending",
            "Kubernetes' own rules exclude both nodes: insufficient cpu.",
            "0/2 nodes are available: 2 insufficient cpu."
        ]
    );
    let other = of("other", json!({}));
    assert_eq!(other[2], "pod shop/d-2 goes to a1", "another namespace");
    let small = of("shop", json!({"requests": {"cpu": "50m"}}));
    let why =
        "pods \"d-0\" is forbidden: minimum cpu usage per Container is 100m, but request is 50m";
    assert_eq!(small[..2], ["pod shop/d-0 stays pending", why]);

    // A pod that runs has been admitted.
    let running = json!({"nodeName": "a1"});
    let pods = json!({"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}]});
    let found = lines(&[range("shop")], &[running, pods]);
    assert_eq!(found, ["pod shop/p1 goes to a1"]);
}

#[test]
fn exclusive_groups_have_a_topology_domain_each() {
    let node = |name: &str, zone: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": zone}},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}})
    };
    let template = json!({"spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]}});
    let leader_worker_set = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet", "metadata": {"name": "g", "namespace": "shop",
            "annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": "zone"}},
        "spec": {"replicas": 3, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}});
    // Zone a has room for three pods, b for one, and the third group has no zone.
    let found = lines(&[node("a2", "a"), node("a3", "a"), leader_worker_set], &[]);
    insta::assert_snapshot!(found.join("\n"));

    let job_set = |namespace: &str| {
        json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"name": "j", "namespace": namespace,
                "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "zone"}},
            "spec": {"replicatedJobs": [{"name": "w", "template": {"spec": {
                "parallelism": 2, "completions": 2, "template": template}}}]}})
    };
    // The domains are those of all namespaces.
    let found = lines(&[node("b2", "b"), job_set("one"), job_set("two")], &[]);
    let nodes = ["one/j-w-0-0 goes to a1", "one/j-w-0-1 stays pending"];
    assert!(
        nodes.iter().all(|n| found.contains(&format!("pod {n}"))),
        "{found:?}"
    );
    assert!(
        found.contains(&"pod two/j-w-0-1 goes to b2".to_owned()),
        "{found:?}"
    );
}
