//! Plans kept from filter to prioritize, by the pod's UID.

use std::{sync::Arc, time::Duration};

use dashmap::DashMap;
use tautline_discovery::Round;
use tokio::time::Instant;

/// A scheduling cycle is milliseconds; a plan older than this belongs to none.
const TTL: Duration = Duration::from_secs(30);
/// Cycles run one by one, so far fewer are ever under way.
const MOST: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Plans(DashMap<String, (Instant, Arc<Round>)>);

impl Plans {
    pub(crate) fn keep(&self, round: &Arc<Round>) {
        let now = Instant::now();
        if self.0.len() >= MOST {
            self.0.retain(|_, (at, _)| now.duration_since(*at) < TTL);
            if self.0.len() >= MOST {
                self.0.clear();
            }
        }
        self.0
            .insert(round.subject.uid.clone(), (now, Arc::clone(round)));
    }

    pub(crate) fn get(&self, uid: &str) -> Option<Arc<Round>> {
        let entry = self.0.get(uid)?;
        let (at, round) = entry.value();
        (at.elapsed() < TTL).then(|| Arc::clone(round))
    }
}
