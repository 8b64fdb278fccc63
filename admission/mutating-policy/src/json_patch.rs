//! Applies JSON patches (RFC 6902) like the API server, which uses gopkg.in/evanphx/json-patch.v4
//! 4.13.0: `replace` adds a missing key, text before the first `/` of a path is ignored, and
//! negative indices count from the end.

use serde_json::Value;

use tautline_structured_merge::MAX_DEPTH;

use tautline_cel::{Budget, EvaluationError, Patch};

/// The most bytes that the `copy` operations of a patch may add, as in the API server.
const MAX_COPIED_BYTES: usize = 3 << 20;
/// The number of list elements moved or visited per cost unit, which takes up to 100 ns.
const ELEMENTS_PER_UNIT: usize = 16;
/// The bytes of values, as JSON, that are copied or compared per cost unit.
pub(crate) const BYTES_PER_UNIT: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// A `test` failed. The object is not changed, and no error is reported.
    #[error("testing value {0} failed")]
    Test(String),
    #[error("{op} {path:?}: {reason}")]
    Operation {
        op: String,
        path: String,
        reason: &'static str,
    },
    #[error("{0}")]
    Exhausted(EvaluationError),
    #[error("the value for {path:?}: {error}")]
    Value {
        path: String,
        error: EvaluationError,
    },
}

/// Applies `patch` to the document. After an error the document is invalid.
pub(crate) fn apply(
    document: &mut Value,
    patch: &[&Patch],
    budget: &mut Budget,
) -> Result<(), PatchError> {
    let mut copied = 0;
    for operation in patch {
        let mut units = 1 + (operation.path.len() + operation.from.len()) / 10;
        let done = apply_operation(document, operation, &mut copied, &mut units);
        budget.charge(units as u64).map_err(PatchError::Exhausted)?;
        done?;
    }
    Ok(())
}

