//! Evaluates checked expressions. Every step is charged to the budget before it is taken.

pub(crate) mod access;
pub(crate) mod compare;
mod comprehensions;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::EvaluationError;
use crate::ir::{Dispatch, Ir, Item};
use crate::library::declaration::CallContext;
use crate::value::{ENTRY_BYTES, Map, Object, Patch, Value};

pub(crate) struct Evaluator<'a> {
    pub context: CallContext<'a>,
    /// The values of the local variables in scope, the innermost last.
    pub stack: Vec<Value>,
}

impl Evaluator<'_> {
    pub(crate) fn eval(&mut self, ir: &Ir) -> Result<Value, EvaluationError> {
        self.context.budget.charge(1)?;
        self.context.budget.enter()?;
        let value = self.part(ir);
        self.context.budget.leave();
        value
    }

    fn part(&mut self, ir: &Ir) -> Result<Value, EvaluationError> {
        match ir {
            Ir::Constant(value) => Ok(value.clone()),
            Ir::Local(place) => self
                .stack
                .get(*place)
                .cloned()
                .ok_or_else(|| EvaluationError::failed("a variable without a value")),
            Ir::Global(name) => match self.context.resolver.resolve(name, self.context.budget) {
                Some(found) => found,
                None => Err(EvaluationError::failed(format!(
                    "no such attribute: {name}"
                ))),
            },
            Ir::Select {
                operand,
                field,
                mode,
            } => {
                let operand = self.eval(operand)?;
                access::select(&operand, field, *mode)
            }
            Ir::Call {
                dispatch,
                arguments,
            } => self.call(dispatch, arguments),
            Ir::Logic { any, terms } => self.logic(*any, terms),
            Ir::Choice(three) => match self.eval(&three[0])? {
                Value::Bool(true) => self.eval(&three[1]),
                Value::Bool(false) => self.eval(&three[2]),
                _ => Err(EvaluationError::no_overload()),
            },
            Ir::OrElse { both, unwrap } => match self.eval(&both[0])? {
                Value::Optional(None) => self.eval(&both[1]),
                Value::Optional(Some(value)) if *unwrap => Ok((*value).clone()),
                value @ Value::Optional(_) if !unwrap => Ok(value),
                // `orValue` returns a value that is not an optional unchanged, as in Kubernetes.
                value if *unwrap => Ok(value),
                _ => Err(EvaluationError::no_overload()),
            },
            Ir::List(items) => self.list(items),
            Ir::Map(entries) => self.map(entries),
            Ir::Object {
                type_name,
                legacy_spelling,
                fields,
            } => {
                let fields = self.fields(fields)?;
                let object = Object {
                    type_name: type_name.clone(),
                    legacy_spelling: *legacy_spelling,
                    fields,
                };
                Ok(Value::Object(Arc::new(object)))
            }
            Ir::Patch(fields) => {
                let fields = self.fields(fields)?;
                patch(&fields)
            }
            Ir::Loop(looped) => comprehensions::run(self, looped),
            Ir::OptionalMap { both, flat } => self.optional_map(both, *flat),
        }
    }

    fn call(&mut self, dispatch: &Dispatch, arguments: &[Ir]) -> Result<Value, EvaluationError> {
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(self.eval(argument)?);
        }
        let function = match dispatch {
            Dispatch::Static(function) => *function,
            Dispatch::Dynamic(overloads) => {
                let fitting = overloads.iter().find(|overload| {
                    overload
                        .parameters
                        .iter()
                        .zip(&values)
                        .all(|(of, value)| access::is_a(value, of))
                });
                *fitting.ok_or_else(EvaluationError::no_overload)?
            }
        };
        function.call(&mut self.context, &values)
    }

    /// Evaluates `||` if `any`, otherwise `&&`. A term that decides the result takes precedence
    /// over one that fails.
    fn logic(&mut self, any: bool, terms: &[Ir]) -> Result<Value, EvaluationError> {
        let mut error = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == any => return Ok(Value::Bool(any)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => error = error.or(Some(EvaluationError::no_overload())),
                Err(stop) if stop.is_exhausted() => return Err(stop),
                Err(other) => error = error.or(Some(other)),
            }
        }
        error.map_or(Ok(Value::Bool(!any)), Err)
    }

    /// Returns the value of a literal's element; `None` if it is an empty optional after `?`.
    fn item(&mut self, item: &Item) -> Result<Option<Value>, EvaluationError> {
        let value = self.eval(&item.ir)?;
        if !item.optional {
            return Ok(Some(value));
        }
        match value {
            Value::Optional(inner) => Ok(inner.map(|value| (*value).clone())),
            _ => Err(EvaluationError::failed("expected an optional after '?'")),
        }
    }

    fn list(&mut self, items: &[Item]) -> Result<Value, EvaluationError> {
        self.context.budget.charge_elements(items.len())?;
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.extend(self.item(item)?);
        }
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &[(Ir, Item)]) -> Result<Value, EvaluationError> {
        self.context
            .budget
            .charge_allocation(entries.len() * ENTRY_BYTES)?;
        let mut map = Map::new();
        for (key, item) in entries {
            let key = self.eval(key)?;
            if let Some(value) = self.item(item)? {
                map.insert(access::charged_key(self.context.budget, &key)?, value);
            }
        }
        Ok(Value::map(map))
    }

    pub(crate) fn insert(
        &mut self,
        map: &mut Map,
        key: &Value,
        value: Value,
    ) -> Result<(), EvaluationError> {
        self.context.budget.charge_allocation(ENTRY_BYTES)?;
        // One unit is for the lookup, one for the insertion.
        self.context.budget.charge(2)?;
        let key = access::charged_key(self.context.budget, key)?;
        if map.contains_key(&key) {
            return Err(EvaluationError::failed("insert failed: key already exists"));
        }
        map.insert(key, value);
        Ok(())
    }

    fn fields(
        &mut self,
        fields: &[(Arc<str>, Item)],
    ) -> Result<BTreeMap<Arc<str>, Value>, EvaluationError> {
        self.context
            .budget
            .charge_allocation(fields.len() * ENTRY_BYTES)?;
        let mut values = BTreeMap::new();
        for (name, item) in fields {
            if let Some(value) = self.item(item)? {
                values.insert(name.clone(), value);
            }
        }
        Ok(values)
    }

    fn optional_map(&mut self, both: &[Ir; 2], flat: bool) -> Result<Value, EvaluationError> {
        let value = match self.eval(&both[0])? {
            Value::Optional(Some(value)) => (*value).clone(),
            Value::Optional(None) => return Ok(Value::Optional(None)),
            _ => return Err(EvaluationError::no_overload()),
        };
        self.stack.push(value);
        let result = self.eval(&both[1]);
        self.stack.pop();
        match result? {
            value @ Value::Optional(_) if flat => Ok(value),
            _ if flat => Err(EvaluationError::no_overload()),
            value => Ok(Value::some(value)),
        }
    }
}

fn patch(fields: &BTreeMap<Arc<str>, Value>) -> Result<Value, EvaluationError> {
    let text = |name: &str| match fields.get(name) {
        None => Ok("".into()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(EvaluationError::failed(format!(
            "unexpected type {} for JSONPatchType '{name}' field",
            other.type_name()
        ))),
    };
    let value = fields.get("value").cloned();
    Ok(Value::Patch(Arc::new(Patch {
        op: text("op")?,
        path: text("path")?,
        from: text("from")?,
        value,
    })))
}
