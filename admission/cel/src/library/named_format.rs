//! Implements the CEL functions of named formats, such as `format.dns1123Label`, which validate
//! strings.

use super::declaration::{CallContext, Module, Overload};
use crate::error::EvaluationError;
use crate::value::Value;
use crate::value::named_format::find;

pub(super) const MODULE: Module = (
    "'format.dns1123Label'(): Format; 'format.dns1123Subdomain'(): Format
    'format.dns1035Label'(): Format; 'format.qualifiedName'(): Format
    'format.dns1123LabelPrefix'(): Format; 'format.dns1123SubdomainPrefix'(): Format
    'format.dns1035LabelPrefix'(): Format; 'format.labelValue'(): Format
    'format.uri'(): Format; 'format.uuid'(): Format; 'format.byte'(): Format
    'format.date'(): Format; 'format.datetime'(): Format
    'format.named'(string): optional<Format>
    Format.validate(string): optional<list<string>>",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    match arguments {
        [] => {
            let format = function.name.strip_prefix("format.").and_then(find);
            format
                .map(Value::Format)
                .ok_or_else(EvaluationError::no_overload)
        }
        [Value::String(name)] => Ok(find(name).map_or(Value::Optional(None), |format| {
            Value::some(Value::Format(format))
        })),
        [Value::Format(format), Value::String(text)] => {
            context.budget.charge_allocation(text.len() * 4 + 1_000)?;
            let wrong = (format.validate)(text);
            if wrong.is_empty() {
                return Ok(Value::Optional(None));
            }
            let wrong = wrong.into_iter().map(Value::string).collect();
            Ok(Value::some(Value::list(wrong)))
        }
        _ => Err(EvaluationError::no_overload()),
    }
}
