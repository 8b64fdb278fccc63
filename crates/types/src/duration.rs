//! Parses and formats durations as Go writes them ("1h30m", "500us").
//! <https://pkg.go.dev/time#ParseDuration>

use std::time::Duration;

/// The error of a text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("duration {text:?}: {what}; write it as 10m, 1h30m or 500us")]
pub struct DurationError {
    text: String,
    what: &'static str,
}

/// The units, each with its length in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
];

/// Parses a Go duration, such as `10m` or `1h30m`.
///
/// # Errors
/// The text is malformed, or the duration is negative or too long (2^63 ns or more).
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let err = |what| DurationError {
        text: text.to_owned(),
        what,
    };
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.starts_with('-') {
        return Err(err("it must not be negative"));
    }
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(err("it is empty"));
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (whole, after) = rest.split_at(digits);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => {
                let end = after
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(after.len());
                after.split_at(end)
            }
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(err("a number is missing"));
        }
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let scale = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, scale)| u128::from(*scale))
            .ok_or_else(|| {
                err(if unit.is_empty() {
                    "a unit is missing"
                } else {
                    "the unit is unknown"
                })
            })?;
        let whole: u128 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| err("it is too long"))?
        };
        nanos = whole
            .checked_mul(scale)
            .and_then(|n| n.checked_add(fraction_nanos(fraction, scale)))
            .and_then(|n| n.checked_add(nanos))
            .filter(|n| *n <= i64::MAX as u128)
            .ok_or_else(|| err("it is too long"))?;
        rest = after;
    }
    Ok(Duration::from_nanos(
        u64::try_from(nanos).unwrap_or(u64::MAX),
    ))
}

/// Returns `0.<digits>` of a unit of `scale` nanoseconds, in nanoseconds and rounded down. Drops
/// the digits after the 18th, which are less than 1 ns even of an hour.
fn fraction_nanos(digits: &str, scale: u128) -> u128 {
    let digits = &digits[..digits.len().min(18)];
    match digits.parse::<u128>() {
        Ok(n) => n * scale / 10u128.pow(u32::try_from(digits.len()).unwrap_or(18)),
        Err(_) => 0,
    }
}

/// Formats a duration without zero parts: "1h30m", where Go writes "1h30m0s".
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    for (unit, scale) in [("ms", 1_000_000_u128), ("us", 1_000), ("ns", 1)] {
        if nanos < 1_000_000_000 && nanos >= scale {
            return decimal(nanos, scale, unit);
        }
    }
    let (hours, rest) = (nanos / 3_600_000_000_000, nanos % 3_600_000_000_000);
    let (minutes, rest) = (rest / 60_000_000_000, rest % 60_000_000_000);
    let mut out = String::new();
    if hours > 0 {
        out += &format!("{hours}h");
    }
    if minutes > 0 {
        out += &format!("{minutes}m");
    }
    if rest > 0 {
        out += &decimal(rest, 1_000_000_000, "s");
    }
    out
}

fn decimal(nanos: u128, scale: u128, unit: &str) -> String {
    let (whole, rest) = (nanos / scale, nanos % scale);
    if rest == 0 {
        return format!("{whole}{unit}");
    }
    let width = scale.ilog10() as usize;
    let fraction = format!("{rest:0width$}");
    format!("{whole}.{}{unit}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parse_agrees_with_go() {
        for (text, nanos) in [
            ("0", 0),
            ("10m", 600_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("500us", 500_000),
            ("1.5ms", 1_500_000),
            (".5s", 500_000_000),
            ("2µs", 2_000),
            ("+3ns", 3),
        ] {
            assert_eq!(parse(text).unwrap().as_nanos(), nanos, "{text}");
        }
        for text in [
            "",
            "5",
            "ms",
            "-1s",
            "1d",
            "1h-3m",
            "99999999999h",
            ".s",
            "1 s",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let message = parse("5").unwrap_err().to_string();
        assert_eq!(
            message,
            "duration \"5\": a unit is missing; write it as 10m, 1h30m or 500us"
        );
    }

    #[test]
    fn format_is_short() {
        for text in [
            "0s", "10m", "1h30m", "500us", "1.5ms", "20ms", "1m0.5s", "31.25ms",
        ] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
    }

    proptest! {
        #[test]
        fn parse_never_panics(text in ".{0,40}") { let _ = parse(&text); }

        #[test]
        fn text_and_back(nanos in 0u64..i64::MAX as u64) {
            let d = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(d)).unwrap(), d);
        }
    }
}
