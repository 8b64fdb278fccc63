//! The events and actions of the reconciler.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_api::constraint::ConstraintPolicyOfferStatus;
use tautline_core::{
    Snapshot,
    model::{Offer, Target, TargetKind},
    reference::Reference,
};
use tautline_runtime::events::EventNote;

use crate::{
    binding_spec::{BindingSpec, BindingStatus, Key, key},
    evaluation::Evaluation,
    question::Question,
    violations::ViolationEvent,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Leadership {
    /// This replica has not led yet. The state follows the watches and nothing is written. A
    /// replica leads for one term, and its process ends with the term.
    #[default]
    Standby,
    /// The Lease could not be renewed for a while. Work in progress ends, and no other work begins.
    Suspended,
    Leading,
}

pub(crate) enum Event {
    Bindings(Vec<BindingEvent>),
    Cluster(ClusterChange),
    Kinds(KindStates),
    Leadership(Leadership),
    /// An evaluation has ended, or panicked (`None`).
    Evaluated(Evaluate, Option<Evaluation>),
    Written(Write, Result<Written, WriteError>),
    /// The time of `BindingReconciler::next_time` has come.
    Tick,
}

pub(crate) enum BindingEvent {
    Applied(Box<(BindingSpec, BindingStatus)>),
    /// The binding with this key and UID was deleted.
    Deleted(Key, Box<str>),
    /// All bindings were listed.
    All(Vec<(BindingSpec, BindingStatus)>),
}

#[derive(Default)]
pub(crate) struct ClusterChange {
    pub snapshot: Arc<Snapshot>,
    /// True if policies, Services or EndpointSlices have changed.
    pub providers_changed: bool,
    /// True if pods of other clusters, or the states of these clusters, have changed.
    pub clusters_changed: bool,
    /// The offers whose current version is invalid, with the reasons; `None` if no offer has
    /// changed.
    pub rejected_offers: Option<BTreeMap<Key, String>>,
}

/// The states of the watches on the kinds of targets, by API version and kind. A kind without an
/// entry is not listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KindStates(BTreeMap<String, KindState>);

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KindState {
    /// True if all objects of the kind are known, or there are none.
    pub listed: bool,
    /// The reason why the kind cannot be watched.
    pub missing: Option<String>,
}

/// The result of a write.
#[derive(Debug)]
pub(crate) enum Written {
    Done,
    /// The binding was created, or it existed already (true).
    Binding(Box<(BindingSpec, BindingStatus)>, bool),
    OfferStatus(Box<ConstraintPolicyOfferStatus>),
}

/// The reason why a write to the API server failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("it is gone, or another of its name has come")]
    Gone,
    #[error("an object of this name exists already")]
    Exists,
    #[error("{0}")]
    Refused(String),
    #[error("the API server did not answer within {0:?}")]
    Timeout(Duration),
}

#[derive(Debug)]
pub(crate) enum Action {
    Evaluate(Evaluate),
    Write(Write),
    Violation(ViolationEvent),
    /// A Kubernetes event on a binding.
    Note(EventNote),
    /// A warning on the offer with this key, repeated at most every 5 minutes.
    OfferWarning(Key, EventNote),
    ReportCounts(Counts),
}

/// The counts for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The number of bindings for each compliance.
    pub bindings: [usize; 5],
    /// The number of bindings that each limit withholds, in the order of [`Bound`].
    ///
    /// [`Bound`]: tautline_core::binding_quota::Bound
    pub withheld: [u128; 3],
    /// The number of bindings that are evaluated less often because their state keeps changing.
    pub backing_off: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Evaluate {
    pub spec: Arc<BindingSpec>,
    pub due: Instant,
    pub question: Arc<Question>,
    /// The providers whose slots the evaluation holds.
    pub providers: Vec<Arc<str>>,
    pub snapshot: Arc<Snapshot>,
    pub grace: Duration,
}

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Create(Arc<NewBinding>),
    Delete(Arc<BindingSpec>),
    Status(Arc<BindingSpec>, Arc<BindingStatus>),
    OfferStatus(Arc<OfferStatusWrite>),
}

#[derive(Debug)]
pub(crate) struct NewBinding {
    pub offer: Arc<Offer>,
    pub name: String,
    pub targets: BTreeMap<Arc<str>, Reference>,
}

#[derive(Debug)]
pub(crate) struct OfferStatusWrite {
    pub key: Key,
    /// The offer's UID; empty if no version of the offer was valid.
    pub uid: Box<str>,
    /// True if this replica has not written the status yet: the conditions then keep the transition
    /// times of the existing status.
    pub first: bool,
    pub status: ConstraintPolicyOfferStatus,
}

impl NewBinding {
    pub(crate) fn key(&self) -> Key {
        key(&self.offer.namespace, &self.name)
    }
}

impl KindStates {
    pub(crate) fn insert(&mut self, target: &Target, state: KindState) {
        self.0.insert(kind_key(target), state);
    }

    /// Returns whether all objects of the target's kind are known, so that an unknown one does not
    /// exist.
    pub(crate) fn is_listed(&self, target: &Target) -> bool {
        target.kind == TargetKind::Pod || self.0.get(&kind_key(target)).is_some_and(|s| s.listed)
    }

    pub(crate) fn missing(&self, target: &Target) -> Option<&str> {
        self.0.get(&kind_key(target))?.missing.as_deref()
    }
}

fn kind_key(target: &Target) -> String {
    let (api_version, kind) = target.selected_kind();
    [api_version, ":", kind].concat()
}

impl WriteError {
    pub(crate) fn from_status(status: u16, reason: &str, message: String) -> Self {
        match (status, reason) {
            (404, _) => Self::Gone,
            (409, "AlreadyExists") => Self::Exists,
            // The object was replaced by another one of the same name.
            (409, _) if message.contains("Precondition failed") => Self::Gone,
            _ => Self::Refused(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, reason: &str, message: &str) -> WriteError {
        WriteError::from_status(status, reason, message.to_owned())
    }

    #[test]
    fn write_to_a_missing_object_is_gone() {
        assert_eq!(error(404, "NotFound", "x"), WriteError::Gone);
    }

    #[test]
    fn write_to_another_object_of_the_name_is_gone() {
        let message = "Precondition failed: UID in precondition: a, UID in object meta: b";
        assert_eq!(error(409, "Conflict", message), WriteError::Gone);
    }

    #[test]
    fn creation_of_an_existing_object_says_so() {
        assert_eq!(error(409, "AlreadyExists", "x"), WriteError::Exists);
    }

    #[test]
    fn other_conflicts_and_errors_are_refusals() {
        for (status, reason) in [(409, "Conflict"), (403, "Forbidden"), (500, "")] {
            let refused = WriteError::Refused("why".to_owned());
            assert_eq!(error(status, reason, "why"), refused);
        }
    }
}
