use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Key, Patch, Value, duration};
use crate::error::EvaluationError;

/// The largest integer that a patch contains as a number. Larger ones, and negative ones of larger
/// magnitude, become strings, as in protobuf's JSON.
const MAX_EXACT_INTEGER: u64 = (1 << 53) - 1;

impl From<&serde_json::Value> for Value {
    /// Numbers become `int` if they are written as integers and fit 64 signed bits,
    /// otherwise `double`.
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
    /// Returns the value as Kubernetes writes it into an object: bytes become base64, timestamps
    /// and durations become strings.
    ///
    /// # Errors
    /// Fails for values without a JSON form: quantities, addresses and other library types, NaN,
    /// infinite doubles, and maps with keys other than strings.
    pub fn to_json(&self) -> Result<serde_json::Value, EvaluationError> {
        self.json(false)
    }

    fn json(&self, patch: bool) -> Result<serde_json::Value, EvaluationError> {
        use serde_json::Value as Json;
        let integer = |number: i128, json: Json| {
            if patch && number.unsigned_abs() > u128::from(MAX_EXACT_INTEGER) {
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
            Self::Timestamp(time) => Json::from(time.to_string()),
            Self::Duration(span) => Json::from(duration::to_text(*span)),
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
                        _ => return Err(EvaluationError::failed("a map's key is not a string")),
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
                return Err(EvaluationError::failed(format!(
                    "a value of type {} has no JSON",
                    other.type_name()
                )));
            }
        })
    }
}

impl Patch {
    /// Returns the operation in the format of RFC 6902. Integers from 2^53 become strings, as in
    /// Kubernetes.
    ///
    /// # Errors
    /// Fails for the values for which [`Value::to_json`] fails, and for types and empty optionals.
    pub fn to_json(&self) -> Result<serde_json::Value, EvaluationError> {
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

fn double(number: f64) -> Result<serde_json::Value, EvaluationError> {
    serde_json::Number::from_f64(number)
        .map(serde_json::Value::Number)
        .ok_or_else(|| EvaluationError::failed("a double that is not a number has no JSON"))
}
