//! Converts the storage objects that decide where a pod's volumes can be.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{
            PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod,
            TopologySelectorTerm, Volume as PodVolume,
        },
        storage::v1,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use tautline_core::{
    model::{AffinityTerm, key},
    selector::Expression,
    volumes::{PodVolumes, StorageClass, Volume, VolumeClaim, VolumeDemand},
};

use super::{affinity_term, labels, milli, name, namespace, selector};

/// The older place of a storage class' name.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// The annotation of the default storage class.
const DEFAULT_ANNOTATION: &str = "storageclass.kubernetes.io/is-default-class";
/// The provisioner of classes whose volumes exist already.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Converts a PersistentVolumeClaim.
pub fn volume_claim(claim: &PersistentVolumeClaim) -> VolumeClaim {
    let spec = claim.spec.clone().unwrap_or_default();
    let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
    VolumeClaim {
        is_observed: phase.is_some(),
        is_unusable: phase == Some("Lost") || claim.metadata.deletion_timestamp.is_some(),
        ..claim_of(&claim.metadata, spec)
    }
}

fn claim_of(metadata: &ObjectMeta, spec: PersistentVolumeClaimSpec) -> VolumeClaim {
    let class = annotation(metadata, CLASS_ANNOTATION).or(spec.storage_class_name.as_deref());
    let requests = spec.resources.as_ref().and_then(|r| r.requests.as_ref());
    let chosen = spec.selector.as_ref();
    VolumeClaim {
        namespace: namespace(metadata),
        name: name(metadata),
        volume: spec
            .volume_name
            .as_deref()
            .filter(|v| !v.is_empty())
            .map(Into::into),
        class: class.map(Into::into),
        demand: VolumeDemand {
            size_milli: requests.and_then(|r| r.get("storage")).map_or(0, milli),
            access_modes: modes(spec.access_modes.as_ref()),
            block: spec.volume_mode.as_deref() == Some("Block"),
        },
        selector: chosen.and_then(|s| selector("selector", s).ok()),
        is_observed: false,
        is_unusable: false,
    }
}

/// Converts the claims that a pod's volumes use.
pub fn pod_volumes(pod: &Pod) -> PodVolumes {
    let mut all = PodVolumes {
        namespace: namespace(&pod.metadata),
        name: name(&pod.metadata),
        ..PodVolumes::default()
    };
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_ref());
    for volume in volumes.into_iter().flatten() {
        if let Some(claim) = &volume.persistent_volume_claim {
            all.claims.push(claim.claim_name.as_str().into());
        }
        if let Some(claim) = ephemeral_claim(pod, volume) {
            all.claims.push(claim.name.clone());
            all.own_claims.push(claim);
        }
    }
    all
}

/// Returns the claim that the ephemeral volume controller makes for a volume.
fn ephemeral_claim(pod: &Pod, volume: &PodVolume) -> Option<VolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let mut metadata = template.metadata.clone().unwrap_or_default();
    metadata.namespace.clone_from(&pod.metadata.namespace);
    metadata.name = Some(format!("{}-{}", name(&pod.metadata), volume.name));
    Some(claim_of(&metadata, template.spec.clone()))
}

/// Converts a PersistentVolume.
pub fn volume(volume: &PersistentVolume) -> Volume {
    let metadata = &volume.metadata;
    let spec = volume.spec.clone().unwrap_or_default();
    let required = spec.node_affinity.and_then(|a| a.required);
    let class = annotation(metadata, CLASS_ANNOTATION).or(spec.storage_class_name.as_deref());
    let size = |all: &BTreeMap<String, Quantity>| all.get("storage").map(milli);
    let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref());
    let claim = spec.claim_ref.map(|of| {
        key(
            of.namespace.as_deref().unwrap_or_default(),
            of.name.as_deref().unwrap_or_default(),
        )
    });
    Volume {
        name: name(metadata),
        labels: labels(metadata.labels.as_ref()),
        affinity: required.map_or_else(Vec::new, |r| match r.node_selector_terms.as_slice() {
            // A selector without terms selects no node.
            [] => vec![AffinityTerm::default()],
            terms => terms.iter().map(affinity_term).collect(),
        }),
        class: class.unwrap_or_default().into(),
        claim,
        offer: VolumeDemand {
            size_milli: spec.capacity.as_ref().and_then(size).unwrap_or_default(),
            access_modes: modes(spec.access_modes.as_ref()),
            block: spec.volume_mode.as_deref() == Some("Block"),
        },
        is_available: metadata.deletion_timestamp.is_none()
            && matches!(phase, None | Some("Available")),
    }
}

