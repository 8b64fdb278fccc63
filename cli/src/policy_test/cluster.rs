//! The cluster of a test file: its manifests, and the pods that its cases name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};
use tautline_api::manifest::{self, FieldPath, Item, Workload};

use super::file::{CaseSpec, Costs, Faults, Subject, TestFile, case_path};
use crate::manifests::{find_pod, without_node};

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
    /// The case, with the costs of the file too.
    pub spec: CaseSpec,
    pub subject: PreparedSubject,
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
        for (at, mut case) in file.cases.into_iter().enumerate() {
            let path = case_path(at);
            self.check_costs(&case.costs, &path, &mut faults);
            let expect = path.key("expect");
            for (field, node) in case.expect.named_nodes() {
                self.check_node(node, &expect.key(field), &mut faults);
            }
            for (field, rule) in case.expect.named_rules() {
                self.check_rule(rule, &expect.join(&field), &mut faults);
            }
            let namespace = case.namespace.as_deref().unwrap_or(&file.namespace);
            let (field, subject) = self.subject(&case, namespace, &format!("test-pod-{}", at + 1));
            let subject = match subject {
                Ok(subject) => subject,
                Err(found) => {
                    for (below, what) in found {
                        faults.add(&path.key(field).join(&below), &what);
                    }
                    continue;
                }
            };
            case.costs = merged(&file.costs, case.costs);
            cases.push(PreparedCase {
                spec: case,
                subject,
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
            let field = path.key("costs").key(rule);
            self.check_rule(rule, &field, faults);
            for node in nodes.keys() {
                self.check_node(node, &field.key(node), faults);
            }
        }
    }

    fn check_rule(&self, rule: &str, field: &FieldPath, faults: &mut Faults<'_>) {
        if !self.rules.contains(rule) {
            let what = format!(
                "no ConstraintPolicy of the manifests has the rule {rule}; correct the name, or \
                 add the policy"
            );
            faults.add(field, &what);
        }
    }

    fn check_node(&self, node: &str, field: &FieldPath, faults: &mut Faults<'_>) {
        if !self.nodes.contains(node) {
            let what = format!(
                "there is no Node {node} in the manifests; correct the name, or add the node"
            );
            faults.add(field, &what);
        }
    }

    /// Returns the field that has the subject of a case, with the subject or the faults below the
    /// field. `default_name` is the name of a pod without one.
    fn subject(
        &self,
        case: &CaseSpec,
        namespace: &str,
        default_name: &str,
    ) -> (&'static str, Result<PreparedSubject, Vec<Fault>>) {
        match (&case.pod, &case.workload) {
            (Some(subject), _) => {
                let pod = self.pod(subject, namespace, default_name);
                ("pod", pod.map(|pod| PreparedSubject::Pod(Box::new(pod))))
            }
            (None, Some(subject)) => {
                let workload = self.workload(subject, namespace);
                ("workload", workload.map(PreparedSubject::Workload))
            }
            (None, None) => ("pod", Err(fault("is missing"))),
        }
    }

    fn pod(
        &self,
        subject: &Subject,
        namespace: &str,
        default_name: &str,
    ) -> Result<Pod, Vec<Fault>> {
        match subject {
            Subject::Name(name) => {
                let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
                find_pod(&self.items, namespace, name).map_err(fault)
            }
            Subject::Object(object) => match inline(object, namespace, Some(default_name))? {
                Item::Pod(pod) => {
                    let mut pod = without_node(*pod);
                    // The UID makes it another pod than an earlier case's pod of the same name.
                    pod.metadata.uid.get_or_insert_with(|| default_name.into());
                    Ok(pod)
                }
                _ => Err(fault("is not a Pod; write workload for other kinds")),
            },
        }
    }

    fn workload(&self, subject: &Subject, namespace: &str) -> Result<Box<Workload>, Vec<Fault>> {
        match subject {
            Subject::Name(name) => match self.named_workload(name, namespace) {
                Ok(workload) => Ok(Box::new(workload)),
                Err(what) => Err(fault(what)),
            },
            Subject::Object(object) => match inline(object, namespace, None)? {
                Item::Workload(workload) if !workload.is_per_node() => Ok(workload),
                _ => Err(fault(
                    "has no pods to plan; write a Deployment, StatefulSet, ReplicaSet, Job or \
                     CronJob",
                )),
            },
        }
    }

    /// Finds a workload by `Kind/NAME`; the kind may be in any case.
    fn named_workload(&self, name: &str, namespace: &str) -> Result<Workload, String> {
        let Some((kind, name)) = name.split_once('/') else {
            return Err(format!("{name:?} has no kind; write Deployment/{name}"));
        };
        if kind.eq_ignore_ascii_case("Pod") {
            return Err(format!("is a pod; write pod: {name}"));
        }
        let of_kind =
            |item: &Item| matches!(item, Item::Workload(w) if w.kind().eq_ignore_ascii_case(kind));
        if !KINDS.iter().any(|known| known.eq_ignore_ascii_case(kind))
            && !self.items.iter().any(of_kind)
        {
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
            Some(w) if w.is_per_node() => {
                Err("a DaemonSet has a pod on each node; name one of its pods".into())
            }
            Some(workload) => Ok(workload),
            None => Err(format!(
                "there is no {kind} {namespace}/{name} in the manifests; correct the name, or write \
                 its namespace as namespace: NAME"
            )),
        }
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

/// Reads an object of a test file, which gets the default namespace. A pod needs no kind, and gets
/// the name `pod_name` if it has none.
fn inline(
    object: &Map<String, Value>,
    namespace: &str,
    pod_name: Option<&str>,
) -> Result<Item, Vec<Fault>> {
    let mut object = object.clone();
    let set = |fields: &mut Map<String, Value>, field: &str, value: &str| {
        let at = fields.entry(field).or_insert(Value::Null);
        if at.is_null() {
            *at = json!(value);
        }
    };
    if pod_name.is_some() {
        set(&mut object, "apiVersion", "v1");
        set(&mut object, "kind", "Pod");
    }
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        set(metadata, "namespace", namespace);
        if let Some(name) = pod_name {
            set(metadata, "name", name);
        }
    }
    // JSON is valid YAML.
    let read =
        manifest::read(&Value::Object(object).to_string()).map_err(|e| fault(e.to_string()))?;
    if !read.findings.is_empty() {
        let findings = read.findings.into_iter();
        return Err(findings.map(|(_, f)| (f.field, f.message)).collect());
    }
    let mut objects = read.objects;
    manifest::generate_names(&mut objects);
    let item = objects.into_iter().next().map(|(_, item)| item);
    item.ok_or_else(|| fault("has no object"))
}

/// Returns a fault of an object itself, not of a field.
fn fault(what: impl Into<String>) -> Vec<Fault> {
    vec![(FieldPath::default(), what.into())]
}

/// Returns the costs of the file, overwritten by the costs of the case, node by node.
fn merged(file: &Costs, case: Costs) -> Costs {
    let mut all: BTreeMap<_, _> = file.clone();
    for (rule, nodes) in case {
        all.entry(rule).or_default().extend(nodes);
    }
    all
}
