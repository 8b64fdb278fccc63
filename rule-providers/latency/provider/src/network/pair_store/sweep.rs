use std::time::Duration;

use super::{
    pair::PAIR_RETENTION,
    store::{InstanceId, LIST_GROWTH_ENTRIES, MAX_TARGETS, PairStore},
};
use crate::measurement::Measurement;

/// The number of pairs in each state. A pair that both nodes measure counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PairCounts {
    pub fresh: i64,
    pub unreachable: i64,
    pub stale: i64,
    pub asymmetric: i64,
    pub connect: i64,
}

impl PairStore {
    /// Removes the expired pairs of these instances, and the instances whose agents have been gone
    /// for [`PAIR_RETENTION`]. Returns the counts of the remaining pairs, and the removed
    /// instances.
    pub fn sweep(&mut self, ids: &[InstanceId], now: Duration) -> (PairCounts, Vec<InstanceId>) {
        let (mut counts, mut gone) = (PairCounts::default(), Vec::new());
        for &id in ids {
            let Some(instance) = self.instances.get_mut(&id) else {
                continue;
            };
            if instance.stream == 0 && now >= instance.reporter.last_frame + PAIR_RETENTION {
                self.remove(id);
                gone.push(id);
                continue;
            }
            instance
                .targets
                .shrink_to(instance.targets.len() + LIST_GROWTH_ENTRIES);
            instance
                .sources
                .shrink_to(instance.sources.len() + LIST_GROWTH_ENTRIES);
            let expired = instance
                .targets
                .extract_if(.., |(_, pair)| pair.is_expired(now));
            let expired: Vec<InstanceId> = expired.map(|(to, _)| to).collect();
            // Probes of many pairs leave a large list behind.
            if instance.targets.capacity() > instance.targets.len() * 2 + MAX_TARGETS {
                instance.targets.shrink_to_fit();
            }
            for to in expired {
                self.unlink(to, id);
                self.dropped.push((id, to));
            }
            self.count(id, now, &mut counts);
        }
        (counts, gone)
    }

    /// Counts the pairs that an instance measures, except those that an instance with a lesser ID
    /// measures too.
    fn count(&self, id: InstanceId, now: Duration, counts: &mut PairCounts) {
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        for (to, _) in &instance.targets {
            if *to < id && instance.sources.binary_search(to).is_ok() {
                continue;
            }
            match self.measurement(id, *to, now) {
                Measurement::Fresh(stats) => {
                    counts.fresh += 1;
                    counts.asymmetric += i64::from(stats.asymmetric);
                    counts.connect += i64::from(stats.connect);
                }
                Measurement::Unreachable { .. } => counts.unreachable += 1,
                Measurement::Stale(_) => counts.stale += 1,
                Measurement::Missing => {}
            }
        }
    }
}
