//! Finds out from a pod's owner and labels whether an eviction ends only the pod, or the group that
//! it belongs to.

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use super::Refusal;

/// The controllers, by API group and kind, that replace an evicted pod without loss of other pods.
const REPLACING_ONE: [(&str, &str); 5] = [
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("", "ReplicationController"),
    // OpenKruise's controllers own their pods directly, without a ReplicaSet.
    ("apps.kruise.io", "CloneSet"),
    ("apps.kruise.io", "StatefulSet"),
];

/// The controllers, by API group and kind, that lose more than the evicted pod, and the reason.
const LOSING_MORE: [(&str, &str, &str); 2] = [
    (
        "batch",
        "Job",
        "a lost pod counts against its backoffLimit, and may fail it",
    ),
    (
        "kubevirt.io",
        "VirtualMachineInstance",
        "the virtual machine ends with its pod",
    ),
];

/// Groups that labels define, independent of the owner: the kind, the labels that the group's pods
/// share, and the reason why they end together. A pod with the first label is a member.
const GROUP_LABELS: [(&str, &[&str], &str); 7] = [
    (
        "LeaderWorkerSet",
        &[
            "leaderworkerset.sigs.k8s.io/name",
            "leaderworkerset.sigs.k8s.io/group-index",
        ],
        "its group starts again with each lost pod",
    ),
    (
        "JobSet",
        &["jobset.sigs.k8s.io/jobset-name"],
        "a lost pod may fail its Job, and a failed Job the JobSet",
    ),
    (
        "RayCluster",
        &["ray.io/cluster"],
        "what runs in it ends with its head, and tasks with a worker",
    ),
    (
        "ServingGroup",
        &["modelserving.volcano.sh/group-name"],
        "its pods serve a model together",
    ),
    (
        "Volcano Job",
        &["volcano.sh/job-name"],
        "its pods run together",
    ),
    (
        "training job",
        &["training.kubeflow.org/job-name"],
        "its pods run together",
    ),
    (
        "PodGroup",
        &["scheduling.x-k8s.io/pod-group"],
        "its pods run together",
    ),
];

/// A group of pods that end together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// The group's kind and name, such as `JobSet train`.
    pub name: String,
    code: &'static str,
    why: &'static str,
    members: Members,
}

/// The criterion by which pods belong to a group.
#[derive(Clone, Debug, PartialEq)]
enum Members {
    /// The pods with all of these labels.
    Labelled(Vec<(&'static str, String)>),
    /// The pods whose `spec.schedulingGroup` names this PodGroup.
    Scheduled(String),
    /// The pods of the controller with this UID.
    Owned(String),
}

impl Group {
    /// Returns a label selector that matches all members and possibly other pods; `None` if the
    /// group is not defined by labels.
    pub(crate) fn selector(&self) -> Option<String> {
        let Members::Labelled(labels) = &self.members else {
            return None;
        };
        let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        Some(pairs.join(","))
    }

    pub(crate) fn has(&self, pod: &Pod) -> bool {
        match &self.members {
            Members::Labelled(labels) => labels.iter().all(|(k, v)| label(pod, k) == Some(v)),
            Members::Scheduled(name) => scheduling_group(pod) == Some(name),
            Members::Owned(uid) => controller_of(&pod.metadata).is_some_and(|o| o.uid == *uid),
        }
    }

    /// Returns the refusal to evict a member for an offer without `evictGroups`.
    pub(crate) fn refusal(&self, id: &str) -> Refusal {
        let text = format!(
            "{id} belongs to {}: {}; with evictGroups: true in the offer all its pods are evicted \
             together",
            self.name, self.why
        );
        Refusal::new(self.code, text)
    }
}

pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|o| o.controller == Some(true))
}

