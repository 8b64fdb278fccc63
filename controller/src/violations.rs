//! What is done about violations: nothing without fresh news of them, one act for
//! an offer at a time, and each with its reason.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tautline_core::{
    Snapshot,
    model::{Offer, ViolationPolicy},
    standing::Moment,
};
use tautline_runtime::lease::Term;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    app::Shared,
    evict::Evictor,
    known::{Key, Known},
    mediate,
    status::{moment_of, now},
    write,
};

/// How often offers with violations are looked at.
const TICK: Duration = Duration::from_millis(500);
/// News of a violation are good for so long; then the binding is evaluated again
/// before anything is done.
const FRESH: Duration = Duration::from_secs(5);
/// Offers that are acted on at once.
const AT_ONCE: usize = 8;
/// Bindings of one offer that a look goes through.
const A_LOOK: usize = 4;
/// After a look that came to nothing.
const AGAIN: Duration = Duration::from_secs(10);
/// The longest wait between two mitigations of one violation.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// News of a binding's violation.
pub(crate) enum Fresh {
    Violation {
        binding: Arc<Known>,
        since: Moment,
        reason: String,
        mitigated: Option<Time>,
    },
    /// It is none any more.
    Over(Key),
}

/// A violated binding.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub binding: Arc<Known>,
    pub since: Moment,
    pub reason: String,
    /// When the underlay was asked last, and how often for this violation.
    pub mitigated: Option<Moment>,
    pub attempts: u32,
    seen: Instant,
}

#[derive(Default)]
struct OfferCases {
    cases: BTreeMap<Key, Case>,
    look_at: Option<Instant>,
    busy: bool,
    /// Whether what an earlier leader did is known, and until when to wait for it.
    loaded: bool,
    cool_until: Option<Moment>,
}

/// What came of looking at an offer.
struct Looked {
    offer: Key,
    cool_until: Option<Moment>,
    loaded: bool,
    wait: Duration,
    /// Bindings whose mitigation was asked for, and when.
    mitigated: Vec<(Key, Moment)>,
}

pub(crate) struct Violations {
    pub shared: Arc<Shared>,
    pub rechecks: mpsc::Sender<Key>,
}

impl Violations {
    /// Acts while `leader` has a term, until told to stop.
    pub(crate) async fn run(
        self,
        mut fresh: mpsc::Receiver<Fresh>,
        mut leader: watch::Receiver<Option<Term>>,
        stop: CancellationToken,
    ) {
        let mut offers: BTreeMap<Key, OfferCases> = BTreeMap::new();
        let mut looks: JoinSet<Looked> = JoinSet::new();
        let evictor = Arc::new(Evictor::new(Arc::clone(&self.shared)));
        let mut term = leader.borrow_and_update().clone();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                changed = leader.changed() => {
                    if changed.is_err() { break }
                    term = leader.borrow_and_update().clone();
                    if term.is_none() {
                        while looks.join_next().await.is_some() {}
                        offers.clear();
                    }
                }
                Some(news) = fresh.recv() => take_in(&mut offers, news),
                Some(looked) = looks.join_next() => match looked {
                    Ok(looked) => conclude(&mut offers, looked),
                    Err(error) => tracing::error!(%error, "acting on a violation panicked"),
                },
                () = tokio::time::sleep(TICK) => {}
            }
            let Some(term) = &term else { continue };
            let now = Instant::now();
            for (offer, state) in &mut offers {
                let waits = state.look_at.is_some_and(|at| at > now);
                if state.busy || waits || state.cases.is_empty() || looks.len() >= AT_ONCE {
                    continue;
                }
                state.busy = true;
                let look = Look {
                    shared: Arc::clone(&self.shared),
                    evictor: Arc::clone(&evictor),
                    rechecks: self.rechecks.clone(),
                    term: term.clone(),
                    offer: Arc::clone(offer),
                    loaded: state.loaded,
                    cool_until: state.cool_until,
                };
                let mut cases: Vec<Case> = state.cases.values().cloned().collect();
                // The oldest violation first.
                cases.sort_by(|a, b| (a.since, &a.binding.name).cmp(&(b.since, &b.binding.name)));
                looks.spawn(look.run(cases));
            }
            offers.retain(|_, o| o.busy || !o.cases.is_empty() || o.cool_until.is_some());
        }
        while looks.join_next().await.is_some() {}
    }
}

