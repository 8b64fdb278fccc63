//! `format.named(..)`, the formats by name, and `validate`.

use super::declaration::{CallContext, Function};
use crate::error::EvaluationError;
use crate::value::Value;
use crate::value::named_format::find;

pub(super) const FUNCTIONS: &[Function] = &[
    (&["'format.dns1123Label'(): Format"], |_, _| {
        constant("dns1123Label")
    }),
    (&["'format.dns1123Subdomain'(): Format"], |_, _| {
        constant("dns1123Subdomain")
    }),
    (&["'format.dns1035Label'(): Format"], |_, _| {
        constant("dns1035Label")
    }),
    (&["'format.qualifiedName'(): Format"], |_, _| {
        constant("qualifiedName")
    }),
    (&["'format.dns1123LabelPrefix'(): Format"], |_, _| {
        constant("dns1123LabelPrefix")
    }),
    (&["'format.dns1123SubdomainPrefix'(): Format"], |_, _| {
        constant("dns1123SubdomainPrefix")
    }),
    (&["'format.dns1035LabelPrefix'(): Format"], |_, _| {
        constant("dns1035LabelPrefix")
    }),
    (&["'format.labelValue'(): Format"], |_, _| {
        constant("labelValue")
    }),
    (&["'format.uri'(): Format"], |_, _| constant("uri")),
    (&["'format.uuid'(): Format"], |_, _| constant("uuid")),
    (&["'format.byte'(): Format"], |_, _| constant("byte")),
    (&["'format.date'(): Format"], |_, _| constant("date")),
    (&["'format.datetime'(): Format"], |_, _| {
        constant("datetime")
    }),
    (
        &["'format.named'(string): optional<Format>"],
        |_, arguments| match arguments {
            [Value::String(name)] => Ok(find(name).map_or(Value::Optional(None), |format| {
                Value::some(Value::Format(format))
            })),
            _ => Err(EvaluationError::no_overload()),
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
    let [Value::Format(format), Value::String(text)] = arguments else {
        return Err(EvaluationError::no_overload());
    };
    context.budget.charge_allocation(text.len() * 4 + 1_000)?;
    let wrong = (format.validate)(text);
    if wrong.is_empty() {
        return Ok(Value::Optional(None));
    }
    Ok(Value::some(Value::list(
        wrong.into_iter().map(Value::string).collect(),
    )))
}
