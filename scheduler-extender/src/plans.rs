//! Plans kept from filter to prioritize and bind, by the pod's UID.

use std::{ops::Deref, sync::Arc, time::Duration};

use dashmap::DashMap;
use tautline_discovery::Round;
use tokio::time::Instant;

use crate::underlay::Consulted;

/// A scheduling cycle is milliseconds; a plan older than this belongs to none.
const TTL: Duration = Duration::from_secs(30);
/// Cycles run one by one, so far fewer are ever under way.
const MOST: usize = 256;

/// What is planned for a pod: by the rules, and by the underlay's word where the
/// rules left no node.
#[derive(Debug)]
pub(crate) struct Planned {
    pub round: Round,
    /// `None`: it was not called for.
    pub underlay: Option<Consulted>,
}

impl Planned {
    /// Bytes held, roughly.
    pub(crate) fn weight(&self) -> usize {
        self.round.weight() + self.underlay.as_ref().map_or(0, Consulted::weight)
    }
}

impl Deref for Planned {
    type Target = Round;

    fn deref(&self) -> &Round {
        &self.round
    }
}

#[derive(Debug, Default)]
pub(crate) struct Plans(DashMap<String, (Instant, Arc<Planned>)>);

impl Plans {
    pub(crate) fn keep(&self, plan: &Arc<Planned>) {
        let now = Instant::now();
        if self.0.len() >= MOST {
            self.0.retain(|_, (at, _)| now.duration_since(*at) < TTL);
            if self.0.len() >= MOST {
                self.0.clear();
            }
        }
        self.0
            .insert(plan.subject.uid.clone(), (now, Arc::clone(plan)));
    }

    pub(crate) fn get(&self, uid: &str) -> Option<Arc<Planned>> {
        let entry = self.0.get(uid)?;
        let (at, plan) = entry.value();
        (at.elapsed() < TTL).then(|| Arc::clone(plan))
    }
}