/// Returns the group that ends with the pod, or `None` if its controller replaces the pod alone.
/// Refuses a pod that an eviction would not move: mirror pods, those of DaemonSets, and those
/// without a controller.
pub(crate) fn group_of(pod: &Pod, id: &str) -> Result<Option<Group>, Refusal> {
    let refuse = |code, why| Err(Refusal::new(code, format!("{id} {why}")));
    let annotations = pod.metadata.annotations.as_ref();
    if annotations.is_some_and(|a| a.contains_key("kubernetes.io/config.mirror")) {
        return refuse("MirrorPod", "is a mirror pod");
    }
    let owner = match controller_of(&pod.metadata) {
        None => return refuse("Unmanaged", "has no controller that would create it again"),
        Some(owner) if owner.kind == "DaemonSet" => {
            return refuse("DaemonSet", "belongs to a DaemonSet");
        }
        Some(owner) if owner.kind == "Node" => return refuse("MirrorPod", "is a mirror pod"),
        Some(owner) => owner,
    };
    Ok(scheduled_group(pod)
        .or_else(|| labelled_group(pod))
        .or_else(|| owners_group(owner)))
}

fn scheduled_group(pod: &Pod) -> Option<Group> {
    let name = scheduling_group(pod)?;
    Some(Group {
        name: format!("PodGroup {name}"),
        code: "GroupMember",
        why: "its pods run together",
        members: Members::Scheduled(name.clone()),
    })
}