fn apply_operation(
    document: &mut Value,
    patch: &Patch,
    copied: &mut usize,
    units: &mut usize,
) -> Result<(), PatchError> {
    let path: &str = &patch.path;
    let bad = |reason| PatchError::Operation {
        op: patch.op.to_string(),
        path: path.to_owned(),
        reason,
    };
    match &*patch.op {
        // An operation without a value adds null.
        "add" => put(
            document,
            path,
            value(patch)?.unwrap_or_default(),
            false,
            units,
        )
        .map_err(bad),
        "remove" => remove(document, path, units).map_err(bad).map(drop),
        "replace" => {
            let value = value(patch)?;
            if path.is_empty() {
                let whole = value.filter(|v| v.is_object() || v.is_array());
                *document = whole.ok_or_else(|| bad("the whole must be an object"))?;
                return Ok(());
            }
            put(document, path, value.unwrap_or_default(), true, units).map_err(bad)
        }
        "move" => {
            let moved = remove(document, &patch.from, units).map_err(bad)?;
            put(document, path, moved, false, units).map_err(bad)
        }
        "copy" => {
            let copy = get(document, &patch.from).map_err(bad)?;
            let bytes = copy.map_or(0, size);
            // The units cover measuring, copying, checking the depth and dropping.
            *units += 2 * bytes / BYTES_PER_UNIT;
            *copied += bytes;
            if *copied > MAX_COPIED_BYTES {
                return Err(bad("the copies of this patch are too large"));
            }
            let copy = copy.cloned().unwrap_or_default();
            put(document, path, copy, false, units).map_err(bad)
        }
        "test" => {
            let wanted = value(patch)?;
            *units += wanted.as_ref().map_or(0, size) / BYTES_PER_UNIT;
            let same = if path.is_empty() {
                Some(&*document) == wanted.as_ref()
            } else {
                match get(document, path).map_err(bad)?.filter(|v| !v.is_null()) {
                    // A missing key equals only an absent value.
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

fn value(patch: &Patch) -> Result<Option<Value>, PatchError> {
    if patch.value.is_none() {
        return Ok(None);
    }
    match patch.to_json() {
        Ok(mut operation) => {
            let mut value = operation["value"].take();
            integral_numbers(&mut value);
            Ok(Some(value))
        }
        Err(error) => Err(PatchError::Value {
            path: patch.path.to_string(),
            error,
        }),
    }
}

/// Turns integral numbers into integers, as Go's JSON does.
fn integral_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() < 9e15 {
                *value = (float as i64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(integral_numbers),
        Value::Object(fields) => fields.values_mut().for_each(integral_numbers),
        _ => {}
    }
}

pub(crate) fn size(value: &Value) -> usize {
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

/// Returns the levels of a value and adds the number of its parts to `seen`.
fn levels(value: &Value, seen: &mut usize) -> usize {
    *seen += 1;
    let below = match value {
        Value::Array(items) => items.iter().map(|i| levels(i, seen)).max(),
        Value::Object(fields) => fields.values().map(|v| levels(v, seen)).max(),
        _ => None,
    };
    1 + below.unwrap_or(0)
}

/// Refuses a value that makes the document too deep for recursive walks.
fn check_depth(path: &str, value: &Value, units: &mut usize) -> Result<(), &'static str> {
    let mut seen = 0;
    let deep = path.matches('/').count() + levels(value, &mut seen) > MAX_DEPTH;
    *units += seen / ELEMENTS_PER_UNIT;
    if deep {
        return Err("the object would be nested deeper than 128 levels");
    }
    Ok(())
}

const MISSING: &str = "the path does not exist";
const INDEX: &str = "no such index";

fn decode(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn split(path: &str) -> Result<(impl Iterator<Item = String>, String), &'static str> {
    let (_, path) = path.split_once('/').ok_or(MISSING)?;
    let (parents, last) = match path.rsplit_once('/') {
        Some((parents, last)) => (Some(parents), last),
        None => (None, path),
    };
    let parents = parents.into_iter().flat_map(|p| p.split('/')).map(decode);
    Ok((parents, decode(last)))
}

/// Returns the index that `token` means. It is below `end`, from which negative indices count back.
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

/// Sets the value at a path. A key of an object is added or replaced; in a list, the value is
/// inserted, or replaces the element if `replaces` is true.
fn put(
    document: &mut Value,
    path: &str,
    value: Value,
    replaces: bool,
    units: &mut usize,
) -> Result<(), &'static str> {
    check_depth(path, &value, units)?;
    let (at, last) = parent(document, path)?;
    match at {
        Value::Object(fields) => {
            fields.insert(last, value);
        }
        Value::Array(items) if replaces => {
            let i = index(&last, items.len())?;
            items[i] = value;
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let i = index(&last, items.len() + 1)?;
            *units += (items.len() - i) / ELEMENTS_PER_UNIT;
            items.insert(i, value);
        }
        _ => return Err(MISSING),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str, units: &mut usize) -> Result<Value, &'static str> {
    let (at, last) = parent(document, path)?;
    match at {
        Value::Object(fields) => fields.remove(&last).ok_or(MISSING),
        Value::Array(items) => {
            let i = index(&last, items.len())?;
            *units += (items.len() - i) / ELEMENTS_PER_UNIT;
            Ok(items.remove(i))
        }
        _ => Err(MISSING),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn op(op: &str, path: &str, from: &str, value: Option<i64>) -> Patch {
        Patch {
            op: op.into(),
            path: path.into(),
            from: from.into(),
            value: value.map(tautline_cel::Value::Int),
        }
    }

    fn after(mut document: Value, operations: &[Patch]) -> Result<Value, PatchError> {
        let operations: Vec<&Patch> = operations.iter().collect();
        apply(&mut document, &operations, &mut Budget::default())?;
        Ok(document)
    }

    /// Results of gopkg.in/evanphx/json-patch.v4 4.13.0, from its source.
    #[test]
    fn operations_match_the_go_library() {
        let document = || json!({"a": {"x": 1}, "l": [1, 2, 3], "n": null});
        let changes = [
            (
                op("replace", "/a/y", "", Some(2)),
                json!({"a": {"x": 1, "y": 2}, "l": [1, 2, 3], "n": null}),
            ),
            (
                op("add", "/l/-", "", Some(4)),
                json!({"a": {"x": 1}, "l": [1, 2, 3, 4], "n": null}),
            ),
            (
                op("add", "/l/-1", "", Some(4)),
                json!({"a": {"x": 1}, "l": [1, 2, 3, 4], "n": null}),
            ),
            (
                op("add", "/l/0", "", Some(4)),
                json!({"a": {"x": 1}, "l": [4, 1, 2, 3], "n": null}),
            ),
            (
                op("remove", "/l/-1", "", None),
                json!({"a": {"x": 1}, "l": [1, 2], "n": null}),
            ),
            (
                op("replace", "/l/+1", "", Some(9)),
                json!({"a": {"x": 1}, "l": [1, 9, 3], "n": null}),
            ),
            (
                op("add", "/a/z", "", None),
                json!({"a": {"x": 1, "z": null}, "l": [1, 2, 3], "n": null}),
            ),
            (
                op("add", "ignored/b", "", Some(1)),
                json!({"a": {"x": 1}, "b": 1, "l": [1, 2, 3], "n": null}),
            ),
            (
                op("copy", "/a/y", "/a/x", None),
                json!({"a": {"x": 1, "y": 1}, "l": [1, 2, 3], "n": null}),
            ),
            (
                op("move", "/b", "/a/x", None),
                json!({"a": {}, "b": 1, "l": [1, 2, 3], "n": null}),
            ),
            (op("test", "/a/x", "", Some(1)), document()),
            (op("test", "/a/missing", "", None), document()),
            (op("test", "/n", "", None), document()),
        ];
        for (operation, expected) in changes {
            let shown = format!("{operation:?}");
            assert_eq!(after(document(), &[operation]), Ok(expected), "{shown}");
        }
        let errors = [
            op("remove", "/a/y", "", None),
            op("add", "/b/y", "", Some(1)),
            op("add", "/n/y", "", Some(1)),
            op("add", "/l/4", "", Some(1)),
            op("add", "/l/x", "", Some(1)),
            op("replace", "/l/-", "", Some(1)),
            op("replace", "/l/3", "", Some(1)),
            op("remove", "/l/-4", "", None),
            op("move", "/b", "/a/y", None),
            op("add", "", "", Some(1)),
            op("replace", "", "", Some(1)),
            op("increase", "/a/x", "", Some(1)),
            op("", "", "", None),
        ];
        for operation in errors {
            let shown = format!("{operation:?}");
            let error = after(document(), &[operation]).expect_err(&shown);
            assert!(
                matches!(error, PatchError::Operation { .. }),
                "{shown}: {error}"
            );
        }
        for failed in [
            op("test", "/a/x", "", Some(2)),
            op("test", "/a/missing", "", Some(2)),
            op("test", "", "", Some(2)),
        ] {
            let error = after(document(), &[op("remove", "/a", "", None), failed.clone()]);
            let error = error.and(after(document(), &[failed]));
            assert!(error.is_err(), "{error:?}");
        }
    }

    #[test]
    fn escapes_are_decoded_once() {
        let document = json!({"a/b": {"m~n": 1, "~1": 2}});
        let operations = [
            op("remove", "/a~1b/m~0n", "", None),
            op("remove", "/a~1b/~01", "", None),
        ];
        assert_eq!(after(document, &operations), Ok(json!({"a/b": {}})));
    }

    #[test]
    fn copies_are_bounded() {
        let mut operations = vec![op("copy", "/b", "/a", None)];
        for _ in 0..64 {
            operations.push(op("copy", "/a/x", "/b", None));
            operations.push(op("copy", "/b/x", "/a", None));
        }
        let document = json!({"a": {"text": "x".repeat(1000)}});
        let error = after(document, &operations).unwrap_err();
        assert!(error.to_string().contains("too large"), "{error}");
    }

    proptest::proptest! {
        /// Where the json-patch crate succeeds, the results are equal.
        #[test]
        fn operations_agree_with_rfc_6902(
            kind in 0usize..4, path in "/(a|l|n|q)(/(x|y|0|1|3|-))?", from in "/(a|l)(/(x|1))?",
            number in 0i64..4,
        ) {
            let document = json!({"a": {"x": 1}, "l": [1, 2, 3]});
            let name = ["add", "remove", "move", "copy"][kind];
            let ours = after(document.clone(), &[op(name, &path, &from, Some(number))]);
            let patch = json!([{"op": name, "path": path, "from": from, "value": number}]);
            let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
            let mut theirs = document;
            if json_patch::patch(&mut theirs, &patch).is_ok() {
                proptest::prop_assert_eq!(ours, Ok(theirs));
            }
        }
    }
}
