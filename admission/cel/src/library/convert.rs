use std::sync::Arc;

use super::declaration::{CallContext, Function};
use crate::error::EvaluationError;
use crate::value::Value;
use crate::value::{duration, timestamp};

pub(super) const FUNCTIONS: &[Function] = &[
    (
        &[
            "size(string): int",
            "string.size(): int",
            "size(bytes): int",
            "bytes.size(): int",
            "size(list<A>): int",
            "list<A>.size(): int",
            "size(map<A, B>): int",
            "map<A, B>.size(): int",
        ],
        |context, arguments| {
            let size = match arguments {
                [Value::String(text)] => {
                    context.budget.charge_read(text.len())?;
                    text.chars().count()
                }
                [Value::Bytes(bytes)] => bytes.len(),
                [Value::List(list)] => list.len(),
                [Value::Map(map)] => map.len(),
                _ => return Err(EvaluationError::no_overload()),
            };
            Ok(Value::Int(size as i64))
        },
    ),
    (&["type(A): type<A>"], |_, arguments| {
        bind!([value] = arguments);
        Ok(Value::Type(value.type_name().into()))
    }),
    (&["dyn(A): dyn"], |_, arguments| {
        arguments
            .first()
            .cloned()
            .ok_or_else(EvaluationError::no_overload)
    }),
    (
        &["bool(bool): bool", "bool(string): bool"],
        |_, arguments| match arguments {
            [Value::Bool(flag)] => Ok(Value::Bool(*flag)),
            [Value::String(text)] => match &**text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
                _ => Err(wrong("string", "bool")),
            },
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["bytes(bytes): bytes", "bytes(string): bytes"],
        |context, arguments| match arguments {
            [value @ Value::Bytes(_)] => Ok(value.clone()),
            [Value::String(text)] => {
                context.budget.charge_allocation(text.len())?;
                Ok(Value::Bytes(text.as_bytes().into()))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &[
            "double(double): double",
            "double(int): double",
            "double(uint): double",
            "double(string): double",
        ],
        |context, arguments| match arguments {
            [value @ Value::Double(_)] => Ok(value.clone()),
            [Value::Int(number)] => Ok(Value::Double(*number as f64)),
            [Value::Uint(number)] => Ok(Value::Double(*number as f64)),
            [Value::String(text)] => {
                context.budget.charge_read(text.len())?;
                double(text)
                    .map(Value::Double)
                    .ok_or_else(|| wrong("string", "double"))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &[
            "int(int): int",
            "int(uint): int",
            "int(double): int",
            "int(string): int",
            "int(timestamp): int",
            "int(duration): int",
        ],
        |context, arguments| {
            let range = || EvaluationError::failed("integer overflow");
            match arguments {
                [value @ Value::Int(_)] => Ok(value.clone()),
                [Value::Uint(number)] => {
                    i64::try_from(*number).map(Value::Int).map_err(|_| range())
                }
                // As in cel-go, the bounds are refused: the upper one is not exact as a double.
                [Value::Double(number)]
                    if *number > i64::MIN as f64 && *number < i64::MAX as f64 =>
                {
                    Ok(Value::Int(*number as i64))
                }
                [Value::Double(_)] => Err(range()),
                [Value::String(text)] => {
                    context.budget.charge_read(text.len())?;
                    text.parse()
                        .map(Value::Int)
                        .map_err(|_| wrong("string", "int"))
                }
                [Value::Timestamp(time)] => Ok(Value::Int(time.as_second().min(
                    if time.subsec_nanosecond() < 0 {
                        time.as_second() - 1
                    } else {
                        i64::MAX
                    },
                ))),
                [Value::Duration(span)] => Ok(Value::Int(*span)),
                _ => Err(EvaluationError::no_overload()),
            }
        },
    ),
    (
        &[
            "uint(uint): uint",
            "uint(int): uint",
            "uint(double): uint",
            "uint(string): uint",
        ],
        |context, arguments| {
            let range = || EvaluationError::failed("unsigned integer overflow");
            match arguments {
                [value @ Value::Uint(_)] => Ok(value.clone()),
                [Value::Int(number)] => {
                    u64::try_from(*number).map(Value::Uint).map_err(|_| range())
                }
                [Value::Double(number)] if *number >= 0.0 && *number < u64::MAX as f64 => {
                    Ok(Value::Uint(*number as u64))
                }
                [Value::Double(_)] => Err(range()),
                [Value::String(text)] => {
                    context.budget.charge_read(text.len())?;
                    if text.starts_with('+') {
                        return Err(wrong("string", "uint"));
                    }
                    text.parse()
                        .map(Value::Uint)
                        .map_err(|_| wrong("string", "uint"))
                }
                _ => Err(EvaluationError::no_overload()),
            }
        },
    ),
    (
        &[
            "string(string): string",
            "string(bool): string",
            "string(bytes): string",
            "string(double): string",
            "string(duration): string",
            "string(int): string",
            "string(timestamp): string",
            "string(uint): string",
            "string(IP): string",
            "string(CIDR): string",
        ],
        string,
    ),
    (
        &[
            "timestamp(timestamp): timestamp",
            "timestamp(string): timestamp",
            "timestamp(int): timestamp",
        ],
        |context, arguments| match arguments {
            [value @ Value::Timestamp(_)] => Ok(value.clone()),
            [Value::Int(seconds)] => jiff::Timestamp::from_second(*seconds)
                .ok()
                .and_then(timestamp::in_range)
                .map(Value::Timestamp)
                .ok_or_else(|| EvaluationError::failed("timestamp overflow")),
            [Value::String(text)] => {
                context.budget.charge_read(text.len())?;
                Ok(Value::Timestamp(timestamp::parse(text)?))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &[
            "duration(duration): duration",
            "duration(string): duration",
            "duration(int): duration",
        ],
        |context, arguments| match arguments {
            [value @ Value::Duration(_)] => Ok(value.clone()),
            [Value::Int(nanos)] => Ok(Value::Duration(*nanos)),
            [Value::String(text)] => {
                context.budget.charge_read(text.len())?;
                Ok(Value::Duration(duration::parse(text)?))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
];

/// Parses a double as Go does; `None` for a text that is not a number or is too large.
fn double(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    (!number.is_infinite() || text.to_ascii_lowercase().contains("inf")).then_some(number)
}

fn wrong(from: &str, to: &str) -> EvaluationError {
    EvaluationError::failed(format!("type conversion error from '{from}' to '{to}'"))
}

fn string(context: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, EvaluationError> {
    bind!([value] = arguments);
    let text = match value {
        Value::String(text) => return Ok(Value::String(Arc::clone(text))),
        Value::Bytes(bytes) => {
            context.budget.charge_allocation(bytes.len())?;
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
    context.budget.charge_allocation(text.len())?;
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
