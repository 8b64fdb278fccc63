//! Implements the CEL functions that parse URLs and return their parts, such as the host and the
//! query.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::declaration::{CallContext, Module, Overload};
use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::value::url::unescape;
use crate::value::{ELEMENT_BYTES, Key, Url, Value};

pub(super) const MODULE: Module = (
    "url(string): URL; isURL(string): bool
    URL.getScheme|getHost|getHostname|getPort|getEscapedPath(): string
    URL.getQuery(): map<string, list<string>>",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    let budget = &mut *context.budget;
    Ok(match (function.name, arguments) {
        ("url", [Value::String(text)]) => {
            budget.charge(text.len() as u64)?;
            budget.charge_allocation(text.len() * 3)?;
            let url = Url::parse_request(text).and_then(|_| Url::parse(text));
            Value::Url(Arc::new(url.map_err(|reason| {
                EvaluationError::failed(format!(
                    "URL parse error during conversion from string: {reason}"
                ))
            })?))
        }
        ("isURL", [Value::String(text)]) => {
            budget.charge_allocation(text.len() * 2)?;
            Value::Bool(Url::parse_request(text).is_ok())
        }
        ("getQuery", [Value::Url(url)]) => query(budget, &url.query)?,
        (part, [Value::Url(url)]) => {
            budget.charge_allocation(url.text.len())?;
            let (name, port) = url.name_and_port();
            Value::string(match part {
                "getScheme" => &url.scheme,
                "getHost" => &url.host,
                "getHostname" => name
                    .strip_prefix('[')
                    .and_then(|name| name.strip_suffix(']'))
                    .unwrap_or(name),
                "getPort" => port,
                _ => &url.path,
            })
        }
        _ => return Err(EvaluationError::no_overload()),
    })
}

fn query(budget: &mut Budget, text: &str) -> Result<Value, EvaluationError> {
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for pair in text.split('&') {
        budget.charge(pair.len() as u64 * 2)?;
        budget.charge_allocation(pair.len() + 2 * ELEMENT_BYTES)?;
        if pair.is_empty() || pair.contains(';') {
            continue;
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let plain = |text: &str| unescape(&text.replace('+', " "), false);
        if let (Ok(name), Ok(value)) = (plain(name), plain(value)) {
            found.entry(name).or_default().push(Value::string(value));
        }
    }
    Ok(Value::map(
        found
            .into_iter()
            .map(|(name, values)| (Key::String(name.into()), Value::list(values)))
            .collect(),
    ))
}
