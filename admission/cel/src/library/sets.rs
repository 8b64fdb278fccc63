use super::declaration::{CallContext, Function};
use super::operators::contains;
use crate::error::EvaluationError;
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    (
        &["'sets.contains'(list<A>, list<A>): bool"],
        |context, arguments| {
            let (a, b) = both(arguments)?;
            within(context, b, a).map(Value::Bool)
        },
    ),
    (
        &["'sets.equivalent'(list<A>, list<A>): bool"],
        |context, arguments| {
            let (a, b) = both(arguments)?;
            Ok(Value::Bool(
                within(context, b, a)? && within(context, a, b)?,
            ))
        },
    ),
    (
        &["'sets.intersects'(list<A>, list<A>): bool"],
        |context, arguments| {
            let (a, b) = both(arguments)?;
            for each in a {
                if contains(context.budget, b, each)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        },
    ),
];

fn both(arguments: &[Value]) -> Result<(&[Value], &[Value]), EvaluationError> {
    bind!([Value::List(a), Value::List(b)] = arguments);
    Ok((a, b))
}

/// Returns whether `whole` contains every element of `part`.
fn within(
    context: &mut CallContext<'_>,
    part: &[Value],
    whole: &[Value],
) -> Result<bool, EvaluationError> {
    for each in part {
        if !contains(context.budget, whole, each)? {
            return Ok(false);
        }
    }
    Ok(true)
}
