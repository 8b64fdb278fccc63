//! Lists as sets.

use super::super::declaration::{Row, Scope};
use super::super::error::RunError;
use super::super::value::Value;
use super::operators::contains;

pub(super) const ROWS: &[Row] = &[
    (
        &["'sets.contains'(list<A>, list<A>): bool"],
        |scope, arguments| {
            let (a, b) = both(arguments)?;
            within(scope, b, a).map(Value::Bool)
        },
    ),
    (
        &["'sets.equivalent'(list<A>, list<A>): bool"],
        |scope, arguments| {
            let (a, b) = both(arguments)?;
            Ok(Value::Bool(within(scope, b, a)? && within(scope, a, b)?))
        },
    ),
    (
        &["'sets.intersects'(list<A>, list<A>): bool"],
        |scope, arguments| {
            let (a, b) = both(arguments)?;
            for each in a {
                if contains(scope.budget, b, each)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        },
    ),
];

fn both(arguments: &[Value]) -> Result<(&[Value], &[Value]), RunError> {
    match arguments {
        [Value::List(a), Value::List(b)] => Ok((a, b)),
        _ => Err(RunError::no_overload()),
    }
}

/// Whether every element of the first is among the second.
fn within(scope: &mut Scope<'_>, part: &[Value], whole: &[Value]) -> Result<bool, RunError> {
    for each in part {
        if !contains(scope.budget, whole, each)? {
            return Ok(false);
        }
    }
    Ok(true)
}
