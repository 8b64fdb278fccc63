use crate::budget::Budget;
use crate::error::{EvaluationError, Exhausted};
use crate::types::{Type, object_type_matches};
use crate::value::Value;

/// The most levels of a result, as many as the deepest object that Kubernetes merges has.
pub const MAX_RESULT_DEPTH: u32 = 128;

/// The type that an expression's result must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultType {
    /// Any type, as in variables.
    Any,
    /// `bool`, as in conditions.
    Bool,
    /// `Object`, as in an ApplyConfiguration.
    Configuration,
    /// `list(JSONPatch)`.
    JsonPatch,
}

impl ResultType {
    /// Returns the name of the expected type if `ty` is another type.
    pub(crate) fn mismatch(self, ty: &Type) -> Option<&'static str> {
        match (self, ty) {
            (Self::Any, _) | (Self::Bool, Type::Bool) => None,
            (Self::Bool, _) => Some("bool"),
            (Self::Configuration, Type::Object { name, .. }) if &**name == "Object" => None,
            (Self::Configuration, _) => Some("Object"),
            (Self::JsonPatch, Type::List(element)) if **element == Type::JSON_PATCH => None,
            (Self::JsonPatch, _) => Some("list(JSONPatch)"),
        }
    }
}

/// Refuses a result that is too large or too deep. The walk ends at the limit.
pub(crate) fn check_size(value: &Value, budget: &mut Budget) -> Result<(), EvaluationError> {
    let mut left = budget.output_bytes();
    measure(value, budget, &mut left, MAX_RESULT_DEPTH)?;
    // Measuring costs units, because a variable that is only another variable's name is measured
    // again.
    budget.charge((budget.output_bytes() - left) / 64)
}

fn measure(
    value: &Value,
    budget: &mut Budget,
    left: &mut u64,
    levels: u32,
) -> Result<(), EvaluationError> {
    if levels == 0 {
        return Err(budget.exhaust(Exhausted::Depth(MAX_RESULT_DEPTH)));
    }
    let bytes = match value {
        Value::String(text) => text.len() + 2,
        Value::Bytes(bytes) => bytes.len() * 4 / 3 + 2,
        _ => 4,
    };
    match left.checked_sub(bytes as u64) {
        Some(rest) => *left = rest,
        None => {
            let limit = Exhausted::Output(budget.output_bytes());
            return Err(budget.exhaust(limit));
        }
    }
    let mut inner = |value: &Value| measure(value, budget, left, levels - 1);
    match value {
        Value::List(list) => list.iter().try_for_each(inner),
        Value::Map(map) => map.iter().try_for_each(|(key, value)| {
            inner(&key.to_value())?;
            inner(value)
        }),
        Value::Object(object) => object.fields.iter().try_for_each(|(name, value)| {
            inner(&Value::String(name.clone()))?;
            inner(value)
        }),
        Value::Patch(patch) => {
            for text in [&patch.op, &patch.path, &patch.from] {
                inner(&Value::String(text.clone()))?;
            }
            patch.value.iter().try_for_each(inner)
        }
        Value::Optional(Some(value)) => inner(value),
        _ => Ok(()),
    }
}

/// Refuses an `Object` that contains an object whose type name differs from its field path.
pub(crate) fn check_type_names(value: &Value) -> Result<(), EvaluationError> {
    match value {
        Value::Object(object) => check_path(value, &mut object.type_name.to_string()),
        Value::List(list) => list.iter().try_for_each(check_type_names),
        Value::Patch(patch) => patch.value.iter().try_for_each(check_type_names),
        _ => Ok(()),
    }
}

fn check_path(value: &Value, path: &mut String) -> Result<(), EvaluationError> {
    match value {
        Value::Object(object) => {
            let type_name = &object.type_name;
            if !object_type_matches(type_name, object.legacy_spelling, path) {
                return Err(EvaluationError::failed(format!(
                    "type mismatch: unexpected type name \"{type_name}\", expected \"{path}\", which matches field name path from root Object type"
                )));
            }
            let length = path.len();
            object.fields.iter().try_for_each(|(name, value)| {
                path.push('.');
                path.push_str(name);
                let checked = check_path(value, path);
                path.truncate(length);
                checked
            })
        }
        Value::List(list) => list.iter().try_for_each(|value| check_path(value, path)),
        Value::Map(map) => map.values().try_for_each(|value| check_path(value, path)),
        _ => Ok(()),
    }
}
