//! JSON to values and back, and the bounds of a result.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::budget::Budget;
use super::check_objects::stands_at;
use super::error::{Exhausted, RunError};
use super::library::{duration_text, timestamp_text};
use super::value::{Key, Object, Patch, Value};

/// Levels of the deepest result: those of the deepest object.
const DEEPEST: u32 = tautline_structured_merge::MAX_DEPTH as u32;
/// Whole numbers of a patch beyond this are strings, as in protobuf's JSON.
const EXACT: u64 = (1 << 53) - 1;

impl From<&serde_json::Value> for Value {
    /// Numbers become integers where they are written as such and fit 64
    /// signed bits, doubles otherwise.
    fn from(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match json {
            Json::Null => Self::Null,
            Json::Bool(flag) => Self::Bool(*flag),
            Json::Number(number) => match number.as_i64() {
                Some(number) => Self::Int(number),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::string(text.as_str()),
            Json::Array(elements) => Self::list(elements.iter().map(Self::from).collect()),
            Json::Object(fields) => Self::map(
                fields
                    .iter()
                    .map(|(name, value)| (Key::String(name.as_str().into()), Self::from(value)))
                    .collect(),
            ),
        }
    }
}

impl Value {
    /// The value as the server would put it into an object: integers stay
    /// integers, bytes become base64, times and spans strings.
    ///
    /// # Errors
    /// For what has no JSON: empty optionals, quantities, addresses and the
    /// like, doubles that are no number, maps whose keys are no strings.
    pub fn to_json(&self) -> Result<serde_json::Value, RunError> {
        self.json(false)
    }

    fn json(&self, patch: bool) -> Result<serde_json::Value, RunError> {
        use serde_json::Value as Json;
        let integer = |number: i128, json: Json| {
            if patch && number.unsigned_abs() > u128::from(EXACT) {
                Json::from(number.to_string())
            } else {
                json
            }
        };
        Ok(match self {
            Self::Null => Json::Null,
            Self::Bool(flag) => Json::from(*flag),
            Self::Int(number) => integer(i128::from(*number), Json::from(*number)),
            Self::Uint(number) => integer(i128::from(*number), Json::from(*number)),
            Self::Double(number) => double(*number)?,
            Self::String(text) => Json::from(&**text),
            Self::Bytes(bytes) => Json::from(STANDARD.encode(bytes)),
            Self::Timestamp(time) => Json::from(timestamp_text(*time)),
            Self::Duration(span) => Json::from(duration_text(*span)),
            Self::List(list) => Json::Array(
                list.iter()
                    .map(|value| value.json(patch))
                    .collect::<Result<_, _>>()?,
            ),
            Self::Map(map) => {
                let mut fields = serde_json::Map::new();
                for (key, value) in map.iter() {
                    let name = match key {
                        Key::String(name) => name.to_string(),
                        _ => return Err(RunError::failed("a map's key is not a string")),
                    };
                    fields.insert(name, value.json(patch)?);
                }
                Json::Object(fields)
            }
            Self::Object(object) => {
                let mut fields = serde_json::Map::new();
                for (name, value) in &object.fields {
                    fields.insert(name.to_string(), value.json(patch)?);
                }
                Json::Object(fields)
            }
            Self::Patch(patch) => patch.to_json()?,
            Self::Optional(Some(value)) => value.json(patch)?,
            Self::Optional(None) if !patch => Json::Null,
            Self::Type(name) if !patch => Json::from(&**name),
            other => {
                return Err(RunError::failed(format!(
                    "a value of type {} has no JSON",
                    other.type_name()
                )));
            }
        })
    }

    /// Refuses a result that is too large or too deep, without walking more of
    /// it than the bound.
    pub(super) fn bounded(&self, budget: &mut Budget) -> Result<(), RunError> {
        let mut left = budget.output_bytes();
        self.measure(budget, &mut left, DEEPEST)?;
        // A variable that is another's name measures all of it again.
        budget.charge((budget.output_bytes() - left) / 64)
    }

