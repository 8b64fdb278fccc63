use std::cmp::Ordering;
use std::sync::Arc;

use super::declaration::Function;
use crate::error::EvaluationError;
use crate::value::{Quantity, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    (
        &["quantity(string): Quantity"],
        |context, arguments| match arguments {
            [Value::String(text)] => {
                context.budget.charge_read(text.len())?;
                Quantity::parse(text)
                    .map(|quantity| Value::Quantity(Arc::new(quantity)))
                    .map_err(EvaluationError::failed)
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["isQuantity(string): bool"],
        |context, arguments| match arguments {
            [Value::String(text)] => {
                context.budget.charge_read(text.len())?;
                Ok(Value::Bool(Quantity::parse(text).is_ok()))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (&["sign(Quantity): int"], |_, arguments| match arguments {
        [Value::Quantity(quantity)] => Ok(Value::Int(quantity.digits.signum() as i64)),
        _ => Err(EvaluationError::no_overload()),
    }),
    (
        &["Quantity.isInteger(): bool"],
        |_, arguments| match arguments {
            [Value::Quantity(quantity)] => Ok(Value::Bool(quantity.integer().is_some())),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["Quantity.asInteger(): int"],
        |_, arguments| match arguments {
            [Value::Quantity(quantity)] => quantity
                .integer()
                .map(Value::Int)
                .ok_or_else(|| EvaluationError::failed("cannot convert value to integer")),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["Quantity.asApproximateFloat(): double"],
        |_, arguments| match arguments {
            [Value::Quantity(quantity)] => Ok(Value::Double(quantity.float())),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["Quantity.isGreaterThan(Quantity): bool"],
        |_, arguments| Ok(Value::Bool(order(arguments)?.is_gt())),
    ),
    (&["Quantity.isLessThan(Quantity): bool"], |_, arguments| {
        Ok(Value::Bool(order(arguments)?.is_lt()))
    }),
    (&["Quantity.compareTo(Quantity): int"], |_, arguments| {
        Ok(Value::Int(order(arguments)? as i64))
    }),
    (
        &[
            "Quantity.add(Quantity): Quantity",
            "Quantity.add(int): Quantity",
        ],
        |_, arguments| sum(arguments, 1),
    ),
    (
        &[
            "Quantity.sub(Quantity): Quantity",
            "Quantity.sub(int): Quantity",
        ],
        |_, arguments| sum(arguments, -1),
    ),
];

fn order(arguments: &[Value]) -> Result<Ordering, EvaluationError> {
    match arguments {
        [Value::Quantity(a), Value::Quantity(b)] => Ok(a.compare(b)),
        _ => Err(EvaluationError::no_overload()),
    }
}

fn sum(arguments: &[Value], sign: i128) -> Result<Value, EvaluationError> {
    let (a, b) = match arguments {
        [Value::Quantity(a), Value::Quantity(b)] => (a, **b),
        [Value::Quantity(a), Value::Int(b)] => (a, Quantity::new(i128::from(*b), 0, true)),
        _ => return Err(EvaluationError::no_overload()),
    };
    a.plus(&Quantity::new(b.digits * sign, b.exponent, b.small))
        .map(|sum| Value::Quantity(Arc::new(sum)))
        .ok_or_else(|| EvaluationError::failed("the quantities' sum is too large"))
}
