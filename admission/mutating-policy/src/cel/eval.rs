//! Working checked expressions out: every step is charged before it is done.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::declaration::Scope;
use super::error::RunError;
use super::ir::{Ir, Item, Mode, Work};
use super::value::{Key, Map, Object, Patch, Value};
use super::{access, loops};

/// One expression being worked out.
pub(super) struct Run<'a> {
    pub scope: Scope<'a>,
    /// Loop variables.
    pub stack: Vec<Value>,
}

/// Bytes a list or map of so many elements takes.
pub(super) const ELEMENT_BYTES: usize = size_of::<Value>() + 8;
/// Bytes of an entry of a map, its share of the tree included.
const ENTRY_BYTES: usize = size_of::<Key>() + ELEMENT_BYTES;

impl Run<'_> {
    /// The value of a part.
    pub(super) fn eval(&mut self, ir: &Ir) -> Result<Value, RunError> {
        self.scope.budget.charge(1)?;
        self.scope.budget.enter()?;
        let value = self.part(ir);
        self.scope.budget.leave();
        value
    }

    fn part(&mut self, ir: &Ir) -> Result<Value, RunError> {
        match ir {
            Ir::Constant(value) => Ok(value.clone()),
            Ir::Local(place) => self
                .stack
                .get(*place)
                .cloned()
                .ok_or_else(|| RunError::failed("a variable without a value")),
            Ir::Global(name) => match self.scope.names.get(name, self.scope.budget) {
                Some(found) => found,
                None => Err(RunError::failed(format!("no such attribute: {name}"))),
            },
            Ir::Select {
                operand,
                field,
                mode,
            } => {
                let operand = self.eval(operand)?;
                access::select(&operand, field, *mode)
            }
            Ir::Call { work, arguments } => self.call(work, arguments),
            Ir::Logic { any, terms } => self.logic(*any, terms),
            Ir::Choice(three) => match self.eval(&three[0])? {
                Value::Bool(true) => self.eval(&three[1]),
                Value::Bool(false) => self.eval(&three[2]),
                _ => Err(RunError::no_overload()),
            },
            Ir::Otherwise { both, unwrap } => match self.eval(&both[0])? {
                Value::Optional(None) => self.eval(&both[1]),
                Value::Optional(Some(value)) if *unwrap => Ok((*value).clone()),
                value @ Value::Optional(_) if !unwrap => Ok(value),
                // What is no optional is its own value, as on the server.
                value if *unwrap => Ok(value),
                _ => Err(RunError::no_overload()),
            },
            Ir::List(items) => self.list(items),
            Ir::Map(entries) => self.map(entries),
            Ir::Object {
                type_name,
                old_spelling,
                fields,
            } => {
                let fields = self.fields(fields)?;
                let object = Object {
                    type_name: type_name.clone(),
                    old_spelling: *old_spelling,
                    fields,
                };
                Ok(Value::Object(Arc::new(object)))
            }
            Ir::Patch(fields) => {
                let fields = self.fields(fields)?;
                patch(&fields)
            }
            Ir::Loop(looped) => loops::run(self, looped),
            Ir::OptionalMap { both, flat } => self.optional_map(both, *flat),
        }
    }

    fn call(&mut self, work: &Work, arguments: &[Ir]) -> Result<Value, RunError> {
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(self.eval(argument)?);
        }
        let native = match work {
            Work::One(native) => *native,
            Work::Of(overloads) => {
                let fitting = overloads.iter().find(|overload| {
                    overload
                        .parameters
                        .iter()
                        .zip(&values)
                        .all(|(of, value)| access::is_a(value, of))
                });
                fitting.ok_or_else(RunError::no_overload)?.native
            }
        };
        native(&mut self.scope, &values)
    }

    /// `&&` and `||`: a term that decides wins over one that errs.
    fn logic(&mut self, any: bool, terms: &[Ir]) -> Result<Value, RunError> {
        let mut error = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == any => return Ok(Value::Bool(any)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => error = error.or(Some(RunError::no_overload())),
                Err(stop) if stop.is_exhausted() => return Err(stop),
                Err(other) => error = error.or(Some(other)),
            }
        }
        error.map_or(Ok(Value::Bool(!any)), Err)
    }

    /// The value of a literal's element; none if it is left out.
    fn item(&mut self, item: &Item) -> Result<Option<Value>, RunError> {
        let value = self.eval(&item.ir)?;
        if !item.optional {
            return Ok(Some(value));
        }
        match value {
            Value::Optional(inner) => Ok(inner.map(|value| (*value).clone())),
            _ => Err(RunError::failed("expected an optional after '?'")),
        }
    }

    fn list(&mut self, items: &[Item]) -> Result<Value, RunError> {
        self.scope.budget.charge_made(items.len() * ELEMENT_BYTES)?;
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.extend(self.item(item)?);
        }
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &[(Ir, Item)]) -> Result<Value, RunError> {
        self.scope.budget.charge_made(entries.len() * ENTRY_BYTES)?;
        let mut map = Map::new();
        for (key, item) in entries {
            let key = self.eval(key)?;
            if let Some(value) = self.item(item)? {
                map.insert(access::charged_key(self.scope.budget, &key)?, value);
            }
        }
        Ok(Value::map(map))
    }

    /// Puts one more entry into a map that is being made.
    pub(super) fn insert(
        &mut self,
        map: &mut Map,
        key: &Value,
        value: Value,
    ) -> Result<(), RunError> {
        self.scope.budget.charge_made(ENTRY_BYTES)?;
        // Looked for, then put there.
        self.scope.budget.charge(2)?;
        let key = access::charged_key(self.scope.budget, key)?;
        if map.contains_key(&key) {
            return Err(RunError::failed("insert failed: key already exists"));
        }
        map.insert(key, value);
        Ok(())
    }

    fn fields(
        &mut self,
        fields: &[(Arc<str>, Item)],
    ) -> Result<BTreeMap<Arc<str>, Value>, RunError> {
        self.scope.budget.charge_made(fields.len() * ENTRY_BYTES)?;
        let mut values = BTreeMap::new();
        for (name, item) in fields {
            if let Some(value) = self.item(item)? {
                values.insert(name.clone(), value);
            }
        }
        Ok(values)
    }

    fn optional_map(&mut self, both: &[Ir; 2], flat: bool) -> Result<Value, RunError> {
        let value = match self.eval(&both[0])? {
            Value::Optional(Some(value)) => (*value).clone(),
            Value::Optional(None) => return Ok(Value::Optional(None)),
            _ => return Err(RunError::no_overload()),
        };
        self.stack.push(value);
        let result = self.eval(&both[1]);
        self.stack.pop();
        match result? {
            value @ Value::Optional(_) if flat => Ok(value),
            _ if flat => Err(RunError::no_overload()),
            value => Ok(Value::some(value)),
        }
    }
}

fn patch(fields: &BTreeMap<Arc<str>, Value>) -> Result<Value, RunError> {
    let text = |name: &str| match fields.get(name) {
        None => Ok("".into()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(RunError::failed(format!(
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

/// What `has`, `?.` and `.` find.
pub(super) fn selected(found: Option<Value>, field: &str, mode: Mode) -> Result<Value, RunError> {
    match mode {
        Mode::Test => Ok(Value::Bool(found.is_some())),
        Mode::Optional => Ok(found.map_or(Value::Optional(None), Value::some)),
        Mode::Plain => found.ok_or_else(|| RunError::failed(format!("no such key: {field}"))),
    }
}
