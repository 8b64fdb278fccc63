//! The storage objects that decide where a pod's volumes can be. No watch of Tautline reads them:
//! kube-scheduler applies them before it calls the extender.

use std::{collections::HashMap, sync::Arc};

use crate::{
    model::{AffinityTerm, key},
    selector::{Labels, Selector},
};

/// The storage objects of a cluster or of manifests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Storage {
    claims: HashMap<String, VolumeClaim>,
    volumes: HashMap<Arc<str>, Volume>,
    classes: HashMap<Arc<str>, StorageClass>,
}

/// The claims that one pod's volumes use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodVolumes {
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's name.
    pub name: Arc<str>,
    /// The names of the PersistentVolumeClaims.
    pub claims: Vec<Arc<str>>,
    /// The claims that are made for ephemeral volumes.
    pub own_claims: Vec<VolumeClaim>,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeClaim {
    /// The claim's namespace.
    pub namespace: Arc<str>,
    /// The claim's name.
    pub name: Arc<str>,
    /// The name of the volume that the claim is bound to.
    pub volume: Option<Arc<str>>,
    /// The storage class' name: empty for none, `None` for the default one.
    pub class: Option<Arc<str>>,
    /// The demands on a volume that exists already.
    pub demand: VolumeDemand,
    /// The selector of volumes that exist already.
    pub selector: Option<Selector>,
    /// True if a cluster has seen the claim: it has a phase.
    pub is_observed: bool,
    /// True if the claim is being deleted, or its volume is lost.
    pub is_unusable: bool,
}

/// The properties of a volume that a claim demands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeDemand {
    /// The size in thousandths of a byte.
    pub size_milli: i64,
    /// The access modes, such as `ReadWriteOnce`.
    pub access_modes: Vec<Box<str>>,
    /// True for a raw block device.
    pub block: bool,
}

impl VolumeDemand {
    /// Returns whether an offer has all that is demanded.
    fn is_met_by(&self, offer: &Self) -> bool {
        let mut modes = self.access_modes.iter();
        offer.size_milli >= self.size_milli
            && offer.block == self.block
            && modes.all(|mode| offer.access_modes.contains(mode))
    }
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    /// The volume's name.
    pub name: Arc<str>,
    /// The volume's labels.
    pub labels: Labels,
    /// The terms of the node affinity, one of which must match; empty if all nodes do.
    pub affinity: Vec<AffinityTerm>,
    /// The storage class' name; empty for none.
    pub class: Arc<str>,
    /// The claim that the volume belongs to, as `namespace/name`.
    pub claim: Option<String>,
    /// The properties of the volume.
    pub offer: VolumeDemand,
    /// True if a claim may still get the volume.
    pub is_available: bool,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StorageClass {
    /// The class' name.
    pub name: Arc<str>,
    /// True if claims without a class get this one.
    pub is_default: bool,
    /// True if volumes are bound once a pod has a node (`WaitForFirstConsumer`).
    pub waits_for_pod: bool,
    /// True if volumes can be made.
    pub provisions: bool,
    /// The allowed topologies, one of which must match; empty if all nodes do.
    pub topologies: Vec<AffinityTerm>,
}

impl Storage {
    /// Adds or replaces a claim.
    pub fn add_claim(&mut self, claim: VolumeClaim) {
        self.claims
            .insert(key(&claim.namespace, &claim.name), claim);
    }

    /// Adds or replaces a volume.
    pub fn add_volume(&mut self, volume: Volume) {
        self.volumes.insert(Arc::clone(&volume.name), volume);
    }

    /// Adds or replaces a storage class.
    pub fn add_class(&mut self, class: StorageClass) {
        self.classes.insert(Arc::clone(&class.name), class);
    }

    /// Returns the claim of this name.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&VolumeClaim> {
        self.claims.get(&key(namespace, name))
    }

    /// Returns the volume that the claim is bound to, if it is known.
    pub fn volume_of(&self, claim: &VolumeClaim) -> Option<&Volume> {
        self.volumes.get(claim.volume.as_ref()?)
    }

    /// Returns the claim's storage class, if it is known.
    pub fn class_of(&self, claim: &VolumeClaim) -> Option<&StorageClass> {
        match &claim.class {
            Some(class) => self.classes.get(class),
            None => self.classes.values().find(|class| class.is_default),
        }
    }

    /// Returns the volumes that an unbound claim of a class could get.
    pub fn candidates<'a>(
        &'a self,
        claim: &'a VolumeClaim,
        class: &'a StorageClass,
    ) -> impl Iterator<Item = &'a Volume> {
        let own = key(&claim.namespace, &claim.name);
        self.volumes.values().filter(move |volume| {
            let selector = claim.selector.as_ref();
            let is_own = volume.claim.as_ref() == Some(&own);
            let is_free = volume.claim.is_none() && volume.is_available;
            claim.demand.is_met_by(&volume.offer)
                && volume.class == class.name
                && (is_own || (is_free && selector.is_none_or(|s| s.matches(&volume.labels))))
        })
    }
}