fn take_in(offers: &mut BTreeMap<Key, OfferCases>, news: Fresh) {
    match news {
        Fresh::Violation {
            binding,
            since,
            reason,
            mitigated,
        } => {
            let state = offers.entry(binding.offer_key()).or_default();
            let mitigated = mitigated.as_ref().map(moment_of);
            let case = state.cases.entry(binding.key()).or_insert_with(|| {
                // A look may be due; this one is new.
                state.look_at = None;
                Case {
                    binding: Arc::clone(&binding),
                    since,
                    reason: String::new(),
                    mitigated,
                    attempts: 0,
                    seen: Instant::now(),
                }
            });
            if case.since != since {
                case.attempts = 0;
            }
            case.mitigated = case.mitigated.max(mitigated);
            (case.binding, case.since, case.reason) = (binding, since, reason);
            case.seen = Instant::now();
        }
        Fresh::Over(key) => {
            for state in offers.values_mut() {
                state.cases.remove(&key);
            }
        }
    }
}

fn conclude(offers: &mut BTreeMap<Key, OfferCases>, looked: Looked) {
    let Some(state) = offers.get_mut(&looked.offer) else {
        return;
    };
    state.busy = false;
    state.loaded |= looked.loaded;
    state.cool_until = looked.cool_until;
    state.look_at = Some(Instant::now() + looked.wait);
    for (key, at) in looked.mitigated {
        if let Some(case) = state.cases.get_mut(&key) {
            case.mitigated = Some(at);
            case.attempts += 1;
        }
    }
}

/// One look at one offer's violations.
struct Look {
    shared: Arc<Shared>,
    evictor: Arc<Evictor>,
    rechecks: mpsc::Sender<Key>,
    term: Term,
    offer: Key,
    loaded: bool,
    cool_until: Option<Moment>,
}

impl Look {
    async fn run(mut self, cases: Vec<Case>) -> Looked {
        let mut looked = Looked {
            offer: Arc::clone(&self.offer),
            cool_until: self.cool_until,
            loaded: self.loaded,
            wait: AGAIN,
            mitigated: Vec::new(),
        };
        let snapshot = self.shared.feed.snapshot();
        let (namespace, name) = self.offer.split_once('/').unwrap_or_default();
        let Some(entry) = snapshot.offer(namespace, name) else {
            return looked;
        };
        let offer = Arc::clone(&entry.offer);
        if !self.load(&offer).await {
            return looked;
        }
        (looked.loaded, looked.cool_until) = (true, self.cool_until);
        let mut candidates = Vec::new();
        for case in cases {
            match self.step(&snapshot, &offer, &case) {
                Step::Nothing => {}
                Step::Wait(until) => {
                    looked.wait = looked.wait.min(until.saturating_sub(now()).max(TICK));
                }
                Step::Evaluate => {
                    _ = self.rechecks.try_send(case.binding.key());
                    looked.wait = TICK;
                }
                Step::Mitigate if looked.mitigated.len() < A_LOOK => {
                    if !self.term.holds() {
                        return looked;
                    }
                    let at = mediate::mitigate(&self.shared, &snapshot, &offer, &case).await;
                    looked
                        .mitigated
                        .extend(at.map(|at| (case.binding.key(), at)));
                    _ = self.rechecks.try_send(case.binding.key());
                }
                Step::Mitigate => looked.wait = TICK,
                Step::Evict => candidates.push(case),
            }
        }
        if let Some(until) = self.cool_until.filter(|until| *until > now()) {
            looked.wait = looked.wait.min(until.saturating_sub(now()));
            return looked;
        }
        for case in candidates.iter().take(A_LOOK) {
            match self
                .evictor
                .evict(&self.term, &snapshot, &offer, case)
                .await
            {
                Ok(at) => {
                    looked.cool_until = Some(at + self.shared.config.eviction_cool_down);
                    looked.wait = self.shared.config.eviction_cool_down;
                    break;
                }
                Err(refusal) => looked.wait = looked.wait.min(refusal.retry_after()),
            }
        }
        looked
    }

    /// Learns what an earlier leader did: its last eviction still cools down.
    async fn load(&mut self, offer: &Offer) -> bool {
        if self.loaded || offer.violation_policy != ViolationPolicy::Evict {
            return true;
        }
        let client = self.shared.client.clone();
        match write::get_offer_status(client, &offer.namespace, &offer.name).await {
            Ok(status) => {
                let last = status.last_eviction.map(|e| moment_of(&e.time));
                self.cool_until = last.map(|at| at + self.shared.config.eviction_cool_down);
                true
            }
            Err(error) => {
                tracing::warn!(offer = %self.offer, %error, "what was evicted last is not known");
                false
            }
        }
    }

