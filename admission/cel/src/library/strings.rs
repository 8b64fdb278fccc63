//! Functions of strings: the standard library and version 2 of cel-go's string extension. Indices
//! count characters.

use std::sync::Arc;

use super::declaration::{CallContext, Function};
use crate::error::EvaluationError;
use crate::value::{ELEMENT_BYTES, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    (&["string.contains(string): bool"], |context, arguments| {
        test(context, arguments, |text, part| text.contains(part))
    }),
    (
        &["string.startsWith(string): bool"],
        |context, arguments| test(context, arguments, |text, part| text.starts_with(part)),
    ),
    (&["string.endsWith(string): bool"], |context, arguments| {
        test(context, arguments, |text, part| text.ends_with(part))
    }),
    (&["string.charAt(int): string"], |context, arguments| {
        bind!([Value::String(text), Value::Int(index)] = arguments);
        context.budget.charge_read(text.len())?;
        let at = usize::try_from(*index).ok();
        let found = at.and_then(|at| text.chars().nth(at));
        match found {
            Some(found) => Ok(Value::string(found.to_string())),
            None if at == Some(text.chars().count()) => Ok(Value::string("")),
            None => Err(out_of_range(*index)),
        }
    }),
    (
        &[
            "string.indexOf(string): int",
            "string.indexOf(string, int): int",
        ],
        |context, arguments| match arguments {
            [Value::String(text), Value::String(part)] => index_of(context, text, part, 0),
            [Value::String(text), Value::String(part), Value::Int(from)] => {
                index_of(context, text, part, *from)
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &[
            "string.lastIndexOf(string): int",
            "string.lastIndexOf(string, int): int",
        ],
        |context, arguments| match arguments {
            [Value::String(text), Value::String(part)] => last_index_of(context, text, part, None),
            [Value::String(text), Value::String(part), Value::Int(from)] => {
                last_index_of(context, text, part, Some(*from))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (&["string.lowerAscii(): string"], |context, arguments| {
        bind!([Value::String(text)] = arguments);
        made(context, text.len(), || text.to_ascii_lowercase())
    }),
    (&["string.upperAscii(): string"], |context, arguments| {
        bind!([Value::String(text)] = arguments);
        made(context, text.len(), || text.to_ascii_uppercase())
    }),
    (&["string.trim(): string"], |context, arguments| {
        bind!([Value::String(text)] = arguments);
        made(context, text.len(), || text.trim().to_owned())
    }),
    (
        &[
            "string.replace(string, string): string",
            "string.replace(string, string, int): string",
        ],
        |context, arguments| match arguments {
            [Value::String(text), Value::String(old), Value::String(new)] => {
                replace(context, text, old, new, -1)
            }
            [
                Value::String(text),
                Value::String(old),
                Value::String(new),
                Value::Int(count),
            ] => replace(context, text, old, new, *count),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &[
            "string.split(string): list<string>",
            "string.split(string, int): list<string>",
        ],
        |context, arguments| match arguments {
            [Value::String(text), Value::String(by)] => split(context, text, by, -1),
            [Value::String(text), Value::String(by), Value::Int(count)] => {
                split(context, text, by, *count)
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &[
            "string.substring(int): string",
            "string.substring(int, int): string",
        ],
        |context, arguments| match arguments {
            [Value::String(text), Value::Int(from)] => substring(context, text, *from, None),
            [Value::String(text), Value::Int(from), Value::Int(to)] => {
                substring(context, text, *from, Some(*to))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &[
            "list<string>.join(): string",
            "list<string>.join(string): string",
        ],
        |context, arguments| match arguments {
            [Value::List(list)] => join(context, list, ""),
            [Value::List(list), Value::String(between)] => join(context, list, between),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["'strings.quote'(string): string"],
        |context, arguments| {
            bind!([Value::String(text)] = arguments);
            made(context, text.len() * 2 + 2, || quote(text))
        },
    ),
];

fn out_of_range(index: i64) -> EvaluationError {
    EvaluationError::failed(format!("index out of range: {index}"))
}

fn made(
    context: &mut CallContext<'_>,
    bytes: usize,
    make: impl FnOnce() -> String,
) -> Result<Value, EvaluationError> {
    context.budget.charge_allocation(bytes)?;
    Ok(Value::string(make()))
}

fn test(
    context: &mut CallContext<'_>,
    arguments: &[Value],
    holds: fn(&str, &str) -> bool,
) -> Result<Value, EvaluationError> {
    bind!([Value::String(text), Value::String(part)] = arguments);
    context.budget.charge_read(text.len() + part.len())?;
    Ok(Value::Bool(holds(text, part)))
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
    context: &mut CallContext<'_>,
    text: &str,
    part: &str,
    from: i64,
) -> Result<Value, EvaluationError> {
    context.budget.charge_read(text.len() * 2 + part.len())?;
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
    context: &mut CallContext<'_>,
    text: &str,
    part: &str,
    from: Option<i64>,
) -> Result<Value, EvaluationError> {
    context.budget.charge_read(text.len() * 2 + part.len())?;
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
    context: &mut CallContext<'_>,
    text: &str,
    old: &str,
    new: &str,
    count: i64,
) -> Result<Value, EvaluationError> {
    // The text is searched twice.
    context.budget.charge_read(2 * text.len())?;
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    let found = text.matches(old).take(limit).count();
    // Every match counts as a visited element.
    context.budget.charge(found as u64)?;
    let unchanged = text.len() - found * old.len();
    context
        .budget
        .charge_allocation(unchanged + found.saturating_mul(new.len()))?;
    Ok(Value::string(text.replacen(old, new, limit)))
}

fn split(
    context: &mut CallContext<'_>,
    text: &str,
    by: &str,
    count: i64,
) -> Result<Value, EvaluationError> {
    context.budget.charge_read(text.len())?;
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
    context
        .budget
        .charge_allocation(text.len() + parts * (ELEMENT_BYTES + 2 * size_of::<usize>()))?;
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
    context: &mut CallContext<'_>,
    text: &str,
    from: i64,
    to: Option<i64>,
) -> Result<Value, EvaluationError> {
    context.budget.charge_read(text.len())?;
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
    made(context, end - start, || text[start..end].to_owned())
}

fn join(
    context: &mut CallContext<'_>,
    list: &[Value],
    between: &str,
) -> Result<Value, EvaluationError> {
    let mut parts: Vec<&str> = Vec::new();
    context.budget.charge_allocation(size_of_val(list))?;
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
    context
        .budget
        .charge_allocation(bytes.saturating_add(parts.len().saturating_mul(between.len())))?;
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
