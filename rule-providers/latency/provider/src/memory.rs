//! What was said of a pair under a rule, for as long as somebody asks.

mod named;

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::judge::{Bounds, Level, judge};
pub(crate) use named::Named;

/// Pairs and rules that are kept, at the most.
const MOST: usize = 100_000;
/// What nobody has asked about for so long is forgotten.
const FORGET: Duration = Duration::from_secs(3_600);
/// A pair is demanded for at least so long after a question.
const KEEP: Duration = Duration::from_secs(300);

/// What a figure measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Quantity {
    Latency,
    Jitter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    a: String,
    b: String,
    quantity: Quantity,
    bounds: Bounds,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    level: Option<Level>,
    /// The figure as it was told, in microseconds.
    told: u64,
    asked: Instant,
    /// The longest time between two questions of the last hour, and when it was seen.
    pause: (Duration, Instant),
}

/// Keeps judgements. A pod that moves has other pairs and so starts anew.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<Key, Entry>>);

/// A pair of nodes under a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub a: &'a str,
    pub b: &'a str,
    pub quantity: Quantity,
    pub bounds: Bounds,
}

impl Case<'_> {
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

impl Memory {
    /// Notes that the case is asked about; if that comes so late that the pair was
    /// not measured for it any more, it is judged anew. Gives for how long its pair is to be
    /// measured: until well after the next question, if that comes as the last ones
    /// did.
    pub(crate) fn asked(&self, case: Case<'_>, now: Instant) -> Duration {
        let mut entries = self.0.lock();
        if entries.len() >= MOST {
            forget(&mut entries, now);
        }
        let entry = entries.entry(case.key()).or_insert(Entry {
            level: None,
            told: 0,
            asked: now,
            pause: (Duration::ZERO, now),
        });
        let pause = now.saturating_duration_since(entry.asked);
        if pause > entry.keep() {
            entry.level = None;
        }
        let (longest, seen) = entry.pause;
        if pause >= longest || now.saturating_duration_since(seen) > FORGET {
            entry.pause = (pause, now);
        }
        entry.asked = now;
        entry.keep()
    }

    /// Judges the windows, newest first; the level, and a figure to tell that moves
    /// only if the level does or by over a tenth, so that reports hold still.
    pub(crate) fn judged(&self, case: Case<'_>, windows: &[u64]) -> Option<(Level, u64)> {
        let newest = *windows.first()?;
        let mut entries = self.0.lock();
        let Some(entry) = entries.get_mut(&case.key()) else {
            return Some((judge(None, windows, case.bounds)?, newest));
        };
        let level = judge(entry.level, windows, case.bounds)?;
        if entry.level != Some(level) || newest.abs_diff(entry.told).saturating_mul(10) > entry.told
        {
            entry.told = newest;
        }
        entry.level = Some(level);
        Some((level, entry.told))
    }

    /// Forgets what was judged: the pair could not be reached, or was reconfigured.
    pub(crate) fn start_anew(&self, case: Case<'_>) {
        if let Some(entry) = self.0.lock().get_mut(&case.key()) {
            entry.level = None;
        }
    }
}

/// Drops what is out of use, and if that is little the half asked longest ago.
fn forget(entries: &mut HashMap<Key, Entry>, now: Instant) {
    let since = |e: &Entry| now.saturating_duration_since(e.asked);
    entries.retain(|_, e| since(e) < FORGET);
    if entries.len() > MOST / 2 {
        let mut asked: Vec<Instant> = entries.values().map(|e| e.asked).collect();
        let middle = asked.len() / 2;
        let (_, median, _) = asked.select_nth_unstable(middle);
        let median = *median;
        entries.retain(|_, e| e.asked > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case<'a>(a: &'a str, b: &'a str) -> Case<'a> {
        Case {
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
    fn a_level_and_its_figure_hold_still() {
        let memory = Memory::default();
        memory.asked(case("a", "b"), Instant::now());
        let told = |windows: &[u64]| memory.judged(case("b", "a"), windows);
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[900]), Some((Level::Compliant, 900)));
        assert_eq!(told(&[980, 900]), Some((Level::Compliant, 900)));
        assert_eq!(told(&[995, 980, 900]), Some((Level::Compliant, 995)));
        assert_eq!(told(&[1_010, 1_005, 1_002]), Some((Level::Limit, 1_010)));
        memory.start_anew(case("a", "b"));
        assert_eq!(told(&[950]), Some((Level::Compliant, 950)));
        // Other nodes are another case.
        assert_eq!(
            memory.judged(case("a", "c"), &[2_000]),
            Some((Level::Limit, 2_000))
        );
    }

    #[test]
    fn a_level_that_nobody_asked_about_for_long_is_not_used_again() {
        let (memory, start) = (Memory::default(), Instant::now());
        let told = |after: Duration| {
            memory.asked(case("a", "b"), start + after);
            memory.judged(case("a", "b"), &[950, 950, 950]).unwrap().0
        };
        memory.asked(case("a", "b"), start);
        let bad = memory.judged(case("a", "b"), &[2_000; 3]);
        assert_eq!(bad, Some((Level::Limit, 2_000)));
        assert_eq!(told(KEEP), Level::Limit, "a tenth better it is not");
        // Asked every 5 minutes it is kept for 12.5.
        assert_eq!(told(KEEP * 2), Level::Limit);
        assert_eq!(told(KEEP * 10), Level::Compliant);
    }

    #[test]
    fn a_pair_is_demanded_until_well_after_the_next_question() {
        let (memory, start) = (Memory::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let keep = |seconds| memory.asked(case("a", "b"), at(seconds)).as_secs();
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
    fn it_forgets_before_it_grows_for_ever() {
        let (memory, now) = (Memory::default(), Instant::now());
        for i in 0..MOST + 10 {
            let name = format!("n{i}");
            let later = now + Duration::from_millis(i as u64);
            memory.asked(case("a", &name), later);
        }
        let kept = memory.0.lock().len();
        assert!(kept <= MOST && kept > MOST / 3, "{kept}");
        let last = format!("n{}", MOST + 9);
        assert!(memory.0.lock().contains_key(&case("a", &last).key()));
    }
}
