//! Points in time, years 1 to 9999, and their parts in any time zone.

use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

use super::super::declaration::{Row, Scope};
use super::super::error::RunError;
use super::super::value::Value;

pub(super) const ROWS: &[Row] = &[
    (
        &[
            "timestamp.getFullYear(): int",
            "timestamp.getFullYear(string): int",
        ],
        |scope, arguments| part(scope, arguments, "getFullYear"),
    ),
    (
        &[
            "timestamp.getMonth(): int",
            "timestamp.getMonth(string): int",
        ],
        |scope, arguments| part(scope, arguments, "getMonth"),
    ),
    (
        &[
            "timestamp.getDayOfYear(): int",
            "timestamp.getDayOfYear(string): int",
        ],
        |scope, arguments| part(scope, arguments, "getDayOfYear"),
    ),
    (
        &[
            "timestamp.getDayOfMonth(): int",
            "timestamp.getDayOfMonth(string): int",
        ],
        |scope, arguments| part(scope, arguments, "getDayOfMonth"),
    ),
    (
        &["timestamp.getDate(): int", "timestamp.getDate(string): int"],
        |scope, arguments| part(scope, arguments, "getDate"),
    ),
    (
        &[
            "timestamp.getDayOfWeek(): int",
            "timestamp.getDayOfWeek(string): int",
        ],
        |scope, arguments| part(scope, arguments, "getDayOfWeek"),
    ),
];

/// Seconds since 1970 of the first and the last second.
const RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// The time if it is in the years 1 to 9999.
pub(super) fn in_range(time: Timestamp) -> Option<Timestamp> {
    RANGE.contains(&time.as_second()).then_some(time)
}

/// A time as RFC 3339 writes it.
///
/// # Errors
/// When it is none, or out of range.
pub(in super::super) fn timestamp(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "invalid timestamp: {}",
            text.chars().take(100).collect::<String>()
        )
    };
    let bytes = text.as_bytes();
    // Go takes RFC 3339 alone: a capital T, seconds, an offset with a colon.
    let plain = bytes.len() >= 20
        && bytes[10] == b'T'
        && bytes[13] == b':'
        && bytes[16] == b':'
        && (text.ends_with('Z') || bytes[bytes.len() - 3] == b':')
        && bytes[bytes.len() - 1] != b'z'
        && &bytes[17..19] != b"60"
        && bytes[..19].iter().all(u8::is_ascii_graphic);
    if !plain {
        return Err(wrong());
    }
    let time: Timestamp = text.parse().map_err(|_| wrong())?;
    in_range(time).ok_or_else(|| "timestamp overflow".to_owned())
}

/// The time in UTC as RFC 3339, with the decimals that are needed.
pub(in super::super) fn text(time: Timestamp) -> String {
    time.to_string()
}

/// A part of a time, in UTC or the zone that is given.
pub(super) fn part(
    scope: &mut Scope<'_>,
    arguments: &[Value],
    name: &str,
) -> Result<Value, RunError> {
    let (time, zone) = match arguments {
        [Value::Timestamp(time)] => (time, TimeZone::UTC),
        [Value::Timestamp(time), Value::String(zone)] => {
            scope.budget.charge(10)?;
            (time, named(zone)?)
        }
        _ => return Err(RunError::no_overload()),
    };
    let local = Zoned::new(*time, zone);
    Ok(Value::Int(match name {
        "getFullYear" => i64::from(local.year()),
        "getMonth" => i64::from(local.month()) - 1,
        "getDayOfYear" => i64::from(local.day_of_year()) - 1,
        "getDayOfMonth" => i64::from(local.day()) - 1,
        "getDate" => i64::from(local.day()),
        "getDayOfWeek" => i64::from(local.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(local.hour()),
        "getMinutes" => i64::from(local.minute()),
        "getSeconds" => i64::from(local.second()),
        _ => i64::from(local.subsec_nanosecond()) / 1_000_000,
    }))
}

/// A zone by its IANA name or as `+01:30`.
fn named(zone: &str) -> Result<TimeZone, RunError> {
    let wrong = || {
        RunError::failed(format!(
            "unknown time zone {}",
            zone.chars().take(100).collect::<String>()
        ))
    };
    let Some((hours, minutes)) = zone.split_once(':') else {
        return match zone {
            "" | "UTC" => Ok(TimeZone::UTC),
            // Names are spelt as they are.
            _ => TimeZone::get(zone)
                .ok()
                .filter(|found| found.iana_name() == Some(zone))
                .ok_or_else(wrong),
        };
    };
    let negative = hours.starts_with('-');
    let hours: i32 = hours.parse().map_err(|_| wrong())?;
    let minutes: i32 = minutes.parse().map_err(|_| wrong())?;
    if hours.abs() > 24 || !(0..60).contains(&minutes) {
        return Err(wrong());
    }
    let seconds = hours * 3600
        + if negative {
            -minutes * 60
        } else {
            minutes * 60
        };
    Offset::from_seconds(seconds)
        .map(TimeZone::fixed)
        .map_err(|_| wrong())
}
