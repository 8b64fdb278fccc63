//! Strings: the standard library and version 2 of cel-go's string extension.
//! Indices count characters.

use std::sync::Arc;

use super::super::declaration::{Row, Scope};
use super::super::error::RunError;
use super::super::eval::ELEMENT_BYTES;
use super::super::value::Value;

pub(super) const ROWS: &[Row] = &[
    (&["string.contains(string): bool"], |scope, arguments| {
        test(scope, arguments, |text, part| text.contains(part))
    }),
    (&["string.startsWith(string): bool"], |scope, arguments| {
        test(scope, arguments, |text, part| text.starts_with(part))
    }),
    (&["string.endsWith(string): bool"], |scope, arguments| {
        test(scope, arguments, |text, part| text.ends_with(part))
    }),
    (
        &["string.charAt(int): string"],
        |scope, arguments| match arguments {
            [Value::String(text), Value::Int(index)] => {
                scope.budget.charge_read(text.len())?;
                let at = usize::try_from(*index).ok();
                let found = at.and_then(|at| text.chars().nth(at));
                match found {
                    Some(found) => Ok(Value::string(found.to_string())),
                    None if at == Some(text.chars().count()) => Ok(Value::string("")),
                    None => Err(out_of_range(*index)),
                }
            }
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &[
            "string.indexOf(string): int",
            "string.indexOf(string, int): int",
        ],
        |scope, arguments| match arguments {
            [Value::String(text), Value::String(part)] => index_of(scope, text, part, 0),
            [Value::String(text), Value::String(part), Value::Int(from)] => {
                index_of(scope, text, part, *from)
            }
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &[
            "string.lastIndexOf(string): int",
            "string.lastIndexOf(string, int): int",
        ],
        |scope, arguments| match arguments {
            [Value::String(text), Value::String(part)] => last_index_of(scope, text, part, None),
            [Value::String(text), Value::String(part), Value::Int(from)] => {
                last_index_of(scope, text, part, Some(*from))
            }
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["string.lowerAscii(): string"],
        |scope, arguments| match arguments {
            [Value::String(text)] => made(scope, text.len(), || text.to_ascii_lowercase()),
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["string.upperAscii(): string"],
        |scope, arguments| match arguments {
            [Value::String(text)] => made(scope, text.len(), || text.to_ascii_uppercase()),
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["string.trim(): string"],
        |scope, arguments| match arguments {
            [Value::String(text)] => made(scope, text.len(), || text.trim().to_owned()),
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &[
            "string.replace(string, string): string",
            "string.replace(string, string, int): string",
        ],
        |scope, arguments| match arguments {
            [Value::String(text), Value::String(old), Value::String(new)] => {
                replace(scope, text, old, new, -1)
            }
            [
                Value::String(text),
                Value::String(old),
                Value::String(new),
                Value::Int(count),
            ] => replace(scope, text, old, new, *count),
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &[
            "string.split(string): list<string>",
            "string.split(string, int): list<string>",
        ],
        |scope, arguments| match arguments {
            [Value::String(text), Value::String(by)] => split(scope, text, by, -1),
            [Value::String(text), Value::String(by), Value::Int(count)] => {
                split(scope, text, by, *count)
            }
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &[
            "string.substring(int): string",
            "string.substring(int, int): string",
        ],
        |scope, arguments| match arguments {
            [Value::String(text), Value::Int(from)] => substring(scope, text, *from, None),
            [Value::String(text), Value::Int(from), Value::Int(to)] => {
                substring(scope, text, *from, Some(*to))
            }
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &[
            "list<string>.join(): string",
            "list<string>.join(string): string",
        ],
        |scope, arguments| match arguments {
            [Value::List(list)] => join(scope, list, ""),
            [Value::List(list), Value::String(between)] => join(scope, list, between),
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["'strings.quote'(string): string"],
        |scope, arguments| match arguments {
            [Value::String(text)] => made(scope, text.len() * 2 + 2, || quote(text)),
            _ => Err(RunError::no_overload()),
        },
    ),
];

fn out_of_range(index: i64) -> RunError {
    RunError::failed(format!("index out of range: {index}"))
}

fn made(
    scope: &mut Scope<'_>,
    bytes: usize,
    make: impl FnOnce() -> String,
) -> Result<Value, RunError> {
    scope.budget.charge_made(bytes)?;
    Ok(Value::string(make()))
}

fn test(
    scope: &mut Scope<'_>,
    arguments: &[Value],
    holds: fn(&str, &str) -> bool,
) -> Result<Value, RunError> {
    match arguments {
        [Value::String(text), Value::String(part)] => {
            scope.budget.charge_read(text.len() + part.len())?;
            Ok(Value::Bool(holds(text, part)))
        }
        _ => Err(RunError::no_overload()),
    }
}

/// The byte offset of a character; the text's length for the one past the last.
fn offset(text: &str, characters: usize) -> Option<usize> {
    text.char_indices()
        .map(|(at, _)| at)
        .chain([text.len()])
        .nth(characters)
}

fn index_of(scope: &mut Scope<'_>, text: &str, part: &str, from: i64) -> Result<Value, RunError> {
    scope.budget.charge_read(text.len() * 2 + part.len())?;
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
    scope: &mut Scope<'_>,
    text: &str,
    part: &str,
    from: Option<i64>,
) -> Result<Value, RunError> {
    scope.budget.charge_read(text.len() * 2 + part.len())?;
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
    scope: &mut Scope<'_>,
    text: &str,
    old: &str,
    new: &str,
    count: i64,
) -> Result<Value, RunError> {
    // Searched twice.
    scope.budget.charge_read(2 * text.len())?;
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    let found = text.matches(old).take(limit).count();
    // Each is an element passed over.
    scope.budget.charge(found as u64)?;
    let kept = text.len() - found * old.len();
    scope
        .budget
        .charge_made(kept + found.saturating_mul(new.len()))?;
    Ok(Value::string(text.replacen(old, new, limit)))
}

fn split(scope: &mut Scope<'_>, text: &str, by: &str, count: i64) -> Result<Value, RunError> {
    scope.budget.charge_read(text.len())?;
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
    scope
        .budget
        .charge_made(text.len() + parts * (ELEMENT_BYTES + 2 * size_of::<usize>()))?;
    if by.is_empty() {
        // Into characters, the last part taking what is left.
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
    scope: &mut Scope<'_>,
    text: &str,
    from: i64,
    to: Option<i64>,
) -> Result<Value, RunError> {
    scope.budget.charge_read(text.len())?;
    if let Some(to) = to.filter(|to| from > *to) {
        return Err(RunError::failed(format!(
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
    made(scope, end - start, || text[start..end].to_owned())
}

fn join(scope: &mut Scope<'_>, list: &[Value], between: &str) -> Result<Value, RunError> {
    let mut parts: Vec<&str> = Vec::new();
    scope.budget.charge_made(size_of_val(list))?;
    for each in list {
        match each {
            Value::String(text) => parts.push(text),
            other => {
                return Err(RunError::failed(format!(
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
    scope
        .budget
        .charge_made(bytes.saturating_add(parts.len().saturating_mul(between.len())))?;
    Ok(Value::String(Arc::from(parts.join(between))))
}

/// The text as a literal in double quotes.
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
