use std::collections::BTreeMap;
use std::sync::Arc;

use super::declaration::{CallContext, Function};
use crate::error::EvaluationError;
use crate::value::url::unescape;
use crate::value::{ELEMENT_BYTES, Key, Url, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    (&["url(string): URL"], |context, arguments| {
        bind!([Value::String(text)] = arguments);
        context.budget.charge(text.len() as u64)?;
        context.budget.charge_allocation(text.len() * 3)?;
        let wrong = |reason| {
            EvaluationError::failed(format!(
                "URL parse error during conversion from string: {reason}"
            ))
        };
        Url::parse_request(text).map_err(wrong)?;
        Url::parse(text)
            .map(|url| Value::Url(Arc::new(url)))
            .map_err(wrong)
    }),
    (&["isURL(string): bool"], |context, arguments| {
        bind!([Value::String(text)] = arguments);
        context.budget.charge_allocation(text.len() * 2)?;
        Ok(Value::Bool(Url::parse_request(text).is_ok()))
    }),
    (&["URL.getScheme(): string"], |context, arguments| {
        part(context, arguments, |url| url.scheme.clone())
    }),
    (&["URL.getHost(): string"], |context, arguments| {
        part(context, arguments, |url| url.host.clone())
    }),
    (&["URL.getHostname(): string"], |context, arguments| {
        part(context, arguments, |url| {
            let (name, _) = url.name_and_port();
            name.strip_prefix('[')
                .and_then(|name| name.strip_suffix(']'))
                .unwrap_or(name)
                .to_owned()
        })
    }),
    (&["URL.getPort(): string"], |context, arguments| {
        part(context, arguments, |url| url.name_and_port().1.to_owned())
    }),
    (&["URL.getEscapedPath(): string"], |context, arguments| {
        part(context, arguments, |url| url.path.clone())
    }),
    (
        &["URL.getQuery(): map<string, list<string>>"],
        |context, arguments| {
            bind!([Value::Url(url)] = arguments);
            query(context, &url.query)
        },
    ),
];

fn part(
    context: &mut CallContext<'_>,
    arguments: &[Value],
    of: fn(&Url) -> String,
) -> Result<Value, EvaluationError> {
    bind!([Value::Url(url)] = arguments);
    context.budget.charge_allocation(url.text.len())?;
    Ok(Value::string(of(url)))
}

fn query(context: &mut CallContext<'_>, text: &str) -> Result<Value, EvaluationError> {
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for pair in text.split('&') {
        context.budget.charge(pair.len() as u64 * 2)?;
        context
            .budget
            .charge_allocation(pair.len() + 2 * ELEMENT_BYTES)?;
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
