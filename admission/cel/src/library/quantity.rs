use std::cmp::Ordering;
use std::sync::Arc;

use super::declaration::Function;
use crate::error::EvaluationError;
use crate::value::{Quantity, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    (&["quantity(string): Quantity"], |context, arguments| {
        bind!([Value::String(text)] = arguments);
        context.budget.charge_read(text.len())?;
        Ok(Value::Quantity(Arc::new(Quantity::parse(text)?)))
    }),
    (&["isQuantity(string): bool"], |context, arguments| {
        bind!([Value::String(text)] = arguments);
        context.budget.charge_read(text.len())?;
        Ok(Value::Bool(Quantity::parse(text).is_ok()))
    }),
    (&["sign(Quantity): int"], |_, arguments| {
        bind!([Value::Quantity(quantity)] = arguments);
        Ok(Value::Int(quantity.digits.signum() as i64))
    }),
    (&["Quantity.isInteger(): bool"], |_, arguments| {
        bind!([Value::Quantity(quantity)] = arguments);
        Ok(Value::Bool(quantity.integer().is_some()))
    }),
    (&["Quantity.asInteger(): int"], |_, arguments| {
        bind!([Value::Quantity(quantity)] = arguments);
        quantity
            .integer()
            .map(Value::Int)
            .ok_or_else(|| EvaluationError::failed("cannot convert value to integer"))
    }),
    (
        &["Quantity.asApproximateFloat(): double"],
        |_, arguments| {
            bind!([Value::Quantity(quantity)] = arguments);
            Ok(Value::Double(quantity.float()))
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
    bind!([Value::Quantity(a), Value::Quantity(b)] = arguments);
    Ok(a.compare(b))
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
