use std::time::Duration;

/// Converts a duration to whole microseconds, at least 1: only a node and itself are 0 apart.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros())
        .unwrap_or(u64::MAX)
        .max(1)
}

pub(crate) fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

/// Appends a time in microseconds, such as "180us", "31.25ms" or "1.5s".
pub(crate) fn push_micros(out: &mut String, micros: u64) {
    let (unit, scale) = match micros {
        0..1_000 => ("us", 1),
        1_000..1_000_000 => ("ms", 1_000),
        _ => ("s", 1_000_000),
    };
    push_digits(out, micros / scale, 1);
    let mut rest = micros % scale;
    if rest > 0 {
        let mut width = if scale == 1_000 { 3 } else { 6 };
        while rest.is_multiple_of(10) {
            rest /= 10;
            width -= 1;
        }
        out.push('.');
        push_digits(out, rest, width);
    }
    out.push_str(unit);
}

/// Appends a number of at least `width` digits. An answer has tens of thousands of
/// numbers; `write!` would take longer than the rest of the answer.
fn push_digits(out: &mut String, mut number: u64, width: usize) {
    let mut digits = [0u8; 20];
    let mut first = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        if number == 0 && 20 - at > width {
            break;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        first = at;
    }
    out.push_str(std::str::from_utf8(&digits[first..]).unwrap_or_default());
}

pub(crate) fn show_micros(micros: u64) -> String {
    let mut out = String::new();
    push_micros(&mut out, micros);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tautline_core::duration;

    use super::*;

    proptest! {
        #[test]
        fn shown_microseconds_parse_back(micros in 0u64..30_000_000) {
            let text = show_micros(micros);
            prop_assert_eq!(duration::parse(&text).unwrap(), Duration::from_micros(micros));
        }
    }
}
