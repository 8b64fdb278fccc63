//! Reads the pair store: its measurements and counts.

use std::{sync::Arc, time::Duration};

use super::{
    InstanceId, PairCounts, PairStore,
    pair::{DirectedPair, combined},
};
use crate::measurement::Measurement;

impl PairStore {
    fn pair(&self, from: InstanceId, to: InstanceId) -> Option<&DirectedPair> {
        let targets = &self.instances.get(&from)?.targets;
        let at = targets.binary_search_by_key(&to, |t| t.0).ok()?;
        targets.get(at).map(|t| &t.1)
    }

    pub fn targets(&self, from: InstanceId) -> Vec<InstanceId> {
        let targets = self.instances.get(&from).map(|i| i.targets.as_slice());
        targets.unwrap_or_default().iter().map(|t| t.0).collect()
    }

    pub fn direction(
        &self,
        from: InstanceId,
        to: InstanceId,
        now: Duration,
    ) -> (Measurement, Option<Duration>) {
        let interval = self.pair(from, to).map(DirectedPair::visit_interval);
        (self.one_way(from, to, now), interval)
    }

    fn one_way(&self, from: InstanceId, to: InstanceId, now: Duration) -> Measurement {
        let (Some(source), Some(target)) = (self.instances.get(&from), self.instances.get(&to))
        else {
            return Measurement::Missing;
        };
        match self.pair(from, to) {
            Some(pair) => pair.measurement(source.reporter, target.answers_since(), now),
            None => Measurement::Missing,
        }
    }

    /// Returns the targets that a node could not reach at its last attempt. Losses no longer count
    /// once either node has reached one of its lost targets again: the network may be repaired.
    pub fn lost(&self, from: InstanceId, now: Duration) -> impl Iterator<Item = InstanceId> {
        let source = self.instances.get(&from);
        let targets = source.map_or(&[][..], |source| &source.targets);
        let unreachable = targets.iter().filter(|(_, pair)| pair.is_unreachable());
        let lost = unreachable.filter(move |(to, pair)| {
            let Some((source, target)) = source.zip(self.instances.get(to)) else {
                return false;
            };
            pair.is_lost(source.reporter, target.answers_since(), now)
                && source.regained.max(target.regained) < Some(pair.reported)
                && !self.outdates(*to, from)
        });
        lost.map(|(to, _)| *to)
    }

    pub fn measurement(&self, a: InstanceId, b: InstanceId, now: Duration) -> Measurement {
        let (there, back) = (self.one_way(a, b, now), self.one_way(b, a, now));
        match (&there, &back) {
            (Measurement::Fresh(_), Measurement::Unreachable { .. }) if self.outdates(a, b) => {
                there
            }
            (Measurement::Unreachable { .. }, Measurement::Fresh(_)) if self.outdates(b, a) => back,
            _ => combined(there, back),
        }
    }

    /// Returns whether this direction has a sample that is newer than the losses of the other
    /// direction. An echo goes both ways, so the network is not cut.
    fn outdates(&self, from: InstanceId, to: InstanceId) -> bool {
        let pairs = self.pair(from, to).zip(self.pair(to, from));
        pairs.is_some_and(|(fresh, lost)| fresh.sampled_after(lost))
    }

    pub fn row(&self, of: InstanceId, now: Duration) -> Vec<(InstanceId, Measurement)> {
        let measured = |other| (other, self.measurement(of, other, now));
        self.others(of).into_iter().map(measured).collect()
    }

    /// Returns the instances that an instance measures, or that measure it.
    fn others(&self, of: InstanceId) -> Vec<InstanceId> {
        let mut others = self.targets(of);
        others.extend(self.instances.get(&of).into_iter().flat_map(|i| &i.sources));
        others.sort_unstable();
        others.dedup();
        others
    }

    pub fn reported_since(&self, a: InstanceId, b: InstanceId, since: Duration) -> bool {
        let reported = |from, to| {
            self.pair(from, to)
                .is_some_and(|pair| pair.reported.time() >= since)
        };
        reported(a, b) || reported(b, a)
    }

    pub fn measured_nodes(&self, of: InstanceId) -> Vec<Arc<str>> {
        let others = self.others(of).into_iter();
        let known = others.filter_map(|id| self.instances.get(&id));
        known.map(|i| Arc::clone(&i.node)).collect()
    }

    /// Counts the pairs that an instance measures, except those that an instance with a lesser ID
    /// measures too.
    pub(super) fn count(&self, id: InstanceId, now: Duration, counts: &mut PairCounts) {
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

    /// Returns the time of a pair and its spread, as the model takes them.
    pub fn sample(&self, from: InstanceId, to: InstanceId) -> Option<(f32, Option<f32>)> {
        self.pair(from, to)?.sample()
    }
}
