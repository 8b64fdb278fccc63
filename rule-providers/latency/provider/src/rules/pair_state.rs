//! The last level of each pair of nodes under a rule, for as long as the rule is evaluated.

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tautline_sdk::Compliance;

use super::hysteresis::{Bounds, next_level};

const MAX_STATES: usize = 100_000;
const STATE_RETENTION: Duration = Duration::from_secs(3_600);
const MIN_DEMAND: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    Jitter,
    Latency,
}

impl Quantity {
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Jitter => "jitter",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    a: String,
    b: String,
    quantity: Quantity,
    bounds: Bounds,
}

#[derive(Clone, Debug)]
struct PairState {
    level: Option<Compliance>,
    /// The time as last reported, in microseconds.
    reported: u64,
    evaluated: Instant,
    /// The longest time between two evaluations in the last hour, and the time of the later one.
    longest_gap: (Duration, Instant),
}

/// The states of all pairs under a rule. A pod that moves has other pairs, and so starts without a
/// level.
#[derive(Debug, Default)]
pub(crate) struct PairStates(Mutex<HashMap<Key, PairState>>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct PairRule<'a> {
    pub a: &'a str,
    pub b: &'a str,
    pub quantity: Quantity,
    pub bounds: Bounds,
}

/// A pair whose rule is still evaluated; `a` is the lesser name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActivePair {
    pub a: String,
    pub b: String,
    pub quantity: Quantity,
    pub bounds: Bounds,
    pub level: Option<Compliance>,
}

impl PairRule<'_> {
    fn key(&self) -> Key {
        let (a, b) = (self.a.min(self.b), self.a.max(self.b));
        Key {
            a: a.to_owned(),
            b: b.to_owned(),
            quantity: self.quantity,
            bounds: self.bounds,
        }
    }
}

impl PairState {
    fn demand_time(&self) -> Duration {
        let time = self.longest_gap.0.mul_f64(2.5);
        time.clamp(MIN_DEMAND, STATE_RETENTION)
    }
}

impl PairStates {
    /// Records an evaluation, and drops the level if the pair was no longer measured for it. Returns
    /// the time for which the pair must be measured: until well after the next evaluation, if the
    /// interval stays the same.
    pub(crate) fn evaluated(&self, pair: PairRule<'_>, now: Instant) -> Duration {
        let mut states = self.0.lock();
        if states.len() >= MAX_STATES {
            evict(&mut states, now);
        }
        let state = states.entry(pair.key()).or_insert(PairState {
            level: None,
            reported: 0,
            evaluated: now,
            longest_gap: (Duration::ZERO, now),
        });
        let gap = now.saturating_duration_since(state.evaluated);
        if gap > state.demand_time() {
            state.level = None;
        }
        let (longest, seen) = state.longest_gap;
        if gap >= longest || now.saturating_duration_since(seen) > STATE_RETENTION {
            state.longest_gap = (gap, now);
        }
        state.evaluated = now;
        state.demand_time()
    }

    /// Updates and returns the level by the windows, newest first, and the time to report in
    /// microseconds, which changes only with the level or by over a tenth, so that reasons are
    /// stable.
    pub(crate) fn update(&self, pair: PairRule<'_>, windows: &[u64]) -> Option<(Compliance, u64)> {
        let newest = *windows.first()?;
        let mut states = self.0.lock();
        let Some(state) = states.get_mut(&pair.key()) else {
            return Some((next_level(None, windows, pair.bounds)?, newest));
        };
        let level = next_level(state.level, windows, pair.bounds)?;
        if state.level != Some(level)
            || newest.abs_diff(state.reported).saturating_mul(10) > state.reported
        {
            state.reported = newest;
        }
        state.level = Some(level);
        Some((level, state.reported))
    }

    pub(crate) fn reset(&self, pair: PairRule<'_>) {
        if let Some(state) = self.0.lock().get_mut(&pair.key()) {
            state.level = None;
        }
    }

    /// Returns the pairs whose demand has not ended and whose rule still exists, by `has_rule`.
    pub(crate) fn active(
        &self,
        now: Instant,
        has_rule: impl Fn(Quantity, Bounds) -> bool,
    ) -> Vec<ActivePair> {
        let states = self.0.lock();
        let active = states.iter().filter(|(key, s)| {
            let is_demanded = now.saturating_duration_since(s.evaluated) < s.demand_time();
            is_demanded && has_rule(key.quantity, key.bounds)
        });
        let active = active.map(|(key, state)| ActivePair {
            a: key.a.clone(),
            b: key.b.clone(),
            quantity: key.quantity,
            bounds: key.bounds,
            level: state.level,
        });
        active.collect()
    }
}

