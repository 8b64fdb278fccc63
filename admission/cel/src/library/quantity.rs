//! Implements the CEL functions that parse, compare and add Kubernetes resource quantities, such as
//! `500m`.

use std::sync::Arc;

use super::declaration::{CallContext, Module, Overload};
use crate::error::EvaluationError;
use crate::value::{Quantity, Value};

pub(super) const MODULE: Module = (
    "quantity(string): Quantity; isQuantity(string): bool; sign(Quantity): int
    Quantity.isInteger(): bool; Quantity.asInteger(): int; Quantity.asApproximateFloat(): double
    Quantity.isGreaterThan|isLessThan(Quantity): bool; Quantity.compareTo(Quantity): int
    Quantity.add|sub(Quantity): Quantity; Quantity.add|sub(int): Quantity",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    Ok(match (function.name, arguments) {
        (name @ ("quantity" | "isQuantity"), [Value::String(text)]) => {
            context.budget.charge_read(text.len())?;
            match Quantity::parse(text) {
                parsed if name == "isQuantity" => Value::Bool(parsed.is_ok()),
                parsed => Value::Quantity(Arc::new(parsed?)),
            }
        }
        ("sign", [Value::Quantity(a)]) => Value::Int(a.digits.signum() as i64),
        ("isInteger", [Value::Quantity(a)]) => Value::Bool(a.integer().is_some()),
        ("asInteger", [Value::Quantity(a)]) => Value::Int(
            a.integer()
                .ok_or_else(|| EvaluationError::failed("cannot convert value to integer"))?,
        ),
        ("asApproximateFloat", [Value::Quantity(a)]) => Value::Double(a.float()),
        ("isGreaterThan", [Value::Quantity(a), Value::Quantity(b)]) => {
            Value::Bool(a.compare(b).is_gt())
        }
        ("isLessThan", [Value::Quantity(a), Value::Quantity(b)]) => {
            Value::Bool(a.compare(b).is_lt())
        }
        ("compareTo", [Value::Quantity(a), Value::Quantity(b)]) => Value::Int(a.compare(b) as i64),
        (name, [Value::Quantity(a), Value::Quantity(b)]) => sum(name, a, b)?,
        (name, [Value::Quantity(a), Value::Int(b)]) => {
            sum(name, a, &Quantity::new(i128::from(*b), 0, true))?
        }
        _ => return Err(EvaluationError::no_overload()),
    })
}

/// Returns the result of `add` or `sub`.
fn sum(name: &str, a: &Quantity, b: &Quantity) -> Result<Value, EvaluationError> {
    let sign = match name {
        "add" => 1,
        "sub" => -1,
        _ => return Err(EvaluationError::no_overload()),
    };
    a.plus(&Quantity::new(b.digits * sign, b.exponent, b.small))
        .map(|sum| Value::Quantity(Arc::new(sum)))
        .ok_or_else(|| EvaluationError::failed("the quantities' sum is too large"))
}
