//! Members that durations have, most of which timestamps share.

use super::declaration::{CallContext, Function};
use super::timestamp;
use crate::error::EvaluationError;
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    (
        &[
            "duration.getHours(): int",
            "timestamp.getHours(): int",
            "timestamp.getHours(string): int",
        ],
        |context, arguments| part(context, arguments, 3_600_000_000_000, "getHours"),
    ),
    (
        &[
            "duration.getMinutes(): int",
            "timestamp.getMinutes(): int",
            "timestamp.getMinutes(string): int",
        ],
        |context, arguments| part(context, arguments, 60_000_000_000, "getMinutes"),
    ),
    (
        &[
            "duration.getSeconds(): int",
            "timestamp.getSeconds(): int",
            "timestamp.getSeconds(string): int",
        ],
        |context, arguments| part(context, arguments, 1_000_000_000, "getSeconds"),
    ),
    (
        &[
            "duration.getMilliseconds(): int",
            "timestamp.getMilliseconds(): int",
            "timestamp.getMilliseconds(string): int",
        ],
        |context, arguments| part(context, arguments, 1_000_000, "getMilliseconds"),
    ),
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
