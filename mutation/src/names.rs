//! What the names in expressions mean: each worked out when it is first used,
//! and kept as long as it stays the same.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::cel::{Budget, Check, Decision, Names, Program, RunError, Value};
use crate::request::Request;
use crate::world::World;

/// An object as JSON, and as a value of expressions once one asks.
pub(crate) struct View {
    pub json: Arc<Json>,
    value: OnceCell<Value>,
}

impl View {
    pub fn new(json: Arc<Json>) -> Self {
        let value = OnceCell::new();
        Self { json, value }
    }

    fn value(&self) -> Value {
        self.value.get_or_init(|| (&*self.json).into()).clone()
    }
}

/// What stays the same during a request.
pub(crate) struct Around<'a> {
    pub request: &'a Request,
    pub world: &'a dyn World,
    /// The Namespace; null for what lies in none.
    pub namespace: View,
    old: View,
    described: OnceCell<Value>,
}

impl<'a> Around<'a> {
    pub fn new(request: &'a Request, world: &'a dyn World) -> Self {
        let namespace = if request.namespace.is_empty() || request.is_namespace() {
            None
        } else {
            world.namespace(&request.namespace)
        };
        Self {
            request,
            world,
            namespace: View::new(namespace.unwrap_or_default()),
            old: View::new(request.old_object.clone()),
            described: OnceCell::new(),
        }
    }

    /// Whether the request lies in a namespace that is not there.
    pub fn lacks_namespace(&self) -> bool {
        let named = !self.request.namespace.is_empty() && !self.request.is_namespace();
        named && self.namespace.json.is_null()
    }

    fn described(&self) -> Value {
        let describe = || (&self.request.to_json()).into();
        self.described.get_or_init(describe).clone()
    }
}

/// A variable of a policy.
pub(crate) struct Variable {
    pub name: String,
    pub program: Program,
}

/// The names of one evaluation: of all conditions of an invocation, or of one
/// of its mutations. Variables are worked out at most once in it.
pub(crate) struct Scope<'a> {
    pub around: &'a Around<'a>,
    pub object: &'a View,
    pub params: Option<&'a View>,
    pub variables: &'a [Variable],
    /// Conditions do not see the Namespace.
    pub namespace: bool,
    memo: RefCell<Vec<Option<Result<Value, RunError>>>>,
}

impl<'a> Scope<'a> {
    pub fn new(
        around: &'a Around<'a>,
        object: &'a View,
        params: Option<&'a View>,
        variables: &'a [Variable],
        namespace: bool,
    ) -> Self {
        Self {
            around,
            object,
            params,
            variables,
            namespace,
            memo: RefCell::new(vec![None; variables.len()]),
        }
    }

    fn variable(&self, name: &str, budget: &mut Budget) -> Option<Result<Value, RunError>> {
        let i = self.variables.iter().position(|v| v.name == name)?;
        if let Some(known) = &self.memo.borrow()[i] {
            return Some(known.clone());
        }
        let variable = &self.variables[i];
        let value = variable.program.run(self, budget).map_err(|e| match e {
            RunError::Failed(why) => RunError::Failed(format!(
                "composited variable {name:?} fails to evaluate: {why}"
            )),
            exhausted => exhausted,
        });
        self.memo.borrow_mut()[i] = Some(value.clone());
        Some(value)
    }

    /// The variables that were used, with their values as JSON.
    pub fn used(&self) -> Vec<(String, Result<Json, String>)> {
        let memo = self.memo.borrow();
        let used = self.variables.iter().zip(memo.iter());
        used.filter_map(|(variable, value)| {
            let json = value.as_ref()?.as_ref().map_err(ToString::to_string);
            let json = json.and_then(|v| v.to_json().map_err(|e| e.to_string()));
            Some((variable.name.clone(), json))
        })
        .collect()
    }
}

impl Names for Scope<'_> {
    fn get(&self, name: &str, budget: &mut Budget) -> Option<Result<Value, RunError>> {
        if let Some(variable) = name.strip_prefix("variables.") {
            return self.variable(variable, budget);
        }
        Some(Ok(match name {
            "object" => self.object.value(),
            "oldObject" => self.around.old.value(),
            "request" => self.around.described(),
            "params" => self.params.map_or(Value::Null, View::value),
            "namespaceObject" if self.namespace => self.around.namespace.value(),
            "namespaceObject" => Value::Null,
            _ => return None,
        }))
    }

    fn authorize(&self, check: &Check, verb: &str) -> Result<Decision, RunError> {
        let around = self.around;
        around.world.authorize(around.request, check, verb)
    }
}
