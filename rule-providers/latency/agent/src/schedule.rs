//! Plans the order and the times of visits; a visit takes one sample. Base targets are visited in
//! turn, one per second. Targets in demand, which active rules name, are each visited about every
//! two seconds. The code is pure: the caller passes the time.

use std::{
    hash::Hash,
    time::{Duration, Instant},
};

use fastrand::Rng;
use hashbrown::HashMap;

/// The time between two visits of base targets. A random part of up to a tenth is added.
const BASE_INTERVAL: Duration = Duration::from_millis(1_000);
/// The shortest and the longest time between two visits of a target in demand. With these, three
/// losses are known within 5 s: the last re-probe is half a second after the time-out of a visit.
const DEMAND_INTERVAL_RANGE: (Duration, Duration) =
    (Duration::from_millis(1_500), Duration::from_millis(1_900));
/// The minimum time between visits of targets in demand: at most five visits per second.
const MIN_DEMAND_GAP: Duration = Duration::from_millis(200);
/// The time after which an unreachable base target is visited before the other base targets.
const FAILING_INTERVAL: Duration = Duration::from_secs(5);
/// The number of base visits of which at most one is for an unreachable target out of turn, so that
/// the other targets do not become stale.
const VISITS_PER_FAILING_VISIT: u32 = 3;
/// The number of targets in demand that can be visited every two seconds.
const MAX_TIMELY_DEMAND_TARGETS: usize = 10;
/// The number of quick visits with which the schedule starts.
const BURST_VISITS: u32 = 16;
/// The time between two of the quick visits, at most.
const BURST_VISIT_INTERVAL: Duration = Duration::from_millis(2_000 / 16);

#[derive(Clone, Debug)]
struct Target {
    demand: bool,
    failing: bool,
    visited: Option<Instant>,
    due: Instant,
    turn: u64,
}

#[derive(Debug)]
pub struct Schedule<K> {
    targets: HashMap<K, Target>,
    rng: Rng,
    base_due: Instant,
    in_turn: u32,
    burst: Option<(u32, Instant)>,
    slot: Instant,
}

impl<K: Clone + Eq + Hash> Schedule<K> {
    pub fn new(seed: u64, now: Instant) -> Self {
        Self {
            targets: HashMap::new(),
            rng: Rng::with_seed(seed),
            base_due: now,
            in_turn: 0,
            burst: None,
            slot: now,
        }
    }

    /// Replaces the targets. Each target has a flag, which is true if an active rule names it.
    /// Known targets with the same flag keep their turn.
    pub fn set(&mut self, targets: impl IntoIterator<Item = (K, bool)>, now: Instant) {
        let mut before = std::mem::take(&mut self.targets);
        for (key, demand) in targets {
            let known = before.remove(&key);
            let unchanged = known.filter(|t| t.demand == demand);
            let target = unchanged.unwrap_or_else(|| Target {
                demand,
                failing: false,
                visited: None,
                due: now,
                turn: self.rng.u64(..),
            });
            self.targets.insert(key, target);
        }
        if self.burst.is_none() && !self.targets.is_empty() {
            self.burst = Some((BURST_VISITS, now));
        }
    }

    pub fn failing(&mut self, key: &K, failing: bool) {
        if let Some(target) = self.targets.get_mut(key) {
            target.failing = failing;
        }
    }

    /// Moves a target to the front, as if it had not been visited.
    pub fn prioritize(&mut self, key: &K, now: Instant) {
        if let Some(target) = self.targets.get_mut(key) {
            target.visited = None;
            target.due = now;
        }
    }

    /// Returns the next target to visit now. The caller repeats the call until it returns `None`.
    pub fn next(&mut self, now: Instant) -> Option<K> {
        if let Some((left @ 1.., due)) = self.burst {
            return (due <= now).then(|| self.burst(left, now)).flatten();
        }
        if self.base_due <= now
            && let Some(key) = self.first_in_turn(now)
        {
            self.base_due = now + BASE_INTERVAL.mul_f64(1.0 + self.rng.f64() * 0.1);
            self.visit(&key, now);
            return Some(key);
        }
        // Targets in demand are visited strictly in turn, so that no target waits longer than its
        // interval unless there are too few slots.
        let (key, due) = self.first_in_demand()?;
        if due > now {
            return None;
        }
        self.visit(&key, now);
        Some(key)
    }

    pub fn next_visit_at(&self) -> Option<Instant> {
        if let Some((1.., due)) = self.burst {
            return Some(due);
        }
        let base = self.targets.values().any(|t| !t.demand);
        let base = base.then_some(self.base_due);
        let demand = self.first_in_demand().map(|(_, due)| due);
        base.into_iter().chain(demand).min()
    }

