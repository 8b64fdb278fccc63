//! Random small clusters with every field that decides whether a node can host a pod.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::{
    random::{chance, pick},
    storage::{classes, storage},
};

const APPS: [&str; 3] = ["web", "db", "cache"];
const NAMESPACES: [&str; 3] = ["red", "green", "blue"];
const TEAMS: [&str; 2] = ["x", "y"];
const ZONES: [&str; 2] = ["a", "b"];
const TOPOLOGY_KEYS: [&str; 3] = ["zone", "kubernetes.io/hostname", "rack"];

/// Returns a cluster with pods that have no node, as the `filter` oracle reads them.
pub fn cluster(rng: &mut Rng) -> Value {
    let mut nodes: Vec<Value> = (0..rng.usize(2..7)).map(|i| node(rng, i)).collect();
    let is_roomy = rng.bool();
    if is_roomy {
        nodes.iter_mut().for_each(|node| make_roomy(rng, node));
    }
    let pods: Vec<Value> = (0..rng.usize(0..11))
        .map(|i| bound(rng, i, nodes.len()))
        .collect();
    let namespaces: Vec<Value> = NAMESPACES
        .iter()
        .map(|name| {
            let mut labels = json!({"kubernetes.io/metadata.name": name});
            if rng.bool() {
                labels["team"] = json!(pick(rng, &TEAMS));
            }
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        })
        .collect();
    let pending = pending(rng, is_roomy);
    let (claims, volumes) = storage(rng, &NAMESPACES, &ZONES);
    json!({"nodes": nodes, "pods": pods, "namespaces": namespaces, "claims": claims,
        "volumes": volumes, "classes": classes(rng, &ZONES), "pending": pending})
}

/// Returns some pods without a node, mostly replicas of one template. In a roomy cluster most of
/// them have no affinity and no claims.
fn pending(rng: &mut Rng, is_roomy: bool) -> Vec<Value> {
    let mut template = pod(rng, "template", true);
    if is_roomy && chance(rng, 75) {
        for field in ["affinity", "nodeSelector", "volumes"] {
            template["spec"][field] = Value::Null;
        }
    }
    let pods = (0..rng.usize(1..6)).map(|i| {
        let name = format!("pending{i}");
        let mut pod = match chance(rng, 75) {
            true => template.clone(),
            false => pod(rng, &name, true),
        };
        pod["metadata"]["name"] = json!(name);
        pod["status"] = json!({"phase": "Pending"});
        pod
    });
    pods.collect()
}

fn node(rng: &mut Rng, index: usize) -> Value {
    let name = format!("n{index}");
    let mut labels = Map::new();
    if chance(rng, 90) {
        labels.insert("kubernetes.io/hostname".into(), json!(name));
    }
    if chance(rng, 85) {
        let zone = pick(rng, &ZONES);
        labels.insert("zone".into(), json!(zone));
        if rng.bool() {
            labels.insert("topology.kubernetes.io/zone".into(), json!(zone));
        }
    }
    if chance(rng, 40) {
        labels.insert("rack".into(), json!(pick(rng, &["r1", "r2", ""])));
    }
    if chance(rng, 50) {
        labels.insert(
            "gen".into(),
            json!(pick(rng, &["1", "5", "07", "many", ""])),
        );
    }
    let mut allocatable = json!({"cpu": pick(rng, &["2", "6", "7900m"]), "memory": pick(rng, &["4Gi", "16Gi", "12e9"])});
    match rng.u32(..10) {
        0 if rng.bool() => {}
        0 => allocatable["pods"] = json!("0"),
        1 => allocatable["pods"] = json!("2"),
        _ => allocatable["pods"] = json!("110"),
    }
    if chance(rng, 40) {
        allocatable["example.com/dongle"] = json!(rng.u32(0..3).to_string());
    }
    if chance(rng, 30) {
        allocatable["ephemeral-storage"] = json!("10Gi");
    }
    if chance(rng, 50) {
        allocatable["hugepages-2Mi"] = json!(pick(rng, &["4Mi", "16Mi"]));
    }
    let taints: Vec<Value> = (0..rng.usize(..2) * rng.usize(..3))
        .map(|_| taint(rng))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": chance(rng, 8), "taints": taints},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    })
}

