//! Defines the controller's own form of a binding without its status, the keys of bindings and
//! offers, and the Kubernetes events about them.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1 as corev1;
use tautline_api::constraint::{ConstraintPolicyBinding, ConstraintPolicyBindingStatus};
use tautline_core::{
    binding::OFFER_LABEL,
    index::{OfferEntry, Snapshot},
    model::{self, Offer},
    reference::Reference,
};
use tautline_runtime::events::{EventNote, reference_to_own};

/// The `namespace/name` of a binding or an offer.
pub(crate) type Key = Arc<str>;

pub(crate) type BindingStatus = ConstraintPolicyBindingStatus;

/// A binding without its status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BindingSpec {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Box<str>,
    pub offer: Arc<str>,
    /// The UID of the offer that owns the binding; empty without an owner.
    pub owner: Box<str>,
    /// True if the binding has the label of its offer. The controller deletes only such bindings.
    pub labelled: bool,
    /// True if the binding is being deleted and still exists because of a finalizer.
    pub terminating: bool,
    pub targets: BTreeMap<Arc<str>, Reference>,
}

impl From<&ConstraintPolicyBinding> for BindingSpec {
    fn from(binding: &ConstraintPolicyBinding) -> Self {
        let meta = &binding.metadata;
        let text = |t: &Option<String>| t.as_deref().unwrap_or_default().to_owned();
        // Turnbuckle's owner references lack `controller: true`, so only the kind is compared.
        let mut owners = meta.owner_references.iter().flatten();
        let owner = owners.find(|o| o.kind == "ConstraintPolicyOffer");
        let label = meta.labels.as_ref().and_then(|l| l.get(OFFER_LABEL));
        Self {
            namespace: text(&meta.namespace).into(),
            name: text(&meta.name).into(),
            uid: text(&meta.uid).into(),
            offer: binding.spec.offer.as_str().into(),
            owner: owner.map_or("", |o| &*o.uid).into(),
            labelled: label == Some(&binding.spec.offer),
            terminating: meta.deletion_timestamp.is_some(),
            targets: binding
                .spec
                .targets
                .iter()
                .map(|(name, r)| (name.as_str().into(), r.clone()))
                .collect(),
        }
    }
}

impl BindingSpec {
    pub(crate) fn key(&self) -> Key {
        key(&self.namespace, &self.name)
    }

    pub(crate) fn offer_key(&self) -> Key {
        key(&self.namespace, &self.offer)
    }

    /// Returns the reference for Kubernetes events on the binding.
    pub(crate) fn reference(&self) -> corev1::ObjectReference {
        let b = self;
        reference_to_own("ConstraintPolicyBinding", &b.namespace, &b.name, &b.uid)
    }
}

/// Returns the reference for Kubernetes events on an offer.
pub(crate) fn reference_to_offer(offer: &Offer) -> corev1::ObjectReference {
    let o = offer;
    reference_to_own("ConstraintPolicyOffer", &o.namespace, &o.name, &o.uid)
}

/// Returns a Kubernetes event without a second object.
pub(crate) fn note(
    regarding: corev1::ObjectReference,
    warning: bool,
    reason: &str,
    action: &'static str,
    text: String,
) -> EventNote {
    EventNote {
        regarding,
        secondary: None,
        warning,
        reason: reason.to_owned(),
        action,
        text,
    }
}

pub(crate) fn key(namespace: &str, name: &str) -> Key {
    model::key(namespace, name).into()
}

pub(crate) fn key_of(offer: &Offer) -> Key {
    key(&offer.namespace, &offer.name)
}

/// Returns the namespace in the key of a binding or an offer.
pub(crate) fn namespace_of(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

pub(crate) fn offer_at<'a>(snapshot: &'a Snapshot, key: &str) -> Option<&'a OfferEntry> {
    let (namespace, name) = key.split_once('/')?;
    snapshot.offer(namespace, name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(meta: Value) -> BindingSpec {
        let binding = json!({
            "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyBinding",
            "metadata": meta,
            "spec": {"offer": "o", "targets": {"source": {
                "namespace": "shop", "apiVersion": "v1", "kind": "Pod", "name": "web-0"}}},
        });
        BindingSpec::from(&serde_json::from_value::<ConstraintPolicyBinding>(binding).unwrap())
    }

    fn owned_by(kind: &str, controller: bool) -> Box<str> {
        let owner = json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": kind,
                           "name": "o", "uid": "uid-of-o", "controller": controller});
        spec(json!({"name": "b", "ownerReferences": [owner]})).owner
    }

    #[test]
    fn binding_spec_keeps_names_and_targets() {
        let spec = spec(json!({"namespace": "shop", "name": "b", "uid": "u"}));
        assert_eq!((&*spec.key(), &*spec.offer_key()), ("shop/b", "shop/o"));
        assert_eq!((&*spec.uid, spec.terminating), ("u", false));
        assert_eq!(spec.targets["source"], Reference::pod("shop", "web-0"));
    }

    #[test]
    fn binding_spec_is_owned_by_an_offer() {
        assert_eq!(&*owned_by("ConstraintPolicyOffer", true), "uid-of-o");
        assert_eq!(&*owned_by("ConstraintPolicyOffer", false), "uid-of-o");
        assert_eq!(&*owned_by("Deployment", true), "");
    }

    #[test]
    fn binding_spec_is_labelled_with_its_own_offer() {
        let labelled =
            |offer: &str| spec(json!({"name": "b", "labels": {OFFER_LABEL: offer}})).labelled;
        assert!(labelled("o"));
        assert!(!labelled("other"));
        assert!(!spec(json!({"name": "b"})).labelled);
    }

    #[test]
    fn binding_spec_without_metadata_is_empty() {
        let spec = spec(json!({}));
        assert_eq!((&*spec.name, &*spec.owner), ("", ""));
    }

    #[test]
    fn binding_spec_of_a_deleted_binding_is_terminating() {
        let spec = spec(json!({"name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z"}));
        assert!(spec.terminating);
    }
}
