//! The events and actions of the reconciler.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_api::constraint::ConstraintPolicyOfferStatus;
use tautline_core::{
    Snapshot, TrustedNamespaces, binding_quota::BindingLimits, model::Offer, reference::Reference,
};

use crate::{
    binding_spec::{BindingSpec, BindingStatus, Key, key},
    evaluation::Evaluation,
    kind_states::KindStates,
    question::Question,
    violations::ViolationEvent,
    write_error::WriteError,
};

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub limits: BindingLimits,
    pub provider_concurrency: usize,
    pub shortest_period: Duration,
    pub trusted: TrustedNamespaces,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Leadership {
    /// Another replica leads. The state follows the watches and nothing is written.
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
    Evaluated(EvaluationResult),
    Written(WriteResult),
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
    /// The offers whose current version is invalid, with the reasons; `None` if no offer has
    /// changed.
    pub rejected_offers: Option<BTreeMap<Key, String>>,
}

pub(crate) struct EvaluationResult {
    pub key: Key,
    pub uid: Box<str>,
    /// The providers whose slots the evaluation held.
    pub providers: Vec<Arc<str>>,
    pub grace: Duration,
    /// The evaluation; `None` if it panicked.
    pub evaluation: Option<Evaluation>,
}

pub(crate) enum WriteResult {
    Created {
        offer: Key,
        key: Key,
        /// True if the binding existed already; `result` has the existing binding.
        existed: bool,
        result: Result<Box<(BindingSpec, BindingStatus)>, WriteError>,
    },
    Deleted {
        spec: Arc<BindingSpec>,
        result: Result<(), WriteError>,
    },
    Status {
        key: Key,
        uid: Box<str>,
        result: Result<(), WriteError>,
    },
    OfferStatus {
        key: Key,
        uid: Box<str>,
        result: Result<Box<ConstraintPolicyOfferStatus>, WriteError>,
    },
}

#[derive(Debug)]
pub(crate) enum Action {
    Evaluate(Evaluate),
    Write(Write),
    Violation(ViolationEvent),
    /// A Kubernetes event on a binding.
    BindingNote {
        spec: Arc<BindingSpec>,
        warning: bool,
        reason: &'static str,
        text: String,
    },
    /// A warning on an offer, repeated at most every 5 minutes.
    OfferWarning {
        offer: Arc<Offer>,
        reason: &'static str,
        text: String,
    },
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

#[derive(Debug)]
pub(crate) struct Evaluate {
    pub spec: Arc<BindingSpec>,
    pub due: Instant,
    pub question: Arc<Question>,
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

impl Write {
    /// Returns the result of this write if it failed with `error`.
    pub(crate) fn failed(&self, error: WriteError) -> WriteResult {
        match self {
            Self::Create(new) => WriteResult::Created {
                offer: key(&new.offer.namespace, &new.offer.name),
                key: new.key(),
                existed: false,
                result: Err(error),
            },
            Self::Delete(spec) => WriteResult::Deleted {
                spec: Arc::clone(spec),
                result: Err(error),
            },
            Self::Status(spec, _) => WriteResult::Status {
                key: spec.key(),
                uid: spec.uid.clone(),
                result: Err(error),
            },
            Self::OfferStatus(write) => WriteResult::OfferStatus {
                key: Arc::clone(&write.key),
                uid: write.uid.clone(),
                result: Err(error),
            },
        }
    }
}