    /// What a case calls for now.
    fn step(&self, snapshot: &Snapshot, offer: &Offer, case: &Case) -> Step {
        let underlay = self.shared.discovery.underlay(snapshot, &offer.namespace);
        let step = step(
            offer.violation_policy,
            underlay.is_some(),
            offer.grace,
            case,
            now(),
        );
        match step {
            Step::Mitigate | Step::Evict if case.seen.elapsed() > FRESH => Step::Evaluate,
            Step::Nothing if offer.violation_policy == ViolationPolicy::Mediate => {
                mediate::no_underlay(&self.shared, case);
                Step::Nothing
            }
            step => step,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// Its news are old.
    Evaluate,
    Wait(Moment),
    Mitigate,
    Evict,
}

/// The law of mediation and eviction, without what is fresh and what cools down.
fn step(
    policy: ViolationPolicy,
    underlay: bool,
    grace: Duration,
    case: &Case,
    now: Moment,
) -> Step {
    // Times in statuses are whole seconds.
    let tried = case
        .mitigated
        .filter(|at| *at + Duration::from_secs(1) >= case.since);
    match (policy, tried) {
        (ViolationPolicy::Ignore, _) => Step::Nothing,
        (ViolationPolicy::Mediate, _) if !underlay => Step::Nothing,
        (_, None) if underlay => Step::Mitigate,
        (ViolationPolicy::Mediate, None) => Step::Nothing,
        (ViolationPolicy::Mediate, Some(at)) => {
            let doubled = 2u32.saturating_pow(case.attempts.saturating_sub(1).min(16));
            let wait = grace
                .max(AGAIN)
                .saturating_mul(doubled)
                .min(LONGEST_WAIT.max(grace));
            if now < at + wait {
                Step::Wait(at + wait)
            } else {
                Step::Mitigate
            }
        }
        (ViolationPolicy::Evict, Some(at)) if now < at + grace => Step::Wait(at + grace),
        (ViolationPolicy::Evict, _) => Step::Evict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(mitigated: Option<u64>, attempts: u32) -> Case {
        let known = Known {
            namespace: "ns".into(),
            name: "b".into(),
            uid: "".into(),
            offer: "o".into(),
            owner: "".into(),
            targets: BTreeMap::new(),
        };
        Case {
            binding: Arc::new(known),
            since: Duration::from_secs(1000),
            reason: String::new(),
            mitigated: mitigated.map(Duration::from_secs),
            attempts,
            seen: Instant::now(),
        }
    }

    #[tokio::test]
    async fn mediation_before_eviction_and_one_grace_between() {
        use ViolationPolicy::{Evict, Ignore, Mediate};
        let grace = Duration::from_secs(60);
        let at = |policy, underlay, case: &Case, secs| {
            step(policy, underlay, grace, case, Duration::from_secs(secs))
        };
        let (fresh, tried) = (case(None, 0), case(Some(1000), 1));
        assert_eq!(at(Ignore, true, &fresh, 1001), Step::Nothing);
        assert_eq!(at(Evict, false, &fresh, 1001), Step::Evict);
        assert_eq!(at(Evict, true, &fresh, 1001), Step::Mitigate);
        assert_eq!(
            at(Evict, true, &tried, 1059),
            Step::Wait(Duration::from_secs(1060))
        );
        assert_eq!(at(Evict, true, &tried, 1060), Step::Evict);
        // What was tried for an earlier violation was not tried for this one.
        assert_eq!(at(Evict, true, &case(Some(900), 1), 1001), Step::Mitigate);
        assert_eq!(at(Mediate, false, &fresh, 1001), Step::Nothing);
        assert_eq!(at(Mediate, true, &fresh, 1001), Step::Mitigate);
        assert_eq!(at(Mediate, true, &tried, 1060), Step::Mitigate);
        // The wait doubles, and never evicts.
        let often = case(Some(1000), 3);
        assert_eq!(
            at(Mediate, true, &often, 1239),
            Step::Wait(Duration::from_secs(1240))
        );
        assert_eq!(at(Mediate, true, &often, 1240), Step::Mitigate);
    }
}
