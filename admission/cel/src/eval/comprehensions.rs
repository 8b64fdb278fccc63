//! Evaluates the macros of CEL that loop over a list or map, such as `all`, `exists`, `filter` and
//! `map`.

use super::{Evaluator, compare};
use crate::error::EvaluationError;
use crate::ir::{Loop, LoopKind};
use crate::value::{Map, Value};

pub(crate) fn run(evaluator: &mut Evaluator<'_>, looped: &Loop) -> Result<Value, EvaluationError> {
    let range = evaluator.eval(&looped.range)?;
    let depth = evaluator.stack.len();
    let result = match &range {
        Value::List(list) => {
            let pairs = list.iter().enumerate().map(|(index, value)| {
                if looped.two {
                    (Value::Int(index as i64), value.clone())
                } else {
                    (value.clone(), Value::Null)
                }
            });
            over(evaluator, looped, pairs)
        }
        Value::Map(map) => {
            let pairs = map
                .iter()
                .map(|(key, value)| (key.to_value(), value.clone()));
            over(evaluator, looped, pairs)
        }
        other => Err(EvaluationError::failed(format!(
            "got '{}', expected iterable type",
            other.type_name()
        ))),
    };
    evaluator.stack.truncate(depth);
    result
}

fn over(
    evaluator: &mut Evaluator<'_>,
    looped: &Loop,
    pairs: impl Iterator<Item = (Value, Value)>,
) -> Result<Value, EvaluationError> {
    let mut list = Vec::new();
    let mut map = Map::new();
    let mut sorted: Vec<(Value, Value)> = Vec::new();
    let mut error = None;
    let mut count = 0_u64;
    let depth = evaluator.stack.len();
    for (first, second) in pairs {
        evaluator.context.budget.charge(1)?;
        evaluator.stack.truncate(depth);
        evaluator.stack.push(first.clone());
        if looped.two {
            evaluator.stack.push(second);
        }
        if let Some(filter) = &looped.filter {
            match evaluator.eval(filter)? {
                Value::Bool(true) => {}
                Value::Bool(false) => continue,
                _ => return Err(EvaluationError::no_overload()),
            }
        }
        let result = evaluator.eval(&looped.body);
        match looped.kind {
            LoopKind::All | LoopKind::Exists => {
                let deciding = looped.kind == LoopKind::Exists;
                match result {
                    Ok(Value::Bool(value)) if value == deciding => {
                        return Ok(Value::Bool(deciding));
                    }
                    Ok(Value::Bool(_)) => {}
                    Ok(_) => error = error.or(Some(EvaluationError::no_overload())),
                    Err(stop) if stop.is_exhausted() => return Err(stop),
                    Err(other) => error = error.or(Some(other)),
                }
            }
            LoopKind::ExistsOne | LoopKind::Filter => match result? {
                Value::Bool(true) => {
                    count += 1;
                    if looped.kind == LoopKind::Filter {
                        evaluator.context.budget.charge_elements(1)?;
                        list.push(first);
                    }
                }
                Value::Bool(false) => {}
                _ => return Err(EvaluationError::no_overload()),
            },
            LoopKind::List => {
                evaluator.context.budget.charge_elements(1)?;
                list.push(result?);
            }
            LoopKind::Map => {
                let value = result?;
                evaluator.insert(&mut map, &first, value)?;
            }
            LoopKind::Entries => match result? {
                Value::Map(entries) => {
                    for (key, value) in entries.iter() {
                        evaluator.insert(&mut map, &key.to_value(), value.clone())?;
                    }
                }
                _ => return Err(EvaluationError::no_overload()),
            },
            LoopKind::Sort => {
                evaluator.context.budget.charge_elements(2)?;
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
            compare::sort(evaluator.context.budget, &mut sorted)?;
            Ok(Value::list(
                sorted.into_iter().map(|(_, value)| value).collect(),
            ))
        }
    }
}
