//! Compares values for equality and order. Comparisons are charged to the budget, because values
//! can share parts so often that an unbounded comparison would not end in practice.

use std::cmp::Ordering;

use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::value::Value;

/// Evaluates `a == b`. Values of different types are not equal, except numbers with the same value.
pub(crate) fn equal(budget: &mut Budget, a: &Value, b: &Value) -> Result<bool, EvaluationError> {
    budget.charge(1)?;
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => numbers(a, b) == Some(Ordering::Equal),
        (Value::String(a), Value::String(b)) => {
            budget.charge_read(a.len().min(b.len()))?;
            a == b
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.charge_read(a.len().min(b.len()))?;
            a == b
        }
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && all_equal(budget, a.iter().zip(b.iter()))?
        }
        (Value::Map(a), Value::Map(b)) => {
            a.keys().eq(b.keys()) && all_equal(budget, a.values().zip(b.values()))?
        }
        (Value::Object(a), Value::Object(b)) => {
            a.type_name == b.type_name
                && a.fields.keys().eq(b.fields.keys())
                && all_equal(budget, a.fields.values().zip(b.fields.values()))?
        }
        (Value::Patch(a), Value::Patch(b)) => {
            (&a.op, &a.path, &a.from) == (&b.op, &b.path, &b.from)
                && a.value.is_some() == b.value.is_some()
                && all_equal(budget, a.value.iter().zip(&b.value))?
        }
        (Value::Optional(a), Value::Optional(b)) => {
            a.is_some() == b.is_some()
                && all_equal(budget, a.as_deref().into_iter().zip(b.as_deref()))?
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Quantity(a), Value::Quantity(b)) => a.compare(b) == Ordering::Equal,
        (Value::Semver(a), Value::Semver(b)) => a.cmp_precedence(b) == Ordering::Equal,
        (Value::Url(a), Value::Url(b)) => a == b,
        (Value::Ip(a), Value::Ip(b)) => a == b,
        (Value::Cidr(a), Value::Cidr(b)) => a == b,
        (Value::Format(a), Value::Format(b)) => std::ptr::eq(*a, *b),
        (Value::ResourceName(a), Value::ResourceName(b)) => a == b,
        (Value::Authorizer(a), Value::Authorizer(b)) => a == b,
        (Value::AccessCheck(a), Value::AccessCheck(b)) => a == b,
        (Value::Decision(a), Value::Decision(b)) => a == b,
        _ => false,
    })
}

fn all_equal<'a>(
    budget: &mut Budget,
    pairs: impl Iterator<Item = (&'a Value, &'a Value)>,
) -> Result<bool, EvaluationError> {
    for (a, b) in pairs {
        if !equal(budget, a, b)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the order of two numbers of any types; `None` if one is NaN.
fn numbers(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), b) => whole_to(b, *a).map(Ordering::reverse),
        (a, Value::Double(b)) => whole_to(a, *b),
        (a, b) => Some(whole(a)?.cmp(&whole(b)?)),
    }
}

fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Int(number) => Some(i128::from(*number)),
        Value::Uint(number) => Some(i128::from(*number)),
        _ => None,
    }
}

/// Returns the order of an integer and a double, compared as doubles as in Kubernetes.
fn whole_to(value: &Value, double: f64) -> Option<Ordering> {
    (whole(value)? as f64).partial_cmp(&double)
}

pub(crate) fn order(
    budget: &mut Budget,
    a: &Value,
    b: &Value,
) -> Result<Ordering, EvaluationError> {
    budget.charge(1)?;
    let found = match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => {
            return numbers(a, b)
                .ok_or_else(|| EvaluationError::failed("NaN values cannot be ordered"));
        }
        (Value::String(a), Value::String(b)) => {
            budget.charge_read(a.len().min(b.len()))?;
            Some(a.cmp(b))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.charge_read(a.len().min(b.len()))?;
            Some(a.cmp(b))
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
        _ => None,
    };
    found.ok_or_else(EvaluationError::no_overload)
}

/// Sorts pairs stably by their first values, which must all be of one type that has an order.
pub(crate) fn sort(
    budget: &mut Budget,
    pairs: &mut [(Value, Value)],
) -> Result<(), EvaluationError> {
    let Some((first, _)) = pairs.first() else {
        return Ok(());
    };
    let kind = std::mem::discriminant(first);
    if pairs
        .iter()
        .any(|(key, _)| std::mem::discriminant(key) != kind)
    {
        return Err(EvaluationError::failed(
            "list elements must have the same type",
        ));
    }
    // Sorting compares a single value with nothing, but its type must have an order, too.
    order(budget, &pairs[0].0.clone(), &pairs[0].0.clone())?;
    let mut error = None;
    pairs.sort_by(|(a, _), (b, _)| {
        if error.is_some() {
            return Ordering::Equal;
        }
        order(budget, a, b).unwrap_or_else(|stop| {
            error = Some(stop);
            Ordering::Equal
        })
    });
    error.map_or(Ok(()), Err)
}
