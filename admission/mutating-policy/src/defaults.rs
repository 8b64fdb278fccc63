//! Defaults of pods and pod templates that the API server sets after each mutation, so that
//! policies observe them (Kubernetes 1.36.3, pkg/apis/core/v1/defaults.go).

use serde_json::{Map, Value};

use crate::canonical_quantity::{canonical, canonicalize};
use crate::request::Kind;

/// Sets defaults in a pod or the pod template of a workload, adds empty `resources`, and
/// makes quantities canonical strings. Other kinds stay as they are.
pub fn set(kind: &Kind, object: &mut Value) {
    let pod = kind.kind == "Pod" && kind.group.is_empty();
    let path = match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => "/spec",
        ("", "ReplicationController")
        | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job") => "/spec/template/spec",
        ("batch", "CronJob") => "/spec/jobTemplate/spec/template/spec",
        _ => return,
    };
    let Some(spec) = object.pointer_mut(path) else {
        return;
    };
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        let containers = containers.into_iter().flatten();
        for fields in containers.filter_map(Value::as_object_mut) {
            container(fields, pod);
        }
    }
    // Not a pointer in Go, so never absent in the API server's objects.
    if let (true, Some(fields)) = (pod, object.as_object_mut()) {
        fields.entry("status").or_insert_with(|| Map::new().into());
    }
}

fn container(fields: &mut Map<String, Value>, pod: bool) {
    let image = fields.get("image").and_then(Value::as_str);
    let pull = if latest(image.unwrap_or_default()) {
        "Always"
    } else {
        "IfNotPresent"
    };
    let texts = [
        // The zero value of a required field.
        ("name", ""),
        ("imagePullPolicy", pull),
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
    ];
    for (name, text) in texts {
        // A lookup first, because an entry would allocate a String.
        if !fields.contains_key(name) {
            fields.insert(name.to_owned(), text.into());
        }
    }
    let ports = fields.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        if !port.contains_key("protocol") {
            port.insert("protocol".to_owned(), "TCP".into());
        }
    }
    match fields.get_mut("resources") {
        Some(Value::Object(resources)) => self::resources(resources, pod),
        Some(_) => {}
        None => _ = fields.insert("resources".to_owned(), Map::new().into()),
    }
}

fn resources(resources: &mut Map<String, Value>, pod: bool) {
    for side in ["limits", "requests"] {
        let quantities = resources.get_mut(side).and_then(Value::as_object_mut);
        for quantity in quantities.into_iter().flat_map(Map::values_mut) {
            match quantity {
                Value::Number(number) => *quantity = canonical(&number.to_string()).into(),
                Value::String(text) => {
                    if let Some(usual) = canonicalize(text) {
                        *text = usual;
                    }
                }
                _ => {}
            }
        }
    }
    // Only in pods, not in their templates.
    let limits = resources.get("limits").and_then(Value::as_object);
    let Some(limits) = limits.filter(|l| pod && !l.is_empty()) else {
        return;
    };
    let requests = resources.get("requests").and_then(Value::as_object);
    let requested = |name: &String| requests.is_some_and(|r| r.contains_key(name));
    let limits = limits.iter().filter(|(name, _)| !requested(name));
    let limits: Vec<_> = limits.map(|(n, l)| (n.clone(), l.clone())).collect();
    if limits.is_empty() {
        return;
    }
    let requests = resources.entry("requests");
    let requests = requests.or_insert_with(|| Map::new().into());
    if let Some(requests) = requests.as_object_mut() {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

/// Whether an image has the tag `latest`, or neither tag nor digest. An absent image has
/// no tag.
fn latest(image: &str) -> bool {
    let (name, digest) = image.split_once('@').unwrap_or((image, ""));
    let name = name.rsplit('/').next().unwrap_or_default();
    match name.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_empty() && !name.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn defaulted(mut object: Value) -> Value {
        let kind = Kind::of_object(&object).unwrap();
        set(&kind, &mut object);
        object
    }

    #[test]
    fn requests_default_to_limits_in_pods_only() {
        let container = json!({"name": "a", "image": "x", "resources":
            {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "100m"}}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}});
        let pod = defaulted(pod);
        let resources = &pod["spec"]["containers"][0]["resources"];
        assert_eq!(
            resources["requests"],
            json!({"cpu": "100m", "memory": "1Gi"})
        );
        assert_eq!(resources["limits"]["cpu"], "1");
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(defaulted(pod.clone()), pod);

        let deployment = defaulted(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "spec": {"template": {"spec": {"containers": [container]}}}}));
        let resources = &deployment["spec"]["template"]["spec"]["containers"][0]["resources"];
        assert_eq!(resources["requests"], json!({"cpu": "100m"}));
    }

    #[test]
    fn latest_images_are_always_pulled() {
        for (image, expected) in [
            ("busybox", true),
            ("registry:5000/busybox", true),
            ("registry:5000/busybox:1", false),
            ("busybox@sha256:00", false),
            ("busybox:latest", true),
            ("", false),
        ] {
            assert_eq!(latest(image), expected, "{image}");
        }
    }

    #[test]
    fn malformed_objects_do_not_panic() {
        for odd in [
            json!({"apiVersion": "v1", "kind": "Pod"}),
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": 1}}),
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [1, {"ports": 2,
                "resources": []}]}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {}}),
        ] {
            let after = defaulted(odd.clone());
            assert_eq!(after["kind"], odd["kind"]);
        }
    }
}
