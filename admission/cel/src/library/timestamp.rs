use jiff::Zoned;
use jiff::tz::{Offset, TimeZone};

use super::declaration::{CallContext, Function};
use crate::error::EvaluationError;
use crate::value::Value;

/// Declares a member of timestamps, whose optional argument is the time zone. The default is UTC.
macro_rules! member {
    ($name:literal) => {
        (
            &[
                concat!("timestamp.", $name, "(): int"),
                concat!("timestamp.", $name, "(string): int"),
            ],
            |context, arguments| part(context, arguments, $name),
        )
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    member!("getFullYear"),
    member!("getMonth"),
    member!("getDayOfYear"),
    member!("getDayOfMonth"),
    member!("getDate"),
    member!("getDayOfWeek"),
];

/// Returns a part of a time, in UTC or the given time zone.
pub(super) fn part(
    context: &mut CallContext<'_>,
    arguments: &[Value],
    name: &str,
) -> Result<Value, EvaluationError> {
    let (time, zone) = match arguments {
        [Value::Timestamp(time)] => (time, TimeZone::UTC),
        [Value::Timestamp(time), Value::String(zone)] => {
            context.budget.charge(10)?;
            (time, named(zone)?)
        }
        _ => return Err(EvaluationError::no_overload()),
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

/// Returns a time zone by its IANA name or by an offset such as `+01:30`.
fn named(zone: &str) -> Result<TimeZone, EvaluationError> {
    let wrong = || {
        EvaluationError::failed(format!(
            "unknown time zone {}",
            zone.chars().take(100).collect::<String>()
        ))
    };
    let Some((hours, minutes)) = zone.split_once(':') else {
        return match zone {
            "" | "UTC" => Ok(TimeZone::UTC),
            // Names are case-sensitive.
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
