//! The function `jsonpatch.escapeKey`, and this crate's extensions `listToMap` and `resourceName`.
//! The sum of a list of lists is in `lists`.

use super::declaration::{CallContext, Module, Overload};
use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::value::named_format::qualified_name;
use crate::value::{Key, Map, Value};

pub(super) const MODULE: Module = (
    "'jsonpatch.escapeKey'(string): string
    listToMap(list<string>, list<A>): map<string, A>
    resourceName(string): ResourceName; ResourceName.isExtended(): bool",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    let budget = &mut *context.budget;
    Ok(match (function.name, arguments) {
        ("jsonpatch.escapeKey", [Value::String(text)]) => {
            budget.charge_allocation(text.len() * 2)?;
            Value::string(text.replace('~', "~0").replace('/', "~1"))
        }
        ("listToMap", [Value::List(keys), Value::List(values)]) => {
            list_to_map(budget, keys, values)?
        }
        ("resourceName", [Value::String(text)]) => {
            budget.charge(1)?;
            Value::ResourceName(text.clone())
        }
        ("isExtended", [Value::ResourceName(name)]) => {
            budget.charge_allocation(name.len() * 2)?;
            Value::Bool(extended(name))
        }
        _ => return Err(EvaluationError::no_overload()),
    })
}

/// Returns a map from the first list's strings to the second list's values. Surplus elements of the
/// longer list are ignored, and the last of equal keys wins.
fn list_to_map(
    budget: &mut Budget,
    keys: &[Value],
    values: &[Value],
) -> Result<Value, EvaluationError> {
    let mut map = Map::new();
    for (key, value) in keys.iter().zip(values.iter()) {
        budget.charge_elements(3)?;
        match key {
            Value::String(key) => {
                budget.charge_read(key.len())?;
                map.insert(Key::String(key.clone()), value.clone())
            }
            other => {
                return Err(EvaluationError::failed(format!(
                    "listToMap: a key is not a string but {}",
                    other.type_name()
                )));
            }
        };
    }
    Ok(Value::map(map))
}

/// Returns whether the name is an extended resource by Kubernetes' rule (pkg/apis/core/v1/helper).
fn extended(name: &str) -> bool {
    let implementation = !name.contains('/') || name.contains("kubernetes.io/");
    !implementation
        && !name.starts_with("requests.")
        && qualified_name(&format!("requests.{name}")).is_empty()
}
