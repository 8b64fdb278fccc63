//! The keeper holds every binding and offer: one task, so nothing is locked. It
//! makes and deletes bindings, has them evaluated in time, and writes statuses.
//! A replica that does not lead keeps everything too, and does nothing.

mod evaluating;
mod observing;
mod reconciling;
mod writing;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    sync::Arc,
    time::Duration,
};

use hashbrown::{HashMap, HashSet};
use tautline_core::{
    Snapshot,
    compliance_state::{ComplianceState, UnixTime},
    model::key,
};
use tautline_runtime::{cluster_store::Versions, lease::Term};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    app::Shared,
    keeper::{
        evaluating::Done,
        writing::{Slot, Written},
    },
    known::{Key, Known, Status},
    lanes::{Lanes, Ticket},
    offers::OfferState,
    schedule::Schedule,
    store::BindingEvent,
    violations::Fresh,
};

/// Changes that come together are looked at together.
const SETTLE: Duration = Duration::from_millis(50);
/// Between two writes of one offer's status, whatever its bindings do.
const OFFER_STATUS_EVERY: Duration = Duration::from_secs(1);
/// Work that is under way gets so long when the leading is over.
const LAST_WORDS: Duration = Duration::from_secs(5);

struct Entry {
    known: Arc<Known>,
    status: Arc<Status>,
    standing: ComplianceState,
    /// The turn of the period that is on the schedule.
    turn: u64,
    running: bool,
    /// Evaluate once more when what runs is done.
    again: bool,
    write: WriteState,
    /// When reasons were written last; figures in them may wait.
    words_at: Option<Instant>,
    /// When the grace ends that is on the schedule.
    grace_ends: Option<UnixTime>,
    /// It was evaluated here: from then on nobody else's word on it counts.
    evaluated: bool,
    /// It is known to be in violation by whoever acts on that.
    reported: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteState {
    Idle,
    Queued,
    /// `again`: the status has changed since.
    Writing {
        again: bool,
    },
}

/// What is tried again when its time has come.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Later {
    Status(Key),
    /// An offer is compared with its bindings again.
    Offer(Key),
}

pub(crate) use observing::BINDINGS;
pub(crate) use reconciling::Op;

pub(crate) struct Inputs {
    pub bindings: mpsc::Receiver<BindingEvent>,
    pub leader: watch::Receiver<Option<Term>>,
}

pub(crate) struct Keeper {
    shared: Arc<Shared>,
    fresh: mpsc::UnboundedSender<Fresh>,
    term: Option<Term>,
    snapshot: Arc<Snapshot>,
    versions: Versions,
    entries: HashMap<Key, Entry>,
    offers: HashMap<Key, OfferState>,
    /// Offers that cannot be read as they are now, and why.
    refused: BTreeMap<Key, String>,
    counts: [usize; 5],
    dirty: HashSet<Key>,
    schedule: Schedule,
    lanes: Lanes,
    jobs: JoinSet<Done>,
    /// The tickets of the jobs, for one that panics.
    running: HashMap<tokio::task::Id, Ticket>,
    /// Offers with bindings to be made or deleted; each has its turn.
    ops: VecDeque<Key>,
    busy: HashSet<Key>,
    statuses: VecDeque<Key>,
    later: BinaryHeap<Reverse<(Instant, Later)>>,
    writes: JoinSet<Written>,
    /// What each write has taken, for one that panics.
    slots: HashMap<tokio::task::Id, Slot>,
    writing: usize,
    writing_offers: usize,
    /// Offers' statuses that found no place.
    offers_wait: bool,
    looks_at: Option<Instant>,
    flush_at: Instant,
}

