//! Evaluates where the volumes of a pod can be.
//! <https://kubernetes.io/docs/concepts/storage/storage-classes/#volume-binding-mode>

use std::fmt;

use crate::{
    index::Snapshot,
    model::{AffinityTerm, Node, Pod},
    volumes::{PodVolumes, Storage, StorageClass, Volume, VolumeClaim},
};

/// The access mode of a claim that only one pod may use at a time.
const ONE_POD: &str = "ReadWriteOncePod";

/// The node labels of zones and regions, by which a volume's labels restrict nodes, each with its
/// successor.
const PLACE_LABELS: [(&str, &str); 4] = [
    ("topology.kubernetes.io/zone", ""),
    ("topology.kubernetes.io/region", ""),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

/// The reason why the claim of this name excludes a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeConflict {
    /// The claim does not exist.
    Absent(Box<str>),
    /// The claim is being deleted, or its volume is lost.
    Unusable(Box<str>),
    /// The claim is not bound, and does not wait for a pod.
    Unbound(Box<str>),
    /// Another pod uses the claim, which only one pod may use.
    InUse(Box<str>),
    /// The claim's volume is not reachable from the node.
    Elsewhere(Box<str>),
    /// The claim's storage class has no volume for the node.
    NoVolume(Box<str>),
}

impl fmt::Display for VolumeConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(name) => write!(f, "PersistentVolumeClaim {name} does not exist"),
            Self::Unusable(name) => {
                write!(f, "PersistentVolumeClaim {name} is lost or being deleted")
            }
            Self::Unbound(name) => write!(f, "PersistentVolumeClaim {name} is not bound yet"),
            Self::InUse(name) => {
                write!(
                    f,
                    "PersistentVolumeClaim {name} is used by another pod ({ONE_POD})"
                )
            }
            Self::Elsewhere(name) => write!(f, "volume of claim {name} is elsewhere"),
            Self::NoVolume(name) => write!(f, "no volume for claim {name}"),
        }
    }
}

/// The demands of a pod's claims on nodes, found once for all nodes.
#[derive(Debug, Default)]
pub struct VolumeFilter<'a> {
    /// The conflict that excludes all nodes.
    everywhere: Option<VolumeConflict>,
    /// The volumes of bound claims.
    bound: Vec<(&'a VolumeClaim, &'a Volume)>,
    /// The claims whose volumes are chosen with the node.
    waiting: Vec<(&'a VolumeClaim, &'a StorageClass, Vec<&'a Volume>)>,
}

impl<'a> VolumeFilter<'a> {
    /// Collects the demands of the pod's claims. Volumes and classes that are unknown demand
    /// nothing.
    pub fn new(
        snapshot: &'a Snapshot,
        storage: &'a Storage,
        pod: &Pod,
        volumes: &'a PodVolumes,
    ) -> Self {
        let mut all = Self::default();
        for name in &volumes.claims {
            let is_own = |claim: &&VolumeClaim| claim.name == *name;
            let made = || volumes.own_claims.iter().find(is_own);
            let Some(claim) = storage.claim(&pod.namespace, name).or_else(made) else {
                all.everywhere
                    .get_or_insert(VolumeConflict::Absent((&**name).into()));
                continue;
            };
            if let Some(conflict) = conflict_everywhere(snapshot, storage, pod, claim) {
                all.everywhere.get_or_insert(conflict);
            } else if claim.volume.is_some() {
                all.bound
                    .extend(storage.volume_of(claim).map(|volume| (claim, volume)));
            } else if let Some(class) = storage.class_of(claim).filter(|c| c.waits_for_pod) {
                let volumes = storage.candidates(claim, class).collect();
                all.waiting.push((claim, class, volumes));
            }
        }
        // kube-scheduler gives the smallest claims their volumes first.
        all.waiting
            .sort_by_key(|(claim, ..)| claim.demand.size_milli);
        all
    }

    /// Returns the first conflict of the node, if any.
    pub fn conflict(&self, node: &Node) -> Option<VolumeConflict> {
        let elsewhere = self
            .bound
            .iter()
            .find(|(_, volume)| !is_reachable(volume, node));
        let elsewhere = elsewhere.map(|(c, _)| VolumeConflict::Elsewhere((&*c.name).into()));
        self.everywhere
            .clone()
            .or(elsewhere)
            .or_else(|| self.missing(node))
    }

    /// Returns the first claim that gets no volume on the node. A volume serves one claim.
    fn missing(&self, node: &Node) -> Option<VolumeConflict> {
        let mut taken: Vec<&str> = Vec::new();
        for (claim, class, volumes) in &self.waiting {
            let free = volumes.iter().filter(|v| !taken.contains(&&*v.name));
            let here = free.filter(|v| matches(&v.affinity, node));
            if let Some(volume) = here.min_by_key(|v| (v.offer.size_milli, &*v.name)) {
                taken.push(&volume.name);
            } else if !class.provisions || !matches(&class.topologies, node) {
                return Some(VolumeConflict::NoVolume((&*claim.name).into()));
            }
        }
        None
    }
}

/// Returns the reason for which the claim fits no node, if there is one.
fn conflict_everywhere(
    snapshot: &Snapshot,
    storage: &Storage,
    pod: &Pod,
    claim: &VolumeClaim,
) -> Option<VolumeConflict> {
    let name = || Box::from(&*claim.name);
    let must_be_bound = || {
        let class = storage.class_of(claim);
        let is_immediate = match claim.class.as_deref() {
            Some("") => true,
            _ => class.is_some_and(|class| !class.waits_for_pod),
        };
        claim.volume.is_none() && claim.is_observed && is_immediate
    };
    if claim.is_unusable {
        Some(VolumeConflict::Unusable(name()))
    } else if must_be_bound() {
        Some(VolumeConflict::Unbound(name()))
    } else if claim
        .demand
        .access_modes
        .iter()
        .any(|mode| **mode == *ONE_POD)
        && is_used(snapshot, pod, claim)
    {
        Some(VolumeConflict::InUse(name()))
    } else {
        None
    }
}

/// Returns whether another pod that has a node uses the claim.
fn is_used(snapshot: &Snapshot, pod: &Pod, claim: &VolumeClaim) -> bool {
    let mut others = snapshot.pods().filter(|other| {
        other.node.is_some()
            && !other.finished
            && other.namespace == claim.namespace
            && other.name != pod.name
    });
    others.any(|other| {
        let volumes = snapshot.pod_volumes(&other.namespace, &other.name);
        volumes.is_some_and(|volumes| volumes.claims.contains(&claim.name))
    })
}

/// Returns whether one of the terms matches the node; without terms all nodes match.
fn matches(terms: &[AffinityTerm], node: &Node) -> bool {
    terms.is_empty() || terms.iter().any(|term| term.matches(node))
}

/// Returns whether a bound volume's node affinity and its labels of zones admit the node.
fn is_reachable(volume: &Volume, node: &Node) -> bool {
    let has_place = PLACE_LABELS
        .iter()
        .any(|(key, _)| node.labels.get(key).is_some());
    let is_there = |(key, successor): &(&str, &str)| {
        let Some(places) = volume.labels.get(key) else {
            return true;
        };
        let place = node.labels.get(key).or_else(|| node.labels.get(successor));
        place.is_some_and(|place| places.split("__").any(|other| other == place))
    };
    matches(&volume.affinity, node) && (!has_place || PLACE_LABELS.iter().all(is_there))
}

#[cfg(test)]
#[path = "volume_filter_tests.rs"]
mod tests;
