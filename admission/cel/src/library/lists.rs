//! Functions of lists and sets: those of Kubernetes, version 3 of cel-go's extension, and the sum of
//! a list of lists, which is an extension of this crate.

use super::declaration::{CallContext, Module, Overload};
use super::operators::{add, contains};
use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::eval::compare;
use crate::types::Type;
use crate::value::Value;

pub(super) const MODULE: Module = (
    "list<ordered>.isSorted(): bool; list<ordered>.sort(): list<ordered>
    list<ordered>.min|max(): ordered
    list<int>.sum(): int; list<uint>.sum(): uint; list<double>.sum(): double
    list<duration>.sum(): duration; list<list<A>>.sum(): list<A>
    list<A>.indexOf|lastIndexOf(A): int
    list<A>.slice(int, int): list<A>; list<A>.reverse|distinct(): list<A>
    list<A>.first|last(): optional<A>
    list<list<A>>.flatten(): list<A>; list<dyn>.flatten(int): list<dyn>
    'lists.range'(int): list<int>
    'sets.contains'(list<A>, list<A>): bool; 'sets.equivalent'(list<A>, list<A>): bool
    'sets.intersects'(list<A>, list<A>): bool",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    let budget = &mut *context.budget;
    Ok(match (function.name, arguments) {
        ("isSorted", [Value::List(list)]) => {
            for pair in list.windows(2) {
                if compare::order(budget, &pair[0], &pair[1])?.is_gt() {
                    return Ok(Value::Bool(false));
                }
            }
            Value::Bool(true)
        }
        ("sort", [Value::List(list)]) => {
            budget.charge_elements(list.len() * 3)?;
            let mut pairs: Vec<_> = list
                .iter()
                .map(|each| (each.clone(), Value::Null))
                .collect();
            compare::sort(budget, &mut pairs)?;
            Value::list(pairs.into_iter().map(|(value, _)| value).collect())
        }
        (name @ ("min" | "max"), [Value::List(list)]) => extreme(budget, list, name)?,
        ("sum", [Value::List(list)]) => sum(budget, list, &function.result)?,
        ("indexOf", [Value::List(list), wanted]) => {
            index_of(budget, list.iter().enumerate(), wanted)?
        }
        ("lastIndexOf", [Value::List(list), wanted]) => {
            index_of(budget, list.iter().enumerate().rev(), wanted)?
        }
        ("slice", [Value::List(list), Value::Int(start), Value::Int(end)]) => {
            let places = usize::try_from(*start).ok().zip(usize::try_from(*end).ok());
            let part = places
                .and_then(|(start, end)| list.get(start..end))
                .ok_or_else(|| {
                    EvaluationError::failed(format!(
                        "cannot slice({start}, {end}), list is length {}",
                        list.len()
                    ))
                })?;
            budget.charge_elements(part.len())?;
            Value::list(part.to_vec())
        }
        ("reverse", [Value::List(list)]) => {
            budget.charge_elements(list.len())?;
            Value::list(list.iter().rev().cloned().collect())
        }
        ("distinct", [Value::List(list)]) => {
            budget.charge_elements(list.len())?;
            let mut unique: Vec<Value> = Vec::new();
            for each in list.iter() {
                if !contains(budget, &unique, each)? {
                    unique.push(each.clone());
                }
            }
            Value::list(unique)
        }
        ("first", [Value::List(list)]) => optional(list.first()),
        ("last", [Value::List(list)]) => optional(list.last()),
        ("flatten", [Value::List(list)]) => flatten(budget, list, 1)?,
        ("flatten", [Value::List(list), Value::Int(levels)]) => flatten(budget, list, *levels)?,
        ("lists.range", [Value::Int(count)]) => {
            budget.charge_elements(usize::try_from(*count).unwrap_or(0))?;
            Value::list((0..*count).map(Value::Int).collect())
        }
        ("sets.contains", [Value::List(a), Value::List(b)]) => Value::Bool(within(budget, b, a)?),
        ("sets.equivalent", [Value::List(a), Value::List(b)]) => {
            Value::Bool(within(budget, b, a)? && within(budget, a, b)?)
        }
        ("sets.intersects", [Value::List(a), Value::List(b)]) => {
            for each in a.iter() {
                if contains(budget, b, each)? {
                    return Ok(Value::Bool(true));
                }
            }
            Value::Bool(false)
        }
        _ => return Err(EvaluationError::no_overload()),
    })
}

fn optional(found: Option<&Value>) -> Value {
    found.map_or(Value::Optional(None), |value| Value::some(value.clone()))
}

/// Returns the sum of a list. The sum of no elements has the type that the checker inferred; if the
/// first element has another type, the elements decide, so that lists of lists are joined.
fn sum(budget: &mut Budget, list: &[Value], result: &Type) -> Result<Value, EvaluationError> {
    let zero = match result {
        Type::Uint => Value::Uint(0),
        Type::Double => Value::Double(0.0),
        Type::Duration => Value::Duration(0),
        Type::List(_) => return flatten(budget, list, 1),
        _ => Value::Int(0),
    };
    let mut elements = list.iter();
    let mut total = match list.first() {
        Some(first) if std::mem::discriminant(first) != std::mem::discriminant(&zero) => {
            elements.next();
            match first {
                Value::List(_) => return flatten(budget, list, 1),
                Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_) => {
                    first.clone()
                }
                _ => return Err(EvaluationError::no_overload()),
            }
        }
        _ => zero,
    };
    for each in elements {
        budget.charge(1)?;
        total = add(budget, &total, each)?;
    }
    Ok(total)
}

fn extreme(budget: &mut Budget, list: &[Value], name: &str) -> Result<Value, EvaluationError> {
    let mut elements = list.iter();
    let mut best = elements
        .next()
        .ok_or_else(|| EvaluationError::failed(format!("{name} called on empty list")))?;
    for each in elements {
        let order = compare::order(budget, each, best)?;
        if if name == "min" {
            order.is_lt()
        } else {
            order.is_gt()
        } {
            best = each;
        }
    }
    Ok(best.clone())
}

fn index_of<'a>(
    budget: &mut Budget,
    list: impl Iterator<Item = (usize, &'a Value)>,
    wanted: &Value,
) -> Result<Value, EvaluationError> {
    for (index, each) in list {
        if compare::equal(budget, each, wanted)? {
            return Ok(Value::Int(index as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn flatten(budget: &mut Budget, list: &[Value], levels: i64) -> Result<Value, EvaluationError> {
    if levels < 0 {
        return Err(EvaluationError::failed("level must be non-negative"));
    }
    let mut out = Vec::new();
    flatten_into(budget, list, levels, &mut out)?;
    Ok(Value::list(out))
}

fn flatten_into(
    budget: &mut Budget,
    list: &[Value],
    levels: i64,
    out: &mut Vec<Value>,
) -> Result<(), EvaluationError> {
    for each in list {
        budget.charge_elements(1)?;
        match each {
            Value::List(inner) if levels > 0 => flatten_into(budget, inner, levels - 1, out)?,
            other => out.push(other.clone()),
        }
    }
    Ok(())
}

/// Returns whether `whole` contains every element of `part`.
fn within(budget: &mut Budget, part: &[Value], whole: &[Value]) -> Result<bool, EvaluationError> {
    for each in part {
        if !contains(budget, whole, each)? {
            return Ok(false);
        }
    }
    Ok(true)
}
