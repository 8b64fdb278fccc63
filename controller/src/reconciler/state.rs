//! The state of the reconciler: every binding and offer, and the queues of work.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use hashbrown::{HashMap, HashSet};
use tautline_api::constraint::ConstraintPolicyOfferStatus;
use tautline_core::{
    Snapshot,
    binding_quota::BindingQuota,
    compliance_state::{ComplianceState, UnixTime},
    fair_queue::FairQueue,
};

use super::messages::{Action, KindStates, Leadership, NewBinding};
use crate::{
    binding_spec::{BindingSpec, BindingStatus, Key, offer_at},
    config::Config,
    provider_limiter::ProviderLimiter,
    question::Question,
    schedule::{Flapping, Schedule},
    violations::ViolationEvent,
};

pub(crate) struct BindingReconciler {
    pub(super) config: Config,
    pub(super) leadership: Leadership,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) kinds: KindStates,
    pub(super) bindings: HashMap<Key, BindingState>,
    pub(super) offers: HashMap<Key, OfferState>,
    /// The offers whose current version is invalid, with the reasons.
    pub(super) rejected_offers: BTreeMap<Key, String>,
    pub(super) changed_offers: HashSet<Key>,
    pub(super) quota: BindingQuota,
    pub(super) schedule: Schedule,
    pub(super) limiter: ProviderLimiter,
    pub(super) queue: WriteQueue,
    /// The time of the next check of the offers' statuses.
    pub(super) flush_at: Option<Instant>,
    pub(super) actions: Vec<Action>,
}

#[derive(Default)]
pub(super) struct BindingState {
    pub spec: Arc<BindingSpec>,
    pub status: Arc<BindingStatus>,
    pub compliance: ComplianceState,
    /// The number of the periodic evaluation that is on the schedule; earlier ones are void.
    pub turn: u64,
    pub evaluating: bool,
    pub evaluate_again: bool,
    pub flapping: Flapping,
    /// True if an evaluation is on the schedule for the end of a flapping binding's wait.
    pub held: bool,
    pub write: StatusWrite,
    /// The time at which reasons were last queued for a write; changed figures in them can wait.
    pub reasons_at: Option<Instant>,
    pub grace_ends: Option<UnixTime>,
    /// True if this replica has evaluated the binding in its term. From then on, only mitigations
    /// are taken from the status in the watch.
    pub evaluated_here: bool,
    /// True if the violation was reported and has not been cleared.
    pub violation_raised: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StatusWrite {
    #[default]
    Idle,
    Queued,
    /// The status is being written; `changed` is true if it has changed since the write began.
    Writing {
        changed: bool,
    },
}

#[derive(Default)]
pub(super) struct OfferState {
    /// The UID of the offer whose status `written` is.
    pub uid: Box<str>,
    pub bindings: HashSet<Key>,
    /// The number of desired bindings for which an equivalent one without the offer's label, or of
    /// another offer, exists.
    pub stand_ins: usize,
    pub question: Option<Arc<Question>>,
    /// True if the status may have to be written.
    pub changed: bool,
    /// The status that was last written with success.
    pub written: Option<ConstraintPolicyOfferStatus>,
    /// The time of the last attempt to write the status.
    pub written_at: Option<Instant>,
    pub writing: bool,
    /// The bindings to create and delete.
    pub changes: VecDeque<BindingChange>,
    /// The number of creations and deletions in progress.
    pub in_flight: usize,
    /// True if the bindings must be compared again when the last of these writes has ended.
    pub compare_again: bool,
    /// The reason why a binding could not be created or deleted.
    pub write_error: Option<String>,
    /// The number of failed creations and deletions in a row.
    pub failures: u32,
    /// The time of the comparison after a failure.
    pub retry_at: Option<Instant>,
    /// The bindings that wait after a failure, and the end of each wait.
    pub postponed: HashMap<Key, Instant>,
}

#[derive(Clone, Debug)]
pub(super) enum BindingChange {
    Create(Arc<NewBinding>),
    Delete(Arc<BindingSpec>),
}

/// A write that waits for its turn.
pub(super) enum QueuedWrite {
    /// The write of a binding's status.
    Status(Key),
    /// The next creation or deletion of a binding of this offer. Offers take turns.
    Change(Key),
}

#[derive(Default)]
pub(super) struct WriteQueue {
    pub waiting: FairQueue<QueuedWrite>,
    /// The bindings that are being created or deleted.
    pub busy: HashSet<Key>,
    pub in_flight: usize,
    pub offer_statuses_in_flight: usize,
    /// True if statuses of offers wait until one of these writes has ended.
    pub offer_statuses_wait: bool,
}

impl BindingReconciler {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            limiter: ProviderLimiter::new(config.provider_concurrency),
            quota: BindingQuota::new(config.limits),
            config,
            leadership: Leadership::default(),
            snapshot: Arc::default(),
            kinds: KindStates::default(),
            bindings: HashMap::new(),
            offers: HashMap::new(),
            rejected_offers: BTreeMap::new(),
            changed_offers: HashSet::new(),
            schedule: Schedule::default(),
            queue: WriteQueue::default(),
            flush_at: None,
            actions: Vec::new(),
        }
    }

    /// Returns whether this replica holds the Lease, even if it could not be renewed for a while.
    pub(super) fn has_term(&self) -> bool {
        self.leadership != Leadership::Standby
    }

    /// Drops the state of an offer that does not exist, once its bindings and writes are gone, too.
    pub(super) fn forget_offer(&mut self, offer: &Key) {
        let exists = offer_at(&self.snapshot, offer).is_some();
        if exists || self.rejected_offers.contains_key(offer) {
            return;
        }
        // A later offer of the same name continues to count the writes in progress.
        let idle = |s: &OfferState| s.bindings.is_empty() && s.in_flight == 0;
        if self.offers.get(offer).is_some_and(idle) {
            self.offers.remove(offer);
        }
    }

    /// Notes that an offer's status may have to be written.
    pub(super) fn mark_changed(&mut self, offer: Key) {
        self.offers.entry(offer).or_default().changed = true;
    }
}

impl BindingState {
    pub fn clear_violation(&mut self, actions: &mut Vec<Action>) {
        if std::mem::take(&mut self.violation_raised) {
            let cleared = ViolationEvent::Cleared(Arc::clone(&self.spec));
            actions.push(Action::Violation(cleared));
        }
    }
}
