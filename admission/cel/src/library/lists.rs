//! Functions of lists: those of Kubernetes, version 3 of cel-go's extension, and the sum of a list
//! of lists, which is an extension of this crate.

use super::declaration::{CallContext, Function};
use super::operators::{add, contains};
use crate::error::EvaluationError;
use crate::eval::compare;
use crate::value::Value;

/// Declares a member of lists for every element type that has an order. The result has a fixed
/// type, or consists of the element type between two texts.
macro_rules! of_ordered {
    (@ $($of:literal)*; $name:literal, $result:literal) => {
        &[$(concat!("list<", $of, ">.", $name, "(): ", $result)),*]
    };
    (@ $($of:literal)*; $name:literal, $before:literal, $after:literal) => {
        &[$(concat!("list<", $of, ">.", $name, "(): ", $before, $of, $after)),*]
    };
    ($($member:literal),*) => {
        of_ordered!(@ "int" "uint" "double" "bool" "duration" "timestamp" "string" "bytes";
            $($member),*)
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    (of_ordered!("isSorted", "bool"), |context, arguments| {
        let list = list(arguments)?;
        for pair in list.windows(2) {
            if compare::order(context.budget, &pair[0], &pair[1])?.is_gt() {
                return Ok(Value::Bool(false));
            }
        }
        Ok(Value::Bool(true))
    }),
    (&["list<int>.sum(): int"], |context, arguments| {
        sum(context, list(arguments)?, Value::Int(0))
    }),
    (&["list<uint>.sum(): uint"], |context, arguments| {
        sum(context, list(arguments)?, Value::Uint(0))
    }),
    (&["list<double>.sum(): double"], |context, arguments| {
        sum(context, list(arguments)?, Value::Double(0.0))
    }),
    (&["list<duration>.sum(): duration"], |context, arguments| {
        sum(context, list(arguments)?, Value::Duration(0))
    }),
    (&["list<list<A>>.sum(): list<A>"], |context, arguments| {
        flatten(context, list(arguments)?, 1)
    }),
    (of_ordered!("min", "", ""), |context, arguments| {
        extreme(context, list(arguments)?, "min")
    }),
    (of_ordered!("max", "", ""), |context, arguments| {
        extreme(context, list(arguments)?, "max")
    }),
    (&["list<A>.indexOf(A): int"], |context, arguments| {
        bind!([Value::List(list), wanted] = arguments);
        index_of(context, list.iter().enumerate(), wanted)
    }),
    (&["list<A>.lastIndexOf(A): int"], |context, arguments| {
        bind!([Value::List(list), wanted] = arguments);
        index_of(context, list.iter().enumerate().rev(), wanted)
    }),
    (
        &["list<A>.slice(int, int): list<A>"],
        |context, arguments| {
            bind!([Value::List(list), Value::Int(start), Value::Int(end)] = arguments);
            let places = usize::try_from(*start).ok().zip(usize::try_from(*end).ok());
            let part = places
                .and_then(|(start, end)| list.get(start..end))
                .ok_or_else(|| {
                    EvaluationError::failed(format!(
                        "cannot slice({start}, {end}), list is length {}",
                        list.len()
                    ))
                })?;
            context.budget.charge_elements(part.len())?;
            Ok(Value::list(part.to_vec()))
        },
    ),
    (
        &["list<list<A>>.flatten(): list<A>"],
        |context, arguments| flatten(context, list(arguments)?, 1),
    ),
    (
        &["list<dyn>.flatten(int): list<dyn>"],
        |context, arguments| {
            bind!([Value::List(list), Value::Int(levels)] = arguments);
            flatten(context, list, *levels)
        },
    ),
    (of_ordered!("sort", "list<", ">"), |context, arguments| {
        let list = list(arguments)?;
        context.budget.charge_elements(list.len() * 3)?;
        let mut pairs: Vec<_> = list
            .iter()
            .map(|value| (value.clone(), Value::Null))
            .collect();
        compare::sort(context.budget, &mut pairs)?;
        Ok(Value::list(
            pairs.into_iter().map(|(value, _)| value).collect(),
        ))
    }),
    (&["'lists.range'(int): list<int>"], |context, arguments| {
        bind!([Value::Int(count)] = arguments);
        let length = usize::try_from(*count).unwrap_or(0);
        context.budget.charge_elements(length)?;
        Ok(Value::list((0..*count).map(Value::Int).collect()))
    }),
    (&["list<A>.reverse(): list<A>"], |context, arguments| {
        let list = list(arguments)?;
        context.budget.charge_elements(list.len())?;
        Ok(Value::list(list.iter().rev().cloned().collect()))
    }),
    (&["list<A>.distinct(): list<A>"], |context, arguments| {
        let list = list(arguments)?;
        context.budget.charge_elements(list.len())?;
        let mut unique: Vec<Value> = Vec::new();
        for each in list {
            if !contains(context.budget, &unique, each)? {
                unique.push(each.clone());
            }
        }
        Ok(Value::list(unique))
    }),
    (&["list<A>.first(): optional<A>"], |_, arguments| {
        Ok(optional(list(arguments)?.first()))
    }),
    (&["list<A>.last(): optional<A>"], |_, arguments| {
        Ok(optional(list(arguments)?.last()))
    }),
];

fn list(arguments: &[Value]) -> Result<&[Value], EvaluationError> {
    bind!([Value::List(list)] = arguments);
    Ok(list)
}

fn optional(found: Option<&Value>) -> Value {
    found.map_or(Value::Optional(None), |value| Value::some(value.clone()))
}

/// Returns the sum of a list. `zero` has the type that the checker inferred; if the first element
/// has another type, the elements decide, so that lists of lists are joined.
fn sum(
    context: &mut CallContext<'_>,
    list: &[Value],
    zero: Value,
) -> Result<Value, EvaluationError> {
    let mut elements = list.iter();
    let mut total = match list.first() {
        Some(first) if std::mem::discriminant(first) != std::mem::discriminant(&zero) => {
            elements.next();
            match first {
                Value::List(_) => return flatten(context, list, 1),
                Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_) => {
                    first.clone()
                }
                _ => return Err(EvaluationError::no_overload()),
            }
        }
        _ => zero,
    };
    for each in elements {
        context.budget.charge(1)?;
        total = add(context.budget, &total, each)?;
    }
    Ok(total)
}

