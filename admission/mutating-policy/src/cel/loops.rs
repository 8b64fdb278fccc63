//! Comprehensions.

use super::compare;
use super::error::RunError;
use super::eval::{ELEMENT_BYTES, Run};
use super::ir::{Loop, LoopKind};
use super::value::{Map, Value};

/// The value of a comprehension.
pub(super) fn run(run: &mut Run<'_>, looped: &Loop) -> Result<Value, RunError> {
    let range = run.eval(&looped.range)?;
    let depth = run.stack.len();
    let result = match &range {
        Value::List(list) => {
            let pairs = list.iter().enumerate().map(|(index, value)| {
                if looped.two {
                    (Value::Int(index as i64), value.clone())
                } else {
                    (value.clone(), Value::Null)
                }
            });
            over(run, looped, pairs)
        }
        Value::Map(map) => {
            let pairs = map.iter().map(|(key, value)| (key.value(), value.clone()));
            over(run, looped, pairs)
        }
        other => Err(RunError::failed(format!(
            "got '{}', expected iterable type",
            other.type_name()
        ))),
    };
    run.stack.truncate(depth);
    result
}

fn over(
    run: &mut Run<'_>,
    looped: &Loop,
    pairs: impl Iterator<Item = (Value, Value)>,
) -> Result<Value, RunError> {
    let mut list = Vec::new();
    let mut map = Map::new();
    let mut sorted: Vec<(Value, Value)> = Vec::new();
    let mut error = None;
    let mut count = 0_u64;
    let depth = run.stack.len();
    for (first, second) in pairs {
        run.scope.budget.charge(1)?;
        run.stack.truncate(depth);
        run.stack.push(first.clone());
        if looped.two {
            run.stack.push(second);
        }
        if let Some(filter) = &looped.filter {
            match run.eval(filter)? {
                Value::Bool(true) => {}
                Value::Bool(false) => continue,
                _ => return Err(RunError::no_overload()),
            }
        }
        let result = run.eval(&looped.body);
        match looped.kind {
            LoopKind::All | LoopKind::Exists => {
                let deciding = looped.kind == LoopKind::Exists;
                match result {
                    Ok(Value::Bool(value)) if value == deciding => {
                        return Ok(Value::Bool(deciding));
                    }
                    Ok(Value::Bool(_)) => {}
                    Ok(_) => error = error.or(Some(RunError::no_overload())),
                    Err(stop) if stop.is_exhausted() => return Err(stop),
                    Err(other) => error = error.or(Some(other)),
                }
            }
            LoopKind::ExistsOne | LoopKind::Filter => match result? {
                Value::Bool(true) => {
                    count += 1;
                    if looped.kind == LoopKind::Filter {
                        run.scope.budget.charge_made(ELEMENT_BYTES)?;
                        list.push(first);
                    }
                }
                Value::Bool(false) => {}
                _ => return Err(RunError::no_overload()),
            },
            LoopKind::List => {
                run.scope.budget.charge_made(ELEMENT_BYTES)?;
                list.push(result?);
            }
            LoopKind::Map => {
                let value = result?;
                run.insert(&mut map, &first, value)?;
            }
            LoopKind::Entries => match result? {
                Value::Map(entries) => {
                    for (key, value) in entries.iter() {
                        run.insert(&mut map, &key.value(), value.clone())?;
                    }
                }
                _ => return Err(RunError::no_overload()),
            },
            LoopKind::Sort => {
                run.scope.budget.charge_made(2 * ELEMENT_BYTES)?;
                sorted.push((result?, first));
            }
        }
    }
    match looped.kind {
        LoopKind::All | LoopKind::Exists => {
            error.map_or(Ok(Value::Bool(looped.kind == LoopKind::All)), Err)
        }
        LoopKind::ExistsOne => Ok(Value::Bool(count == 1)),
        LoopKind::Filter | LoopKind::List => Ok(Value::list(list)),
        LoopKind::Map | LoopKind::Entries => Ok(Value::map(map)),
        LoopKind::Sort => {
            compare::sort(run.scope.budget, &mut sorted)?;
            Ok(Value::list(
                sorted.into_iter().map(|(_, value)| value).collect(),
            ))
        }
    }
}
