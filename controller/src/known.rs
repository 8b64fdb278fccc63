//! What the controller keeps of a binding.

use std::{collections::BTreeMap, sync::Arc};

use tautline_api::constraint::{
    ConstraintPolicyBinding, ConstraintPolicyBindingStatus, ObjectReference,
};
use tautline_core::{model, reference::Reference};

/// `namespace/name`, of a binding or an offer.
pub(crate) type Key = Arc<str>;

/// How a binding stands, as the API has it.
pub(crate) type Status = ConstraintPolicyBindingStatus;

/// A binding, all but its status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Box<str>,
    /// The offer's name, and the UID of the offer that owns the binding.
    pub offer: Arc<str>,
    pub owner: Box<str>,
    /// It is being deleted, and something keeps it.
    pub terminating: bool,
    pub targets: BTreeMap<Arc<str>, Reference>,
}

impl Known {
    pub(crate) fn of(binding: &ConstraintPolicyBinding) -> Self {
        let meta = &binding.metadata;
        let text = |t: &Option<String>| t.as_deref().unwrap_or_default().to_owned();
        let owners = meta.owner_references.iter().flatten();
        let owner = owners
            .filter(|o| o.kind == "ConstraintPolicyOffer" && o.controller == Some(true))
            .map(|o| o.uid.as_str())
            .next();
        Self {
            namespace: text(&meta.namespace).into(),
            name: text(&meta.name).into(),
            uid: text(&meta.uid).into(),
            offer: binding.spec.offer.as_str().into(),
            owner: owner.unwrap_or_default().into(),
            terminating: meta.deletion_timestamp.is_some(),
            targets: binding
                .spec
                .targets
                .iter()
                .map(|(name, r)| (name.as_str().into(), reference(r)))
                .collect(),
        }
    }

    pub(crate) fn key(&self) -> Key {
        model::key(&self.namespace, &self.name).into()
    }

    pub(crate) fn offer_key(&self) -> Key {
        model::key(&self.namespace, &self.offer).into()
    }
}

fn reference(r: &ObjectReference) -> Reference {
    Reference {
        cluster: r.cluster.clone(),
        namespace: r.namespace.clone(),
        api_version: r.api_version.clone(),
        kind: r.kind.clone(),
        name: r.name.clone(),
    }
}
