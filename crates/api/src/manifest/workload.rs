//! Reads workloads, which are controllers of pods, by the table of their kinds, and makes the pods
//! that they would create.

mod exclusive;
mod path;
mod pod_set;
mod table;

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use serde_json::Value;
use tautline_core::selector::Labels;

use self::pod_set::PodSet;
use super::{FieldPath, fields::Wrong, label_keys, object_name};
use crate::{Metadata, convert};

pub use table::{WorkloadTable, WorkloadTableError};

/// A Deployment or another controller of pods.
#[derive(Clone, Debug)]
pub struct Workload {
    kind: String,
    api_version: String,
    namespace: Option<String>,
    name: String,
    /// True if `name` is the workload's `generateName`.
    is_unnamed: bool,
    /// True if the workload makes no pods itself: it is finished, owned by another workload, or a
    /// Helm hook that has not run.
    is_over: bool,
    /// The field because of which there are no pods, and its value.
    idle: Option<String>,
    sets: Vec<PodSet>,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        f.write_str(&object_name(&self.kind, namespace, &self.name))
    }
}

impl Workload {
    /// Reads a workload from an object; returns `None` if its kind is not in the table. The faults
    /// of its templates and counts, whose pods are left out, are added to `wrong`.
    pub(super) fn read(
        table: &WorkloadTable,
        value: &Value,
        wrong: &mut Vec<Wrong>,
    ) -> Option<Self> {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let entry = table.find(&text(&value["apiVersion"]), &text(&value["kind"]))?;
        let metadata = &value["metadata"];
        let own_name = text(&metadata["name"]);
        let is_unnamed = own_name.is_empty();
        let name = if is_unnamed {
            text(&metadata["generateName"])
        } else {
            own_name
        };
        for ignored in &entry.not_considered {
            let fields = ignored.places(value).into_iter().map(|p| ignored.at(&p));
            let fields = fields.filter(|field| !field.value(value).is_null());
            let what = "is not considered, so the pods may go elsewhere in a cluster";
            wrong.extend(fields.map(|field| (field, what.to_owned())));
        }
        let suspend = entry.suspend.iter().map(|field| field.at(&[]));
        let mut suspend = suspend.filter(|field| field.value(value) == true);
        let sets = entry.pods.iter();
        Some(Self {
            kind: text(&value["kind"]),
            api_version: text(&value["apiVersion"]),
            namespace: metadata["namespace"].as_str().map(str::to_owned),
            name,
            is_unnamed,
            is_over: is_owned(value) || is_hook(value) || is_finished(&entry.finished, value),
            idle: suspend.next().map(|field| format!("{field} is true")),
            sets: sets
                .flat_map(|rule| PodSet::all(rule, value, wrong))
                .collect(),
        })
    }

    /// Returns the number of pods that an object of a known kind states, whether it runs now or not;
    /// `None` for another kind.
    pub fn stated_size(object: &Value) -> Option<usize> {
        let table = WorkloadTable::default();
        let workload = Self::read(&table, object, &mut Vec::new())?;
        let counts = workload.sets.iter().map(PodSet::len);
        Some(counts.fold(0, usize::saturating_add))
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
        if self.is_over || self.idle.is_some() {
            return 0;
        }
        let counts = self.sets.iter().map(PodSet::len);
        counts.fold(0, usize::saturating_add)
    }

    /// Returns the fields because of which the workload has no pods, or fewer, such as `spec.suspend
    /// is true`.
    pub fn idle(&self) -> impl Iterator<Item = &str> {
        let of_sets = self.sets.iter().filter_map(|set| set.idle.as_deref());
        let of_sets = of_sets.filter(|_| self.idle.is_none());
        let all = self.idle.as_deref().into_iter().chain(of_sets);
        all.filter(|_| !self.is_over)
    }

    /// Returns whether the workload has a pod on each node, as a DaemonSet has.
    pub fn is_per_node(&self) -> bool {
        self.sets.iter().any(|set| set.per_node)
    }