    pub fn refresh(&self, key: &K) -> Option<Duration> {
        let same = |demand| self.targets.values().filter(move |t| t.demand == demand);
        let count = |demand| u32::try_from(same(demand).count()).unwrap_or(u32::MAX);
        Some(if self.targets.get(key)?.demand {
            DEMAND_INTERVAL_RANGE.1.max(MIN_DEMAND_GAP * count(true))
        } else {
            BASE_INTERVAL * 11 / 10 * count(false)
        })
    }

    /// Returns the numbers of base targets, of targets in demand, and of targets in demand beyond
    /// those that can be visited every two seconds.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let demand = self.targets.values().filter(|t| t.demand).count();
        let excess = demand.saturating_sub(MAX_TIMELY_DEMAND_TARGETS);
        (self.targets.len() - demand, demand, excess)
    }

    fn burst(&mut self, left: u32, now: Instant) -> Option<K> {
        let jitter = 1.0 - self.rng.f64() * 0.2;
        self.burst = Some((left - 1, now + BURST_VISIT_INTERVAL.mul_f64(jitter)));
        let unseen = self.oldest(|t| t.demand && t.visited.is_none());
        let key = unseen.or_else(|| self.oldest(|_| true))?;
        self.visit(&key, now);
        Some(key)
    }

    fn oldest(&self, which: impl Fn(&Target) -> bool) -> Option<K> {
        let of = self.targets.iter().filter(|(_, t)| which(t));
        of.min_by_key(|(_, t)| (t.visited, t.turn))
            .map(|(k, _)| k.clone())
    }

    fn visit(&mut self, key: &K, now: Instant) {
        let span = (DEMAND_INTERVAL_RANGE.1 - DEMAND_INTERVAL_RANGE.0).mul_f64(self.rng.f64());
        if let Some(target) = self.targets.get_mut(key) {
            target.visited = Some(now);
            target.due = now + DEMAND_INTERVAL_RANGE.0 + span;
            if target.demand {
                self.slot = now + MIN_DEMAND_GAP;
            }
        }
    }

    fn first_in_turn(&mut self, now: Instant) -> Option<K> {
        self.in_turn = self.in_turn.saturating_add(1);
        let waited = |t: &Target| t.visited.is_none_or(|at| at + FAILING_INTERVAL <= now);
        let failing = (self.in_turn >= VISITS_PER_FAILING_VISIT)
            .then(|| self.oldest(|t| !t.demand && t.failing && waited(t)))
            .flatten();
        if failing.is_some() {
            self.in_turn = 0;
        }
        failing.or_else(|| self.oldest(|t| !t.demand))
    }

    fn first_in_demand(&self) -> Option<(K, Instant)> {
        let key = self.oldest(|t| t.demand)?;
        let due = self.targets.get(&key)?.due;
        Some((key, due.max(self.slot)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn run(schedule: &mut Schedule<u32>, start: Instant, span: Duration) -> Vec<(u64, u32)> {
        let (mut now, mut visits) = (start, Vec::new());
        while now < start + span {
            while let Some(key) = schedule.next(now) {
                visits.push(((now - start).as_millis() as u64, key));
            }
            let wake = schedule.next_visit_at().unwrap_or(start + span);
            now = wake.max(now + MS);
        }
        visits
    }

    fn schedule(base: u32, demand: u32, seed: u64) -> (Schedule<u32>, Instant) {
        let now = Instant::now();
        let mut schedule = Schedule::new(seed, now);
        let base = (0..base).map(|n| (n, false));
        schedule.set(base.chain((1000..1000 + demand).map(|n| (n, true))), now);
        (schedule, now)
    }

    fn gaps(visits: &[(u64, u32)]) -> BTreeMap<u32, Vec<u64>> {
        let (mut last, mut gaps) = (BTreeMap::new(), BTreeMap::<u32, Vec<u64>>::new());
        for (at, key) in visits {
            if let Some(before) = last.insert(*key, *at) {
                gaps.entry(*key).or_default().push(at - before);
            }
        }
        gaps
    }

    #[test]
    fn a_new_node_visits_16_within_2_s_and_others_before_any_twice() {
        for (base, demand) in [(32, 0), (16, 0), (4, 3), (0, 40)] {
            let (mut schedule, start) = schedule(base, demand, 1);
            let visits = run(&mut schedule, start, 2_000 * MS);
            let keys: BTreeSet<u32> = visits.iter().map(|v| v.1).take(16).collect();
            assert_eq!(keys.len(), 16.min((base + demand) as usize));
            let burst = visits.iter().filter(|v| v.0 < 2_000).count();
            assert!((16..=24).contains(&burst), "{visits:?}");
            schedule.set((0..32).map(|n| (n, false)), start + 10_000 * MS);
            let later = run(&mut schedule, start + 10_000 * MS, 2_000 * MS);
            assert!(later.len() <= 2, "{later:?}");
        }
    }

    #[test]
    fn targets_in_turn_cost_one_visit_a_second_however_many() {
        proptest!(ProptestConfig::with_cases(32), |(base in 1_u32..=32, seed: u64)| {
            let (mut schedule, start) = schedule(base, 0, seed);
            run(&mut schedule, start, 3_000 * MS);
            let visits = run(&mut schedule, start + 3_000 * MS, 300_000 * MS);
            prop_assert!(visits.windows(2).all(|w| w[1].0 - w[0].0 >= 999));
            prop_assert!(visits.len() >= 272);
            let refresh = schedule.refresh(&0).unwrap().as_millis() as u64;
            for (key, gaps) in gaps(&visits) {
                prop_assert!(gaps.iter().all(|g| *g <= refresh + 100), "{key}: {gaps:?}");
            }
        });
    }

    #[test]
    fn targets_in_demand_are_visited_every_2_s_within_the_cap() {
        proptest!(ProptestConfig::with_cases(48), |(demand in 1_u32..=10, base in 0_u32..=32, seed: u64)| {
            let (mut schedule, start) = schedule(base, demand, seed);
            run(&mut schedule, start, 8_000 * MS);
            let visits = run(&mut schedule, start + 8_000 * MS, 120_000 * MS);
            let demanded: Vec<_> = visits.iter().copied().filter(|v| v.1 >= 1000).collect();
            prop_assert!(demanded.windows(6).all(|w| w[5].0 - w[0].0 >= 999));
            let all = gaps(&demanded);
            prop_assert_eq!(all.len(), demand as usize);
            for gaps in all.values() {
                prop_assert!(gaps.iter().all(|g| (1_490..=2_010).contains(g)), "{gaps:?}");
                prop_assert!(demand > 5 || gaps.iter().min() != gaps.iter().max());
            }
            prop_assert_eq!(schedule.sizes().2, 0);
        });
    }

    #[test]
    fn excess_demand_is_slower_in_turn_and_counted() {
        proptest!(ProptestConfig::with_cases(16), |(demand in 11_u32..100, seed: u64)| {
            let (mut schedule, start) = schedule(8, demand, seed);
            run(&mut schedule, start, 60_000 * MS);
            let visits = run(&mut schedule, start + 60_000 * MS, 240_000 * MS);
            let demanded: Vec<_> = visits.iter().copied().filter(|v| v.1 >= 1000).collect();
            prop_assert!(demanded.windows(6).all(|w| w[5].0 - w[0].0 >= 999));
            let fair = u64::from(demand) * 200;
            for gaps in gaps(&demanded).values() {
                prop_assert!(gaps.iter().all(|g| *g <= fair + 1_500), "{gaps:?}");
            }
            prop_assert_eq!(schedule.sizes(), (8, demand as usize, demand as usize - 10));
            prop_assert!(visits.len() - demanded.len() >= 218);
        });
    }

    #[test]
    fn prioritized_target_is_next_within_the_budget() {
        let (mut schedule, start) = schedule(32, 10, 3);
        run(&mut schedule, start, 60_000 * MS);
        let now = start + 60_000 * MS;
        for key in [7, 1_003] {
            schedule.prioritize(&key, now);
        }
        let visits = run(&mut schedule, now, 1_200 * MS);
        let first = |demand| {
            visits
                .iter()
                .find(|v| (v.1 >= 1_000) == demand)
                .map(|v| v.1)
        };
        assert_eq!((first(false), first(true)), (Some(7), Some(1_003)));
    }

    #[test]
    fn an_unreachable_target_is_tried_every_5_s_or_so_and_none_starves() {
        for failing in [1, 32] {
            let (mut schedule, start) = schedule(32, 0, 3);
            run(&mut schedule, start, 60_000 * MS);
            (0..failing).for_each(|key| schedule.failing(&key, true));
            schedule.failing(&1_000, true);
            let visits = run(&mut schedule, start + 60_000 * MS, 300_000 * MS);
            assert!(visits.windows(2).all(|w| w[1].0 - w[0].0 >= 999));
            let gaps = gaps(&visits);
            assert_eq!(gaps.len(), 32);
            let most = |key: u32| gaps[&key].iter().copied().max().unwrap();
            assert!(failing > 1 || most(0) <= 6_200, "{gaps:?}");
            assert!(
                (0..32).all(|key| most(key) <= 32 * 1_100 * 3 / 2),
                "{gaps:?}"
            );
            schedule.failing(&0, false);
        }
    }

    #[test]
    fn the_time_to_wake_is_when_there_is_somebody() {
        let (mut schedule, start) = schedule(3, 12, 5);
        let mut now = start;
        for _ in 0..2_000 {
            while schedule.next(now).is_some() {}
            let wake = schedule.next_visit_at().unwrap();
            assert!(wake > now, "it would spin");
            assert!(schedule.next(wake - MS / 1000).is_none());
            now = wake;
        }
        let mut empty = Schedule::<u32>::new(1, start);
        assert_eq!((empty.next(start), empty.next_visit_at()), (None, None));
    }
}