/// Converts a StorageClass.
pub fn storage_class(class: &v1::StorageClass) -> StorageClass {
    let topologies = class.allowed_topologies.iter().flatten();
    StorageClass {
        name: name(&class.metadata),
        is_default: annotation(&class.metadata, DEFAULT_ANNOTATION) == Some("true"),
        waits_for_pod: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
        provisions: class.provisioner != NO_PROVISIONER && !class.provisioner.is_empty(),
        topologies: topologies.map(topology).collect(),
    }
}

/// Converts a topology; one with a malformed expression matches no node.
fn topology(term: &TopologySelectorTerm) -> AffinityTerm {
    let expressions = term.match_label_expressions.iter().flatten();
    let labels = expressions.map(|e| Expression::new(&e.key, "In", e.values.clone()));
    AffinityTerm {
        labels: labels.collect::<Result<_, _>>().unwrap_or_default(),
        ..AffinityTerm::default()
    }
}

fn annotation<'m>(metadata: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

fn modes(modes: Option<&Vec<String>>) -> Vec<Box<str>> {
    let modes = modes.into_iter().flatten();
    modes.map(|mode| mode.as_str().into()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn volume_claim_has_volume_class_and_demand() {
        let of = |spec: Value, status: Value| {
            let claim = json!({"metadata": {"name": "data", "namespace": "shop"},
                "spec": spec, "status": status});
            volume_claim(&serde_json::from_value(claim).unwrap())
        };
        let bound = json!({"volumeName": "v", "storageClassName": "fast",
            "accessModes": ["ReadWriteOncePod"], "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Ki"}}});
        let bound = of(bound, json!({"phase": "Bound"}));
        assert_eq!(
            (bound.volume.as_deref(), bound.class.as_deref()),
            (Some("v"), Some("fast"))
        );
        assert_eq!(
            (bound.demand.size_milli, bound.demand.block),
            (1_024_000, true)
        );
        assert!(bound.is_observed && !bound.is_unusable);
        let new = of(json!({"volumeName": ""}), json!({}));
        assert_eq!(
            (new.volume, new.class, new.is_observed),
            (None, None, false)
        );
        assert!(of(json!({}), json!({"phase": "Lost"})).is_unusable);
    }

    #[test]
    fn claims_of_volumes_are_named_or_made() {
        let pod = json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": [],
            "volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "tmp", "emptyDir": {}},
                {"name": "b", "ephemeral": {"volumeClaimTemplate": {
                    "spec": {"storageClassName": "fast"}}}}]}});
        let volumes = pod_volumes(&serde_json::from_value(pod).unwrap());
        assert_eq!(volumes.claims, ["data".into(), "p-b".into()]);
        let made = &volumes.own_claims;
        assert_eq!(
            (&*made[0].namespace, made[0].class.as_deref()),
            ("shop", Some("fast"))
        );
    }

    #[test]
    fn volume_and_class_have_topology() {
        let pv = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Ki"},
            "claimRef": {"namespace": "shop", "name": "data"}, "nodeAffinity": {"required": {
                "nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
            "status": {"phase": "Released"}});
        let pv = volume(&serde_json::from_value(pv).unwrap());
        assert_eq!(
            (pv.affinity.len(), pv.claim.as_deref()),
            (1, Some("shop/data"))
        );
        assert!(!pv.is_available);
        let class = json!({"metadata": {"name": "fast", "annotations": {DEFAULT_ANNOTATION: "true"}},
            "provisioner": NO_PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]});
        let class = storage_class(&serde_json::from_value(class).unwrap());
        assert!(class.is_default && class.waits_for_pod && !class.provisions);
        assert_eq!(class.topologies[0].labels.len(), 1);
    }
}