    /// Returns whether the workload has pods, on nodes that admit them if it is a DaemonSet.
    pub(super) fn runs(&self) -> bool {
        self.replicas() > 0 || (self.is_per_node() && !self.is_over && self.idle.is_none())
    }

    /// Returns an unscheduled pod of a template, by default named as in a StatefulSet: `NAME-0`.
    /// `number` counts from the first ordinal, without completed indexes, and goes on beyond the
    /// replicas.
    pub fn pod(&self, number: usize) -> Pod {
        let (mut set, mut left) = (None, number);
        for (i, next) in self.sets.iter().enumerate() {
            set = Some(next);
            if left < next.len() || i + 1 == self.sets.len() {
                break;
            }
            left -= next.len();
        }
        let Some(set) = set else {
            return Pod::default();
        };
        let identity = set.identity(self.namespace(), &self.name, left);
        let mut metadata = set.template.metadata.clone().unwrap_or_default();
        let labels = metadata.labels.get_or_insert_default();
        labels.extend(identity.labels);
        let mut spec = set.template.spec.clone();
        if let (Some(exclusive), Some(spec)) = (&set.exclusive, &mut spec) {
            exclusive.add_terms(labels, spec);
        }
        if !identity.annotations.is_empty() {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.extend(identity.annotations);
        }
        metadata.name = Some(identity.name);
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
            spec,
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

    /// Returns whether a pod belongs to the workload, by its owner, by the labels of a template, or
    /// by the labels of the workload's controller.
    pub fn owns(&self, pod: &Metadata) -> bool {
        let mut owners = pod.owner_references.iter().flatten();
        let none = BTreeMap::new();
        let labels = pod.labels.as_ref().unwrap_or(&none);
        namespace_of(pod) == self.namespace()
            && (owners.any(|o| o.kind == self.kind && o.name == self.name)
                || self.sets.iter().any(|set| set.owns(&self.name, labels)))
    }

    /// Returns the templates, each once, with their paths.
    pub(super) fn templates(&self) -> impl Iterator<Item = (&FieldPath, &PodTemplateSpec)> {
        let sets = self.sets.iter().enumerate();
        let first = sets.filter(|(i, set)| self.sets[..*i].iter().all(|s| s.at != set.at));
        first.map(|(_, set)| (&set.at, &set.template))
    }

    /// Returns the labels of the pods of each template.
    pub(super) fn labels(&self) -> impl Iterator<Item = Labels> {
        self.sets.iter().map(|set| self.labels_of(set))
    }

    /// Returns the labels and the number of the pods of each template that has some.
    pub(super) fn running(&self) -> impl Iterator<Item = (Labels, usize)> {
        let is_idle = self.is_over || self.idle.is_some();
        let sets = self
            .sets
            .iter()
            .filter(move |set| !is_idle && set.len() > 0);
        sets.map(|set| (self.labels_of(set), set.len()))
    }

    fn labels_of(&self, set: &PodSet) -> Labels {
        let of_template = set.template.metadata.as_ref();
        let labels = of_template.and_then(|m| m.labels.clone());
        let mut labels = labels.unwrap_or_default();
        labels.extend(set.identity(self.namespace(), &self.name, 0).labels);
        convert::labels(Some(&labels))
    }
}

pub(super) fn namespace_of(pod: &Metadata) -> &str {
    pod.namespace.as_deref().unwrap_or("default")
}

/// Returns whether an object is a hook of a rendered Helm chart, and was not read from a cluster. A
/// hook runs before or after the other objects, and is gone when they run.
pub(super) fn is_hook(object: &Value) -> bool {
    object["metadata"]["annotations"]["helm.sh/hook"].is_string() && object["status"].is_null()
}

fn is_owned(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|o| o.iter().any(|o| o["controller"] == true))
}

/// Returns whether an object has a condition of one of these types, or has been completed.
fn is_finished(types: &[String], object: &Value) -> bool {
    let status = &object["status"];
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let ends = |c: &Value| c["status"] == "True" && types.iter().any(|t| c["type"] == **t);
    !types.is_empty() && (!status["completionTime"].is_null() || conditions.any(ends))
}

#[cfg(test)]
#[path = "workload/tests.rs"]
mod tests;
