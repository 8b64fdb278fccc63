//! The figures as a table and as JSON, and the missed goals.

use std::time::Duration;

use serde_json::{Value, json};
use tautline_bench::{Times, table};

use crate::{
    checker::Counts,
    faults::Fault,
    final_state::FinalState,
    load::LoadResult,
    memory::{Figure, MAX_GROWTH_PERCENT},
};

pub struct Report {
    pub length: Duration,
    pub seed: u64,
    pub per_second: f64,
    pub made: LoadResult,
    pub counts: Counts,
    pub waits: Times,
    pub faults: Vec<(Fault, usize)>,
    /// Mean use of CPUs and cards, in percent.
    pub full: (usize, usize),
    pub ending: FinalState,
    /// Log lines of panics, and processes that ended by themselves.
    pub panics: Vec<String>,
    pub memory: Vec<Figure>,
}

impl Report {
    /// Every missed goal.
    pub fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for (what, all) in [
            ("wrong placement", &self.counts.wrong),
            ("leaked", &self.ending.leaked),
            ("panic", &self.panics),
            ("stuck", &self.ending.stuck),
        ] {
            missed.extend(all.iter().map(|one| format!("{what}: {one}")));
        }
        for figure in self.memory.iter().filter(|f| f.missed()) {
            missed.push(format!(
                "memory: {} has grown by {:.1} %",
                figure.name, figure.growth_percent
            ));
        }
        missed
    }

    fn governed(&self) -> usize {
        let all = self.counts.scheduled.iter();
        all.filter(|(kind, _)| **kind != "plain")
            .map(|(_, n)| n)
            .sum()
    }

    pub fn table(&self) -> String {
        let counts = &self.counts;
        let all: usize = counts.scheduled.values().sum();
        let seconds = |share| format!("{:.1} s", self.waits.quantile(share).as_secs_f64());
        let mut rows = vec![
            (
                "pods scheduled".to_owned(),
                format!("{all}, of them {} governed", self.governed()),
            ),
            (
                "wait of a pod, faults included: p50, p99, longest".into(),
                format!("{}, {}, {}", seconds(0.5), seconds(0.99), seconds(1.0)),
            ),
            (
                "in use on average".into(),
                format!("{} % of CPU, {} % of cards", self.full.0, self.full.1),
            ),
            (
                "faults".into(),
                self.faults
                    .iter()
                    .map(|(_, n)| n)
                    .sum::<usize>()
                    .to_string(),
            ),
        ];
        for (fault, count) in &self.faults {
            rows.push((format!("– {}", fault.text()), count.to_string()));
        }
        rows.extend([
            (
                "**wrong placements**".into(),
                counts.wrong.len().to_string(),
            ),
            (
                "bound while the provider's answer changed".into(),
                counts.in_flight.to_string(),
            ),
            (
                "**leaked reservations**".into(),
                self.ending.leaked.len().to_string(),
            ),
            ("**panics**".into(), self.panics.len().to_string()),
            (
                "**pods that waited though there was room**".into(),
                self.ending.stuck.len().to_string(),
            ),
        ]);
        for figure in &self.memory {
            let judged = if figure.judged {
                ""
            } else {
                ", too short to check"
            };
            rows.push((
                format!(
                    "memory of {}, longest of {} lives ({:.0} min{judged})",
                    figure.name,
                    figure.lives,
                    figure.longest.as_secs_f64() / 60.0
                ),
                format!(
                    "{:.1} MB in the second quarter, {:.1} MB in the last: {:+.1} %",
                    figure.second_quarter as f64 / 1e6,
                    figure.last_quarter as f64 / 1e6,
                    figure.growth_percent
                ),
            ));
        }
        format!(
            "{:.0} minutes, {} pods a second, seed {}; {} pods made, {} held back:\n\n{}",
            self.length.as_secs_f64() / 60.0,
            self.per_second,
            self.seed,
            self.made.pods,
            self.made.held_back,
            table(["what", "seen"], rows)
        )
    }

    pub fn json(&self) -> Value {
        let memory = self.memory.iter().map(|f| {
            json!({"process": f.name, "lives": f.lives, "longest_s": f.longest.as_secs(),
                   "second_quarter_bytes": f.second_quarter, "last_quarter_bytes": f.last_quarter,
                   "growth_percent": f.growth_percent, "judged": f.judged,
                   "allowed_percent": MAX_GROWTH_PERCENT, "series_s_bytes": f.series})
        });
        let faults = self
            .faults
            .iter()
            .map(|(f, n)| json!({"fault": f.text(), "times": n}));
        let wait_millis = |share| self.waits.quantile(share).as_millis() as u64;
        json!({
            "seconds": self.length.as_secs(), "seed": self.seed, "pods_per_second": self.per_second,
            "made": self.made.pods, "held_back": self.made.held_back,
            "scheduled": self.counts.scheduled,
            "wait_ms": {"p50": wait_millis(0.5), "p99": wait_millis(0.99), "max": wait_millis(1.0)},
            "in_use_percent": {"cpu": self.full.0, "cards": self.full.1},
            "faults": faults.collect::<Vec<_>>(), "in_flight": self.counts.in_flight,
            "wrong": self.counts.wrong, "leaked": self.ending.leaked, "panics": self.panics,
            "stuck": self.ending.stuck, "memory": memory.collect::<Vec<_>>(),
        })
    }
}
