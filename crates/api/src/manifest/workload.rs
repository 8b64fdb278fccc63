//! Reads workloads, which are controllers of pods, and makes the pods that they would create.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use serde_json::Value;
use tautline_core::selector::Labels;

use super::{FieldPath, Item, label_keys, object_name};
use crate::{Metadata, convert};

/// The maximum number of pods that one workload's template adds.
pub const MAX_TEMPLATE_PODS: usize = 100;

/// A Deployment or another controller of pods.
#[derive(Clone, Debug)]
pub struct Workload {
    kind: String,
    api_version: String,
    namespace: Option<String>,
    name: String,
    /// True if `name` is the workload's `generateName`.
    is_unnamed: bool,
    replicas: usize,
    numbers: Numbers,
    template: PodTemplateSpec,
}

/// The ordinals of a StatefulSet's pods, or the indexes of a Job's pods.
#[derive(Clone, Debug, Default)]
struct Numbers {
    first: usize,
    /// The first and the last index of each range that is completed, in order.
    done: Vec<(usize, usize)>,
    is_indexed: bool,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        f.write_str(&object_name(&self.kind, namespace, &self.name))
    }
}

impl Workload {
    /// Creates a workload from an object that was decoded as its kind before.
    pub(super) fn new(value: &Value) -> Self {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let kind = text(&value["kind"]);
        let spec = match kind.as_str() {
            "CronJob" => &value["spec"]["jobTemplate"]["spec"],
            _ => &value["spec"],
        };
        let metadata = &value["metadata"];
        let own_name = text(&metadata["name"]);
        let is_unnamed = own_name.is_empty();
        let name = if is_unnamed {
            text(&metadata["generateName"])
        } else {
            own_name
        };
        Self {
            api_version: text(&value["apiVersion"]),
            namespace: value["metadata"]["namespace"].as_str().map(str::to_owned),
            name,
            is_unnamed,
            replicas: replicas(&kind, value, spec),
            numbers: Numbers::new(value, spec),
            template: serde_json::from_value(spec["template"].clone()).unwrap_or_default(),
            kind,
        }
    }

    /// Returns the workload's kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the workload's namespace, by default `default`.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// Returns the workload's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the workload a name if it has only a `generateName`.
    pub(super) fn generate_name(&mut self, name: impl FnOnce(&str) -> String) {
        if std::mem::take(&mut self.is_unnamed) {
            self.name = name(&self.name);
        }
    }

    /// Returns the number of pods that run at a time. It is 0 for a workload that is scaled to 0,
    /// suspended, finished, owned by another workload, or a Helm hook that has not run, and for a
    /// DaemonSet, whose pods have one node each.
    pub fn replicas(&self) -> usize {
        self.replicas
    }

