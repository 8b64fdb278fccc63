use super::declaration::{CallContext, Function};
use crate::error::EvaluationError;
use crate::value::Value;
use crate::value::named_format::find;

macro_rules! named {
    ($name:literal) => {
        (&[concat!("'format.", $name, "'(): Format")], |_, _| {
            constant($name)
        })
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    named!("dns1123Label"),
    named!("dns1123Subdomain"),
    named!("dns1035Label"),
    named!("qualifiedName"),
    named!("dns1123LabelPrefix"),
    named!("dns1123SubdomainPrefix"),
    named!("dns1035LabelPrefix"),
    named!("labelValue"),
    named!("uri"),
    named!("uuid"),
    named!("byte"),
    named!("date"),
    named!("datetime"),
    (
        &["'format.named'(string): optional<Format>"],
        |_, arguments| {
            bind!([Value::String(name)] = arguments);
            Ok(find(name).map_or(Value::Optional(None), |format| {
                Value::some(Value::Format(format))
            }))
        },
    ),
    (
        &["Format.validate(string): optional<list<string>>"],
        validate,
    ),
];

fn constant(name: &str) -> Result<Value, EvaluationError> {
    find(name)
        .map(Value::Format)
        .ok_or_else(EvaluationError::no_overload)
}

fn validate(context: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, EvaluationError> {
    bind!([Value::Format(format), Value::String(text)] = arguments);
    context.budget.charge_allocation(text.len() * 4 + 1_000)?;
    let wrong = (format.validate)(text);
    if wrong.is_empty() {
        return Ok(Value::Optional(None));
    }
    Ok(Value::some(Value::list(
        wrong.into_iter().map(Value::string).collect(),
    )))
}
