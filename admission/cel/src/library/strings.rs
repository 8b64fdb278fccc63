//! Functions of strings: the standard library and version 2 of cel-go's string extension. Indices
//! count characters.

use std::sync::Arc;

use super::declaration::{CallContext, Module, Overload};
use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::value::{ELEMENT_BYTES, Value};

pub(super) const MODULE: Module = (
    "string.contains|startsWith|endsWith(string): bool
    string.charAt(int): string
    string.indexOf|lastIndexOf(string): int; string.indexOf|lastIndexOf(string, int): int
    string.lowerAscii|upperAscii|trim(): string
    string.replace(string, string): string; string.replace(string, string, int): string
    string.split(string): list<string>; string.split(string, int): list<string>
    string.substring(int): string; string.substring(int, int): string
    list<string>.join(): string; list<string>.join(string): string
    'strings.quote'(string): string",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    let budget = &mut *context.budget;
    match (function.name, arguments) {
        (
            name @ ("contains" | "startsWith" | "endsWith"),
            [Value::String(text), Value::String(part)],
        ) => {
            budget.charge_read(text.len() + part.len())?;
            Ok(Value::Bool(match name {
                "contains" => text.contains(&**part),
                "startsWith" => text.starts_with(&**part),
                _ => text.ends_with(&**part),
            }))
        }
        ("charAt", [Value::String(text), Value::Int(index)]) => {
            budget.charge_read(text.len())?;
            let at = usize::try_from(*index).ok();
            let found = at.and_then(|at| text.chars().nth(at));
            match found {
                Some(found) => Ok(Value::string(found.to_string())),
                None if at == Some(text.chars().count()) => Ok(Value::string("")),
                None => Err(out_of_range(*index)),
            }
        }
        ("lowerAscii", [Value::String(text)]) => {
            made(budget, text.len(), || text.to_ascii_lowercase())
        }
        ("upperAscii", [Value::String(text)]) => {
            made(budget, text.len(), || text.to_ascii_uppercase())
        }
        ("trim", [Value::String(text)]) => made(budget, text.len(), || text.trim().to_owned()),
        ("strings.quote", [Value::String(text)]) => {
            made(budget, text.len() * 2 + 2, || quote(text))
        }
        ("join", [Value::List(list)]) => join(budget, list, ""),
        ("join", [Value::List(list), Value::String(between)]) => join(budget, list, between),
        ("substring", [Value::String(text), Value::Int(from)]) => {
            substring(budget, text, *from, None)
        }
        ("substring", [Value::String(text), Value::Int(from), Value::Int(to)]) => {
            substring(budget, text, *from, Some(*to))
        }
        (name, [Value::String(text), Value::String(part), rest @ ..]) => match (name, rest) {
            ("indexOf", []) => index_of(budget, text, part, 0),
            ("indexOf", [Value::Int(from)]) => index_of(budget, text, part, *from),
            ("lastIndexOf", []) => last_index_of(budget, text, part, None),
            ("lastIndexOf", [Value::Int(from)]) => last_index_of(budget, text, part, Some(*from)),
            ("split", []) => split(budget, text, part, -1),
            ("split", [Value::Int(count)]) => split(budget, text, part, *count),
            ("replace", [Value::String(new)]) => replace(budget, text, part, new, -1),
            ("replace", [Value::String(new), Value::Int(count)]) => {
                replace(budget, text, part, new, *count)
            }
            _ => Err(EvaluationError::no_overload()),
        },
        _ => Err(EvaluationError::no_overload()),
    }
}

fn out_of_range(index: i64) -> EvaluationError {
    EvaluationError::failed(format!("index out of range: {index}"))
}

fn made(
    budget: &mut Budget,
    bytes: usize,
    make: impl FnOnce() -> String,
) -> Result<Value, EvaluationError> {
    budget.charge_allocation(bytes)?;
    Ok(Value::string(make()))
}

/// Returns the byte offset of the character at an index; the text's length for the index after the
/// last character.
fn offset(text: &str, characters: usize) -> Option<usize> {
    text.char_indices()
        .map(|(at, _)| at)
        .chain([text.len()])
        .nth(characters)
}

fn index_of(
    budget: &mut Budget,
    text: &str,
    part: &str,
    from: i64,
) -> Result<Value, EvaluationError> {
    budget.charge_read(text.len() * 2 + part.len())?;
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let skipped = usize::try_from(from).map_err(|_| out_of_range(from))?;
    let found = offset(text, skipped).and_then(|start| {
        let at = text[start..].find(part)? + start;
        Some(text[..at].chars().count() as i64)
    });
    Ok(Value::Int(found.unwrap_or(-1)))
}

