//! The formatting of times and shares for people.

use std::time::Duration;

use tautline_core::duration;

/// Formats microseconds with two or three digits: `180us`, `1.2ms`, `12ms`, `1.5s`. The text has at
/// most five characters up to two hours.
pub fn short(micros: u64) -> String {
    for (unit, scale) in [("us", 1), ("ms", 1_000), ("s", 1_000_000)] {
        let tenths = rounded(micros.saturating_mul(10), scale);
        if tenths < 100 && !tenths.is_multiple_of(10) {
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
        let whole = rounded(micros, scale);
        if whole < 1_000 || unit == "s" {
            return format!("{whole}{unit}");
        }
    }
    String::new()
}

/// Formats microseconds exactly: `12.345ms`.
pub fn exact(micros: u64) -> String {
    duration::format(Duration::from_micros(micros))
}

/// Formats an age in microseconds: `90ms`, `1.2s`, `45s`, `5m`, `2h`.
pub fn age(micros: u64) -> String {
    match micros / 1_000_000 {
        0..60 => short(micros),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3_600),
    }
}

/// Formats a share: `20%`, or `<1%` for a small share above 0.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 1.0 => "<1%".to_owned(),
        p => format!("{p:.0}%"),
    }
}

fn rounded(micros: u64, scale: u64) -> u64 {
    micros.saturating_add(scale / 2) / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_has_two_or_three_digits() {
        for (micros, text) in [
            (0, "0us"),
            (1, "1us"),
            (180, "180us"),
            (999, "999us"),
            (1_000, "1ms"),
            (1_049, "1ms"),
            (1_234, "1.2ms"),
            (9_949, "9.9ms"),
            (9_951, "10ms"),
            (12_345, "12ms"),
            (999_499, "999ms"),
            (999_500, "1s"),
            (1_540_000, "1.5s"),
            (10_000_000, "10s"),
        ] {
            assert_eq!(short(micros), text, "{micros}");
        }
        assert!(!short(u64::MAX).is_empty());
        for micros in (0..7_000_000_000).step_by(99_999) {
            assert!(short(micros).len() <= 5, "{micros}");
        }
    }

    #[test]
    fn ages_and_shares() {
        assert_eq!(age(1_200_000), "1.2s");
        assert_eq!(age(59_000_000), "59s");
        assert_eq!(age(330_000_000), "5m");
        assert_eq!(age(7_300_000_000), "2h");
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.004), "<1%");
        assert_eq!(percent(1.4996), "150%");
    }
}
