//! Writes ages as kubectl does.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

const MINUTE_SECONDS: i64 = 60;
const HOUR_SECONDS: i64 = 60 * MINUTE_SECONDS;
const DAY_SECONDS: i64 = 24 * HOUR_SECONDS;
const YEAR_SECONDS: i64 = 365 * DAY_SECONDS;

/// Returns the age of `then`: 12s, 5m, 3h, 2d. A time in the future counts as now, because clocks
/// differ.
pub fn since(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second()).max(0);
    let (unit, finer) = match seconds {
        ..120 => return format!("{seconds}s"),
        120..600 => ((MINUTE_SECONDS, 'm'), Some((1, 's'))),
        600..10_800 => ((MINUTE_SECONDS, 'm'), None),
        10_800..28_800 => ((HOUR_SECONDS, 'h'), Some((MINUTE_SECONDS, 'm'))),
        28_800..172_800 => ((HOUR_SECONDS, 'h'), None),
        172_800..691_200 => ((DAY_SECONDS, 'd'), Some((HOUR_SECONDS, 'h'))),
        691_200..63_072_000 => ((DAY_SECONDS, 'd'), None),
        63_072_000..252_288_000 => ((YEAR_SECONDS, 'y'), Some((DAY_SECONDS, 'd'))),
        _ => ((YEAR_SECONDS, 'y'), None),
    };
    let mut text = format!("{}{}", seconds / unit.0, unit.1);
    if let Some((length, letter)) = finer {
        let rest = seconds % unit.0 / length;
        if rest > 0 {
            text.push_str(&format!("{rest}{letter}"));
        }
    }
    text
}

/// Returns [`since`] for an API time, or `-` if there is none.
pub fn since_time(time: Option<&Time>, now: Timestamp) -> String {
    time.map_or_else(|| "-".into(), |t| since(t.0, now))
}

/// Returns an age for people and a time for logs: "3h ago (2026-01-02T09:00:00Z)".
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    format!("{} ago ({})", since(then, now), second(then))
}

/// Returns a time in UTC, to the second.
pub fn second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        let now: Timestamp = "2026-01-02T12:00:00Z".parse().unwrap();
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (12, "12s"),
            (119, "119s"),
            (120, "2m"),
            (312, "5m12s"),
            (600, "10m"),
            (7_199, "119m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (90_000, "25h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (8 * DAY_SECONDS, "8d"),
            (400 * DAY_SECONDS, "400d"),
            (2 * YEAR_SECONDS, "2y"),
            (3 * YEAR_SECONDS + 5 * DAY_SECONDS, "3y5d"),
            (9 * YEAR_SECONDS + 5 * DAY_SECONDS, "9y"),
        ] {
            let then = Timestamp::from_second(now.as_second() - seconds).unwrap();
            assert_eq!(since(then, now), text, "{seconds}");
        }
    }

    #[test]
    fn times_are_to_the_second() {
        let time: Timestamp = "2026-01-02T12:00:00.123456Z".parse().unwrap();
        assert_eq!(second(time), "2026-01-02T12:00:00Z");
    }
}
