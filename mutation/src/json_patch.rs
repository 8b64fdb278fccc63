//! JSON patches as the API server applies them: RFC 6902 with the habits of
//! gopkg.in/evanphx/json-patch.v4, read from its source (4.13.0). A `replace`
//! adds a missing key, what stands before the first `/` of a path is not looked
//! at, a negative index counts from the end.

use serde_json::Value;

use crate::cel::{Patch, RunError};

/// Bytes that all `copy` operations of a patch may add: the API server's bound.
const COPY_BYTES: usize = 3 << 20;

/// Why a patch does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// A `test` found something else: the object stays, without an error.
    #[error("testing value {0} failed")]
    Test(String),
    /// The operation cannot be carried out.
    #[error("{op} {path:?}: {reason}")]
    Operation {
        /// The operation.
        op: String,
        /// Its path.
        path: String,
        /// Why not.
        reason: &'static str,
    },
    /// A value has no JSON.
    #[error("the value for {path:?}: {error}")]
    Value {
        /// The operation's path.
        path: String,
        /// Why it has none.
        error: RunError,
    },
}

/// The document after `patch`.
pub(crate) fn apply(mut document: Value, patch: &[&Patch]) -> Result<Value, PatchError> {
    let mut copied = 0;
    for operation in patch {
        one(&mut document, operation, &mut copied)?;
    }
    Ok(document)
}

fn one(document: &mut Value, patch: &Patch, copied: &mut usize) -> Result<(), PatchError> {
    let path: &str = &patch.path;
    let bad = |reason| PatchError::Operation {
        op: patch.op.to_string(),
        path: path.to_owned(),
        reason,
    };
    match &*patch.op {
        // Without a value, null is put there.
        "add" => add(document, path, value(patch)?.unwrap_or_default()).map_err(bad),
        "remove" => remove(document, path).map_err(bad).map(drop),
        "replace" => {
            let value = value(patch)?;
            if path.is_empty() {
                let whole = value.filter(|v| v.is_object() || v.is_array());
                *document = whole.ok_or_else(|| bad("the whole must be an object"))?;
                return Ok(());
            }
            replace(document, path, value.unwrap_or_default()).map_err(bad)
        }
        "move" => {
            let moved = remove(document, &patch.from).map_err(bad)?;
            add(document, path, moved).map_err(bad)
        }
        "copy" => {
            let copy = get(document, &patch.from).map_err(bad)?;
            let copy = copy.cloned().unwrap_or_default();
            *copied += size(&copy);
            if *copied > COPY_BYTES {
                return Err(bad("the copies of this patch are too large"));
            }
            add(document, path, copy).map_err(bad)
        }
        "test" => {
            let wanted = value(patch)?;
            let same = if path.is_empty() {
                Some(&*document) == wanted.as_ref()
            } else {
                match get(document, path).map_err(bad)?.filter(|v| !v.is_null()) {
                    // What is absent equals only a value that was not given.
                    None => wanted.is_none(),
                    found => found == wanted.as_ref(),
                }
            };
            same.then_some(())
                .ok_or_else(|| PatchError::Test(path.to_owned()))
        }
        _ => Err(bad(
            "unknown operation; use add, remove, replace, move, copy or test",
        )),
    }
}

/// The operation's value, whole numbers without a fraction as in Go's JSON.
fn value(patch: &Patch) -> Result<Option<Value>, PatchError> {
    let Some(value) = &patch.value else {
        return Ok(None);
    };
    match value.to_json() {
        Ok(mut json) => {
            whole(&mut json);
            Ok(Some(json))
        }
        Err(error) => Err(PatchError::Value {
            path: patch.path.to_string(),
            error,
        }),
    }
}

fn whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() < 9e15 {
                *value = (float as i64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole),
        Value::Object(fields) => fields.values_mut().for_each(whole),
        _ => {}
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|i| 1 + size(i)).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields
                .iter()
                .map(|(k, v)| k.len() + 4 + size(v))
                .sum::<usize>()
        }
    }
}

const MISSING: &str = "there is nothing at this path";
const INDEX: &str = "no such index";

fn decode(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// The tokens that lead to the parent, and the last one.
fn split(path: &str) -> Result<(impl Iterator<Item = String>, String), &'static str> {
    let (_, path) = path.split_once('/').ok_or(MISSING)?;
    let (parents, last) = match path.rsplit_once('/') {
        Some((parents, last)) => (Some(parents), last),
        None => (None, path),
    };
    let parents = parents.into_iter().flat_map(|p| p.split('/')).map(decode);
    Ok((parents, decode(last)))
}

/// The index that `token` means, below `end`; negative ones count back from it.
fn index(token: &str, end: usize) -> Result<usize, &'static str> {
    let index: i64 = token.parse().map_err(|_| INDEX)?;
    let index = if index < 0 {
        usize::try_from(index.unsigned_abs())
            .ok()
            .and_then(|back| end.checked_sub(back))
    } else {
        usize::try_from(index).ok()
    };
    index.filter(|i| *i < end).ok_or(INDEX)
}

fn get<'a>(document: &'a Value, path: &str) -> Result<Option<&'a Value>, &'static str> {
    let (parents, last) = split(path)?;
    let mut at = document;
    for token in parents {
        at = child(at, &token)?.ok_or(MISSING)?;
    }
    child(at, &last)
}

fn child<'a>(at: &'a Value, token: &str) -> Result<Option<&'a Value>, &'static str> {
    match at {
        Value::Object(fields) => Ok(fields.get(token)),
        Value::Array(items) => Ok(items.get(index(token, items.len())?)),
        _ => Err(MISSING),
    }
}

fn parent<'a>(
    document: &'a mut Value,
    path: &str,
) -> Result<(&'a mut Value, String), &'static str> {
    let (parents, last) = split(path)?;
    let mut at = document;
    for token in parents {
        at = match at {
            Value::Object(fields) => fields.get_mut(&token).ok_or(MISSING)?,
            Value::Array(items) => {
                let i = index(&token, items.len()).map_err(|_| MISSING)?;
                items.get_mut(i).ok_or(MISSING)?
            }
            _ => return Err(MISSING),
        };
    }
    Ok((at, last))
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), &'static str> {
    let (at, last) = parent(document, path)?;
    match at {
        Value::Object(fields) => {
            fields.insert(last, value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let i = index(&last, items.len() + 1)?;
            items.insert(i, value);
        }
        _ => return Err(MISSING),
    }
    Ok(())
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), &'static str> {
    let (at, last) = parent(document, path)?;
    match at {
        Value::Object(fields) => {
            fields.insert(last, value);
        }
        Value::Array(items) => {
            let i = index(&last, items.len())?;
            items[i] = value;
        }
        _ => return Err(MISSING),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, &'static str> {
    let (at, last) = parent(document, path)?;
    match at {
        Value::Object(fields) => fields.remove(&last).ok_or(MISSING),
        Value::Array(items) => {
            let i = index(&last, items.len())?;
            Ok(items.remove(i))
        }
        _ => Err(MISSING),
    }
}