fn extreme(
    context: &mut CallContext<'_>,
    list: &[Value],
    name: &str,
) -> Result<Value, EvaluationError> {
    let mut elements = list.iter();
    let mut best = elements
        .next()
        .ok_or_else(|| EvaluationError::failed(format!("{name} called on empty list")))?;
    for each in elements {
        let order = compare::order(context.budget, each, best)?;
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
    context: &mut CallContext<'_>,
    list: impl Iterator<Item = (usize, &'a Value)>,
    wanted: &Value,
) -> Result<Value, EvaluationError> {
    for (index, each) in list {
        if compare::equal(context.budget, each, wanted)? {
            return Ok(Value::Int(index as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn flatten(
    context: &mut CallContext<'_>,
    list: &[Value],
    levels: i64,
) -> Result<Value, EvaluationError> {
    if levels < 0 {
        return Err(EvaluationError::failed("level must be non-negative"));
    }
    let mut out = Vec::new();
    flatten_into(context, list, levels, &mut out)?;
    Ok(Value::list(out))
}

fn flatten_into(
    context: &mut CallContext<'_>,
    list: &[Value],
    levels: i64,
    out: &mut Vec<Value>,
) -> Result<(), EvaluationError> {
    for each in list {
        context.budget.charge_elements(1)?;
        match each {
            Value::List(inner) if levels > 0 => flatten_into(context, inner, levels - 1, out)?,
            other => out.push(other.clone()),
        }
    }
    Ok(())
}
