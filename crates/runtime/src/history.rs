//! Keeps the last hours of a figure in memory, for the page `/history` of an admin port.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tautline_core::compliance_state::UnixTime;

/// The path of the page: a JSON array with a [`Series`] for each figure of the process.
pub const HISTORY_PATH: &str = "/history";

/// The number of minutes that a history covers.
pub const HISTORY_MINUTES: u64 = 360;

/// The time between two samples.
const SAMPLE_PERIOD: Duration = Duration::from_secs(60);

/// The last hours of a figure.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Series {
    /// The name of the figure, such as `violations`.
    pub name: String,
    /// The unit of the values, such as `bindings`.
    pub unit: String,
    /// The minutes since 1970, in ascending order, each with the value in that minute. Minutes
    /// without a sample are absent.
    pub samples: Vec<(u64, u64)>,
}

/// Keeps one sample a minute of a figure, for the last [`HISTORY_MINUTES`].
#[derive(Debug)]
pub struct FigureHistory(Mutex<Series>);

impl FigureHistory {
    /// Creates a history without samples.
    pub fn new(name: &str, unit: &str) -> Self {
        Self(Mutex::new(Series {
            name: name.to_owned(),
            unit: unit.to_owned(),
            samples: Vec::new(),
        }))
    }

    /// Records a value. The greatest value of a minute is kept.
    pub fn record(&self, now: UnixTime, value: u64) {
        let minute = now.as_secs() / SAMPLE_PERIOD.as_secs();
        let samples = &mut self.0.lock().samples;
        // If the clock was set back, the later samples have wrong times.
        samples.retain(|(then, _)| *then <= minute && minute - then < HISTORY_MINUTES);
        match samples.last_mut() {
            Some((last, greatest)) if *last == minute => *greatest = value.max(*greatest),
            _ => samples.push((minute, value)),
        }
    }

    /// Returns the samples.
    pub fn series(&self) -> Series {
        self.0.lock().clone()
    }

    /// Records the value that `read` returns, now and in each following minute, and never ends.
    /// A minute for which it returns `None` has no sample.
    pub async fn sample(&self, read: impl Fn() -> Option<u64>) {
        loop {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.unwrap_or_default();
            if let Some(value) = read() {
                self.record(now, value);
            }
            tokio::time::sleep(time_to_next_sample(now)).await;
        }
    }
}

/// Returns the time until the middle of the next minute. A timer that is seconds late then skips no
/// minute.
fn time_to_next_sample(now: UnixTime) -> Duration {
    let since_full_minute = Duration::from_secs(now.as_secs() % SAMPLE_PERIOD.as_secs());
    SAMPLE_PERIOD * 3 / 2 - since_full_minute
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = SAMPLE_PERIOD;

    fn history(samples: &[(u32, u64)]) -> FigureHistory {
        let history = FigureHistory::new("violations", "bindings");
        for (minute, value) in samples {
            history.record(MINUTE * *minute, *value);
        }
        history
    }

    #[test]
    fn series_is_json_with_a_unit() {
        let history = history(&[(7, 1), (8, 0)]);
        let json = serde_json::to_string(&[history.series()]).unwrap();
        let expected = r#"[{"name":"violations","unit":"bindings","samples":[[7,1],[8,0]]}]"#;
        assert_eq!(json, expected);
        let parsed: Vec<Series> = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed, [history.series()]);
    }

    #[test]
    fn record_keeps_the_last_hours_only() {
        let history = history(&[]);
        for minute in 0..1000 {
            history.record(MINUTE * minute, u64::from(minute));
        }
        let samples = history.series().samples;
        assert_eq!(samples.len() as u64, HISTORY_MINUTES);
        assert_eq!((samples[0], samples[359]), ((640, 640), (999, 999)));
    }

    #[test]
    fn record_keeps_the_greatest_value_of_a_minute() {
        let history = history(&[(7, 1)]);
        for (second, value) in [(1, 3), (59, 2), (60, 1)] {
            history.record(MINUTE * 7 + Duration::from_secs(second), value);
        }
        assert_eq!(history.series().samples, [(7, 3), (8, 1)]);
    }

    #[test]
    fn record_leaves_a_gap_for_the_time_of_a_stop() {
        let history = history(&[(7, 1), (8, 2), (50, 3)]);
        assert_eq!(history.series().samples, [(7, 1), (8, 2), (50, 3)]);
        history.record(MINUTE * (50 + 360), 4);
        assert_eq!(history.series().samples, [(410, 4)]);
    }

    #[test]
    fn record_drops_later_samples_after_the_clock_was_set_back() {
        let history = history(&[(7, 1), (8, 2), (9, 3), (7, 5), (8, 1)]);
        assert_eq!(history.series().samples, [(7, 5), (8, 1)]);
    }

    #[test]
    fn each_minute_has_a_sample() {
        let mut now = Duration::from_millis(60_250);
        for minute in 1..100 {
            assert_eq!(now.as_secs() / 60, minute);
            let late = Duration::from_millis(100 * (minute % 7));
            now += time_to_next_sample(now) + late;
        }
        assert_eq!(time_to_next_sample(MINUTE * 7), MINUTE * 3 / 2);
        let end = MINUTE * 7 + Duration::from_secs(59);
        assert_eq!(time_to_next_sample(end), Duration::from_secs(31));
    }
}
