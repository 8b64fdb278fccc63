//! Functions of Kubernetes' patches, and those that are ours: `listToMap`,
//! `resourceName`; the sum of lists of lists is among the lists'.

use super::super::declaration::{Row, Scope};
use super::super::error::RunError;
use super::super::eval::ELEMENT_BYTES;
use super::super::value::{Key, Map, Value};
use super::named::{is_label_part, mismatch, subdomain};

pub(super) const ROWS: &[Row] = &[
    (
        &["'jsonpatch.escapeKey'(string): string"],
        |scope, arguments| match arguments {
            [Value::String(text)] => {
                scope.budget.charge_made(text.len() * 2)?;
                Ok(Value::string(text.replace('~', "~0").replace('/', "~1")))
            }
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["listToMap(list<string>, list<A>): map<string, A>"],
        list_to_map,
    ),
    (
        &["resourceName(string): ResourceName"],
        |scope, arguments| match arguments {
            [Value::String(text)] => {
                scope.budget.charge(1)?;
                Ok(Value::ResourceName(text.clone()))
            }
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["ResourceName.isExtended(): bool"],
        |scope, arguments| match arguments {
            [Value::ResourceName(name)] => {
                scope.budget.charge_made(name.len() * 2)?;
                Ok(Value::Bool(extended(name)))
            }
            _ => Err(RunError::no_overload()),
        },
    ),
];

/// A map of the first list's strings to the second's values, to the shorter of
/// the two; of equal keys the last wins.
fn list_to_map(scope: &mut Scope<'_>, arguments: &[Value]) -> Result<Value, RunError> {
    let [Value::List(keys), Value::List(values)] = arguments else {
        return Err(RunError::no_overload());
    };
    let mut map = Map::new();
    for (key, value) in keys.iter().zip(values.iter()) {
        scope.budget.charge_made(3 * ELEMENT_BYTES)?;
        match key {
            Value::String(key) => {
                scope.budget.charge_read(key.len())?;
                map.insert(Key::String(key.clone()), value.clone())
            }
            other => {
                return Err(RunError::failed(format!(
                    "listToMap: a key is no string but {}",
                    other.type_name()
                )));
            }
        };
    }
    Ok(Value::map(map))
}

/// Kubernetes' rule for extended resources (pkg/apis/core/v1/helper).
fn extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native
        && !name.starts_with("requests.")
        && qualified_name(&format!("requests.{name}")).is_empty()
}

/// What is wrong with a text as a qualified name, in apimachinery's words.
pub(super) fn qualified_name(text: &str) -> Vec<String> {
    const MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    const PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
    let rule = || mismatch(MESSAGE, PATTERN, &["MyName", "my.name", "123-abc"]);
    let mut parts = text.split('/');
    let mut wrong = Vec::new();
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(subdomain(prefix).iter().map(|reason| {
                    format!(
                        "prefix part {}",
                        reason.replace("253 characters", "253 bytes")
                    )
                }));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                rule()
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_label_part(name) {
        wrong.push(format!("name part {}", rule()));
    }
    wrong
}