    /// Returns an unscheduled pod of the template, named as in a StatefulSet: `NAME-0`. `number`
    /// counts from the first ordinal, without completed indexes.
    pub fn pod(&self, number: usize) -> Pod {
        let number = self.numbers.nth(number);
        let mut metadata = self.template.metadata.clone().unwrap_or_default();
        let name = format!("{}-{number}", self.name);
        let labels = metadata.labels.get_or_insert_default();
        match self.kind.as_str() {
            "StatefulSet" => {
                let key = |k: &str| k.to_owned();
                labels.insert(key("statefulset.kubernetes.io/pod-name"), name.clone());
                labels.insert(key("apps.kubernetes.io/pod-index"), number.to_string());
            }
            "Job" => {
                for key in ["batch.kubernetes.io/job-name", "job-name"] {
                    labels.insert(key.to_owned(), self.name.clone());
                }
                if self.numbers.is_indexed {
                    let key = "batch.kubernetes.io/job-completion-index";
                    labels.insert(key.to_owned(), number.to_string());
                    let annotations = metadata.annotations.get_or_insert_default();
                    annotations.insert(key.to_owned(), number.to_string());
                }
            }
            _ => {}
        }
        metadata.name = Some(name);
        metadata.namespace.clone_from(&self.namespace);
        metadata.owner_references = Some(vec![OwnerReference {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            uid: self.to_string(),
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        let mut pod = Pod {
            metadata,
            spec: self.template.spec.clone(),
            status: None,
        };
        label_keys::merge(&mut pod);
        pod
    }

    /// Returns whether a pod comes from [`Self::pod`].
    pub fn made(&self, pod: &Metadata) -> bool {
        let owners = pod.owner_references.as_deref();
        matches!(owners, Some([only]) if only.uid == self.to_string())
    }

    /// Returns whether a pod belongs to the workload, by its owner or by the labels of the
    /// template.
    pub fn owns(&self, pod: &Metadata) -> bool {
        let mut owners = pod.owner_references.iter().flatten();
        let has_labels = |l: &BTreeMap<String, String>| {
            let own = |k: &String| pod.labels.as_ref().and_then(|l| l.get(k));
            !l.is_empty() && l.iter().all(|(k, v)| own(k) == Some(v))
        };
        namespace_of(pod) == self.namespace()
            && (owners.any(|o| o.kind == self.kind && o.name == self.name)
                || self.pod_labels().is_some_and(has_labels))
    }

    pub(super) fn template_path(&self) -> FieldPath {
        FieldPath::from_keys(
            match self.kind.as_str() {
                "CronJob" => &["spec", "jobTemplate", "spec", "template"][..],
                _ => &["spec", "template"],
            }
            .iter()
            .copied(),
        )
    }

    pub(super) fn pod_labels(&self) -> Option<&BTreeMap<String, String>> {
        self.template.metadata.as_ref()?.labels.as_ref()
    }

    pub(super) fn labels(&self) -> Labels {
        convert::labels(self.pod_labels())
    }
}

impl Numbers {
    fn new(value: &Value, spec: &Value) -> Self {
        let first = spec["ordinals"]["start"].as_u64().unwrap_or(0);
        let done = value["status"]["completedIndexes"].as_str();
        let done = done.unwrap_or_default().split(',').filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
        });
        Self {
            first: first.try_into().unwrap_or(0),
            done: done.filter(|(first, last)| first <= last).collect(),
            is_indexed: spec["completionMode"] == "Indexed",
        }
    }

    fn nth(&self, number: usize) -> usize {
        let mut number = self.first.saturating_add(number);
        for (first, last) in &self.done {
            if number >= *first {
                number = number.saturating_add(last - first + 1);
            }
        }
        number
    }
}

/// Returns whether an object is a hook of a rendered Helm chart, and was not read from a cluster. A
/// hook runs before or after the other objects, and is gone when they run.
pub(super) fn is_hook(object: &Value) -> bool {
    object["metadata"]["annotations"]["helm.sh/hook"].is_string() && object["status"].is_null()
}

fn replicas(kind: &str, value: &Value, spec: &Value) -> usize {
    let owners = value["metadata"]["ownerReferences"].as_array();
    let is_owned = owners.is_some_and(|o| o.iter().any(|o| o["controller"] == true));
    let is_suspended = value["spec"]["suspend"] == true || spec["suspend"] == true;
    if is_owned || is_suspended || is_hook(value) || is_finished(&value["status"]) {
        return 0;
    }
    let of = |value: &Value| value.as_u64().map(|n| n.try_into().unwrap_or(0));
    let number = |field: &str| of(&spec[field]);
    match kind {
        "DaemonSet" => 0,
        "Job" | "CronJob" => {
            let parallelism = number("parallelism").unwrap_or(1);
            let succeeded = of(&value["status"]["succeeded"]).unwrap_or(0_usize);
            match number("completions") {
                Some(all) => parallelism.min(all.saturating_sub(succeeded)),
                // Without `completions`, the Job starts no new pods after a success.
                None if succeeded > 0 => 0,
                None => parallelism,
            }
        }
        _ => number("replicas").unwrap_or(1),
    }
}

/// Returns whether a Job is complete or has failed.
fn is_finished(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let ends =
        |c: &Value| c["status"] == "True" && (c["type"] == "Complete" || c["type"] == "Failed");
    !status["completionTime"].is_null() || conditions.any(ends)
}

/// Adds the pods of each workload that has no pods among `objects`, after the workload. There are
/// as many as its replicas, up to [`MAX_TEMPLATE_PODS`].
pub fn add_template_pods<W: Copy>(objects: Vec<(W, Item)>) -> Vec<(W, Item)> {
    let counts = missing_pods(&objects);
    if counts.iter().all(|count| *count == 0) {
        return objects;
    }
    let pods = objects.iter().filter_map(|(_, object)| pod_of(object));
    let mut names: HashSet<(String, String)> = pods
        .map(|pod| {
            let name = pod.name.clone().unwrap_or_default();
            (namespace_of(pod).to_owned(), name)
        })
        .collect();
    let mut all = Vec::with_capacity(objects.len() + counts.iter().sum::<usize>());
    for ((place, object), count) in objects.into_iter().zip(counts) {
        let new: Vec<Pod> = match &object {
            Item::Workload(w) => (0..count)
                .map(|number| named_apart(w, number, &mut names))
                .collect(),
            _ => Vec::new(),
        };
        all.push((place, object));
        all.extend(new.into_iter().map(|pod| (place, Item::Pod(Box::new(pod)))));
    }
    all
}

/// Returns the number of pods to add for each object.
fn missing_pods<W>(objects: &[(W, Item)]) -> Vec<usize> {
    let mut pods = HashMap::<&str, Vec<&Metadata>>::new();
    for pod in objects.iter().filter_map(|(_, object)| pod_of(object)) {
        pods.entry(namespace_of(pod)).or_default().push(pod);
    }
    let missing = |(_, object): &(W, Item)| {
        let Item::Workload(w) = object else { return 0 };
        let mut known = pods.get(w.namespace()).into_iter().flatten();
        if w.replicas > 0 && !known.any(|pod| w.owns(pod)) {
            w.replicas.min(MAX_TEMPLATE_PODS)
        } else {
            0
        }
    };
    objects.iter().map(missing).collect()
}

fn pod_of(object: &Item) -> Option<&Metadata> {
    match object {
        Item::Pod(pod) => Some(&pod.metadata),
        _ => None,
    }
}

fn namespace_of(pod: &Metadata) -> &str {
    pod.namespace.as_deref().unwrap_or("default")
}

/// Returns a workload's pod with a name that is not in `names`, because two workloads may have one
/// name.
fn named_apart(workload: &Workload, number: usize, names: &mut HashSet<(String, String)>) -> Pod {
    let mut pod = workload.pod(number);
    let namespace = workload.namespace().to_owned();
    let name = pod.metadata.name.clone().unwrap_or_default();
    if !names.insert((namespace.clone(), name)) {
        let kind = workload.kind.to_lowercase();
        let name = format!("{}-{kind}-{number}", workload.name);
        names.insert((namespace, name.clone()));
        pod.metadata.name = Some(name);
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::read;

    fn names(text: &str) -> Vec<String> {
        let all = add_template_pods(read(text).unwrap().objects).into_iter();
        let pods = all.filter_map(|(_, item)| match item {
            Item::Pod(pod) => pod.metadata.name,
            _ => None,
        });
        pods.collect()
    }

    fn workload(kind: &str, spec: &str) -> String {
        let version = match kind {
            "Job" | "CronJob" => "batch/v1",
            "ReplicationController" => "v1",
            _ => "apps/v1",
        };
        format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: web, namespace: shop}}\nspec: \
             {spec}\n---\n"
        )
    }

    const TEMPLATE: &str = "template: {metadata: {labels: {app: web}}, spec: {containers: []}}";

    #[test]
    fn a_workload_has_as_many_pods_as_run_at_a_time() {
        for (kind, fields, expected) in [
            ("Deployment", "", 1),
            ("Deployment", "replicas: 3, ", 3),
            ("Deployment", "replicas: 0, ", 0),
            ("StatefulSet", "replicas: 2, ", 2),
            ("ReplicationController", "replicas: 2, ", 2),
            ("ReplicaSet", "replicas: 5000, ", MAX_TEMPLATE_PODS),
            ("DaemonSet", "", 0),
            ("Job", "", 1),
            ("Job", "parallelism: 4, ", 4),
            ("Job", "parallelism: 4, completions: 2, ", 2),
            ("Job", "completions: 9, ", 1),
            ("Job", "suspend: true, ", 0),
            ("Job", "completions: 0, ", 0),
        ] {
            let text = workload(kind, &format!("{{{fields}{TEMPLATE}}}"));
            assert_eq!(names(&text).len(), expected, "{kind} {fields}");
        }
        for (fields, status, expected) in [
            ("parallelism: 4, completions: 6, ", "succeeded: 3", 3),
            ("parallelism: 4, completions: 6, ", "succeeded: 6", 0),
            ("parallelism: 4, ", "succeeded: 1", 0),
            ("", "conditions: [{type: Failed, status: 'True'}]", 0),
            ("", "conditions: [{type: Failed, status: 'False'}]", 1),
            ("", "completionTime: 2026-01-01T00:00:00Z", 0),
        ] {
            let spec = format!("{{{fields}{TEMPLATE}}}\nstatus: {{{status}}}");
            assert_eq!(names(&workload("Job", &spec)).len(), expected, "{status}");
        }
        let job = format!("jobTemplate: {{spec: {{parallelism: 2, {TEMPLATE}}}}}");
        let cron = |suspend| format!("{{schedule: '* * * * *', suspend: {suspend}, {job}}}");
        assert_eq!(
            names(&workload("CronJob", &cron(false))),
            ["web-0", "web-1"]
        );
        assert_eq!(names(&workload("CronJob", &cron(true))), [""; 0]);
    }

    #[test]
    fn pods_are_numbered_as_their_controllers_do() {
        let set = format!("{{replicas: 3, ordinals: {{start: 5}}, {TEMPLATE}}}");
        let text = workload("StatefulSet", &set);
        assert_eq!(names(&text), ["web-5", "web-6", "web-7"]);
        let job = format!(
            "{{parallelism: 4, completions: 8, completionMode: Indexed, {TEMPLATE}}}\n\
             status: {{succeeded: 4, completedIndexes: '0,2-4'}}"
        );
        let text = workload("Job", &job);
        assert_eq!(names(&text), ["web-1", "web-5", "web-6", "web-7"]);
        let all = add_template_pods(read(&text).unwrap().objects);
        let Item::Pod(pod) = &all[2].1 else {
            panic!("{all:?}")
        };
        let key = "batch.kubernetes.io/job-completion-index";
        for map in [&pod.metadata.labels, &pod.metadata.annotations] {
            assert_eq!(map.as_ref().unwrap()[key], "5");
        }
    }

    #[test]
    fn helm_hooks_take_no_room() {
        let hook = "annotations: {helm.sh/hook: test}";
        let job = workload("Job", &format!("{{{TEMPLATE}}}"));
        let hooks = job.replace("namespace: shop", &format!("namespace: shop, {hook}"));
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, {hook}}}\nspec: {{containers: []}}\n"
        );
        assert_eq!(names(&format!("{hooks}{pod}")), [""; 0]);
        // In a cluster, it runs.
        let runs = format!("{pod}status: {{phase: Pending}}\n");
        assert_eq!(names(&runs), ["p"]);
    }

    #[test]
    fn a_workload_with_pods_gets_no_others() {
        let web = workload("Deployment", &format!("{{replicas: 2, {TEMPLATE}}}"));
        let pod = |namespace: &str, metadata: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: {namespace}, \
                 {metadata}}}\nspec: {{containers: []}}\n---\n"
            )
        };
        let by_label = pod("shop", "labels: {app: web, a: b}");
        assert_eq!(names(&format!("{web}{by_label}")), ["p"]);
        let owner = "ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u}]";
        assert_eq!(names(&format!("{}{web}", pod("shop", owner))), ["p"]);
        let other = pod("other", "labels: {app: web}");
        assert_eq!(names(&format!("{other}{web}")), ["p", "web-0", "web-1"]);
        let owned = web.replace(
            "namespace: shop",
            "namespace: shop, ownerReferences: [{apiVersion: a/v1, kind: Rollout, name: r, uid: u, \
             controller: true}]",
        );
        assert_eq!(names(&owned), [""; 0]);
    }

    #[test]
    fn pods_of_equal_names_are_told_apart() {
        let of = |kind| {
            let template = TEMPLATE.replace("app: web", &format!("app: {kind}"));
            workload(kind, &format!("{{{template}}}"))
        };
        let both = of("Deployment") + &of("StatefulSet");
        assert_eq!(names(&both), ["web-0", "web-statefulset-0"]);
    }

    #[test]
    fn a_pod_has_owner_and_labels_of_its_controller() {
        let item = |kind: &str| {
            let text = workload(kind, &format!("{{{TEMPLATE}}}"));
            match read(&text).unwrap().objects.remove(0).1 {
                Item::Workload(w) => *w,
                other => panic!("{other:?}"),
            }
        };
        let web = item("StatefulSet");
        let pod = web.pod(7);
        assert!(
            web.owns(&pod.metadata) && web.made(&pod.metadata),
            "{pod:?}"
        );
        assert!(
            !item("ReplicaSet")
                .pod(7)
                .metadata
                .labels
                .unwrap()
                .contains_key("job-name")
        );
        let labels = pod.metadata.labels.unwrap();
        assert_eq!(labels["app"], "web");
        assert_eq!(labels["apps.kubernetes.io/pod-index"], "7");
        assert_eq!(
            item("Job").pod(0).metadata.labels.unwrap()["job-name"],
            "web"
        );
    }
}