fn last_index_of(
    budget: &mut Budget,
    text: &str,
    part: &str,
    from: Option<i64>,
) -> Result<Value, EvaluationError> {
    budget.charge_read(text.len() * 2 + part.len())?;
    let length = text.chars().count();
    if part.is_empty() {
        return Ok(Value::Int(from.unwrap_or(length as i64)));
    }
    let end = match from {
        None => text.len(),
        Some(from) => {
            let from = usize::try_from(from).map_err(|_| out_of_range(from))?;
            if from >= length {
                return Ok(Value::Int(-1));
            }
            offset(text, from + part.chars().count()).unwrap_or(text.len())
        }
    };
    let found = text[..end]
        .rfind(part)
        .map(|at| text[..at].chars().count() as i64);
    Ok(Value::Int(found.unwrap_or(-1)))
}

fn replace(
    budget: &mut Budget,
    text: &str,
    old: &str,
    new: &str,
    count: i64,
) -> Result<Value, EvaluationError> {
    // The text is searched twice.
    budget.charge_read(2 * text.len())?;
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    let found = text.matches(old).take(limit).count();
    // Every match counts as a visited element.
    budget.charge(found as u64)?;
    let unchanged = text.len() - found * old.len();
    budget.charge_allocation(unchanged + found.saturating_mul(new.len()))?;
    Ok(Value::string(text.replacen(old, new, limit)))
}

fn split(budget: &mut Budget, text: &str, by: &str, count: i64) -> Result<Value, EvaluationError> {
    budget.charge_read(text.len())?;
    if count == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    let parts = if by.is_empty() {
        text.chars().count()
    } else {
        text.matches(by).count() + 1
    }
    .min(limit);
    budget.charge_allocation(text.len() + parts * (ELEMENT_BYTES + 2 * size_of::<usize>()))?;
    if by.is_empty() {
        // The text is split into characters, and the last part takes the rest.
        let mut rest = text;
        let mut list = Vec::with_capacity(parts);
        while let Some(first) = rest.chars().next() {
            let length = if list.len() + 1 == parts {
                rest.len()
            } else {
                first.len_utf8()
            };
            list.push(Value::string(&rest[..length]));
            rest = &rest[length..];
        }
        return Ok(Value::list(list));
    }
    Ok(Value::list(
        text.splitn(limit, by).map(Value::string).collect(),
    ))
}

fn substring(
    budget: &mut Budget,
    text: &str,
    from: i64,
    to: Option<i64>,
) -> Result<Value, EvaluationError> {
    budget.charge_read(text.len())?;
    if let Some(to) = to.filter(|to| from > *to) {
        return Err(EvaluationError::failed(format!(
            "invalid substring range. start: {from}, end: {to}"
        )));
    }
    let place = |index: i64| {
        usize::try_from(index)
            .ok()
            .and_then(|index| offset(text, index))
            .ok_or_else(|| out_of_range(index))
    };
    let start = place(from)?;
    let end = to.map_or(Ok(text.len()), place)?;
    made(budget, end - start, || text[start..end].to_owned())
}

fn join(budget: &mut Budget, list: &[Value], between: &str) -> Result<Value, EvaluationError> {
    let mut parts: Vec<&str> = Vec::new();
    budget.charge_allocation(size_of_val(list))?;
    for each in list {
        match each {
            Value::String(text) => parts.push(text),
            other => {
                return Err(EvaluationError::failed(format!(
                    "join: invalid input of type {}",
                    other.type_name()
                )));
            }
        }
    }
    let bytes: usize = parts
        .iter()
        .map(|part| part.len())
        .fold(0, usize::saturating_add);
    budget.charge_allocation(bytes.saturating_add(parts.len().saturating_mul(between.len())))?;
    Ok(Value::String(Arc::from(parts.join(between))))
}

/// Returns the text as a literal in double quotes.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let escape = match c {
            '\x07' => 'a',
            '\x08' => 'b',
            '\x0c' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\x0b' => 'v',
            '\\' | '"' => c,
            _ => {
                out.push(c);
                continue;
            }
        };
        out.push('\\');
        out.push(escape);
    }
    out.push('"');
    out
}
