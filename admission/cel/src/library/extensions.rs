//! The function `jsonpatch.escapeKey`, and this crate's extensions `listToMap` and `resourceName`.
//! The sum of a list of lists is in `lists`.

use super::declaration::{CallContext, Function};
use crate::error::EvaluationError;
use crate::value::named_format::qualified_name;
use crate::value::{Key, Map, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    (
        &["'jsonpatch.escapeKey'(string): string"],
        |context, arguments| {
            bind!([Value::String(text)] = arguments);
            context.budget.charge_allocation(text.len() * 2)?;
            Ok(Value::string(text.replace('~', "~0").replace('/', "~1")))
        },
    ),
    (
        &["listToMap(list<string>, list<A>): map<string, A>"],
        list_to_map,
    ),
    (
        &["resourceName(string): ResourceName"],
        |context, arguments| {
            bind!([Value::String(text)] = arguments);
            context.budget.charge(1)?;
            Ok(Value::ResourceName(text.clone()))
        },
    ),
    (
        &["ResourceName.isExtended(): bool"],
        |context, arguments| {
            bind!([Value::ResourceName(name)] = arguments);
            context.budget.charge_allocation(name.len() * 2)?;
            Ok(Value::Bool(extended(name)))
        },
    ),
];

/// Returns a map from the first list's strings to the second list's values. Surplus elements of the
/// longer list are ignored, and the last of equal keys wins.
fn list_to_map(
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    bind!([Value::List(keys), Value::List(values)] = arguments);
    let mut map = Map::new();
    for (key, value) in keys.iter().zip(values.iter()) {
        context.budget.charge_elements(3)?;
        match key {
            Value::String(key) => {
                context.budget.charge_read(key.len())?;
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
