//! Limits the pace of an offer's evictions: each eviction is followed by a wait, and evictions that
//! follow each other closely form a row.

use std::time::Duration;

use tautline_api::constraint::LastEviction;
use tautline_core::compliance_state::UnixTime;

use crate::binding_status::from_api_time;

/// The time from the last eviction to the end of its row, in cool-downs.
const ROW_COOL_DOWNS: u32 = 10;
/// The time in which all pods in violation can be evicted once, in cool-downs.
const COOL_DOWNS_FOR_ALL: u32 = 3;
/// The shortest wait between two evictions, unless the cool-down itself is shorter.
const SHORTEST_WAIT: Duration = Duration::from_secs(5);

/// A row of evictions for one offer that followed each other closely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EvictionRow {
    /// The time of the first eviction.
    pub since: UnixTime,
    /// The time of the last eviction.
    pub last: UnixTime,
    /// The earliest time of the next eviction.
    pub next: UnixTime,
    /// The largest number of pods that were in violation at one time in the row.
    most: usize,
}

impl EvictionRow {
    /// Returns the row `before` with an added eviction, or a new row if `before` has ended. `at` is
    /// the time of the eviction, and `pods` the number of pods in violation at that time.
    pub(crate) fn with(
        before: Option<Self>,
        at: UnixTime,
        pods: usize,
        cool_down: Duration,
    ) -> Self {
        let before = before.filter(|row| at < row.end(cool_down));
        let most = before.map_or(0, |row| row.most).max(pods);
        Self {
            since: before.map_or(at, |row| row.since),
            last: at,
            next: at + wait(most, cool_down),
            most,
        }
    }

    /// Returns the row that an earlier leader recorded in the offer's status.
    pub(crate) fn recorded(last: &LastEviction, cool_down: Duration) -> Self {
        let time = from_api_time(&last.time);
        let next = last.next_time.as_ref().map(from_api_time);
        Self {
            since: last.since.as_ref().map_or(time, from_api_time),
            last: time,
            // The configured cool-down may have become shorter since.
            next: next.map_or(time + cool_down, |next| next.min(time + cool_down)),
            most: 0,
        }
    }

    /// Returns whether a pod that was created at the time `pod` may replace a pod that the row
    /// evicted. Its eviction could repeat forever.
    pub(crate) fn created(&self, pod: UnixTime, now: UnixTime, cool_down: Duration) -> bool {
        pod >= self.since && now < self.end(cool_down)
    }

    /// Returns the row with a full cool-down before its next eviction, because its last evictions
    /// did not help.
    pub(crate) fn slowed(self, cool_down: Duration) -> Self {
        Self {
            next: self.next.max(self.last + cool_down),
            most: 0,
            ..self
        }
    }

    fn end(&self, cool_down: Duration) -> UnixTime {
        self.last + ROW_COOL_DOWNS * cool_down
    }
}

/// Returns the wait after an eviction, so that all `pods` in violation can be evicted within
/// [`COOL_DOWNS_FOR_ALL`] cool-downs.
fn wait(pods: usize, cool_down: Duration) -> Duration {
    let pods = u32::try_from(pods.max(1)).unwrap_or(u32::MAX);
    let share = cool_down.saturating_mul(COOL_DOWNS_FOR_ALL) / pods;
    share.max(SHORTEST_WAIT).min(cool_down)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding_status::to_api_time;

    const COOL_DOWN: Duration = secs(120);

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn wait_is_shorter_for_more_pods() {
        for (pods, expected) in [
            (0, 120),
            (1, 120),
            (3, 120),
            (4, 90),
            (12, 30),
            (72, 5),
            (10_000, 5),
        ] {
            assert_eq!(wait(pods, COOL_DOWN), secs(expected), "{pods} pods");
        }
    }

    #[test]
    fn wait_is_never_longer_than_the_cool_down() {
        assert_eq!(wait(50, secs(2)), secs(2));
        assert_eq!(wait(1, Duration::ZERO), Duration::ZERO);
    }

    /// Twelve pods of one offer, from the first eviction to the last.
    #[test]
    fn twelve_pods_are_moved_within_six_minutes() {
        let (mut row, mut at) = (None, secs(1000));
        for left in (1..=12).rev() {
            let next = EvictionRow::with(row, at, left, COOL_DOWN);
            assert_eq!(next.since, secs(1000));
            (row, at) = (Some(next), next.next);
        }
        assert_eq!(row.unwrap().last, secs(1000 + 11 * 30));
    }

    #[test]
    fn row_ends_ten_cool_downs_after_its_last_eviction() {
        let row = EvictionRow::with(None, secs(1000), 12, COOL_DOWN);
        let within = EvictionRow::with(Some(row), secs(2199), 1, COOL_DOWN);
        assert_eq!((within.since, within.next), (secs(1000), secs(2229)));
        let after = EvictionRow::with(Some(row), secs(2200), 1, COOL_DOWN);
        assert_eq!((after.since, after.next), (secs(2200), secs(2320)));
    }

    #[test]
    fn row_created_the_pods_that_came_since_it_began() {
        let first = EvictionRow::with(None, secs(1000), 2, COOL_DOWN);
        let row = EvictionRow::with(Some(first), secs(1120), 2, COOL_DOWN);
        // The replacement of the first pod came before the last eviction.
        assert!(row.created(secs(1001), secs(1300), COOL_DOWN));
        assert!(!row.created(secs(999), secs(1300), COOL_DOWN));
        assert!(row.created(secs(1121), secs(2319), COOL_DOWN));
        assert!(!row.created(secs(1121), secs(2320), COOL_DOWN));
    }

    #[test]
    fn row_whose_pods_come_back_waits_the_whole_cool_down() {
        let row = EvictionRow::with(None, secs(1000), 12, COOL_DOWN);
        let slowed = row.slowed(COOL_DOWN);
        assert_eq!((row.next, slowed.next), (secs(1030), secs(1120)));
        assert_eq!(slowed.slowed(COOL_DOWN), slowed);
    }

    #[test]
    fn recorded_row_goes_on_under_another_leader() {
        let recorded = |since: Option<u64>, next: Option<u64>| {
            let last = LastEviction {
                pod: "web-0".to_owned(),
                uid: "u".to_owned(),
                node: "n1".to_owned(),
                binding: "b".to_owned(),
                time: to_api_time(secs(1000)),
                group: None,
                since: since.map(|t| to_api_time(secs(t))),
                next_time: next.map(|t| to_api_time(secs(t))),
            };
            let row = EvictionRow::recorded(&last, COOL_DOWN);
            [row.since, row.last, row.next].map(|t| t.as_secs())
        };
        assert_eq!(recorded(Some(900), Some(1030)), [900, 1000, 1030]);
        assert_eq!(recorded(None, None), [1000, 1000, 1120]);
        // The cool-down was longer then.
        assert_eq!(recorded(None, Some(5000)), [1000, 1000, 1120]);
    }
}
