use super::declaration::Function;
use crate::error::EvaluationError;
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    (&["'optional.of'(A): optional<A>"], |_, arguments| {
        bind!([value] = arguments);
        Ok(Value::some(value.clone()))
    }),
    (
        &["'optional.ofNonZeroValue'(A): optional<A>"],
        |_, arguments| match arguments {
            [value] if zero(value) => Ok(Value::Optional(None)),
            [value] => Ok(Value::some(value.clone())),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (&["'optional.none'(): optional<A>"], |_, _| {
        Ok(Value::Optional(None))
    }),
    (
        &["optional<A>.value(): A"],
        |_, arguments| match arguments {
            [Value::Optional(Some(value))] => Ok((**value).clone()),
            [Value::Optional(None)] => Err(EvaluationError::failed("optional.none() dereference")),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (&["optional<A>.hasValue(): bool"], |_, arguments| {
        bind!([Value::Optional(value)] = arguments);
        Ok(Value::Bool(value.is_some()))
    }),
    (&["optional<A>.or(optional<A>): optional<A>"], |_, _| {
        Err(EvaluationError::no_overload())
    }),
    (&["optional<A>.orValue(A): A"], |_, _| {
        Err(EvaluationError::no_overload())
    }),
    (
        &[
            "'optional.unwrap'(list<optional<A>>): list<A>",
            "list<optional<A>>.unwrapOpt(): list<A>",
        ],
        |context, arguments| {
            bind!([Value::List(list)] = arguments);
            context.budget.charge_elements(list.len())?;
            let mut present = Vec::new();
            for each in list.iter() {
                match each {
                    Value::Optional(value) => present.extend(value.as_deref().cloned()),
                    _ => return Err(EvaluationError::failed("value is not optional")),
                }
            }
            Ok(Value::list(present))
        },
    ),
];

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
