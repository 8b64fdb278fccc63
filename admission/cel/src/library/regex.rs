use std::sync::Arc;

use super::declaration::{CallContext, Function};
use crate::error::EvaluationError;
use crate::pattern::Pattern;
use crate::value::{ELEMENT_BYTES, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    (
        &[
            "matches(string, string): bool",
            "string.matches(string): bool",
        ],
        |context, arguments| {
            let (text, pattern) = prepare(context, arguments)?;
            Ok(Value::Bool(pattern.regex.is_match(text)))
        },
    ),
    (&["string.find(string): string"], |context, arguments| {
        let (text, pattern) = prepare(context, arguments)?;
        let found = pattern.regex.find(text).map_or("", |found| found.as_str());
        context.budget.charge_allocation(found.len())?;
        Ok(Value::string(found))
    }),
    (
        &[
            "string.findAll(string): list<string>",
            "string.findAll(string, int): list<string>",
        ],
        |context, arguments| {
            let (text, pattern) = prepare(context, arguments)?;
            let limit = match arguments {
                [_, _] => usize::MAX,
                [_, _, Value::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
                _ => return Err(EvaluationError::no_overload()),
            };
            let mut found = Vec::new();
            for each in pattern.regex.find_iter(text).take(limit) {
                context
                    .budget
                    .charge_allocation(each.len() + ELEMENT_BYTES)?;
                found.push(Value::string(each.as_str()));
            }
            Ok(Value::list(found))
        },
    ),
];

fn prepare<'a>(
    context: &mut CallContext<'_>,
    arguments: &'a [Value],
) -> Result<(&'a str, Arc<Pattern>), EvaluationError> {
    bind!([Value::String(text), Value::String(source), ..] = arguments);
    let pattern = match context.budget.pattern(source) {
        Some(cached) => cached,
        None => {
            context.budget.charge_allocation(source.len())?;
            context.budget.charge(source.len() as u64)?;
            let pattern = match Pattern::new(source) {
                Ok(pattern) => pattern,
                Err(reason) => {
                    context.budget.charge(Pattern::units(None))?;
                    return Err(EvaluationError::failed(format!("Illegal regex: {reason}")));
                }
            };
            context.budget.charge(Pattern::units(Some(&pattern)))?;
            let pattern = Arc::new(pattern);
            context
                .budget
                .cache_pattern(source.clone(), Arc::clone(&pattern));
            pattern
        }
    };
    context.budget.charge(pattern.match_units(text))?;
    Ok((text, pattern))
}
