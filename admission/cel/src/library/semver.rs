//! Implements the CEL functions that parse and compare semantic versions, such as `1.2.3`.

use std::sync::Arc;

use super::declaration::{CallContext, Module, Overload};
use crate::budget::Budget;
use crate::error::{EvaluationError, Invalid};
use crate::value::Value;

pub(super) const MODULE: Module = (
    "semver(string): Semver; semver(string, bool): Semver
    isSemver(string): bool; isSemver(string, bool): bool
    Semver.major|minor|patch(): int
    Semver.isGreaterThan|isLessThan(Semver): bool; Semver.compareTo(Semver): int",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    let budget = &mut *context.budget;
    Ok(match (function.name, arguments) {
        ("semver", [Value::String(text), rest @ ..]) => {
            Value::Semver(Arc::new(read(budget, text, rest)??))
        }
        ("isSemver", [Value::String(text), rest @ ..]) => {
            Value::Bool(read(budget, text, rest)?.is_ok())
        }
        ("major", [Value::Semver(version)]) => Value::Int(version.major as i64),
        ("minor", [Value::Semver(version)]) => Value::Int(version.minor as i64),
        ("patch", [Value::Semver(version)]) => Value::Int(version.patch as i64),
        (name, [Value::Semver(a), Value::Semver(b)]) => match (name, a.cmp_precedence(b)) {
            ("isGreaterThan", order) => Value::Bool(order.is_gt()),
            ("isLessThan", order) => Value::Bool(order.is_lt()),
            (_, order) => Value::Int(order as i64),
        },
        _ => return Err(EvaluationError::no_overload()),
    })
}

fn read(
    budget: &mut Budget,
    text: &str,
    normalize: &[Value],
) -> Result<Result<semver::Version, Invalid>, EvaluationError> {
    budget.charge_allocation(text.len() * 2)?;
    let parse =
        |text: &str| semver::Version::parse(text).map_err(|error| Invalid(error.to_string()));
    Ok(if let [Value::Bool(true)] = normalize {
        normalized(text).and_then(|text| parse(&text))
    } else {
        parse(text)
    })
}

/// Returns the version without a leading `v` and leading zeros, and with 0 for missing parts.
fn normalized(text: &str) -> Result<String, Invalid> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|part| {
            let short = part.trim_start_matches('0');
            if part.len() <= 1 {
                part.to_owned()
            } else if short.starts_with(|c: char| c.is_ascii_digit()) {
                short.to_owned()
            } else {
                format!("0{short}")
            }
        })
        .collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|part| part.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".into());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}