fn labelled_group(pod: &Pod) -> Option<Group> {
    let has_first = |keys: &[&str]| keys.first().is_some_and(|key| label(pod, key).is_some());
    let mut groups = GROUP_LABELS.iter();
    let (kind, keys, why) = groups.find(|(_, keys, _)| has_first(keys))?;
    let labels: Vec<(&'static str, String)> = keys
        .iter()
        .filter_map(|key| Some((*key, label(pod, key)?.clone())))
        .collect();
    let names: Vec<&str> = labels.iter().map(|(_, value)| value.as_str()).collect();
    Some(Group {
        name: format!("{kind} {}", names.join("/")),
        code: "GroupMember",
        why,
        members: Members::Labelled(labels),
    })
}

fn owners_group(owner: &OwnerReference) -> Option<Group> {
    let (api_group, _) = owner.api_version.split_once('/').unwrap_or_default();
    if REPLACING_ONE.contains(&(api_group, &owner.kind)) {
        return None;
    }
    let known = |(group, kind, _): &&(&str, &str, _)| *group == api_group && *kind == owner.kind;
    let (code, why, of) = match LOSING_MORE.iter().find(known) {
        Some((_, _, why)) => ("GroupMember", *why, String::new()),
        None => (
            "UnknownOwner",
            "it is not known to replace one pod without loss of others",
            format!(" ({})", owner.api_version),
        ),
    };
    Some(Group {
        name: format!("{} {}{of}", owner.kind, owner.name),
        code,
        why,
        members: Members::Owned(owner.uid.clone()),
    })
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a String> {
    pod.metadata.labels.as_ref()?.get(key)
}

fn scheduling_group(pod: &Pod) -> Option<&String> {
    let group = pod.spec.as_ref()?.scheduling_group.as_ref()?;
    group.pod_group_name.as_ref()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(api_version: &str, kind: &str, more: Value) -> Pod {
        let mut pod = json!({"metadata": {
            "namespace": "shop", "name": "x", "uid": "u", "ownerReferences": [
                {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "of-o",
                 "controller": true}]}});
        for part in ["labels", "annotations"] {
            pod["metadata"][part] = more[part].clone();
        }
        pod["spec"] = more["spec"].clone();
        serde_json::from_value(pod).unwrap()
    }

    /// The group's name, or the code of the refusal.
    fn found(api_version: &str, kind: &str, more: Value) -> String {
        match group_of(&pod(api_version, kind, more), "pod shop/x") {
            Ok(None) => "alone".to_owned(),
            Ok(Some(group)) => group.name,
            Err(refusal) => refusal.code.to_owned(),
        }
    }

    #[test]
    fn pods_of_controllers_that_replace_one_end_alone() {
        for (api_version, kind) in [
            ("apps/v1", "ReplicaSet"),
            ("apps/v1", "StatefulSet"),
            ("v1", "ReplicationController"),
            ("apps.kruise.io/v1alpha1", "CloneSet"),
            ("apps.kruise.io/v1beta1", "StatefulSet"),
        ] {
            assert_eq!(found(api_version, kind, json!({})), "alone", "{kind}");
        }
    }

    #[test]
    fn pods_of_other_controllers_end_as_their_group() {
        for (api_version, kind, group) in [
            ("batch/v1", "Job", "Job o"),
            (
                "kubevirt.io/v1",
                "VirtualMachineInstance",
                "VirtualMachineInstance o",
            ),
            ("ray.io/v1", "RayCluster", "RayCluster o (ray.io/v1)"),
            // The kind's name alone says nothing.
            (
                "example.com/v1",
                "ReplicaSet",
                "ReplicaSet o (example.com/v1)",
            ),
            ("v1", "Pod", "Pod o (v1)"),
            ("apps/v1", "DaemonSet", "DaemonSet"),
            ("v1", "Node", "MirrorPod"),
        ] {
            assert_eq!(found(api_version, kind, json!({})), group);
        }
    }

    #[test]
    fn labels_of_a_group_come_before_the_owner() {
        for (labels, kind, group) in [
            (
                json!({"leaderworkerset.sigs.k8s.io/name": "llm",
                       "leaderworkerset.sigs.k8s.io/group-index": "2",
                       "leaderworkerset.sigs.k8s.io/worker-index": "1"}),
                "StatefulSet",
                "LeaderWorkerSet llm/2",
            ),
            (
                json!({"jobset.sigs.k8s.io/jobset-name": "train"}),
                "Job",
                "JobSet train",
            ),
            (
                json!({"ray.io/cluster": "r", "ray.io/node-type": "head"}),
                "RayCluster",
                "RayCluster r",
            ),
            (
                json!({"modelserving.volcano.sh/group-name": "m-0"}),
                "ModelServing",
                "ServingGroup m-0",
            ),
            (json!({"volcano.sh/job-name": "j"}), "Job", "Volcano Job j"),
            (
                json!({"training.kubeflow.org/job-name": "t"}),
                "PyTorchJob",
                "training job t",
            ),
            (
                json!({"scheduling.x-k8s.io/pod-group": "g"}),
                "ReplicaSet",
                "PodGroup g",
            ),
        ] {
            let more = json!({"labels": labels});
            assert_eq!(found("apps/v1", kind, more), group);
        }
        let spec = json!({"containers": [], "schedulingGroup": {"podGroupName": "g"}});
        let more = json!({"spec": spec, "labels": {"jobset.sigs.k8s.io/jobset-name": "train"}});
        assert_eq!(found("batch/v1", "Job", more), "PodGroup g");
    }

    #[test]
    fn group_tells_its_members() {
        let labelled = |index: &str| {
            let labels = json!({"leaderworkerset.sigs.k8s.io/name": "llm",
                                "leaderworkerset.sigs.k8s.io/group-index": index});
            pod("apps/v1", "StatefulSet", json!({"labels": labels}))
        };
        let group = group_of(&labelled("2"), "x").unwrap().unwrap();
        assert!(group.has(&labelled("2")) && !group.has(&labelled("3")));
        let selector = "leaderworkerset.sigs.k8s.io/name=llm,\
                        leaderworkerset.sigs.k8s.io/group-index=2";
        assert_eq!(group.selector().as_deref(), Some(selector));

        let job = pod("batch/v1", "Job", json!({}));
        let group = group_of(&job, "x").unwrap().unwrap();
        assert!(group.has(&job));
        let mut other = job.clone();
        other.metadata.owner_references.as_mut().unwrap()[0].uid = "of-another".to_owned();
        assert!(!group.has(&other));
        assert_eq!(group.selector(), None);
    }

    #[test]
    fn refusal_names_owner_and_reason() {
        let refusal = |api_version, kind| {
            let group = group_of(&pod(api_version, kind, json!({})), "pod shop/x");
            group.unwrap().unwrap().refusal("pod shop/x").to_string()
        };
        assert_eq!(
            refusal("batch/v1", "Job"),
            "GroupMember: pod shop/x belongs to Job o: a lost pod counts against its backoffLimit, \
             and may fail it; with evictGroups: true in the offer all its pods are evicted together"
        );
        assert_eq!(
            refusal("example.com/v1", "Widget"),
            "UnknownOwner: pod shop/x belongs to Widget o (example.com/v1): it is not known to \
             replace one pod without loss of others; with evictGroups: true in the offer all its \
             pods are evicted together"
        );
    }
}
