//! The parts of timestamps, in UTC or the time zone of the argument, and of durations.

use jiff::Zoned;
use jiff::tz::{Offset, TimeZone};

use super::declaration::{CallContext, Module, Overload};
use crate::error::EvaluationError;
use crate::value::Value;

pub(super) const MODULE: Module = (
    "timestamp.getFullYear|getMonth|getDayOfYear|getDayOfMonth|getDate|getDayOfWeek(): int
    timestamp.getFullYear|getMonth|getDayOfYear|getDayOfMonth|getDate|getDayOfWeek(string): int
    duration.getHours|getMinutes|getSeconds|getMilliseconds(): int
    timestamp.getHours|getMinutes|getSeconds|getMilliseconds(): int
    timestamp.getHours|getMinutes|getSeconds|getMilliseconds(string): int",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    let (time, zone) = match arguments {
        [Value::Duration(span)] => {
            let unit_nanos = match function.name {
                "getHours" => 3_600_000_000_000,
                "getMinutes" => 60_000_000_000,
                "getSeconds" => 1_000_000_000,
                "getMilliseconds" => 1_000_000,
                _ => return Err(EvaluationError::no_overload()),
            };
            return Ok(Value::Int(span / unit_nanos));
        }
        [Value::Timestamp(time)] => (time, TimeZone::UTC),
        [Value::Timestamp(time), Value::String(zone)] => {
            context.budget.charge(10)?;
            (time, named(zone)?)
        }
        _ => return Err(EvaluationError::no_overload()),
    };
    let local = Zoned::new(*time, zone);
    Ok(Value::Int(match function.name {
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
