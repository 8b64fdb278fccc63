//! The state of the reconciler: every binding and offer, and the queues of work.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    sync::Arc,
    time::Instant,
};

use hashbrown::{HashMap, HashSet};
use tautline_api::constraint::ConstraintPolicyOfferStatus;
use tautline_core::{
    Compliance, Snapshot,
    binding_quota::{BindingQuota, Grant},
    compliance_state::{ComplianceState, UnixTime},
    fair_queue::FairQueue,
};

use super::messages::{Action, Leadership, NewBinding, Settings};
use crate::{
    binding_spec::{BindingSpec, BindingStatus, Key, offer_at},
    flapping::Flapping,
    kind_states::KindStates,
    offer_status::BindingSummary,
    provider_limiter::ProviderLimiter,
    question::Question,
    schedule::Schedule,
    violations::ViolationEvent,
};

pub(crate) struct BindingReconciler {
    pub(super) settings: Settings,
    pub(super) leadership: Leadership,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) kinds: KindStates,
    pub(super) bindings: HashMap<Key, BindingState>,
    pub(super) offers: HashMap<Key, OfferState>,
    /// Offers that cannot be read as they are now, and the reasons.
    pub(super) rejected_offers: BTreeMap<Key, String>,
    /// Bindings by compliance.
    pub(super) counts: [usize; 5],
    pub(super) changed_offers: HashSet<Key>,
    pub(super) quota: BindingQuota,
    pub(super) schedule: Schedule,
    pub(super) limiter: ProviderLimiter,
    pub(super) queue: WriteQueue,
    /// The time of the next check of the offers' statuses.
    pub(super) flush_at: Option<Instant>,
    pub(super) actions: Vec<Action>,
}

pub(super) struct BindingState {
    pub spec: Arc<BindingSpec>,
    pub status: Arc<BindingStatus>,
    pub compliance: ComplianceState,
    /// The turn of the period that is on the schedule.
    pub turn: u64,
    pub evaluating: bool,
    pub evaluate_again: bool,
    pub flapping: Flapping,
    /// An evaluation is on the schedule for the end of the wait of a flapping binding.
    pub held: bool,
    pub write: StatusWrite,
    /// The time when reasons were written last; changed figures in them can wait.
    pub reasons_at: Option<Instant>,
    pub grace_ends: Option<UnixTime>,
    /// Evaluated by this replica: from then on statuses from the watch do not count.
    pub evaluated_here: bool,
    /// The violation was reported and has not been cleared.
    pub violation_raised: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusWrite {
    Idle,
    Queued,
    /// `changed`: the status has changed since the write began.
    Writing {
        changed: bool,
    },
}

#[derive(Default)]
pub(super) struct OfferState {
    /// The UID of the offer that `written` is the status of.
    pub uid: Box<str>,
    pub bindings: HashSet<Key>,
    /// Bindings with the offer's label, by compliance.
    pub counts: [usize; 5],
    pub grant: Grant,
    /// Bindings without the label, or of another offer, that do as well as one called for.
    pub stand_ins: usize,
    pub question: Option<Arc<Question>>,
    /// The status may have to be written.
    pub changed: bool,
    /// The status that the API server took last, and the time of the last attempt.
    pub written: Option<ConstraintPolicyOfferStatus>,
    pub written_at: Option<Instant>,
    pub writing: bool,
    /// Bindings to create and delete, and the number of such writes under way.
    pub changes: VecDeque<BindingChange>,
    pub in_flight: usize,
    /// Compare again when the last of them has ended.
    pub compare_again: bool,
    /// The reason why a binding could not be created or deleted.
    pub write_error: Option<String>,
    /// Such failures in a row.
    pub failures: u32,
    /// The time of the comparison after a failure, and the bindings that wait for it.
    pub retry_at: Option<Instant>,
    pub postponed: HashMap<Key, Instant>,
}

#[derive(Clone, Debug)]
pub(super) enum BindingChange {
    Create(Arc<NewBinding>),
    Delete(Arc<BindingSpec>),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Retry {
    /// Write a binding's status.
    Status(Key),
    /// Compare an offer with its bindings.
    Offer(Key),
}

/// Writes that wait. One of an offer is a binding to create or delete; offers take turns.
pub(super) enum QueuedWrite {
    Status(Key),
    Change(Key),
}

#[derive(Default)]
pub(super) struct WriteQueue {
    pub waiting: FairQueue<QueuedWrite>,
    /// Bindings that are being created or deleted.
    pub busy: HashSet<Key>,
    pub retries: BinaryHeap<Reverse<(Instant, Retry)>>,
    pub in_flight: usize,
    pub offer_statuses_in_flight: usize,
    /// Offers' statuses wait for one of those to end.
    pub offer_statuses_wait: bool,
}

impl BindingReconciler {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            limiter: ProviderLimiter::new(settings.provider_concurrency),
            quota: BindingQuota::new(settings.limits),
            settings,
            leadership: Leadership::default(),
            snapshot: Arc::default(),
            kinds: KindStates::default(),
            bindings: HashMap::new(),
            offers: HashMap::new(),
            rejected_offers: BTreeMap::new(),
            counts: [0; 5],
            changed_offers: HashSet::new(),
            schedule: Schedule::default(),
            queue: WriteQueue::default(),
            flush_at: None,
            actions: Vec::new(),
        }
    }

    /// Whether this replica has the Lease, renewed or not.
    pub(super) fn has_term(&self) -> bool {
        self.leadership != Leadership::Standby
    }

    /// Drops the state of an offer that is gone, with its bindings and writes.
    pub(super) fn forget_offer(&mut self, offer: &Key) {
        let exists = offer_at(&self.snapshot, offer).is_some();
        if exists || self.rejected_offers.contains_key(offer) {
            return;
        }
        // A later offer of the name goes on counting the writes under way.
        let idle = |s: &OfferState| s.bindings.is_empty() && s.in_flight == 0;
        if self.offers.get(offer).is_some_and(idle) {
            self.offers.remove(offer);
        }
    }

    /// Counts a binding's change of compliance; `None`: it is new, or gone. The offer counts those
    /// with its label.
    pub(super) fn count(
        &mut self,
        offer: &Key,
        labelled: bool,
        before: Option<Compliance>,
        after: Option<Compliance>,
    ) {
        if before == after {
            return;
        }
        let state = self.offers.entry(Arc::clone(offer)).or_default();
        state.changed = true;
        let of_offer = labelled.then_some(&mut state.counts);
        for counts in [Some(&mut self.counts), of_offer].into_iter().flatten() {
            if let Some(before) = before {
                let count = &mut counts[before as usize];
                *count = count.saturating_sub(1);
            }
            if let Some(after) = after {
                counts[after as usize] += 1;
            }
        }
    }
}

impl BindingState {
    pub fn clear_violation(&mut self, actions: &mut Vec<Action>) {
        if std::mem::take(&mut self.violation_raised) {
            let cleared = ViolationEvent::Cleared(self.spec.key());
            actions.push(Action::Violation(cleared));
        }
    }
}

impl OfferState {
    pub fn summary(&self) -> BindingSummary<'_> {
        BindingSummary {
            grant: self.grant,
            existing: self.counts.iter().sum(),
            stand_ins: self.stand_ins,
            compliant: self.counts[Compliance::Compliant as usize],
            write_error: self.write_error.as_deref(),
        }
    }
}
