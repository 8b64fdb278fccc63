//! The figures as a table for people and as JSON for later runs.

use std::time::Duration;

use serde_json::{Value, json};
use tautline_bench::table;

use crate::{Shape, measure::Figures};

pub struct Report<'a> {
    pub shape: &'a Shape,
    /// Bindings at the end, and how many of them comply.
    pub bindings: (i64, i64),
    /// From the controller's start until all bindings were evaluated.
    pub settled: Duration,
    pub figures: Figures,
}

impl Report<'_> {
    /// A Markdown table; the last rows are the API server's requests.
    pub fn table(&self) -> String {
        let f = &self.figures;
        let a_second = |count: f64| format!("{:.1}", count / f.seconds);
        let seconds = |of: Option<f64>| of.map_or("nothing observed".into(), |s| format!("{s:.3}"));
        let lag = |pick: fn(&crate::measure::Lag) -> Option<f64>| match &f.lag {
            Ok(lag) => seconds(pick(lag)),
            Err(error) => error.to_string(),
        };
        let or_error = |of: &anyhow::Result<f64>, show: &dyn Fn(f64) -> String| match of {
            Ok(value) => show(*value),
            Err(error) => error.to_string(),
        };
        let mut rows = vec![
            ("pods of the targets".into(), self.targets()),
            (
                "bindings, compliant".into(),
                format!("{}, {}", self.bindings.0, self.bindings.1),
            ),
            (
                "first round done after, s".into(),
                format!("{:.1}", self.settled.as_secs_f64()),
            ),
            ("measured for, s".into(), format!("{:.1}", f.seconds)),
            ("controller CPU, cores".into(), format!("{:.3}", f.cpu)),
            (
                "controller memory, MB".into(),
                format!("{:.1}", f.resident as f64 / 1e6),
            ),
            (
                "evaluations a second".into(),
                or_error(&f.evaluations, &a_second),
            ),
            (
                "questions to the provider a second".into(),
                a_second(f.asked as f64),
            ),
            ("lag, mean, s".into(), lag(|l| l.mean)),
            ("lag, p50 at most, s".into(), lag(|l| l.p50)),
            ("lag, p99 at most, s".into(), lag(|l| l.p99)),
            (
                "status writes".into(),
                or_error(&f.status_writes, &|count| format!("{count:.0}")),
            ),
            (
                "requests to the API server".into(),
                f.requests.values().sum::<u64>().to_string(),
            ),
        ];
        for (what, count) in &f.requests {
            rows.push((format!("... {what}"), count.to_string()));
        }
        table(["what", "figure"], rows)
    }

    fn targets(&self) -> String {
        let counts: Vec<_> = self
            .shape
            .targets
            .iter()
            .map(|(_, n)| n.to_string())
            .collect();
        counts.join(" x ")
    }

    /// The same figures; null for those that the controller does not measure.
    pub fn json(&self) -> Value {
        let f = &self.figures;
        let lag = f.lag.as_ref().ok();
        let a_second = |count: f64| count / f.seconds;
        json!({
            "targets": self.shape.targets.iter().map(|(_, n)| n).collect::<Vec<_>>(),
            "period_seconds": self.shape.period.as_secs(),
            "bindings": self.bindings.0,
            "compliant_bindings": self.bindings.1,
            "settled_seconds": self.settled.as_secs_f64(),
            "measured_seconds": f.seconds,
            "cpu_cores": f.cpu,
            "resident_bytes": f.resident,
            "evaluations_per_second": f.evaluations.as_ref().ok().map(|c| a_second(*c)),
            "questions_per_second": a_second(f.asked as f64),
            "lag_mean_seconds": lag.and_then(|l| l.mean),
            "lag_p50_seconds": lag.and_then(|l| l.p50),
            "lag_p99_seconds": lag.and_then(|l| l.p99),
            "status_writes": f.status_writes.as_ref().ok(),
            "apiserver_requests": f.requests,
        })
    }
}
