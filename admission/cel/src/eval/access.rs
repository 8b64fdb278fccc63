//! Evaluates the selection of fields and the indexing of lists, maps and objects in CEL
//! expressions.

use std::sync::Arc;

use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::ir::SelectMode;
use crate::types::Type;
use crate::value::{Key, Value};

pub(crate) fn key(value: &Value) -> Result<Key, EvaluationError> {
    match value {
        Value::Double(_) => None,
        other => Key::from_value(other),
    }
    .ok_or_else(|| EvaluationError::failed(format!("unsupported key type: {}", value.type_name())))
}

/// Converts a value to a map key like [`key`] and charges for reading a string.
pub(crate) fn charged_key(budget: &mut Budget, value: &Value) -> Result<Key, EvaluationError> {
    charge_key(budget, value)?;
    key(value)
}

pub(crate) fn charge_key(budget: &mut Budget, value: &Value) -> Result<(), EvaluationError> {
    match value {
        Value::String(text) => budget.charge_read(text.len()),
        _ => Ok(()),
    }
}

pub(crate) fn select(
    operand: &Value,
    field: &Arc<str>,
    mode: SelectMode,
) -> Result<Value, EvaluationError> {
    match operand {
        Value::Map(map) => {
            let found = map.get(&Key::String(field.clone())).cloned();
            selected(found, field, mode)
        }
        Value::Object(object) => selected(object.fields.get(field).cloned(), field, mode),
        Value::Patch(patch) => {
            let text = |text: &Arc<str>| Some(Value::String(text.clone()));
            let found = match &**field {
                "op" => text(&patch.op),
                "path" => text(&patch.path),
                "from" => text(&patch.from),
                "value" => patch.value.clone(),
                _ => None,
            };
            let empty = matches!(&found, Some(Value::String(text)) if &**field != "value" && text.is_empty());
            selected(
                found.filter(|_| mode == SelectMode::Plain || !empty),
                field,
                mode,
            )
        }
        Value::Optional(None) => match mode {
            SelectMode::Test => Ok(Value::Bool(false)),
            _ => Ok(Value::Optional(None)),
        },
        Value::Optional(Some(inner)) => match mode {
            SelectMode::Plain => select(inner, field, SelectMode::Optional),
            _ => select(inner, field, mode),
        },
        _ if mode == SelectMode::Optional => Ok(Value::Optional(None)),
        other => Err(EvaluationError::failed(format!(
            "no such overload: {}.{field}",
            other.type_name()
        ))),
    }
}

/// Evaluates `operand[index]`, or `operand[?index]` if `optional`.
pub(crate) fn index(
    operand: &Value,
    index: &Value,
    optional: bool,
) -> Result<Value, EvaluationError> {
    let found = match operand {
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => return self::index(inner, index, true),
        Value::List(list) => {
            let Some(Key::Int(place)) = Key::from_value(index) else {
                return Err(EvaluationError::failed(format!(
                    "unsupported index type '{}' in list",
                    index.type_name()
                )));
            };
            let found = usize::try_from(place)
                .ok()
                .and_then(|place| list.get(place));
            match found {
                None if !optional => {
                    return Err(EvaluationError::failed(format!(
                        "index out of bounds: {place}"
                    )));
                }
                found => found.cloned(),
            }
        }
        Value::Map(map) => match Key::from_value(index).and_then(|key| map.get(&key)) {
            None if !optional => {
                return Err(EvaluationError::failed(format!(
                    "no such key: {}",
                    shown(index)
                )));
            }
            found => found.cloned(),
        },
        Value::Object(_) | Value::Patch(_) => match index {
            Value::String(field) if optional => {
                return select(operand, field, SelectMode::Optional);
            }
            Value::String(field) => return select(operand, field, SelectMode::Plain),
            _ => return Err(EvaluationError::no_overload()),
        },
        _ => return Err(EvaluationError::no_overload()),
    };
    match found {
        Some(value) if optional => Ok(Value::some(value)),
        Some(value) => Ok(value),
        None => Ok(Value::Optional(None)),
    }
}

/// Returns a key as text for an error message. Strings are cut to 100 characters.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.chars().take(100).collect(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        other => other.type_name().to_owned(),
    }
}

/// Returns whether the value has the type. The types of elements and fields are not checked.
pub(crate) fn is_a(value: &Value, of: &Type) -> bool {
    matches!(of, Type::Dyn | Type::Unknown(_)) || value.type_name() == of.name()
}

fn selected(found: Option<Value>, field: &str, mode: SelectMode) -> Result<Value, EvaluationError> {
    match mode {
        SelectMode::Test => Ok(Value::Bool(found.is_some())),
        SelectMode::Optional => Ok(found.map_or(Value::Optional(None), Value::some)),
        SelectMode::Plain => {
            found.ok_or_else(|| EvaluationError::failed(format!("no such key: {field}")))
        }
    }
}
