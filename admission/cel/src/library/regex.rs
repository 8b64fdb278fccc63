//! Implements the CEL functions `matches`, `find` and `findAll`, which apply regular expressions to
//! strings.

use std::sync::Arc;

use super::declaration::{CallContext, Module, Overload};
use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::pattern::Pattern;
use crate::value::{ELEMENT_BYTES, Value};

pub(super) const MODULE: Module = (
    "matches(string, string): bool; string.matches(string): bool
    string.find(string): string
    string.findAll(string): list<string>; string.findAll(string, int): list<string>",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    let budget = &mut *context.budget;
    let [Value::String(text), Value::String(source), rest @ ..] = arguments else {
        return Err(EvaluationError::no_overload());
    };
    let pattern = prepare(budget, text, source)?;
    Ok(match (function.name, rest) {
        ("matches", []) => Value::Bool(pattern.regex.is_match(text)),
        ("find", []) => {
            let found = pattern.regex.find(text).map_or("", |found| found.as_str());
            budget.charge_allocation(found.len())?;
            Value::string(found)
        }
        ("findAll", [] | [Value::Int(_)]) => {
            let limit = match rest {
                [Value::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            let mut found = Vec::new();
            for each in pattern.regex.find_iter(text).take(limit) {
                budget.charge_allocation(each.len() + ELEMENT_BYTES)?;
                found.push(Value::string(each.as_str()));
            }
            Value::list(found)
        }
        _ => return Err(EvaluationError::no_overload()),
    })
}

/// Returns a compiled pattern after charging for compiling it and matching the text.
fn prepare(
    budget: &mut Budget,
    text: &str,
    source: &Arc<str>,
) -> Result<Arc<Pattern>, EvaluationError> {
    let pattern = match budget.pattern(source) {
        Some(cached) => cached,
        None => {
            budget.charge_allocation(source.len())?;
            budget.charge(source.len() as u64)?;
            let pattern = match Pattern::new(source) {
                Ok(pattern) => pattern,
                Err(reason) => {
                    budget.charge(Pattern::units(None))?;
                    return Err(EvaluationError::failed(format!("Illegal regex: {reason}")));
                }
            };
            budget.charge(Pattern::units(Some(&pattern)))?;
            let pattern = Arc::new(pattern);
            budget.cache_pattern(source.clone(), Arc::clone(&pattern));
            pattern
        }
    };
    budget.charge(pattern.match_units(text))?;
    Ok(pattern)
}