/// Makes a node that takes most pods, so that the rules between pods decide.
fn make_roomy(rng: &mut Rng, node: &mut Value) {
    let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "110", "hugepages-2Mi": "64Mi", "example.com/dongle": "9"});
    node["status"]["allocatable"] = amounts;
    node["spec"]["unschedulable"] = json!(false);
    if chance(rng, 80) {
        node["spec"]["taints"] = json!([]);
    }
    if node["metadata"]["labels"]["zone"].is_null() {
        node["metadata"]["labels"]["zone"] = json!(pick(rng, &ZONES));
    }
}

fn taint(rng: &mut Rng) -> Value {
    json!({
        "key": pick(rng, &["gpu", "level"]),
        "value": pick(rng, &["", "yes", "3", "7"]),
        "effect": pick(rng, &["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    })
}

fn toleration(rng: &mut Rng) -> Value {
    let effect = pick(rng, &["", "NoSchedule", "NoExecute"]);
    match rng.u32(..10) {
        0 => json!({"operator": "Exists"}),
        1 => {
            json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"})
        }
        2 | 3 => {
            json!({"key": pick(rng, &["gpu", "level"]), "operator": "Exists", "effect": effect})
        }
        4 | 5 => {
            json!({"key": "level", "operator": pick(rng, &["Lt", "Gt"]),
                "value": pick(rng, &["-1", "4", "7"]), "effect": effect})
        }
        _ => json!({"key": pick(rng, &["gpu", "level"]), "operator": "Equal",
            "value": pick(rng, &["", "yes", "3", "7"]), "effect": effect}),
    }
}

/// Returns a pod on one of `nodes` nodes, or on a node that is gone.
fn bound(rng: &mut Rng, index: usize, nodes: usize) -> Value {
    let mut pod = pod(rng, &format!("p{index}"), false);
    let is_gone = chance(rng, 10);
    let at = rng.usize(..nodes + usize::from(is_gone));
    pod["spec"]["nodeName"] = json!(format!("n{at}"));
    let phase = pick(
        rng,
        &[
            "Running",
            "Running",
            "Running",
            "Pending",
            "Succeeded",
            "Failed",
        ],
    );
    pod["status"]["phase"] = json!(phase);
    if chance(rng, 10) {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    if chance(rng, 25) {
        resize(rng, &mut pod);
    }
    pod
}

/// Gives a running pod other allocated and actual amounts than it desires now.
fn resize(rng: &mut Rng, pod: &mut Value) {
    let amounts = |rng: &mut Rng| json!({"cpu": pick(rng, &["100m", "600m", "1500m"]), "memory": pick(rng, &["64Mi", "700Mi", "2Gi"])});
    for (containers, statuses) in [
        ("containers", "containerStatuses"),
        ("initContainers", "initContainerStatuses"),
    ] {
        let Some(all) = pod["spec"][containers].as_array().cloned() else {
            continue;
        };
        let status = |container: &Value| {
            let mut status = json!({"name": container["name"], "ready": true, "restartCount": 0, "image": "i", "imageID": "i"});
            if chance(rng, 70) {
                status["allocatedResources"] = amounts(rng);
            }
            if chance(rng, 70) {
                status["resources"] = json!({"requests": amounts(rng)});
            }
            // The kubelet has not told of every container yet.
            chance(rng, 85).then_some(status)
        };
        let list: Vec<Value> = all.iter().filter_map(status).collect();
        pod["status"][statuses] = json!(list);
    }
    if pod["spec"].get("resources").is_some() {
        if chance(rng, 50) {
            pod["status"]["allocatedResources"] = amounts(rng);
        }
        if chance(rng, 50) {
            pod["status"]["resources"] = json!({"requests": amounts(rng)});
        }
    }
    match rng.u32(..4) {
        0 => {
            pod["status"]["conditions"] =
                json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}])
        }
        1 => {
            pod["status"]["conditions"] =
                json!([{"type": "PodResizePending", "status": "True", "reason": "Deferred"}])
        }
        2 => {
            pod["status"]["conditions"] = json!([{"type": "PodResizeInProgress", "status": "True"}])
        }
        _ => {}
    }
}

fn pod(rng: &mut Rng, name: &str, pending: bool) -> Value {
    let app = pick(rng, &APPS);
    let mut spec = json!({"containers": containers(rng, "c", 1, 3)});
    if chance(rng, 25) {
        let mut init = containers(rng, "i", 1, 3);
        for container in &mut init {
            if rng.bool() {
                container["restartPolicy"] = json!("Always");
            }
        }
        spec["initContainers"] = json!(init);
    }
    if chance(rng, 10) {
        spec["runtimeClassName"] = json!("kata");
        spec["overhead"] = json!({"cpu": "250m", "memory": "100Mi"});
    }
    if chance(rng, 15) {
        // At least the containers' sum, as validation demands. Limits alone become the requests.
        spec["resources"] = json!({"limits": {"cpu": "4", "memory": "6Gi"}});
        if rng.bool() {
            spec["resources"]["requests"] = json!({"cpu": "3500m", "memory": "4Gi"});
        }
    }
    if pending {
        node_rules(rng, &mut spec);
        spread(rng, &mut spec, app);
    }
    ports(rng, &mut spec);
    if chance(rng, 20) {
        let volumes = (0..rng.usize(1..3)).map(|i| {
            let claim = pick(
                rng,
                &["data0", "data1", "data2", "data0", "data1", "absent"],
            );
            json!({"name": format!("v{i}"), "persistentVolumeClaim": {"claimName": claim}})
        });
        spec["volumes"] = volumes.collect();
    }
    let near: Vec<Value> = if pending {
        (0..rng.usize(..2) * rng.usize(..3))
            .map(|_| pod_term(rng))
            .collect()
    } else {
        Vec::new()
    };
    let away: Vec<Value> = (0..rng.usize(..2) * rng.usize(..2 + usize::from(pending)))
        .map(|_| pod_term(rng))
        .collect();
    if !near.is_empty() {
        spec["affinity"]["podAffinity"] =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": near});
    }
    if !away.is_empty() {
        spec["affinity"]["podAntiAffinity"] =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": away});
    }
    let mut labels = json!({"app": app});
    if rng.bool() {
        labels["version"] = json!(pick(rng, &["1", "2"]));
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": pick(rng, &NAMESPACES), "labels": labels},
        "spec": spec,
        "status": {},
    })
}

fn containers(rng: &mut Rng, prefix: &str, least: usize, most: usize) -> Vec<Value> {
    (0..rng.usize(least..most)).map(|i| {
        let mut resources = json!({});
        let cpu = pick(rng, &["", "100m", "500m", "1"]);
        if !cpu.is_empty() {
            // Limits alone become the requests.
            resources[pick(rng, &["requests", "limits"])] = json!({"cpu": cpu, "memory": pick(rng, &["64Mi", "512Mi", "1Gi"])});
        }
        if !cpu.is_empty() && chance(rng, 10) {
            resources["limits"]["hugepages-2Mi"] = json!("4Mi");
        }
        if chance(rng, 10) {
            resources["limits"]["example.com/dongle"] = json!("1");
            resources["requests"]["example.com/dongle"] = json!("1");
        }
        json!({"name": format!("{prefix}{i}"), "image": "registry.example/i", "resources": resources})
    }).collect()
}

/// Gives some pods host ports, by the port or by the host's network.
fn ports(rng: &mut Rng, spec: &mut Value) {
    if chance(rng, 65) {
        return;
    }
    let is_on_host = chance(rng, 30);
    let mut port =
        json!({"containerPort": rng.u32(80..82), "protocol": pick(rng, &["TCP", "TCP", "UDP"])});
    if !is_on_host {
        port["hostPort"] = json!(rng.u32(80..82));
    }
    if chance(rng, 35) {
        port["hostIP"] = json!(pick(rng, &["10.0.0.1", "10.0.0.2", "0.0.0.0", "::"]));
    }
    let kind = match spec.get("initContainers") {
        Some(_) if chance(rng, 30) => "initContainers",
        _ => "containers",
    };
    if is_on_host {
        spec["hostNetwork"] = json!(true);
    }
    spec[kind][0]["ports"] = json!([port]);
}

/// Gives some pods topology spread constraints, mostly over pods of their own app.
fn spread(rng: &mut Rng, spec: &mut Value, own: &str) {
    if chance(rng, 35) {
        return;
    }
    let mut keys = TOPOLOGY_KEYS.to_vec();
    rng.shuffle(&mut keys);
    let count = if chance(rng, 75) { 1 } else { 2 };
    let constraints = keys.into_iter().take(count).map(|key| {
        let mut constraint = json!({"topologyKey": key, "maxSkew": rng.u32(1..3),
            "whenUnsatisfiable": "DoNotSchedule"});
        match rng.u32(..10) {
            0 => {}
            1 => constraint["labelSelector"] = json!({}),
            2 => {
                constraint["labelSelector"] = json!({"matchExpressions": [
                {"key": "version", "operator": pick(rng, &["Exists", "DoesNotExist"])}]})
            }
            3 => constraint["labelSelector"] = json!({"matchLabels": {"app": pick(rng, &APPS)}}),
            _ => constraint["labelSelector"] = json!({"matchLabels": {"app": own}}),
        }
        if chance(rng, 15) {
            constraint["whenUnsatisfiable"] = json!("ScheduleAnyway");
        } else if chance(rng, 25) {
            constraint["minDomains"] = json!(rng.u32(1..4));
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if chance(rng, 35) {
                constraint[policy] = json!(pick(rng, &["Honor", "Ignore"]));
            }
        }
        if constraint["labelSelector"].get("matchLabels").is_some() && chance(rng, 20) {
            constraint["matchLabelKeys"] = json!(["version"]);
        }
        constraint
    });
    spec["topologySpreadConstraints"] = constraints.collect();
}

/// Writes the fields of a pod that name nodes.
fn node_rules(rng: &mut Rng, spec: &mut Value) {
    if chance(rng, 12) {
        spec["nodeSelector"] = json!({"zone": pick(rng, &ZONES)});
    }
    if chance(rng, 25) {
        let terms: Vec<Value> = (0..rng.usize(1..3)).map(|_| node_term(rng)).collect();
        spec["affinity"]["nodeAffinity"] =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    }
    spec["tolerations"] = (0..rng.usize(..4)).map(|_| toleration(rng)).collect();
}

fn node_term(rng: &mut Rng) -> Value {
    let expression = |rng: &mut Rng| match rng.u32(..6) {
        0 => {
            json!({"key": "gen", "operator": pick(rng, &["Gt", "Lt"]), "values": [pick(rng, &["0", "4", "6"])]})
        }
        1 => {
            json!({"key": pick(rng, &["zone", "rack"]), "operator": pick(rng, &["Exists", "DoesNotExist"])})
        }
        _ => {
            json!({"key": pick(rng, &["zone", "rack", "gen"]), "operator": pick(rng, &["In", "NotIn"]),
            "values": [pick(rng, &["a", "b", "r1", "5"]), pick(rng, &["a", "1"])]})
        }
    };
    let mut term = json!({});
    if chance(rng, 85) {
        term["matchExpressions"] = (0..rng.usize(1..3)).map(|_| expression(rng)).collect();
    }
    if chance(rng, 15) {
        term["matchFields"] = json!([{"key": "metadata.name", "operator": pick(rng, &["In", "NotIn"]), "values": ["n1"]}]);
    }
    term
}

fn pod_term(rng: &mut Rng) -> Value {
    let mut term = json!({"topologyKey": pick(rng, &TOPOLOGY_KEYS)});
    match rng.u32(..12) {
        0 => {}
        1 => term["labelSelector"] = json!({}),
        2 | 3 => {
            term["labelSelector"] = json!({"matchExpressions": [
            {"key": "app", "operator": pick(rng, &["In", "NotIn"]), "values": [pick(rng, &APPS), pick(rng, &APPS)]}]})
        }
        4 => {
            term["labelSelector"] = json!({"matchExpressions": [
            {"key": "version", "operator": pick(rng, &["Exists", "DoesNotExist"])}]})
        }
        _ => term["labelSelector"] = json!({"matchLabels": {"app": pick(rng, &APPS)}}),
    }
    match rng.u32(..10) {
        0 | 1 => term["namespaceSelector"] = json!({"matchLabels": {"team": pick(rng, &TEAMS)}}),
        2 => term["namespaceSelector"] = json!({}),
        3 => {
            term["namespaceSelector"] =
                json!({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]})
        }
        _ => {}
    }
    if chance(rng, 20) {
        term["namespaces"] = json!([pick(rng, &NAMESPACES), "absent"]);
    }
    // The API server refuses a key that the selector has too.
    if term["labelSelector"].get("matchLabels").is_some() && chance(rng, 15) {
        let key = pick(rng, &["matchLabelKeys", "mismatchLabelKeys"]);
        term[key] = json!(["version"]);
    }
    term
}
