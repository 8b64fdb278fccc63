//! Parses and prints durations in Go's format.

use super::net::shown;
use crate::error::Invalid;

/// The units by Go's names, with their nanoseconds.
const UNIT_NANOS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Returns the nanoseconds of a text such as `1h30m` or `-1.5s`. Fails also if they do not fit 64
/// bits.
pub(crate) fn parse(text: &str) -> Result<i64, Invalid> {
    let wrong = || Invalid(format!("invalid duration: {}", shown(text)));
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| c != '.' && !c.is_ascii_digit())
            .ok_or_else(wrong)?;
        let (digits, after) = rest.split_at(number);
        let unit = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (_, nanos) = UNIT_NANOS
            .iter()
            .find(|(name, _)| *name == &after[..unit])
            .ok_or_else(wrong)?;
        rest = &after[unit..];
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 19 {
            return Err(wrong());
        }
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| wrong())?
        };
        total += whole * i128::from(*nanos);
        let mut scale = i128::from(*nanos) * 1_000_000_000_000_000_000;
        let one = 1_000_000_000_000_000_000;
        let mut part: i128 = 0;
        for digit in fraction.bytes().take(18) {
            scale /= 10;
            part += i128::from(digit - b'0') * scale;
        }
        total += part / one;
        if total > 1 << 64 {
            return Err(wrong());
        }
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| wrong())
}

/// Prints a duration in seconds, such as `1.5s`, after rounding it to a double as Go does.
pub(crate) fn to_text(nanos: i64) -> String {
    let seconds = (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9;
    format!("{seconds}s")
}
