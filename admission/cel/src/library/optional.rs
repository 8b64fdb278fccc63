//! Implements the CEL functions that create optional values and read them, except `or` and
//! `orValue`.

use super::declaration::{CallContext, Module, Overload};
use crate::error::EvaluationError;
use crate::value::Value;

pub(super) const MODULE: Module = (
    "'optional.of'(A): optional<A>; 'optional.ofNonZeroValue'(A): optional<A>
    'optional.none'(): optional<A>
    optional<A>.value(): A; optional<A>.hasValue(): bool
    optional<A>.or(optional<A>): optional<A>; optional<A>.orValue(A): A
    'optional.unwrap'(list<optional<A>>): list<A>; list<optional<A>>.unwrapOpt(): list<A>",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    Ok(match (function.name, arguments) {
        ("optional.none", []) => Value::Optional(None),
        ("optional.ofNonZeroValue", [value]) if zero(value) => Value::Optional(None),
        ("optional.of" | "optional.ofNonZeroValue", [value]) => Value::some(value.clone()),
        ("value", [Value::Optional(Some(value))]) => (**value).clone(),
        ("value", [Value::Optional(None)]) => {
            return Err(EvaluationError::failed("optional.none() dereference"));
        }
        ("hasValue", [Value::Optional(value)]) => Value::Bool(value.is_some()),
        ("optional.unwrap" | "unwrapOpt", [Value::List(list)]) => {
            context.budget.charge_elements(list.len())?;
            let mut present = Vec::new();
            for each in list.iter() {
                match each {
                    Value::Optional(value) => present.extend(value.as_deref().cloned()),
                    _ => return Err(EvaluationError::failed("value is not optional")),
                }
            }
            Value::list(present)
        }
        // Calls of `or` and `orValue` have nodes of their own.
        _ => return Err(EvaluationError::no_overload()),
    })
}

/// Returns whether the value is the zero value of its type, or empty.
fn zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Int(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Duration(span) => *span == 0,
        Value::Object(object) => object.fields.is_empty(),
        _ => false,
    }
}
