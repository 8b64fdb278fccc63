//! The cluster of a test file: its manifests, and the pods that its cases name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tautline_api::manifest::{self, FieldPath, Item, Workload};

use super::{
    expect::Expect,
    file::{CaseSpec, Costs, Faults, Subject, TestFile, case_path},
};
use crate::pod_name;

pub(super) struct Cluster {
    pub items: Vec<Item>,
    nodes: BTreeSet<String>,
    rules: BTreeSet<String>,
}

/// A test file with its cluster, without faults.
pub(super) struct PreparedFile {
    pub path: PathBuf,
    pub cluster: Cluster,
    pub cases: Vec<PreparedCase>,
}

pub(super) struct PreparedCase {
    pub name: String,
    pub subject: PreparedSubject,
    pub fresh: bool,
    pub costs: Costs,
    pub expect: Expect,
}

pub(super) enum PreparedSubject {
    Pod(Box<Pod>),
    /// The next pod of the workload's template.
    Workload(Box<Workload>),
}

type Fault = (FieldPath, String);

impl Cluster {
    pub fn new(items: Vec<Item>) -> Self {
        let nodes = items.iter().filter_map(|item| match item {
            Item::Node(node) => node.metadata.name.clone(),
            _ => None,
        });
        let policies = items.iter().filter_map(|item| match item {
            Item::Policy(policy) => Some(&policy.spec.rules),
            _ => None,
        });
        Self {
            nodes: nodes.collect(),
            rules: policies.flatten().map(|rule| rule.name.clone()).collect(),
            items,
        }
    }

    /// Finds the pods and nodes that the cases name.
    pub fn prepare(
        self,
        path: &Path,
        text: &str,
        file: TestFile,
    ) -> Result<PreparedFile, Vec<String>> {
        let mut faults = Faults::new(path, text);
        self.check_costs(&file.costs, &FieldPath::default(), &mut faults);
        let mut cases = Vec::new();
        for (at, case) in file.cases.into_iter().enumerate() {
            let path = case_path(at);
            self.check_costs(&case.costs, &path, &mut faults);
            for (field, node) in case.expect.named_nodes() {
                if let Some(what) = self.absent_node(node) {
                    faults.add(&path.key("expect").key(field), &what);
                }
            }
            for (field, rule) in case.expect.named_rules() {
                if let Some(what) = self.absent_rule(rule) {
                    faults.add(&path.key("expect").join(&field), &what);
                }
            }
            let namespace = case.namespace.as_deref().unwrap_or(&file.namespace);
            let default_name = format!("test-pod-{}", at + 1);
            let subject = match self.subject(&case, (namespace, &default_name), &path) {
                Ok(subject) => subject,
                Err(found) => {
                    for (field, what) in found {
                        faults.add(&field, &what);
                    }
                    continue;
                }
            };
            cases.push(PreparedCase {
                name: case.name,
                subject,
                fresh: case.fresh,
                costs: merged(&file.costs, case.costs),
                expect: case.expect,
            });
        }
        faults.done(())?;
        Ok(PreparedFile {
            path: path.to_owned(),
            cluster: self,
            cases,
        })
    }

    fn check_costs(&self, costs: &Costs, path: &FieldPath, faults: &mut Faults<'_>) {
        for (rule, nodes) in costs {
            if let Some(what) = self.absent_rule(rule) {
                faults.add(&path.key("costs").key(rule), &what);
            }
            for node in nodes.keys() {
                if let Some(what) = self.absent_node(node) {
                    faults.add(&path.key("costs").key(rule).key(node), &what);
                }
            }
        }
    }

    fn absent_rule(&self, rule: &str) -> Option<String> {
        (!self.rules.contains(rule)).then(|| {
            format!(
                "no ConstraintPolicy of the manifests has the rule {rule}; correct the name, or \
                 add the policy"
            )
        })
    }

    fn absent_node(&self, node: &str) -> Option<String> {
        (!self.nodes.contains(node)).then(|| {
            format!("there is no Node {node} in the manifests; correct the name, or add the node")
        })
    }

    fn subject(
        &self,
        case: &CaseSpec,
        (namespace, default_name): (&str, &str),
        path: &FieldPath,
    ) -> Result<PreparedSubject, Vec<Fault>> {
        let one = |field: &str, what: String| vec![(path.key(field), what)];
        match (&case.pod, &case.workload) {
            (Some(Subject::Name(name)), _) => match self.pod(name, namespace) {
                Ok(pod) => Ok(PreparedSubject::Pod(Box::new(pod))),
                Err(what) => Err(one("pod", what)),
            },
            (Some(Subject::Object(object)), _) => {
                match inline(object, namespace, Some(default_name)) {
                    Ok(Item::Pod(pod)) => {
                        let mut pod = without_node(*pod);
                        // The UID makes it another pod than an earlier case's pod of the same name.
                        pod.metadata.uid.get_or_insert_with(|| default_name.into());
                        Ok(PreparedSubject::Pod(Box::new(pod)))
                    }
                    Ok(_) => Err(one(
                        "pod",
                        "is not a Pod; write workload for other kinds".into(),
                    )),
                    Err(faults) => Err(below(&path.key("pod"), faults)),
                }
            }
            (None, Some(Subject::Name(name))) => match self.workload(name, namespace) {
                Ok(workload) => Ok(PreparedSubject::Workload(Box::new(workload))),
                Err(what) => Err(one("workload", what)),
            },
            (None, Some(Subject::Object(object))) => match inline(object, namespace, None) {
                Ok(Item::Workload(workload)) if workload.kind() != DAEMON_SET => {
                    Ok(PreparedSubject::Workload(workload))
                }
                Ok(_) => Err(one(
                    "workload",
                    "has no pods to plan; write a Deployment, StatefulSet, ReplicaSet, Job or \
                     CronJob"
                        .into(),
                )),
                Err(faults) => Err(below(&path.key("workload"), faults)),
            },
            (None, None) => Err(one("pod", "is missing".into())),
        }
    }

