//! Implements the CEL functions that convert a value to another type, such as `int` and
//! `timestamp`, and `size`, `type` and `dyn`.

use super::declaration::{CallContext, Module, Overload};
use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::value::Value;
use crate::value::{duration, timestamp};

pub(super) const MODULE: Module = (
    "size(string): int; string.size(): int; size(bytes): int; bytes.size(): int
    size(list<A>): int; list<A>.size(): int; size(map<A, B>): int; map<A, B>.size(): int
    type(A): type<A>; dyn(A): dyn
    bool(bool): bool; bool(string): bool
    bytes(bytes): bytes; bytes(string): bytes
    double(double): double; double(int): double; double(uint): double; double(string): double
    int(int): int; int(uint): int; int(double): int; int(string): int
    int(timestamp): int; int(duration): int
    uint(uint): uint; uint(int): uint; uint(double): uint; uint(string): uint
    string(string): string; string(bool): string; string(bytes): string; string(double): string
    string(duration): string; string(int): string; string(timestamp): string
    string(uint): string; string(IP): string; string(CIDR): string
    timestamp(timestamp): timestamp; timestamp(string): timestamp; timestamp(int): timestamp
    duration(duration): duration; duration(string): duration; duration(int): duration",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    let budget = &mut *context.budget;
    let [value] = arguments else {
        return Err(EvaluationError::no_overload());
    };
    Ok(match (function.name, value) {
        ("size", Value::String(text)) => {
            budget.charge_read(text.len())?;
            Value::Int(text.chars().count() as i64)
        }
        ("size", Value::Bytes(bytes)) => Value::Int(bytes.len() as i64),
        ("size", Value::List(list)) => Value::Int(list.len() as i64),
        ("size", Value::Map(map)) => Value::Int(map.len() as i64),
        ("type", _) => Value::Type(value.type_name().into()),
        ("dyn", _)
        | ("bool", Value::Bool(_))
        | ("bytes", Value::Bytes(_))
        | ("double", Value::Double(_))
        | ("int", Value::Int(_))
        | ("uint", Value::Uint(_))
        | ("string", Value::String(_))
        | ("timestamp", Value::Timestamp(_))
        | ("duration", Value::Duration(_)) => value.clone(),
        ("bool", Value::String(text)) => parsed("bool", text)?,
        ("bytes", Value::String(text)) => {
            budget.charge_allocation(text.len())?;
            Value::Bytes(text.as_bytes().into())
        }
        (to @ ("double" | "int" | "uint" | "timestamp" | "duration"), Value::String(text)) => {
            budget.charge_read(text.len())?;
            parsed(to, text)?
        }
        ("double", Value::Int(number)) => Value::Double(*number as f64),
        ("double", Value::Uint(number)) => Value::Double(*number as f64),
        ("int", Value::Uint(number)) => {
            Value::Int(i64::try_from(*number).map_err(|_| overflow("integer"))?)
        }
        // As in cel-go, the bounds are refused: the upper one is not exact as a double.
        ("int", Value::Double(number))
            if *number > i64::MIN as f64 && *number < i64::MAX as f64 =>
        {
            Value::Int(*number as i64)
        }
        ("int", Value::Double(_)) => return Err(overflow("integer")),
        ("int", Value::Timestamp(time)) => {
            Value::Int(time.as_second() - i64::from(time.subsec_nanosecond() < 0))
        }
        ("int", Value::Duration(span)) => Value::Int(*span),
        ("uint", Value::Int(number)) => {
            Value::Uint(u64::try_from(*number).map_err(|_| overflow("unsigned integer"))?)
        }
        ("uint", Value::Double(number)) if *number >= 0.0 && *number < u64::MAX as f64 => {
            Value::Uint(*number as u64)
        }
        ("uint", Value::Double(_)) => return Err(overflow("unsigned integer")),
        ("string", _) => string(budget, value)?,
        ("timestamp", Value::Int(seconds)) => {
            let time = jiff::Timestamp::from_second(*seconds).ok();
            let time = time.and_then(timestamp::in_range);
            Value::Timestamp(time.ok_or_else(|| overflow("timestamp"))?)
        }
        ("duration", Value::Int(nanos)) => Value::Duration(*nanos),
        _ => return Err(EvaluationError::no_overload()),
    })
}

/// Parses a double as Go does; `None` for a text that is not a number or is too large.
fn double(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    (!number.is_infinite() || text.to_ascii_lowercase().contains("inf")).then_some(number)
}

fn parsed(to: &str, text: &str) -> Result<Value, EvaluationError> {
    match to {
        "bool" => match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(Value::Bool(false)),
            _ => None,
        },
        "double" => double(text).map(Value::Double),
        "int" => text.parse().ok().map(Value::Int),
        "uint" if text.starts_with('+') => None,
        "uint" => text.parse().ok().map(Value::Uint),
        "timestamp" => return Ok(Value::Timestamp(timestamp::parse(text)?)),
        _ => return Ok(Value::Duration(duration::parse(text)?)),
    }
    .ok_or_else(|| {
        EvaluationError::failed(format!("type conversion error from 'string' to '{to}'"))
    })
}

fn overflow(of: &str) -> EvaluationError {
    EvaluationError::failed(format!("{of} overflow"))
}

fn string(budget: &mut Budget, value: &Value) -> Result<Value, EvaluationError> {
    let text = match value {
        Value::Bytes(bytes) => {
            budget.charge_allocation(bytes.len())?;
            let text = std::str::from_utf8(bytes);
            return text.map(Value::string).map_err(|_| {
                EvaluationError::failed("invalid UTF-8 in bytes, cannot convert to string")
            });
        }
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => double_text(*number),
        Value::Duration(span) => duration::to_text(*span),
        Value::Timestamp(time) => time.to_string(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(network) => network.to_string(),
        _ => return Err(EvaluationError::no_overload()),
    };
    budget.charge_allocation(text.len())?;
    Ok(Value::string(text))
}

/// Formats a double like Go's shortest `%g`, with an exponent below 1e-4 and from 1e6.
pub(super) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if number != 0.0 && !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{number}"),
    }
}
