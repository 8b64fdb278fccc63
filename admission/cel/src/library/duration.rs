use super::declaration::{CallContext, Function};
use super::timestamp;
use crate::error::EvaluationError;
use crate::value::Value;

/// Declares a member of durations and timestamps, whose unit is given in nanoseconds.
macro_rules! member {
    ($name:literal, $nanos:literal) => {
        (
            &[
                concat!("duration.", $name, "(): int"),
                concat!("timestamp.", $name, "(): int"),
                concat!("timestamp.", $name, "(string): int"),
            ],
            |context, arguments| part(context, arguments, $nanos, $name),
        )
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    member!("getHours", 3_600_000_000_000),
    member!("getMinutes", 60_000_000_000),
    member!("getSeconds", 1_000_000_000),
    member!("getMilliseconds", 1_000_000),
];

fn part(
    context: &mut CallContext<'_>,
    arguments: &[Value],
    unit_nanos: i64,
    name: &str,
) -> Result<Value, EvaluationError> {
    match arguments {
        [Value::Duration(span)] => Ok(Value::Int(span / unit_nanos)),
        _ => timestamp::part(context, arguments, name),
    }
}
