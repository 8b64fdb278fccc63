//! Formats times and durations for people.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use tautline_api::display::age;

/// Converts milliseconds since 1970 to a time; a time out of range becomes 1970.
pub(crate) fn of_millis(millis: u64) -> Timestamp {
    let millis = i64::try_from(millis).unwrap_or_default();
    Timestamp::from_millisecond(millis).unwrap_or_default()
}

/// Renders the age of a time, with the time in UTC as a title.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> Markup {
    let time = age::second(then);
    html! { time datetime=(time) title=(time) { (age::since(then, now)) " ago" } }
}

/// Formats a duration in microseconds, such as `350us`, `1.2ms` or `3.51s`: with three digits below
/// one second, otherwise rounded to 10 ms.
pub(crate) fn micros(micros: u64) -> String {
    let unit = match micros {
        0..1_000 => 1,
        1_000..1_000_000 => 10_u64.pow(micros.ilog10() - 2),
        _ => 10_000,
    };
    let rounded = (micros.saturating_add(unit / 2) / unit).saturating_mul(unit);
    tautline_core::duration::format(Duration::from_micros(rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micros_has_three_figures() {
        for (value, text) in [
            (0, "0s"),
            (7, "7us"),
            (999, "999us"),
            (1_234, "1.23ms"),
            (12_345, "12.3ms"),
            (123_456, "123ms"),
            (3_514_999, "3.51s"),
            (u64::MAX, micros(u64::MAX).as_str()),
        ] {
            assert_eq!(micros(value), text, "{value}");
        }
    }

    #[test]
    fn ago_names_the_time() {
        let now: Timestamp = "2026-01-02T12:00:00Z".parse().unwrap();
        let then = of_millis(1_767_355_195_400);
        let text = ago(then, now).into_string();
        assert_eq!(
            text,
            "<time datetime=\"2026-01-02T11:59:55Z\" title=\"2026-01-02T11:59:55Z\">5s ago</time>"
        );
        assert_eq!(of_millis(u64::MAX), Timestamp::UNIX_EPOCH);
    }
}
