//! The figures as a table and as JSON.

use std::time::Duration;

use serde_json::{Value, json};
use tautline_bench::{Times, table};

use crate::{
    Size,
    console::Console,
    load::{Burst, Resumed},
};

pub struct Report<'a> {
    pub size: &'a Size,
    pub first_sync: Duration,
    pub first_sync_cpu_s: f64,
    pub resident: u64,
    pub peak: u64,
    /// By the number of node names.
    pub filters: Vec<(usize, Times)>,
    pub burst: Burst,
    /// After the filters and the burst.
    pub resident_loaded: u64,
    pub api_server_back: Duration,
    pub resumed: Resumed,
    pub resident_then: u64,
    pub console: Console,
    pub peak_then: u64,
}

impl Report<'_> {
    pub fn table(&self) -> String {
        let size = self.size;
        let mut rows = vec![
            (
                "first sync: from the start until ready".to_owned(),
                format!(
                    "{:.1} s, {:.1} s of CPU",
                    self.first_sync.as_secs_f64(),
                    self.first_sync_cpu_s
                ),
            ),
            (
                "resident memory after it; peak".to_owned(),
                format!(
                    "{} MB; {} MB",
                    megabytes(self.resident),
                    megabytes(self.peak)
                ),
            ),
        ];
        for (names, times) in &self.filters {
            rows.push((
                format!("filter of {names} names, 2 rules: p50, p99"),
                quantiles(times),
            ));
        }
        let burst = &self.burst;
        rows.extend([
            (
                format!(
                    "{} pod updates, sent in {:.1} s: delay after the last",
                    size.updates,
                    burst.sent_in.as_secs_f64()
                ),
                format!(
                    "{} ms, {:.1} s of CPU with the filters",
                    burst.drained_in.as_millis(),
                    burst.cpu_s
                ),
            ),
            (
                format!(
                    "filter of {} names meanwhile: p50, p99 of {}",
                    size.nodes,
                    burst.filters.count()
                ),
                quantiles(&burst.filters),
            ),
            (
                "resident memory then".to_owned(),
                format!("{} MB", megabytes(self.resident_loaded)),
            ),
            (
                format!(
                    "API server restarted (ready after {:.1} s): the next change is seen after",
                    self.api_server_back.as_secs_f64()
                ),
                format!(
                    "{:.1} s; the watch delivered {} pods",
                    self.resumed.seen_in.as_secs_f64(),
                    self.resumed.delivered
                ),
            ),
            (
                "resident memory then; peak".to_owned(),
                format!(
                    "{} MB; {} MB",
                    megabytes(self.resident_then),
                    megabytes(self.peak_then)
                ),
            ),
            (
                "console: from the start until its lists are complete; its first page then"
                    .to_owned(),
                format!(
                    "{:.1} s; {} ms",
                    self.console.first_sync.as_secs_f64(),
                    self.console.first_page.as_millis()
                ),
            ),
            (
                "console: its slowest page again; its largest".to_owned(),
                format!(
                    "{} {} ms; {} {} kB",
                    self.console.slowest.0,
                    self.console.slowest.1.as_millis(),
                    self.console.largest.0,
                    self.console.largest.1 / 1000
                ),
            ),
            (
                "console: resident memory; peak".to_owned(),
                format!(
                    "{} MB; {} MB",
                    megabytes(self.console.resident),
                    megabytes(self.console.peak)
                ),
            ),
        ]);
        format!(
            "{} nodes, {} pods, {} offers of two rules, {} Services with their EndpointSlices:\n\n{}",
            size.nodes,
            size.pods,
            size.offers,
            size.services,
            table(["what", "measured"], rows)
        )
    }

    pub fn json(&self) -> Value {
        let filters = self.filters.iter().map(|(names, times)| {
            json!({"names": names, "p50_us": micros(times, 0.5), "p99_us": micros(times, 0.99)})
        });
        json!({
            "nodes": self.size.nodes, "pods": self.size.pods, "offers": self.size.offers,
            "services": self.size.services,
            "first_sync_s": self.first_sync.as_secs_f64(), "first_sync_cpu_s": self.first_sync_cpu_s,
            "resident_bytes": self.resident, "peak_bytes": self.peak,
            "filters": filters.collect::<Vec<_>>(),
            "burst": {"updates": self.size.updates, "sent_in_s": self.burst.sent_in.as_secs_f64(),
                "drained_in_s": self.burst.drained_in.as_secs_f64(), "cpu_s": self.burst.cpu_s,
                "filter_p50_us": micros(&self.burst.filters, 0.5),
                "filter_p99_us": micros(&self.burst.filters, 0.99),
                "resident_bytes": self.resident_loaded},
            "api_server_back_s": self.api_server_back.as_secs_f64(),
            "resumed_in_s": self.resumed.seen_in.as_secs_f64(), "brought": self.resumed.delivered,
            "console": {"first_sync_s": self.console.first_sync.as_secs_f64(),
                "first_page_s": self.console.first_page.as_secs_f64(),
                "slowest_page_s": self.console.slowest.1.as_secs_f64(),
                "largest_page_bytes": self.console.largest.1,
                "resident_bytes": self.console.resident, "peak_bytes": self.console.peak},
            "resident_then_bytes": self.resident_then, "peak_then_bytes": self.peak_then,
        })
    }
}

fn micros(times: &Times, q: f64) -> u64 {
    u64::try_from(times.quantile(q).as_micros()).unwrap_or(u64::MAX)
}

fn quantiles(times: &Times) -> String {
    format!("{:.2} ms, {:.2} ms", times.millis(0.5), times.millis(0.99))
}

fn megabytes(bytes: u64) -> u64 {
    bytes / 1_000_000
}