/// Drops the expired states, and if too many are left, the half that was evaluated longest ago.
fn evict(states: &mut HashMap<Key, PairState>, now: Instant) {
    let since = |s: &PairState| now.saturating_duration_since(s.evaluated);
    states.retain(|_, s| since(s) < STATE_RETENTION);
    if states.len() > MAX_STATES / 2 {
        let mut evaluated: Vec<Instant> = states.values().map(|s| s.evaluated).collect();
        let middle = evaluated.len() / 2;
        let (_, median, _) = evaluated.select_nth_unstable(middle);
        let median = *median;
        states.retain(|_, s| s.evaluated > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule<'a>(a: &'a str, b: &'a str) -> PairRule<'a> {
        PairRule {
            a,
            b,
            quantity: Quantity::Latency,
            bounds: Bounds {
                request: Some(1_000),
                limit: None,
            },
        }
    }

    #[test]
    fn level_and_reported_time_are_stable() {
        let states = PairStates::default();
        states.evaluated(rule("a", "b"), Instant::now());
        let update = |windows: &[u64]| states.update(rule("b", "a"), windows);
        assert_eq!(update(&[]), None);
        assert_eq!(update(&[900]), Some((Compliance::Compliant, 900)));
        assert_eq!(update(&[980, 900]), Some((Compliance::Compliant, 900)));
        assert_eq!(update(&[995, 980, 900]), Some((Compliance::Compliant, 995)));
        assert_eq!(
            update(&[1_010, 1_005, 1_002]),
            Some((Compliance::Limit, 1_010))
        );
        states.reset(rule("a", "b"));
        assert_eq!(update(&[950]), Some((Compliance::Compliant, 950)));
        assert_eq!(
            states.update(rule("a", "c"), &[2_000]),
            Some((Compliance::Limit, 2_000))
        );
    }

    #[test]
    fn level_expires_without_evaluations() {
        let (states, start) = (PairStates::default(), Instant::now());
        let level_after = |after: Duration| {
            states.evaluated(rule("a", "b"), start + after);
            states.update(rule("a", "b"), &[950, 950, 950]).unwrap().0
        };
        states.evaluated(rule("a", "b"), start);
        let bad = states.update(rule("a", "b"), &[2_000; 3]);
        assert_eq!(bad, Some((Compliance::Limit, 2_000)));
        assert_eq!(
            level_after(MIN_DEMAND),
            Compliance::Limit,
            "a tenth better it is not"
        );
        assert_eq!(level_after(MIN_DEMAND * 2), Compliance::Limit);
        assert_eq!(level_after(MIN_DEMAND * 10), Compliance::Compliant);
    }

    #[test]
    fn demand_lasts_until_well_after_the_next_evaluation() {
        let (states, start) = (PairStates::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let keep = |seconds| {
            let keep = states.evaluated(rule("a", "b"), at(seconds));
            keep.as_secs()
        };
        assert_eq!(keep(0), 300);
        assert_eq!(keep(60), 300);
        assert_eq!(keep(660), 1_500, "2.5 x 10 minutes");
        assert_eq!(keep(661), 1_500, "another binding asks in between");
        assert_eq!(keep(3_661), 3_600, "an hour at the most");
        for i in 1..=70 {
            keep(3_661 + i * 60);
        }
        assert_eq!(keep(3_661 + 71 * 60), 300, "what was an hour ago is over");
    }

    #[test]
    fn states_are_bounded() {
        let (states, now) = (PairStates::default(), Instant::now());
        for i in 0..MAX_STATES + 10 {
            let name = format!("n{i}");
            let later = now + Duration::from_millis(i as u64);
            states.evaluated(rule("a", &name), later);
        }
        let count = states.0.lock().len();
        assert!(count <= MAX_STATES && count > MAX_STATES / 3, "{count}");
        let last = format!("n{}", MAX_STATES + 9);
        assert!(states.0.lock().contains_key(&rule("a", &last).key()));
    }

    #[test]
    fn pair_is_active_until_its_demand_ends() {
        let (states, start) = (PairStates::default(), Instant::now());
        let rule = PairRule {
            a: "b",
            b: "a",
            quantity: Quantity::Latency,
            bounds: Bounds {
                request: Some(5),
                limit: None,
            },
        };
        states.evaluated(rule, start);
        states.update(rule, &[4, 4, 4]);
        let active = |at| states.active(at, |quantity, _| quantity == Quantity::Latency);
        let early = active(start + MIN_DEMAND / 2);
        let expected = ActivePair {
            a: "a".to_owned(),
            b: "b".to_owned(),
            quantity: Quantity::Latency,
            bounds: rule.bounds,
            level: Some(Compliance::Compliant),
        };
        assert_eq!(early, [expected]);
        assert_eq!(active(start + MIN_DEMAND), []);
        assert_eq!(states.active(start, |_, _| false), []);
    }
}
