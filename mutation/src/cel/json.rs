//! JSON to values and back.
use super::{RunError, Value};

impl From<&serde_json::Value> for Value {
    fn from(_: &serde_json::Value) -> Self {
        Self::Null
    }
}

impl Value {
    /// The value as the server would put it into an object: integers stay
    /// integers, bytes become base64, times and spans strings.
    ///
    /// # Errors
    /// For what has no JSON, as types, optionals and addresses.
    pub fn to_json(&self) -> Result<serde_json::Value, RunError> {
        Err(RunError::failed("not yet"))
    }
}
