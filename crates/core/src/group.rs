//! Groups of pods that are placed together within their limits, or not at all: which group a pod
//! belongs to.

pub mod board;
pub mod planner;

use std::{fmt, sync::Arc};

use crate::{
    index::Snapshot,
    model::{GroupRule, Offer, Pod, key},
    selector::Labels,
};

/// The maximum number of pods of a group that are placed together.
pub const MAX_MEMBERS: usize = 512;

/// The label by which a pod is known to be in a PodGroup of Kubernetes, which its field
/// `spec.schedulingGroup` names.
pub const POD_GROUP_LABEL: &str = "scheduling.k8s.io/pod-group";

/// The labels that name a group of pods, and what they name. The first that a pod has counts: a
/// JobSet's pods have a Job's label too.
const KNOWN_LABELS: [(&str, &str); 8] = [
    (POD_GROUP_LABEL, "Kubernetes PodGroup"),
    ("scheduling.x-k8s.io/pod-group", "PodGroup"),
    ("kueue.x-k8s.io/pod-group-name", "pod group"),
    (
        "leaderworkerset.sigs.k8s.io/group-key",
        "LeaderWorkerSet group",
    ),
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("ray.io/cluster", "RayCluster"),
    ("batch.kubernetes.io/job-name", "Job"),
    ("statefulset.kubernetes.io/pod-name", "StatefulSet"),
];

/// The annotations that state the number of a group's pods.
pub const SIZE_ANNOTATIONS: [&str; 2] = [
    "kueue.x-k8s.io/pod-group-total-count",
    "leaderworkerset.sigs.k8s.io/size",
];

/// The name that the pods of a group share, such as `Job train`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupName<'a> {
    /// The value of the label that the offer names (label, value).
    Label(&'a str, &'a str),
    /// The kind of a known controller, and the name of it or of the group (kind, name).
    Known(&'static str, &'a str),
    /// The hash of the UID of the pods' controller.
    Controller(u64),
    /// The pods without a controller.
    NoController,
}

impl<'a> GroupName<'a> {
    /// Returns the name of a pod's group, by the pod's labels and the hash of its owner's UID.
    /// `None` if the pod lacks the label that names groups.
    pub fn of(rule: &'a GroupRule, labels: &'a Labels, owner: u64) -> Option<Self> {
        if let Some(by) = &rule.by {
            return Some(Self::Label(by, labels.get(by)?));
        }
        let known = KNOWN_LABELS.iter().find_map(|(label, kind)| {
            let value = labels.get(label)?;
            let name = match *kind {
                "StatefulSet" => value.rsplit_once('-')?.0,
                _ => value,
            };
            Some(Self::Known(kind, name))
        });
        Some(known.unwrap_or(match owner {
            0 => Self::NoController,
            owner => Self::Controller(owner),
        }))
    }
}

impl fmt::Display for GroupName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(label, value) => write!(f, "{label}={value}"),
            Self::Known(kind, name) => write!(f, "{kind} {name}"),
            Self::Controller(hash) => write!(f, "of controller {hash:016x}"),
            Self::NoController => f.write_str("of pods without a controller"),
        }
    }
}

/// The identity of a group: the offer that defines it, and the name that its pods share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey {
    /// The namespace of the offer and of the pods.
    pub namespace: Arc<str>,
    /// The name of the offer.
    pub offer: Arc<str>,
    /// The name that the pods share, such as `Job train`.
    pub name: Arc<str>,
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offer = key(&self.namespace, &self.offer);
        write!(f, "group {} of offer {offer}", self.name)
    }
}

/// The group of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Membership {
    /// The pod is placed together with the other pods of this group.
    Member(GroupKey, GroupRule),
    /// The pod lacks the label (offer, label) that names its group.
    Unnamed(Arc<str>, Arc<str>),
}

impl Membership {
    /// Returns the group of a pod, by the first offer with a group rule that selects the pod.
    pub fn of(snapshot: &Snapshot, namespace: &str, labels: &Labels, owner: u64) -> Option<Self> {
        let mut offers = snapshot.candidate_offers(namespace, labels);
        offers.find_map(|entry| Self::by(&entry.offer, labels, owner))
    }

    /// Returns the group that an offer makes a pod with these labels and this owner a member of;
    /// `None` if the offer has no group rule, or does not select the pod by the rule's target.
    pub fn by(offer: &Offer, labels: &Labels, owner: u64) -> Option<Self> {
        let rule = offer.group.as_ref()?;
        if !offer.targets.get(rule.of)?.selector.matches(labels) {
            return None;
        }
        Some(match (GroupName::of(rule, labels, owner), &rule.by) {
            (Some(name), _) => {
                let key = GroupKey {
                    namespace: Arc::clone(&offer.namespace),
                    offer: Arc::clone(&offer.name),
                    name: name.to_string().into(),
                };
                Self::Member(key, rule.clone())
            }
            (None, by) => Self::Unnamed(Arc::clone(&offer.name), by.clone().unwrap_or_default()),
        })
    }
}

/// Returns the number of the group's pods that the pod's own annotations state.
pub fn stated_size(pod: &Pod) -> Option<u32> {
    let placement = pod.placement.as_ref()?;
    let mut texts = SIZE_ANNOTATIONS
        .iter()
        .filter_map(|name| placement.annotations.get(name));
    texts.find_map(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &[(&str, &str)]) -> Labels {
        of.iter().copied().collect()
    }

    #[test]
    fn group_is_named_by_the_label_else_by_the_controller() {
        let known = GroupRule::default();
        let name = |rule: &GroupRule, of: &[(&str, &str)], owner| {
            GroupName::of(rule, &labels(of), owner).map(|name| name.to_string())
        };
        let job = ("batch.kubernetes.io/job-name", "train-worker-0");
        let set = ("jobset.sigs.k8s.io/jobset-name", "train");
        assert_eq!(name(&known, &[job, set], 7).unwrap(), "JobSet train");
        assert_eq!(name(&known, &[job], 7).unwrap(), "Job train-worker-0");
        let member = ("statefulset.kubernetes.io/pod-name", "db-eu-4");
        assert_eq!(name(&known, &[member], 7).unwrap(), "StatefulSet db-eu");
        assert_eq!(
            name(&known, &[("app", "web")], 7).unwrap(),
            "of controller 0000000000000007"
        );
        let by = GroupRule {
            by: Some("shard".into()),
            ..GroupRule::default()
        };
        assert_eq!(name(&by, &[job, ("shard", "3")], 7).unwrap(), "shard=3");
        assert_eq!(name(&by, &[job], 7), None);
    }
}