    fn measure(&self, budget: &mut Budget, left: &mut u64, levels: u32) -> Result<(), RunError> {
        if levels == 0 {
            return Err(budget.exhaust(Exhausted::Depth(DEEPEST)));
        }
        let bytes = match self {
            Self::String(text) => text.len() + 2,
            Self::Bytes(bytes) => bytes.len() * 4 / 3 + 2,
            _ => 4,
        };
        match left.checked_sub(bytes as u64) {
            Some(rest) => *left = rest,
            None => {
                let bound = Exhausted::Output(budget.output_bytes());
                return Err(budget.exhaust(bound));
            }
        }
        match self {
            Self::List(list) => list
                .iter()
                .try_for_each(|value| value.measure(budget, left, levels - 1)),
            Self::Map(map) => map.iter().try_for_each(|(key, value)| {
                key.value().measure(budget, left, levels - 1)?;
                value.measure(budget, left, levels - 1)
            }),
            Self::Object(object) => object.fields.iter().try_for_each(|(name, value)| {
                Self::String(name.clone()).measure(budget, left, levels - 1)?;
                value.measure(budget, left, levels - 1)
            }),
            Self::Patch(patch) => {
                for text in [&patch.op, &patch.path, &patch.from] {
                    Self::String(text.clone()).measure(budget, left, levels - 1)?;
                }
                patch
                    .value
                    .iter()
                    .try_for_each(|value| value.measure(budget, left, levels - 1))
            }
            Self::Optional(Some(value)) => value.measure(budget, left, levels - 1),
            _ => Ok(()),
        }
    }

    /// Refuses an `Object` below which a type's name does not follow the path.
    pub(super) fn named_by_path(&self) -> Result<(), RunError> {
        match self {
            Self::Object(object) => follow(self, &mut object.type_name.to_string()),
            Self::List(list) => list.iter().try_for_each(Self::named_by_path),
            Self::Patch(patch) => patch.value.iter().try_for_each(Self::named_by_path),
            _ => Ok(()),
        }
    }
}

fn follow(value: &Value, place: &mut String) -> Result<(), RunError> {
    match value {
        Value::Object(object) => {
            let Object {
                type_name,
                old_spelling,
                fields,
            } = &**object;
            if !stands_at(type_name, *old_spelling, place) {
                return Err(RunError::failed(format!(
                    "type mismatch: unexpected type name \"{type_name}\", expected \"{place}\", which matches field name path from root Object type"
                )));
            }
            let length = place.len();
            fields.iter().try_for_each(|(name, value)| {
                place.push('.');
                place.push_str(name);
                let followed = follow(value, place);
                place.truncate(length);
                followed
            })
        }
        Value::List(list) => list.iter().try_for_each(|value| follow(value, place)),
        Value::Map(map) => map.values().try_for_each(|value| follow(value, place)),
        _ => Ok(()),
    }
}

impl Patch {
    /// The operation as RFC 6902 has it. Whole numbers of its value beyond 2^53
    /// become strings, as the server makes them.
    ///
    /// # Errors
    /// As of [`Value::to_json`].
    pub fn to_json(&self) -> Result<serde_json::Value, RunError> {
        let mut fields = serde_json::Map::new();
        let mut put = |name: &str, text: &Arc<str>| {
            fields.insert(name.to_owned(), serde_json::Value::from(&**text))
        };
        put("op", &self.op);
        put("path", &self.path);
        if !self.from.is_empty() {
            put("from", &self.from);
        }
        if let Some(value) = &self.value {
            fields.insert("value".to_owned(), value.json(true)?);
        }
        Ok(serde_json::Value::Object(fields))
    }
}

fn double(number: f64) -> Result<serde_json::Value, RunError> {
    serde_json::Number::from_f64(number)
        .map(serde_json::Value::Number)
        .ok_or_else(|| RunError::failed("a double that is no number has no JSON"))
}
