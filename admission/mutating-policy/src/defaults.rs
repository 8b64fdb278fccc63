//! Sets the defaults that the API server sets when it reads an object and after each mutation, so
//! that policies see them (Kubernetes 1.36.3).

mod objects;
mod pod;
mod rules;
mod workloads;

use std::sync::LazyLock;

use rules::Rules;
use serde_json::{Map, Value};

use crate::canonical_quantity::{canonical, canonicalize};
use crate::pruning;
use crate::request::Kind;

static POD: LazyLock<Rules> = LazyLock::new(|| Rules::new(pod::POD));
static SPEC: LazyLock<Rules> = LazyLock::new(|| Rules::new(pod::SPEC));

/// Turns an object from a file into the object that the API server reads: drops empty fields, and
/// sets all defaults of the common kinds of the groups core, apps and batch.
pub fn complete(kind: &Kind, object: &mut Value) {
    if let Some(schema) = pruning::built_in_schema(kind) {
        pruning::prune(&schema, object, &Value::Null);
    }
    if let Some(fields) = object.as_object_mut() {
        Rules::new(objects::rules(kind)).apply(fields);
    }
    if let Some(spec) = pod_spec(kind, object) {
        alias_service_account(spec);
    }
    set(kind, object);
}

/// Sets defaults in a pod or the pod template of a workload, adds empty `resources`, and makes
/// quantities canonical strings. Objects of other kinds are not changed.
pub fn set(kind: &Kind, object: &mut Value) {
    let pod = kind.is_pod();
    if let Some(spec) = pod_spec(kind, object) {
        if pod {
            POD.apply(spec);
        }
        SPEC.apply(spec);
    }
    // The status is not a pointer in Go, so it is never absent in the API server's objects.
    if let (true, Some(fields)) = (pod, object.as_object_mut()) {
        rules::add(fields, "status", || Map::new().into());
    }
}

/// Returns the spec of a pod, or of the pod template of a workload.
fn pod_spec<'a>(kind: &Kind, object: &'a mut Value) -> Option<&'a mut Map<String, Value>> {
    let path = match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => "/spec",
        ("", "ReplicationController")
        | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job") => "/spec/template/spec",
        ("batch", "CronJob") => "/spec/jobTemplate/spec/template/spec",
        _ => return None,
    };
    object.pointer_mut(path)?.as_object_mut()
}

/// Gives the deprecated `serviceAccount` and `serviceAccountName` the same value. The latter takes
/// precedence.
pub(crate) fn alias_service_account(spec: &mut Map<String, Value>) {
    let given = |field| rules::text_of(spec, field).filter(|name| !name.is_empty());
    let name = given("serviceAccountName").or_else(|| given("serviceAccount"));
    if let Some(name) = name.map(str::to_owned) {
        spec.insert("serviceAccountName".to_owned(), name.as_str().into());
        spec.insert("serviceAccount".to_owned(), name.into());
    }
}

/// Makes the quantities of a map canonical and rounds them up to thousandths.
fn quantities(fields: &mut Map<String, Value>, name: &str) {
    let quantities = fields.get_mut(name).and_then(Value::as_object_mut);
    for quantity in quantities.into_iter().flat_map(Map::values_mut) {
        let canonical = match quantity {
            Value::Number(number) => Some(canonical(&number.to_string())),
            Value::String(text) => canonicalize(text),
            _ => None,
        };
        if let Some(canonical) = canonical {
            *quantity = rounded_up(canonical).into();
        }
    }
}

