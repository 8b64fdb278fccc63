//! Resident memory of our processes, sampled during the load.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::cluster::Cluster;

pub const EVERY: Duration = Duration::from_secs(2);
/// Samples for each reported point.
const SAMPLES_PER_POINT: usize = 10;
/// A shorter run is still warming up in its second quarter.
const LEAST_RUN: Duration = Duration::from_secs(300);
/// The last quarter's median may exceed the second's by this much.
pub const MAX_GROWTH_PERCENT: f64 = 5.0;

#[derive(Default)]
struct Runs {
    pid: u32,
    /// Samples with their times, one list for each start.
    all: Vec<Vec<(Instant, u64)>>,
}

#[derive(Default)]
pub struct Memory(BTreeMap<&'static str, Runs>);

/// The longest run of a process.
pub struct Figure {
    pub name: &'static str,
    pub lives: usize,
    pub longest: Duration,
    /// Medians, in bytes.
    pub second_quarter: u64,
    pub last_quarter: u64,
    pub growth_percent: f64,
    pub judged: bool,
    /// Seconds since it was started, and bytes.
    pub series: Vec<(u64, u64)>,
}

impl Figure {
    pub fn missed(&self) -> bool {
        self.judged && self.growth_percent > MAX_GROWTH_PERCENT
    }
}

impl Memory {
    /// Samples all processes without a current fault.
    pub fn sample(&mut self, cluster: &Cluster) {
        let now = Instant::now();
        for member in cluster.members.iter().filter(|m| m.is_tautline()) {
            let Ok(runs) = member.program.try_lock() else {
                continue;
            };
            let (pid, bytes) = (runs.process().id(), runs.process().resident_bytes());
            let lives = self.0.entry(member.name).or_default();
            if lives.pid != pid {
                lives.pid = pid;
                lives.all.push(Vec::new());
            }
            if let Some(life) = lives.all.last_mut()
                && bytes > 0
            {
                life.push((now, bytes));
            }
        }
    }

    pub fn figures(&self) -> Vec<Figure> {
        let figure = |(name, lives): (&&'static str, &Runs)| {
            let length = |l: &Vec<(Instant, u64)>| match &l[..] {
                [(first, _), .., (last, _)] => *last - *first,
                _ => Duration::ZERO,
            };
            let life = lives.all.iter().max_by_key(|l| length(l))?;
            let (from, longest) = (life.first()?.0, length(life));
            let quarter = |n: u32| {
                let (begin, end) = (longest * (n - 1) / 4, longest * n / 4);
                let of = life.iter().filter(|(at, _)| {
                    let at = *at - from;
                    begin <= at && at <= end
                });
                median(of.map(|(_, bytes)| *bytes).collect())
            };
            let (second, last) = (quarter(2), quarter(4));
            Some(Figure {
                name,
                lives: lives.all.len(),
                longest,
                second_quarter: second,
                last_quarter: last,
                growth_percent: 100.0 * (last as f64 / second.max(1) as f64 - 1.0),
                judged: longest >= LEAST_RUN,
                series: life
                    .iter()
                    .step_by(SAMPLES_PER_POINT)
                    .map(|(at, bytes)| ((*at - from).as_secs(), *bytes))
                    .collect(),
            })
        };
        self.0.iter().filter_map(figure).collect()
    }
}

fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(from: Instant, seconds: u64, bytes: impl Fn(u64) -> u64) -> Vec<(Instant, u64)> {
        let at = |s| (from + Duration::from_secs(s), bytes(s));
        (0..=seconds).step_by(2).map(at).collect()
    }

    #[test]
    fn memory_growth_compares_quarters_of_the_longest_run() {
        let now = Instant::now();
        let of = |all| Runs { pid: 1, all };
        let memory = Memory(BTreeMap::from([
            (
                "flat",
                of(vec![
                    life(now, 100, |s| 1 + s),
                    life(now, 800, |s| 1000 + s.min(200)),
                ]),
            ),
            ("grows", of(vec![life(now, 800, |s| 1000 + s)])),
            ("short", of(vec![life(now, 100, |s| 1000 + 100 * s)])),
        ]));
        let figures = memory.figures();
        let seen = figures
            .iter()
            .map(|f| (f.name, f.judged, f.missed(), f.lives));
        let expected = [
            ("flat", true, false, 2),
            ("grows", true, true, 1),
            ("short", false, false, 1),
        ];
        assert!(seen.eq(expected));
        assert_eq!(figures[0].second_quarter, 1200);
        assert_eq!(
            (figures[1].second_quarter, figures[1].last_quarter),
            (1300, 1700)
        );
    }
}
