//! Drops what is too old, and counts the rest.

use std::time::Duration;

use super::{Id, Ledger, MOST_TARGETS, ROOM, way::KEPT};
use crate::reading::Reading;

/// How many pairs are in each state; pairs that both ends measure count once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub fresh: i64,
    pub unreachable: i64,
    pub old: i64,
    pub apart: i64,
    pub connect: i64,
}

impl Ledger {
    /// Drops what is too old among the ways of these instances, and the instances
    /// whose agents have been gone for as long; says those, and counts the rest.
    pub fn sweep(&mut self, ids: &[Id], now: Duration) -> (Tally, Vec<Id>) {
        let (mut tally, mut gone) = (Tally::default(), Vec::new());
        for &id in ids {
            let Some(instance) = self.instances.get_mut(&id) else {
                continue;
            };
            if instance.stream == 0 && now >= instance.source.frame + KEPT {
                self.retire(id);
                gone.push(id);
                continue;
            }
            instance.ways.shrink_to(instance.ways.len() + ROOM);
            instance.sources.shrink_to(instance.sources.len() + ROOM);
            let over = instance.ways.extract_if(.., |(_, way)| way.over(now));
            let over: Vec<Id> = over.map(|(to, _)| to).collect();
            // What many probes took is given back.
            if instance.ways.capacity() > instance.ways.len() * 2 + MOST_TARGETS {
                instance.ways.shrink_to_fit();
            }
            for to in over {
                self.unlink(to, id);
                self.dropped.push((id, to));
            }
            self.count(id, now, &mut tally);
        }
        (tally, gone)
    }

    /// Counts the pairs of which this end comes first, or alone measures.
    fn count(&self, id: Id, now: Duration, tally: &mut Tally) {
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        for (to, _) in &instance.ways {
            if *to < id && instance.sources.binary_search(to).is_ok() {
                continue;
            }
            match self.reading(id, *to, now) {
                Reading::Fresh(figure) => {
                    tally.fresh += 1;
                    tally.apart += i64::from(figure.apart);
                    tally.connect += i64::from(figure.connect);
                }
                Reading::Unreachable { .. } => tally.unreachable += 1,
                Reading::Old(_) => tally.old += 1,
                Reading::Nothing => {}
            }
        }
    }
}