/// Rounds a canonical quantity up to thousandths.
fn rounded_up(quantity: String) -> String {
    let finer = |suffix, part: i128| {
        let digits: i128 = quantity.strip_suffix(suffix)?.parse().ok()?;
        let up = i128::from(digits.rem_euclid(part) > 0);
        Some(canonical(&format!("{}m", digits.div_euclid(part) + up)))
    };
    let rounded = finer('u', 1000).or_else(|| finer('n', 1_000_000));
    rounded.unwrap_or(quantity)
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
    fn pods_from_files_are_completed() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "labels": {}, "creationTimestamp": null},
            "spec": {"serviceAccount": "robot", "hostNetwork": true, "overhead": {"cpu": "0.0001"},
                "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "s"}},
                    {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}},
                        {"downwardAPI": {"items": [{"path": "p",
                            "fieldRef": {"fieldPath": "metadata.name"}}]}}]}}],
                "containers": [{"name": "c", "image": "x:1", "env": [{"name": "N",
                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 9}],
                    "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
                    "livenessProbe": {"httpGet": {"port": 80, "path": "/ok"}, "timeoutSeconds": 0},
                    "readinessProbe": {"grpc": {"port": 1}, "periodSeconds": 5}}]}});
        let kind = Kind::of_object(&pod).unwrap();
        let mut completed = pod;
        complete(&kind, &mut completed);
        let probe = |period: i64| {
            json!({"timeoutSeconds": 1, "periodSeconds": period,
            "successThreshold": 1, "failureThreshold": 3})
        };
        let (mut live, mut ready) = (probe(10), probe(5));
        live["httpGet"] = json!({"port": 80, "path": "/ok", "scheme": "HTTP"});
        ready["grpc"] = json!({"port": 1, "service": ""});
        let field = json!({"apiVersion": "v1", "fieldPath": "metadata.name"});
        assert_eq!(
            completed,
            json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a"}, "status": {},
            "spec": {"serviceAccount": "robot", "serviceAccountName": "robot",
                "hostNetwork": true, "overhead": {"cpu": "1m"}, "enableServiceLinks": true,
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "securityContext": {},
                "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler",
                "volumes": [{"name": "v", "emptyDir": {}},
                    {"name": "s", "secret": {"secretName": "s", "defaultMode": 420}},
                    {"name": "t", "projected": {"defaultMode": 420, "sources": [
                        {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                        {"downwardAPI": {"items": [{"path": "p", "fieldRef": field}]}}]}}],
                "containers": [{"name": "c", "image": "x:1", "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File", "resources": {},
                    "env": [{"name": "N", "valueFrom": {"fieldRef": field}}],
                    "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"},
                        {"containerPort": 81, "hostPort": 9, "protocol": "TCP"}],
                    "lifecycle": {"preStop":
                        {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}}},
                    "livenessProbe": live, "readinessProbe": ready}]}})
        );
    }

    fn completed(api_version: &str, kind: &str, spec: Value) -> Value {
        let mut object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": "a"}, "spec": spec});
        complete(&Kind::of_object(&object).unwrap(), &mut object);
        let again = object.clone();
        complete(&Kind::of_object(&object).unwrap(), &mut object);
        assert_eq!(object, again);
        object["spec"].take()
    }

    #[test]
    fn objects_from_files_are_completed() {
        assert_eq!(
            completed(
                "apps/v1",
                "Deployment",
                json!({"strategy": {"rollingUpdate": {"maxSurge": 1}}})
            ),
            json!({"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                "strategy": {"type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}}})
        );
        let recreate = json!({"strategy": {"type": "Recreate"}, "replicas": 0});
        let deployment = completed("apps/v1", "Deployment", recreate.clone());
        assert_eq!(deployment["strategy"], recreate["strategy"]);
        assert_eq!(deployment["replicas"], 0);
        assert_eq!(
            completed("apps/v1", "StatefulSet", json!({})),
            json!({"podManagementPolicy": "OrderedReady", "replicas": 1, "revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy":
                    {"whenDeleted": "Retain", "whenScaled": "Retain"}})
        );
        assert_eq!(
            completed("apps/v1", "DaemonSet", json!({})),
            json!({"revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}})
        );
        let job = json!({"parallelism": 1, "completions": 1, "backoffLimit": 6, "suspend": false,
            "completionMode": "NonIndexed", "manualSelector": false,
            "podReplacementPolicy": "TerminatingOrFailed"});
        assert_eq!(completed("batch/v1", "Job", json!({})), job);
        // Without completions, several pods work on one queue.
        let mut queue = job;
        queue.as_object_mut().unwrap().remove("completions");
        queue["parallelism"] = json!(3);
        assert_eq!(
            completed("batch/v1", "Job", json!({"parallelism": 3})),
            queue
        );
        assert_eq!(
            completed(
                "v1",
                "Service",
                json!({"type": "NodePort", "ports": [{"port": 80}]})
            ),
            json!({"type": "NodePort", "sessionAffinity": "None",
                "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster",
                "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}]})
        );
    }

    /// In Go these fields are pointers, and a pointer to an empty text is not absent.
    #[test]
    fn empty_optional_texts_are_kept() {
        let claim = completed("v1", "PersistentVolumeClaim", json!({"volumeMode": ""}));
        assert_eq!(claim["volumeMode"], "");
        let job = completed("batch/v1", "Job", json!({"completionMode": ""}));
        assert_eq!(job["completionMode"], "");
        let spec = json!({"strategy": {"rollingUpdate": {"maxSurge": ""}}});
        let deployment = completed("apps/v1", "Deployment", spec);
        assert_eq!(deployment["strategy"]["rollingUpdate"]["maxSurge"], "");
        let service = completed("v1", "Service", json!({"internalTrafficPolicy": ""}));
        assert_eq!(service["internalTrafficPolicy"], "");
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