    /// Finds a pod of the manifests, as if it were not bound.
    fn pod(&self, name: &str, namespace: &str) -> Result<Pod, String> {
        let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
        let named: Vec<&Pod> = self
            .pods()
            .filter(|p| p.metadata.name.as_deref() == Some(name))
            .collect();
        match named.iter().find(|p| namespace_of(p) == namespace) {
            Some(pod) => Ok(without_node((*pod).clone())),
            None => Err(pod_name::absent(
                namespace,
                name,
                named.iter().map(|p| namespace_of(p)),
            )),
        }
    }

    /// Finds a workload by `Kind/NAME`; the kind may be in any case.
    fn workload(&self, name: &str, namespace: &str) -> Result<Workload, String> {
        let Some((kind, name)) = name.split_once('/') else {
            return Err(format!("{name:?} has no kind; write Deployment/{name}"));
        };
        if kind.eq_ignore_ascii_case("Pod") {
            return Err(format!("is a pod; write pod: {name}"));
        }
        if !KINDS.iter().any(|known| known.eq_ignore_ascii_case(kind)) {
            let kinds = KINDS.join(", ");
            return Err(format!("{kind:?} is none of the kinds {kinds}"));
        }
        if let Some((namespace, name)) = name.split_once('/') {
            return Err(format!(
                "write {kind}/{name}, and namespace: {namespace} beside it"
            ));
        }
        let found = self.items.iter().find_map(|item| match item {
            Item::Workload(w)
                if w.kind().eq_ignore_ascii_case(kind)
                    && w.name() == name
                    && w.namespace() == namespace =>
            {
                Some((**w).clone())
            }
            _ => None,
        });
        match found {
            Some(w) if w.kind() == DAEMON_SET => {
                Err("a DaemonSet has a pod on each node; name one of its pods".into())
            }
            Some(workload) => Ok(workload),
            None => Err(format!(
                "there is no {kind} {namespace}/{name} in the manifests; correct the name, or write \
                 its namespace as namespace: NAME"
            )),
        }
    }

    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.items.iter().filter_map(|item| match item {
            Item::Pod(pod) => Some(&**pod),
            _ => None,
        })
    }
}

const DAEMON_SET: &str = "DaemonSet";
const KINDS: [&str; 6] = [
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
    "Job",
    "CronJob",
    DAEMON_SET,
];

pub(super) fn namespace_of(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

fn without_node(mut pod: Pod) -> Pod {
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    pod
}

/// Reads an object of a test file, which gets the default namespace. A pod needs no kind, and gets
/// the name `pod_name` if it has none.
fn inline(object: &Value, namespace: &str, pod_name: Option<&str>) -> Result<Item, Vec<Fault>> {
    let mut object = object.clone();
    let set = |fields: &mut Value, field: &str, value: &str| {
        if let Some(fields) = fields.as_object_mut() {
            let at = fields.entry(field).or_insert(Value::Null);
            if at.is_null() {
                *at = json!(value);
            }
        }
    };
    if pod_name.is_some() {
        set(&mut object, "apiVersion", "v1");
        set(&mut object, "kind", "Pod");
    }
    if let Some(fields) = object.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        set(metadata, "namespace", namespace);
        if let Some(name) = pod_name {
            set(metadata, "name", name);
        }
    }
    let fault = |what: String| vec![(FieldPath::default(), what)];
    // JSON is valid YAML.
    let read = manifest::read(&object.to_string()).map_err(|e| fault(e.to_string()))?;
    if !read.findings.is_empty() {
        let findings = read.findings.into_iter();
        return Err(findings.map(|(_, f)| (f.field, f.message)).collect());
    }
    let mut objects = read.objects;
    manifest::generate_names(&mut objects);
    let item = objects.into_iter().next().map(|(_, item)| item);
    item.ok_or_else(|| fault("has no object".into()))
}

fn below(path: &FieldPath, faults: Vec<Fault>) -> Vec<Fault> {
    faults
        .into_iter()
        .map(|(field, what)| (path.join(&field), what))
        .collect()
}

/// Returns the costs of the file, overwritten by the costs of the case, node by node.
fn merged(file: &Costs, case: Costs) -> Costs {
    let mut all: BTreeMap<_, _> = file.clone();
    for (rule, nodes) in case {
        all.entry(rule).or_default().extend(nodes);
    }
    all
}