impl Keeper {
    pub(crate) fn new(shared: Arc<Shared>, fresh: mpsc::UnboundedSender<Fresh>) -> Self {
        Self {
            lanes: Lanes::new(shared.config.provider_concurrency),
            shared,
            fresh,
            term: None,
            snapshot: Arc::default(),
            versions: Versions::default(),
            entries: HashMap::new(),
            offers: HashMap::new(),
            refused: BTreeMap::new(),
            counts: [0; 5],
            dirty: HashSet::new(),
            schedule: Schedule::default(),
            jobs: JoinSet::new(),
            running: HashMap::new(),
            ops: VecDeque::new(),
            busy: HashSet::new(),
            statuses: VecDeque::new(),
            later: BinaryHeap::new(),
            writes: JoinSet::new(),
            slots: HashMap::new(),
            writing: 0,
            writing_offers: 0,
            offers_wait: false,
            looks_at: Some(Instant::now()),
            flush_at: Instant::now() + OFFER_STATUS_EVERY,
        }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(mut self, mut inputs: Inputs, stop: CancellationToken) {
        let mut changes = self.shared.feed.changes();
        let mut kinds = self.shared.kinds.changes();
        let mut events = Vec::new();
        loop {
            let leads = self.leads();
            let next = self.next_time(leads);
            tokio::select! {
                () = stop.cancelled() => break,
                changed = inputs.leader.changed() => {
                    if changed.is_err() { break }
                    let term = inputs.leader.borrow_and_update().clone();
                    let versions = *changes.borrow_and_update();
                    self.lead(term, versions).await;
                }
                n = inputs.bindings.recv_many(&mut events, 256) => {
                    if n == 0 { break }
                    events.drain(..).for_each(|event| self.observe(event));
                }
                changed = changes.changed(), if self.looks_at.is_none() => {
                    if changed.is_err() { break }
                    self.looks_at = Some(Instant::now() + SETTLE);
                }
                _ = kinds.changed() => self.kinds_changed(),
                Some(done) = self.jobs.join_next_with_id() => self.evaluated(done),
                Some(written) = self.writes.join_next_with_id() => self.written(written),
                () = tokio::time::sleep_until(next) => {}
            }
            let now = Instant::now();
            if self.looks_at.is_some_and(|at| at <= now) {
                self.looks_at = None;
                self.look(*changes.borrow_and_update());
            }
            if self.leads() {
                self.reconcile();
                self.evaluate_due(now);
                self.write_more(now);
                if self.flush_at <= now {
                    self.flush_at = now + OFFER_STATUS_EVERY;
                    self.write_offers();
                }
            }
        }
        self.stand_down().await;
        // The election's error, if there is one, is the process' to report.
        stop.cancelled().await;
    }

    fn leads(&self) -> bool {
        self.term.as_ref().is_some_and(Term::is_active)
    }

    /// When there is something to do that nobody tells of.
    fn next_time(&self, leads: bool) -> Instant {
        // A term that lapsed may hold again, and nobody tells.
        let idle = if self.term.is_some() && !leads { 1 } else { 60 };
        let far = Instant::now() + Duration::from_secs(idle);
        let mut next = self.looks_at.unwrap_or(far);
        if leads {
            let due = self.schedule.next().unwrap_or(far);
            let later = self.later.peek().map_or(far, |Reverse((at, _))| *at);
            next = next.min(due).min(later).min(self.flush_at);
        }
        next
    }

    /// Takes up or gives up the lead.
    async fn lead(&mut self, term: Option<Term>, versions: Versions) {
        let Some(term) = term else {
            self.stand_down().await;
            return;
        };
        // Everything that was known when the term began, and nothing older.
        self.looks_at = None;
        self.look(versions);
        self.term = Some(term);
        self.shared.metrics.leading.set(1);
        self.schedule = Schedule::default();
        let keys: Vec<Key> = self.entries.keys().cloned().collect();
        for key in keys {
            self.schedule_anew(&key);
        }
        let snapshot = Arc::clone(&self.snapshot);
        let offers = snapshot
            .offers()
            .map(|e| Key::from(key(&e.offer.namespace, &e.offer.name)));
        self.dirty.extend(offers);
        self.every_offer_changed();
    }

    /// Lets what is under way come to its end, and drops the term.
    async fn stand_down(&mut self) {
        if self.term.is_none() {
            return;
        }
        let writes = async { while self.writes.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_WORDS, writes).await.is_err() {
            tracing::warn!("writes did not end in {LAST_WORDS:?}");
            self.writes.abort_all();
        }
        self.jobs.abort_all();
        self.shared.metrics.leading.set(0);
        self.term = None;
    }
}
