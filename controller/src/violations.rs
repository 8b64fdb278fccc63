//! What is done about violations: one act for an offer at a time, each after a
//! look whether the violation still holds, and each with its reason.

mod law;
mod look;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hashbrown::HashMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tautline_core::compliance_state::UnixTime;
use tautline_runtime::lease::Term;
use tokio::{
    sync::{mpsc, watch},
    task::{Id, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    app::Shared,
    evict::Evictor,
    known::{Key, Known},
    status::{moment_of, now},
    violations::look::{Look, Looked, News},
};

pub(crate) use look::stands;

/// How often offers with violations are looked at.
const TICK: Duration = Duration::from_millis(500);
/// Offers that are acted on at once.
const AT_ONCE: usize = 8;
/// Bindings of one offer that a look goes through.
const A_LOOK: usize = 4;

/// News of a binding's violation.
pub(crate) enum Fresh {
    Violation {
        binding: Arc<Known>,
        since: UnixTime,
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
    /// Since when its rules have been broken without a break.
    pub since: UnixTime,
    pub reason: String,
    /// When the underlay was asked last, and how often for this violation.
    pub mitigated: Option<UnixTime>,
    pub attempts: u32,
    /// When it was tried last, and when it may be again.
    tried_at: Option<Instant>,
    not_before: Option<Instant>,
}

#[derive(Default)]
struct OfferCases {
    cases: BTreeMap<Key, Case>,
    looked_at: Option<Instant>,
    busy: bool,
    /// Whether what an earlier leader did is known, and until when to wait for it.
    loaded: bool,
    cool_until: Option<UnixTime>,
}

impl OfferCases {
    /// The cases to go through next: those not tried for longest, then the oldest.
    fn turn(&self, now: Instant) -> Vec<Case> {
        let ready = |c: &&Case| c.not_before.is_none_or(|at| at <= now);
        let mut cases: Vec<&Case> = self.cases.values().filter(ready).collect();
        let order = |c: &&Case| (c.tried_at, c.since, Arc::clone(&c.binding.name));
        if cases.len() > A_LOOK {
            cases.select_nth_unstable_by_key(A_LOOK, order);
            cases.truncate(A_LOOK);
        }
        cases.sort_by_key(order);
        cases.into_iter().cloned().collect()
    }
}

pub(crate) struct Violations {
    pub shared: Arc<Shared>,
}

impl Violations {
    /// Acts while `leader` has a term, until told to stop.
    pub(crate) async fn run(
        self,
        mut fresh: mpsc::UnboundedReceiver<Fresh>,
        mut leader: watch::Receiver<Option<Term>>,
        stop: CancellationToken,
    ) {
        let mut offers: BTreeMap<Key, OfferCases> = BTreeMap::new();
        let mut looks: JoinSet<Looked> = JoinSet::new();
        let mut running: HashMap<Id, Key> = HashMap::new();
        let evictor = Arc::new(Evictor::new(Arc::clone(&self.shared)));
        let mut term = leader.borrow_and_update().clone();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
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
                    continue;
                }
                Some(news) = fresh.recv() => {
                    take_in(&mut offers, news);
                    continue;
                }
                Some(looked) = looks.join_next_with_id() => {
                    match looked {
                        Ok((id, looked)) => {
                            running.remove(&id);
                            conclude(&mut offers, looked);
                        }
                        Err(error) => {
                            tracing::error!(%error, "acting on a violation panicked");
                            let offer = running.remove(&error.id());
                            if let Some(state) = offer.and_then(|o| offers.get_mut(&o)) {
                                state.busy = false;
                            }
                        }
                    }
                    continue;
                }
                _ = tick.tick() => {}
            }
            let Some(term) = &term else { continue };
            let passed = |o: &OfferCases| o.cool_until.is_none_or(|until| until <= now());
            offers.retain(|_, o| o.busy || !o.cases.is_empty() || !passed(o));
            // Those not looked at for longest come first.
            let mut due: Vec<(&Key, &mut OfferCases)> =
                offers.iter_mut().filter(|(_, o)| !o.busy).collect();
            due.sort_by_key(|(_, o)| o.looked_at);
            for (offer, state) in due {
                if looks.len() >= AT_ONCE {
                    break;
                }
                let cases = state.turn(Instant::now());
                if cases.is_empty() {
                    continue;
                }
                (state.busy, state.looked_at) = (true, Some(Instant::now()));
                let look = Look {
                    shared: Arc::clone(&self.shared),
                    evictor: Arc::clone(&evictor),
                    term: term.clone(),
                    offer: Arc::clone(offer),
                    loaded: state.loaded,
                    cool_until: state.cool_until,
                };
                let id = looks.spawn(look.run(cases)).id();
                running.insert(id, Arc::clone(offer));
            }
        }
        while looks.join_next().await.is_some() {}
        drop(term);
        // The election's error, if there is one, is the process' to report.
        stop.cancelled().await;
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
            let case = state.cases.entry(binding.key()).or_insert_with(|| Case {
                binding: Arc::clone(&binding),
                since,
                reason: String::new(),
                mitigated,
                attempts: 0,
                tried_at: None,
                not_before: None,
            });
            // An error in between moves the start; it is one violation all the same.
            case.since = case.since.min(since);
            case.mitigated = case.mitigated.max(mitigated);
            (case.binding, case.reason) = (binding, reason);
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
    (state.loaded, state.cool_until) = (looked.loaded, looked.cool_until);
    for (key, news) in looked.news {
        let Some(case) = state.cases.get_mut(&key) else {
            continue;
        };
        case.tried_at = Some(Instant::now());
        match news {
            News::NotBefore(at) => case.not_before = Some(at),
            News::Mitigated(at) => {
                case.mitigated = Some(at);
                case.attempts += 1;
            }
        }
    }
}
