//! Reads Kueue's objects, as far as they matter to a dispatcher.

use kube::{
    ResourceExt,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Map, Value, json};

pub(super) const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";
pub(super) const WORKLOAD: &str = "Workload";
/// The controller of MultiKueue's admission checks.
const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";

/// The labels by which a controller of this kind marks its pods. Kueue removes them from the template
/// in the workload, and offers group pods by them.
const OWNER_LABELS: [(&str, &str); 3] = [
    ("Job", "batch.kubernetes.io/job-name"),
    ("JobSet", "jobset.sigs.k8s.io/jobset-name"),
    ("RayCluster", "ray.io/cluster"),
];

pub(super) fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind))
}

/// Returns the name of the MultiKueueConfig of an admission check; `None` if it is another
/// controller's.
pub(super) fn config_of_check(check: &DynamicObject) -> Option<&str> {
    let spec = &check.data["spec"];
    let config = spec["parameters"]["name"].as_str()?;
    (spec["controllerName"] == MULTIKUEUE).then_some(config)
}

/// Returns the worker clusters of a MultiKueueConfig.
pub(super) fn clusters_of_config(config: &DynamicObject) -> Vec<String> {
    texts(&config.data["spec"]["clusters"])
}

/// Returns the name of the Secret with the kubeconfig of a MultiKueueCluster; `None` if it is
/// elsewhere.
pub(super) fn secret_of_cluster(cluster: &DynamicObject) -> Option<&str> {
    let config = &cluster.data["spec"]["clusterSource"]["kubeConfig"];
    let is_secret = matches!(config["locationType"].as_str(), None | Some("Secret"));
    config["location"].as_str().filter(|_| is_secret)
}

/// Returns whether a condition is true, such as `Active` of a MultiKueueCluster to which Kueue is
/// connected.
pub(super) fn is_true(object: &DynamicObject, condition: &str) -> bool {
    let mut conditions = items(&object.data["status"]["conditions"]).iter();
    conditions.any(|of| of["type"] == condition && of["status"] == "True")
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn texts(list: &Value) -> Vec<String> {
    let texts = items(list).iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// A workload with quota, of which an admission check is pending.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    /// The names of the pending checks.
    pub(super) checks: Vec<String>,
    pub(super) nominated: Vec<String>,
    /// The body for `/what-if` about each pod set.
    pub(super) questions: Vec<Value>,
}

/// Reads a workload; `None` if it waits for no admission check.
pub(super) fn candidate(workload: &DynamicObject) -> Option<Candidate> {
    let status = &workload.data["status"];
    let pending = items(&status["admissionChecks"]).iter();
    let pending = pending.filter(|check| check["state"] == "Pending");
    let checks: Vec<String> = pending
        .filter_map(|check| Some(check["name"].as_str()?.to_owned()))
        .collect();
    let waits = is_true(workload, "QuotaReserved")
        // An evicted workload has its quota until its pods have ended.
        && !is_true(workload, "Evicted")
        && !is_true(workload, "Finished")
        && status["clusterName"].is_null()
        && workload.metadata.deletion_timestamp.is_none();
    let sets = items(&workload.data["spec"]["podSets"]).iter();
    (waits && !checks.is_empty()).then(|| Candidate {
        checks,
        nominated: texts(&status["nominatedClusterNames"]),
        questions: sets.filter_map(|set| question(workload, set)).collect(),
    })
}

/// Returns the question about a pod set, whose pods are as their controller will make them.
fn question(workload: &DynamicObject, set: &Value) -> Option<Value> {
    let assignments = &workload.data["status"]["admission"]["podSetAssignments"];
    let assigned = items(assignments)
        .iter()
        .find(|of| of["name"] == set["name"]);
    // Kueue may admit fewer pods than the set has.
    let admitted = assigned.and_then(|of| of["count"].as_u64());
    let count = admitted
        .or(set["count"].as_u64())
        .filter(|count| *count > 0)?;
    let template = &set["template"];
    let mut labels = map(&template["metadata"]["labels"]);
    let mut owners = workload.owner_references().iter();
    if let Some(owner) = owners.find(|owner| owner.controller == Some(true))
        && let Some((_, label)) = OWNER_LABELS.iter().find(|(kind, _)| *kind == owner.kind)
    {
        labels.insert((*label).to_owned(), owner.name.clone().into());
    }
    let pod = json!({
        "metadata": {
            "namespace": workload.namespace(),
            "name": format!("{}-{}", workload.name_any(), set["name"].as_str()?),
            "labels": labels,
            "annotations": map(&template["metadata"]["annotations"]),
        },
        "spec": template["spec"],
    });
    Some(json!({"pod": pod, "count": count}))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    /// A workload of a Job that waits for the check `mk`, with changes to its status.
    pub(crate) fn workload(status: Value) -> DynamicObject {
        let time = "2026-01-01T00:00:00Z";
        let mut all = json!({
            "apiVersion": API_VERSION, "kind": WORKLOAD,
            "metadata": {"name": "job-a", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a",
                                     "uid": "v", "controller": true}]},
            "spec": {"podSets": [{"name": "main", "count": 4, "template": {
                "metadata": {"labels": {"app": "a"}}, "spec": {"containers": []}}}]},
            "status": {
                "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved",
                                "message": "", "lastTransitionTime": time}],
                "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 2}]},
                "admissionChecks": [{"name": "mk", "state": "Pending", "message": "",
                                     "lastTransitionTime": time}]}});
        for (field, value) in status.as_object().unwrap() {
            all["status"][field] = value.clone();
        }
        object(all)
    }

    #[test]
    fn candidates_wait_for_a_check_with_quota() {
        let found = candidate(&workload(json!({"nominatedClusterNames": ["east"]}))).unwrap();
        assert_eq!(
            (found.checks, found.nominated),
            (vec!["mk".to_owned()], vec!["east".to_owned()])
        );
        let [question] = &*found.questions else {
            panic!("{:?}", found.questions);
        };
        assert_eq!(question["count"], 2);
        let labels = json!({"app": "a", "batch.kubernetes.io/job-name": "a"});
        assert_eq!(question["pod"]["metadata"]["labels"], labels);
        let ready = json!([{"name": "mk", "state": "Ready"}]);
        let condition = |of: &str| json!({"type": of, "status": "True"});
        let evicted = json!([condition("QuotaReserved"), condition("Evicted")]);
        for status in [
            json!({"clusterName": "east"}),
            json!({"conditions": []}),
            json!({"conditions": evicted}),
            json!({"admissionChecks": ready}),
        ] {
            assert_eq!(candidate(&workload(status)), None);
        }
    }

    #[test]
    fn clusters_name_the_secret_of_the_kubeconfig() {
        let secret = |from: Value| {
            let cluster = json!({"apiVersion": API_VERSION, "kind": "MultiKueueCluster",
                                 "metadata": {"name": "east"}, "spec": {"clusterSource": from}});
            secret_of_cluster(&object(cluster)).map(str::to_owned)
        };
        let of =
            |kind: &str| json!({"kubeConfig": {"location": "east-config", "locationType": kind}});
        assert_eq!(secret(of("Secret")).as_deref(), Some("east-config"));
        assert_eq!(secret(of("Path")), None);
        assert_eq!(secret(json!({"clusterProfileRef": {"name": "east"}})), None);
    }
}
