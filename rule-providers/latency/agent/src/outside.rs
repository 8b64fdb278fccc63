//! Plans the visits of addresses outside the cluster. Each address is visited at its own interval,
//! however many other targets there are. The code is pure: the caller passes the time.

use std::{
    hash::Hash,
    time::{Duration, Instant},
};

use fastrand::Rng;
use hashbrown::HashMap;

/// The shortest interval between two visits of an address.
pub const MIN_OUTSIDE_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct OutsideSchedule<K> {
    due: HashMap<K, (Instant, Duration)>,
    rng: Rng,
}

impl<K: Clone + Eq + Hash> OutsideSchedule<K> {
    pub fn new(seed: u64) -> Self {
        Self {
            due: HashMap::new(),
            rng: Rng::with_seed(seed),
        }
    }

    /// Replaces the targets, each with its interval. New targets are due at a random time within it, so
    /// that the nodes do not visit an address at once; known targets keep their times.
    pub fn set(&mut self, targets: impl IntoIterator<Item = (K, Duration)>, now: Instant) {
        let before = std::mem::take(&mut self.due);
        for (key, interval) in targets {
            let known = before.get(&key).map(|(due, _)| *due);
            let due = known.unwrap_or_else(|| now + interval.mul_f64(self.rng.f64()));
            self.due.insert(key, (due, interval));
        }
    }

    /// Makes a target due as a new one, if it is known.
    pub fn prioritize(&mut self, key: &K, now: Instant) {
        if let Some((due, interval)) = self.due.get_mut(key) {
            *due = now + interval.mul_f64(self.rng.f64());
        }
    }

    /// Returns a target to visit now. The caller repeats the call until it returns `None`. A random
    /// part of up to a tenth is subtracted from the interval.
    pub fn next(&mut self, now: Instant) -> Option<K> {
        let (key, (due, interval)) = self.due.iter_mut().find(|(_, (due, _))| *due <= now)?;
        *due = now + interval.mul_f64(1.0 - self.rng.f64() * 0.1);
        Some(key.clone())
    }

    pub fn next_visit_at(&self) -> Option<Instant> {
        self.due.values().map(|(due, _)| *due).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(40);

    /// Visits until `end` whatever is due, and returns the times of each target's visits.
    fn run(
        schedule: &mut OutsideSchedule<u32>,
        mut now: Instant,
        end: Instant,
    ) -> BTreeMap<u32, Vec<Instant>> {
        let mut visits: BTreeMap<_, Vec<_>> = BTreeMap::new();
        while now <= end {
            while let Some(key) = schedule.next(now) {
                visits.entry(key).or_default().push(now);
            }
            let wake = schedule.next_visit_at().unwrap();
            assert!(wake > now, "it would spin");
            now = wake;
        }
        visits
    }

    #[test]
    fn outside_targets_are_visited_about_once_an_interval() {
        let (mut schedule, start) = (OutsideSchedule::new(7), Instant::now());
        schedule.set((0..256).map(|key| (key, INTERVAL)), start);
        let visits = run(&mut schedule, start, start + 20 * INTERVAL);
        assert_eq!(visits.len(), 256);
        let mut gaps = Vec::new();
        for times in visits.values() {
            assert!(times[0] < start + INTERVAL);
            gaps.extend(times.windows(2).map(|w| w[1] - w[0]));
        }
        let range = INTERVAL.mul_f64(0.9)..=INTERVAL;
        assert!(gaps.iter().all(|gap| range.contains(gap)), "{gaps:?}");
        assert!(gaps.iter().min() != gaps.iter().max(), "in step");
    }

    #[test]
    fn another_list_leaves_known_outside_targets_their_times() {
        let (mut schedule, start) = (OutsideSchedule::new(7), Instant::now());
        assert_eq!(
            (schedule.next(start), schedule.next_visit_at()),
            (None, None)
        );
        schedule.set([1, 2].map(|key| (key, INTERVAL)), start);
        let due = schedule.due.clone();
        schedule.set([2, 3].map(|key| (key, INTERVAL)), start);
        assert_eq!((schedule.due.len(), schedule.due[&2]), (2, due[&2]));
        schedule.prioritize(&1, start);
        assert!(!schedule.due.contains_key(&1), "1 is no longer listed");
        let later = start + 2 * INTERVAL;
        schedule.prioritize(&2, later);
        assert_eq!(
            (schedule.next(later), schedule.next(later)),
            (Some(3), None)
        );
        assert!(schedule.due[&2].0 >= later);
    }
}
