//! Operators for arithmetic, comparison and membership. Arithmetic fails on overflow instead of
//! wrapping.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::SignedDuration;

use super::declaration::{CallContext, Function};
use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::eval::access;
use crate::eval::compare;
use crate::value::timestamp::in_range;
use crate::value::{ELEMENT_BYTES, Key, Value};

/// Declares a comparison such as `<` for all pairs of types that have an order.
macro_rules! ordered {
    ($name:literal) => {
        ordered!($name; "bool, bool" "int, int" "int, uint" "int, double" "uint, int"
            "uint, uint" "uint, double" "double, int" "double, uint"
            "double, double" "string, string" "bytes, bytes"
            "timestamp, timestamp" "duration, duration")
    };
    ($name:literal; $($pair:literal)*) => {
        &[$(concat!($name, "(", $pair, "): bool")),*]
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    (
        &[
            "_+_(int, int): int",
            "_+_(uint, uint): uint",
            "_+_(double, double): double",
            "_+_(string, string): string",
            "_+_(bytes, bytes): bytes",
            "_+_(list<A>, list<A>): list<A>",
            "_+_(duration, duration): duration",
            "_+_(duration, timestamp): timestamp",
            "_+_(timestamp, duration): timestamp",
        ],
        |context, arguments| {
            bind!([a, b] = arguments);
            add(context.budget, a, b)
        },
    ),
    (
        &[
            "_-_(int, int): int",
            "_-_(uint, uint): uint",
            "_-_(double, double): double",
            "_-_(duration, duration): duration",
            "_-_(timestamp, duration): timestamp",
            "_-_(timestamp, timestamp): duration",
        ],
        subtract,
    ),
    (
        &[
            "_*_(int, int): int",
            "_*_(uint, uint): uint",
            "_*_(double, double): double",
        ],
        |_, arguments| match arguments {
            [Value::Int(a), Value::Int(b)] => int(a.checked_mul(*b)),
            [Value::Uint(a), Value::Uint(b)] => uint(a.checked_mul(*b)),
            [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &[
            "_/_(int, int): int",
            "_/_(uint, uint): uint",
            "_/_(double, double): double",
        ],
        |_, arguments| match arguments {
            [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
                Err(EvaluationError::failed("division by zero"))
            }
            [Value::Int(a), Value::Int(b)] => int(a.checked_div(*b)),
            [Value::Uint(a), Value::Uint(b)] => uint(a.checked_div(*b)),
            [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["_%_(int, int): int", "_%_(uint, uint): uint"],
        |_, arguments| match arguments {
            [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
                Err(EvaluationError::failed("modulus by zero"))
            }
            [Value::Int(a), Value::Int(b)] => int(a.checked_rem(*b)),
            [Value::Uint(a), Value::Uint(b)] => uint(a.checked_rem(*b)),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["-_(int): int", "-_(double): double"],
        |_, arguments| match arguments {
            [Value::Int(a)] => int(a.checked_neg()),
            [Value::Double(a)] => Ok(Value::Double(-a)),
            [Value::Duration(a)] => a.checked_neg().map(Value::Duration).ok_or_else(overflow),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (&["!_(bool): bool"], |_, arguments| {
        bind!([Value::Bool(a)] = arguments);
        Ok(Value::Bool(!a))
    }),
    (&["_?_:_(bool, A, A): A"], |_, _| {
        Err(EvaluationError::no_overload())
    }),
    (&["_==_(A, A): bool"], |context, arguments| {
        bind!([a, b] = arguments);
        compare::equal(context.budget, a, b).map(Value::Bool)
    }),
    (&["_!=_(A, A): bool"], |context, arguments| {
        bind!([a, b] = arguments);
        compare::equal(context.budget, a, b).map(|same| Value::Bool(!same))
    }),
    (ordered!("_<_"), |context, arguments| {
        relation(context, arguments, Ordering::is_lt)
    }),
    (ordered!("_<=_"), |context, arguments| {
        relation(context, arguments, Ordering::is_le)
    }),
    (ordered!("_>_"), |context, arguments| {
        relation(context, arguments, Ordering::is_gt)
    }),
    (ordered!("_>=_"), |context, arguments| {
        relation(context, arguments, Ordering::is_ge)
    }),
    (
        &[
            "_[_](list<A>, int): A",
            "_[_](map<A, B>, A): B",
            "_[_](optional<list<A>>, int): optional<A>",
            "_[_](optional<map<A, B>>, A): optional<B>",
        ],
        |context, arguments| {
            bind!([a, b] = arguments);
            access::charge_key(context.budget, b)?;
            access::index(a, b, false)
        },
    ),
    (
        &[
            "_[?_](list<A>, int): optional<A>",
            "_[?_](optional<list<A>>, int): optional<A>",
            "_[?_](map<A, B>, A): optional<B>",
            "_[?_](optional<map<A, B>>, A): optional<B>",
        ],
        |context, arguments| {
            bind!([a, b] = arguments);
            access::charge_key(context.budget, b)?;
            access::index(a, b, true)
        },
    ),
    (
        &["@in(A, list<A>): bool", "@in(A, map<A, B>): bool"],
        |context, arguments| match arguments {
            [a, Value::List(list)] => contains(context.budget, list, a).map(Value::Bool),
            [a, Value::Map(map)] => {
                access::charge_key(context.budget, a)?;
                Ok(Value::Bool(
                    Key::from_value(a).is_some_and(|key| map.contains_key(&key)),
                ))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
];

fn overflow() -> EvaluationError {
    EvaluationError::failed("integer overflow")
}

fn int(number: Option<i64>) -> Result<Value, EvaluationError> {
    number.map(Value::Int).ok_or_else(overflow)
}

fn uint(number: Option<u64>) -> Result<Value, EvaluationError> {
    number
        .map(Value::Uint)
        .ok_or_else(|| EvaluationError::failed("unsigned integer overflow"))
}

pub(super) fn add(budget: &mut Budget, a: &Value, b: &Value) -> Result<Value, EvaluationError> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => {
            budget.charge_allocation(a.len() + b.len())?;
            Ok(Value::string([&**a, &**b].concat()))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.charge_allocation(a.len() + b.len())?;
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        (Value::List(a), Value::List(b)) if b.is_empty() => Ok(Value::List(Arc::clone(a))),
        (Value::List(a), Value::List(b)) => {
            budget.charge_allocation((a.len() + b.len()) * ELEMENT_BYTES)?;
            Ok(Value::list([a.as_slice(), b.as_slice()].concat()))
        }
        (Value::Duration(a), Value::Duration(b)) => {
            a.checked_add(*b).map(Value::Duration).ok_or_else(overflow)
        }
        (Value::Timestamp(time), Value::Duration(span))
        | (Value::Duration(span), Value::Timestamp(time)) => {
            let sum = time.checked_add(SignedDuration::from_nanos(*span)).ok();
            sum.and_then(in_range)
                .map(Value::Timestamp)
                .ok_or_else(|| EvaluationError::failed("timestamp overflow"))
        }
        _ => Err(EvaluationError::no_overload()),
    }
}

fn subtract(_: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, EvaluationError> {
    match arguments {
        [Value::Int(a), Value::Int(b)] => int(a.checked_sub(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_sub(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        [Value::Duration(a), Value::Duration(b)] => {
            a.checked_sub(*b).map(Value::Duration).ok_or_else(overflow)
        }
        [Value::Timestamp(time), Value::Duration(span)] => {
            let rest = time.checked_sub(SignedDuration::from_nanos(*span)).ok();
            rest.and_then(in_range)
                .map(Value::Timestamp)
                .ok_or_else(|| EvaluationError::failed("timestamp overflow"))
        }
        [Value::Timestamp(a), Value::Timestamp(b)] => {
            let nanos = a.as_nanosecond() - b.as_nanosecond();
            i64::try_from(nanos)
                .map(Value::Duration)
                .map_err(|_| overflow())
        }
        _ => Err(EvaluationError::no_overload()),
    }
}

fn relation(
    context: &mut CallContext<'_>,
    arguments: &[Value],
    holds: fn(Ordering) -> bool,
) -> Result<Value, EvaluationError> {
    bind!([a, b] = arguments);
    compare::order(context.budget, a, b).map(|order| Value::Bool(holds(order)))
}

pub(super) fn contains(
    budget: &mut Budget,
    list: &[Value],
    value: &Value,
) -> Result<bool, EvaluationError> {
    for each in list {
        if compare::equal(budget, each, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}
