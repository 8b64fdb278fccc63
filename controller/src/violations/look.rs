//! One look at some violations of one offer.

use std::{sync::Arc, time::Duration};

use tautline_core::{
    Compliance,
    compliance_state::UnixTime,
    model::{Offer, ViolationPolicy},
};
use tautline_runtime::lease::Term;
use tokio::time::Instant;

use super::{
    Case,
    law::{Step, step},
};
use crate::{
    app::Shared,
    evaluate,
    evict::{Evictor, Outcome},
    known::Key,
    mediate,
    status::{moment_of, now},
    write,
};

/// After a look that came to nothing.
const AGAIN: Duration = Duration::from_secs(10);

/// One look at one offer.
pub(super) struct Look {
    pub shared: Arc<Shared>,
    pub evictor: Arc<Evictor>,
    pub term: Term,
    pub offer: Key,
    pub loaded: bool,
    pub cool_until: Option<UnixTime>,
}

/// What came of it.
pub(super) struct Looked {
    pub offer: Key,
    pub loaded: bool,
    pub cool_until: Option<UnixTime>,
    pub news: Vec<(Key, News)>,
}

/// What came of a case.
pub(super) enum News {
    NotBefore(Instant),
    Mitigated(UnixTime),
}

impl Look {
    pub(super) async fn run(self, cases: Vec<Case>) -> Looked {
        let mut looked = Looked {
            offer: Arc::clone(&self.offer),
            loaded: self.loaded,
            cool_until: self.cool_until,
            news: Vec::new(),
        };
        let later = |wait: Duration| News::NotBefore(Instant::now() + wait);
        let snapshot = self.shared.feed.snapshot();
        let (namespace, name) = self.offer.split_once('/').unwrap_or_default();
        let offer = snapshot
            .offer(namespace, name)
            .map(|e| Arc::clone(&e.offer));
        let ready = match &offer {
            Some(offer) => self.load(offer, &mut looked).await,
            None => false,
        };
        let (Some(offer), true) = (offer, ready) else {
            let all = cases.iter().map(|c| (c.binding.key(), later(AGAIN)));
            looked.news = all.collect();
            return looked;
        };
        for case in cases {
            // A hand-over waits for what is under way.
            if !self.term.is_active() {
                break;
            }
            let underlay = mediate::underlay_for(&self.shared, &snapshot, &offer, &case).is_some();
            let step = step(offer.violation_policy, underlay, offer.grace, &case, now());
            let news = match step {
                Step::Nothing => later(AGAIN),
                Step::NoUnderlay => {
                    mediate::no_underlay(&self.shared, &offer, &case);
                    later(AGAIN)
                }
                Step::Wait(until) => later(until.saturating_sub(now())),
                Step::Mitigate => match self.mitigate(&offer, &case).await {
                    Some(at) => News::Mitigated(at),
                    None => later(AGAIN),
                },
                Step::Evict => match looked.cool_until.filter(|until| *until > now()) {
                    Some(until) => later(until.saturating_sub(now())),
                    None => later(self.evict(&offer, &case, &mut looked).await),
                },
            };
            looked.news.push((case.binding.key(), news));
        }
        looked
    }

    /// Learns what an earlier leader did: its last eviction still cools down.
    async fn load(&self, offer: &Offer, looked: &mut Looked) -> bool {
        if looked.loaded || offer.violation_policy != ViolationPolicy::Evict {
            return true;
        }
        let client = self.shared.client.clone();
        match write::get_offer_status(client, &offer.namespace, &offer.name).await {
            Ok(status) => {
                let last = status.last_eviction.map(|e| moment_of(&e.time));
                looked.cool_until = last.map(|at| at + self.shared.config.eviction_cool_down);
                looked.loaded = true;
                true
            }
            Err(error) => {
                tracing::warn!(offer = %self.offer, %error, "what was evicted last is not known");
                false
            }
        }
    }

    async fn mitigate(&self, offer: &Offer, case: &Case) -> Option<UnixTime> {
        let violated = stands(&self.shared, case).await == Compliance::Violation;
        if !violated || !self.term.is_active() {
            return None;
        }
        mediate::mitigate(&self.shared, &self.term, offer, case).await
    }

    /// Tries to evict; gives the time to wait with this case.
    async fn evict(&self, offer: &Offer, case: &Case, looked: &mut Looked) -> Duration {
        let cool_down = self.shared.config.eviction_cool_down;
        let last = looked
            .cool_until
            .map(|until| until.saturating_sub(cool_down));
        match self.evictor.evict(&self.term, offer, case, last).await {
            Outcome::Evicted(at) => {
                looked.cool_until = Some(at + cool_down);
                cool_down
            }
            Outcome::Refused(refusal) => refusal.retry_after(),
        }
    }
}

/// How the binding stands at this moment: what is to be done about it must not
/// rest on an answer of a while ago. Without its offer it is Pending.
pub(crate) async fn stands(shared: &Shared, case: &Case) -> Compliance {
    let snapshot = shared.feed.snapshot();
    let binding = &case.binding;
    let Some(entry) = snapshot.offer(&binding.namespace, &binding.offer) else {
        return Compliance::Pending;
    };
    let asked = evaluate::questions(&snapshot, &shared.discovery, &entry.offer);
    let (discovery, metrics) = (&shared.discovery, &shared.metrics);
    let found = evaluate::run(discovery, &snapshot, metrics, binding, &asked).await;
    found.compliance
}
