//! What the names in expressions mean: each worked out when it is first used,
//! and kept as long as it stays the same.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::cel::{
    Budget, Check, Decision, Key, Names, Program, ResourceCheck, RunError, Subject, Value,
};
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

    /// The object after a change: what stayed the same is not worked out again.
    pub fn changed(&self, json: Arc<Json>) -> Self {
        let value = OnceCell::new();
        if let Some(old) = self.value.get() {
            _ = value.set(renewed(&json, &self.json, old));
        }
        Self { json, value }
    }

    fn value(&self) -> Value {
        self.value.get_or_init(|| (&*self.json).into()).clone()
    }
}

/// The value of `new`, which shares with the value of `old` what is equal.
fn renewed(new: &Json, old: &Json, value: &Value) -> Value {
    if new == old {
        return value.clone();
    }
    match (new, old, value) {
        (Json::Object(fields), Json::Object(before), Value::Map(values)) => {
            // All are in the order of their names.
            let mut olds = before.iter().zip(values.iter()).peekable();
            let entries = fields.iter().map(|(name, field)| {
                while olds.next_if(|((old, _), _)| *old < name).is_some() {}
                match olds.next_if(|((old, _), _)| *old == name) {
                    Some(((_, before), (key @ Key::String(text), value))) if **text == **name => {
                        (key.clone(), renewed(field, before, value))
                    }
                    _ => (Key::String(name.as_str().into()), field.into()),
                }
            });
            Value::map(entries.collect())
        }
        (Json::Array(items), Json::Array(before), Value::List(values)) => {
            let entries =
                items
                    .iter()
                    .enumerate()
                    .map(|(i, item)| match (before.get(i), values.get(i)) {
                        (Some(before), Some(value)) => renewed(item, before, value),
                        _ => item.into(),
                    });
            Value::list(entries.collect())
        }
        _ => new.into(),
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

/// What the request itself asks for, as a question to the authorizer.
fn asked(request: &Request) -> Check {
    let resource = request
        .request_resource
        .as_ref()
        .unwrap_or(&request.resource);
    Check::Resource(ResourceCheck {
        subject: Arc::new(Subject::Requester),
        group: resource.group.as_str().into(),
        resource: resource.resource.as_str().into(),
        subresource: request.sub_resource.as_str().into(),
        namespace: request.namespace.as_str().into(),
        name: request.name.as_str().into(),
        field_selector: "".into(),
        label_selector: "".into(),
    })
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
            "authorizer" => Value::Authorizer(Arc::new(Subject::Requester)),
            "authorizer.requestResource" => Value::Check(Arc::new(asked(self.around.request))),
            _ => return None,
        }))
    }

    fn authorize(&self, check: &Check, verb: &str) -> Result<Decision, RunError> {
        let around = self.around;
        around.world.authorize(around.request, check, verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn json() -> impl proptest::strategy::Strategy<Value = Json> {
        use proptest::prelude::*;
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            (0..3).prop_map(Json::from),
            "[ab]?".prop_map(Json::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Json::from),
                proptest::collection::btree_map("[abc]", inner, 0..3)
                    .prop_map(|m| Json::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest::proptest! {
        #[test]
        fn a_changed_object_is_worth_what_a_new_one_is(old in json(), new in json()) {
            let view = View::new(Arc::new(json!({"a": old, "b": new})));
            view.value();
            let after = view.changed(Arc::new(json!({"a": new, "b": new})));
            let expected: Value = (&*after.json).into();
            proptest::prop_assert_eq!(format!("{:?}", after.value()), format!("{expected:?}"));
        }
    }
}
