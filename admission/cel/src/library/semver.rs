use std::sync::Arc;

use super::declaration::{CallContext, Function};
use crate::error::{EvaluationError, Invalid};
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    (
        &["semver(string): Semver", "semver(string, bool): Semver"],
        |context, arguments| Ok(Value::Semver(Arc::new(read(context, arguments)??))),
    ),
    (
        &["isSemver(string): bool", "isSemver(string, bool): bool"],
        |context, arguments| Ok(Value::Bool(read(context, arguments)?.is_ok())),
    ),
    (&["Semver.major(): int"], |_, arguments| {
        part(arguments, |version| version.major)
    }),
    (&["Semver.minor(): int"], |_, arguments| {
        part(arguments, |version| version.minor)
    }),
    (&["Semver.patch(): int"], |_, arguments| {
        part(arguments, |version| version.patch)
    }),
    (&["Semver.isGreaterThan(Semver): bool"], |_, arguments| {
        Ok(Value::Bool(order(arguments)?.is_gt()))
    }),
    (&["Semver.isLessThan(Semver): bool"], |_, arguments| {
        Ok(Value::Bool(order(arguments)?.is_lt()))
    }),
    (&["Semver.compareTo(Semver): int"], |_, arguments| {
        Ok(Value::Int(order(arguments)? as i64))
    }),
];

fn part(arguments: &[Value], of: fn(&semver::Version) -> u64) -> Result<Value, EvaluationError> {
    bind!([Value::Semver(version)] = arguments);
    Ok(Value::Int(of(version) as i64))
}

fn order(arguments: &[Value]) -> Result<std::cmp::Ordering, EvaluationError> {
    bind!([Value::Semver(a), Value::Semver(b)] = arguments);
    Ok(a.cmp_precedence(b))
}

fn read(
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Result<semver::Version, Invalid>, EvaluationError> {
    let (text, normalize) = match arguments {
        [Value::String(text)] => (text, false),
        [Value::String(text), Value::Bool(normalize)] => (text, *normalize),
        _ => return Err(EvaluationError::no_overload()),
    };
    context.budget.charge_allocation(text.len() * 2)?;
    let parse =
        |text: &str| semver::Version::parse(text).map_err(|error| Invalid(error.to_string()));
    Ok(if normalize {
        normalized(text).and_then(|text| parse(&text))
    } else {
        parse(text)
    })
}

/// Returns the version without a leading `v` and leading zeros, and with 0 for missing parts.
fn normalized(text: &str) -> Result<String, Invalid> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|part| {
            let short = part.trim_start_matches('0');
            if part.len() <= 1 {
                part.to_owned()
            } else if short.starts_with(|c: char| c.is_ascii_digit()) {
                short.to_owned()
            } else {
                format!("0{short}")
            }
        })
        .collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|part| part.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".into());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}
