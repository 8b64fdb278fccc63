//! Operators for arithmetic, comparison and membership. Arithmetic fails on overflow instead of
//! wrapping.

use std::sync::Arc;

use jiff::SignedDuration;

use super::declaration::{CallContext, Module, Overload};
use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::eval::access;
use crate::eval::compare;
use crate::value::timestamp::in_range;
use crate::value::{ELEMENT_BYTES, Key, Value};

pub(super) const MODULE: Module = (
    "_+_(int, int): int; _+_(uint, uint): uint; _+_(double, double): double
    _+_(string, string): string; _+_(bytes, bytes): bytes; _+_(list<A>, list<A>): list<A>
    _+_(duration, duration): duration; _+_(duration, timestamp): timestamp
    _+_(timestamp, duration): timestamp
    _-_(int, int): int; _-_(uint, uint): uint; _-_(double, double): double
    _-_(duration, duration): duration; _-_(timestamp, duration): timestamp
    _-_(timestamp, timestamp): duration
    _*_|_/_|_%_(int, int): int; _*_|_/_|_%_(uint, uint): uint; _*_|_/_(double, double): double
    -_(int): int; -_(double): double; !_(bool): bool
    _?_:_(bool, A, A): A; _==_|_!=_(A, A): bool
    _<_|_<=_|_>_|_>=_(bool, bool): bool; _<_|_<=_|_>_|_>=_(int, int): bool
    _<_|_<=_|_>_|_>=_(int, uint): bool; _<_|_<=_|_>_|_>=_(int, double): bool
    _<_|_<=_|_>_|_>=_(uint, int): bool; _<_|_<=_|_>_|_>=_(uint, uint): bool
    _<_|_<=_|_>_|_>=_(uint, double): bool; _<_|_<=_|_>_|_>=_(double, int): bool
    _<_|_<=_|_>_|_>=_(double, uint): bool; _<_|_<=_|_>_|_>=_(double, double): bool
    _<_|_<=_|_>_|_>=_(string, string): bool; _<_|_<=_|_>_|_>=_(bytes, bytes): bool
    _<_|_<=_|_>_|_>=_(timestamp, timestamp): bool; _<_|_<=_|_>_|_>=_(duration, duration): bool
    _[_](list<A>, int): A; _[_](map<A, B>, A): B
    _[_](optional<list<A>>, int): optional<A>; _[_](optional<map<A, B>>, A): optional<B>
    _[?_](list<A>, int): optional<A>; _[?_](optional<list<A>>, int): optional<A>
    _[?_](map<A, B>, A): optional<B>; _[?_](optional<map<A, B>>, A): optional<B>
    @in(A, list<A>): bool; @in(A, map<A, B>): bool",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    let budget = &mut *context.budget;
    Ok(match (function.name, arguments) {
        ("_+_", [a, b]) => add(budget, a, b)?,
        ("_-_", [a, b]) => subtract(a, b)?,
        ("_*_", [Value::Int(a), Value::Int(b)]) => int(a.checked_mul(*b))?,
        ("_*_", [Value::Uint(a), Value::Uint(b)]) => uint(a.checked_mul(*b))?,
        ("_*_", [Value::Double(a), Value::Double(b)]) => Value::Double(a * b),
        ("_/_", [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)]) => {
            return Err(EvaluationError::failed("division by zero"));
        }
        ("_/_", [Value::Int(a), Value::Int(b)]) => int(a.checked_div(*b))?,
        ("_/_", [Value::Uint(a), Value::Uint(b)]) => uint(a.checked_div(*b))?,
        ("_/_", [Value::Double(a), Value::Double(b)]) => Value::Double(a / b),
        ("_%_", [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)]) => {
            return Err(EvaluationError::failed("modulus by zero"));
        }
        ("_%_", [Value::Int(a), Value::Int(b)]) => int(a.checked_rem(*b))?,
        ("_%_", [Value::Uint(a), Value::Uint(b)]) => uint(a.checked_rem(*b))?,
        ("-_", [Value::Int(a)]) => int(a.checked_neg())?,
        ("-_", [Value::Double(a)]) => Value::Double(-a),
        ("-_", [Value::Duration(a)]) => Value::Duration(a.checked_neg().ok_or_else(overflow)?),
        ("!_", [Value::Bool(a)]) => Value::Bool(!a),
        ("_==_", [a, b]) => Value::Bool(compare::equal(budget, a, b)?),
        ("_!=_", [a, b]) => Value::Bool(!compare::equal(budget, a, b)?),
        ("_<_", [a, b]) => Value::Bool(compare::order(budget, a, b)?.is_lt()),
        ("_<=_", [a, b]) => Value::Bool(compare::order(budget, a, b)?.is_le()),
        ("_>_", [a, b]) => Value::Bool(compare::order(budget, a, b)?.is_gt()),
        ("_>=_", [a, b]) => Value::Bool(compare::order(budget, a, b)?.is_ge()),
        (name @ ("_[_]" | "_[?_]"), [a, b]) => {
            access::charge_key(budget, b)?;
            access::index(a, b, name == "_[?_]")?
        }
        ("@in", [a, Value::List(list)]) => Value::Bool(contains(budget, list, a)?),
        ("@in", [a, Value::Map(map)]) => {
            access::charge_key(budget, a)?;
            Value::Bool(Key::from_value(a).is_some_and(|key| map.contains_key(&key)))
        }
        _ => return Err(EvaluationError::no_overload()),
    })
}

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

fn subtract(a: &Value, b: &Value) -> Result<Value, EvaluationError> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => {
            a.checked_sub(*b).map(Value::Duration).ok_or_else(overflow)
        }
        (Value::Timestamp(time), Value::Duration(span)) => {
            let rest = time.checked_sub(SignedDuration::from_nanos(*span)).ok();
            rest.and_then(in_range)
                .map(Value::Timestamp)
                .ok_or_else(|| EvaluationError::failed("timestamp overflow"))
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => {
            let nanos = a.as_nanosecond() - b.as_nanosecond();
            i64::try_from(nanos)
                .map(Value::Duration)
                .map_err(|_| overflow())
        }
        _ => Err(EvaluationError::no_overload()),
    }
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
