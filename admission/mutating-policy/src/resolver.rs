//! What the names in expressions mean: each worked out when it is first used,
//! and kept as long as it stays the same.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::cluster::ClusterView;
use crate::request::Request;
use crate::working_copy::{JsonObject, sync, sync_keys};
use tautline_cel::{
    AccessCheck, Budget, Decision, EvaluationError, Key, Map, Program, Resolver, ResourceCheck,
    Subject, Value,
};

/// An object as JSON, and as a value of expressions once one asks.
pub(crate) struct LazyValue {
    pub json: Arc<Json>,
    value: OnceCell<Value>,
}

impl LazyValue {
    pub fn new(json: Arc<Json>) -> Self {
        let value = OnceCell::new();
        Self { json, value }
    }

    /// The object has become `json`: what stayed the same is not worked out again.
    pub fn update(&mut self, json: &Json) {
        let mine = Arc::make_mut(&mut self.json);
        match self.value.get() {
            None => sync(mine, json),
            Some(value) => {
                if let Some(value) = update_value(mine, json, value) {
                    self.value = value.into();
                }
            }
        }
    }

    fn value(&self) -> Value {
        self.value.get_or_init(|| (&*self.json).into()).clone()
    }
}

/// Makes `old` equal to `new`, and gives the value of that, which shares with the
/// value of `old` what is equal; none if all is. Each part is looked at once.
fn update_value(old: &mut Json, new: &Json, value: &Value) -> Option<Value> {
    match (old, new, value) {
        (Json::Object(old), Json::Object(new), Value::Map(values)) => {
            if !old.keys().eq(new.keys()) {
                return Some(update_fields(old, new, values));
            }
            let mut renewed: Option<Map> = None;
            let all = old.values_mut().zip(new.values()).zip(values.iter());
            for ((old, new), (key, value)) in all {
                if let Some(value) = update_value(old, new, value) {
                    let renewed = renewed.get_or_insert_with(|| Map::clone(values));
                    renewed.insert(key.clone(), value);
                }
            }
            renewed.map(Value::map)
        }
        (Json::Array(old), Json::Array(new), Value::List(values)) => {
            let mut renewed: Option<Vec<Value>> = None;
            if old.len() > new.len() {
                old.truncate(new.len());
                renewed = Some(values.iter().take(new.len()).cloned().collect());
            }
            for (i, (old, new)) in old.iter_mut().zip(new).enumerate() {
                let value = values
                    .get(i)
                    .and_then(|value| update_value(old, new, value));
                if let Some(value) = value {
                    renewed.get_or_insert_with(|| Vec::clone(values))[i] = value;
                }
            }
            for new in &new[old.len()..] {
                let renewed = renewed.get_or_insert_with(|| Vec::clone(values));
                renewed.push(new.into());
                old.push(new.clone());
            }
            renewed.map(Value::list)
        }
        (old, new, _) => (old != new).then(|| {
            old.clone_from(new);
            new.into()
        }),
    }
}

/// The same for objects that have not the same fields.
fn update_fields(old: &mut JsonObject, new: &JsonObject, values: &Map) -> Value {
    // All are in the order of their names.
    let mut olds = old.iter_mut().zip(values.iter()).peekable();
    let entries = new.iter().map(|(name, new)| {
        while olds.next_if(|((old, _), _)| *old < name).is_some() {}
        match olds.next_if(|((old, _), _)| *old == name) {
            Some(((_, old), (key, value))) => {
                let renewed = update_value(old, new, value);
                (key.clone(), renewed.unwrap_or_else(|| value.clone()))
            }
            None => (Key::String(name.as_str().into()), new.into()),
        }
    });
    let renewed = Value::map(entries.collect());
    sync_keys(old, new);
    renewed
}

/// What stays the same during a request.
pub(crate) struct RequestContext<'a> {
    pub request: &'a Request,
    pub cluster: &'a dyn ClusterView,
    /// The Namespace; null for what lies in none.
    pub namespace: LazyValue,
    old: LazyValue,
    value_of_request: OnceCell<Value>,
}

impl<'a> RequestContext<'a> {
    pub fn new(request: &'a Request, world: &'a dyn ClusterView) -> Self {
        let namespace = if request.namespace.is_empty() || request.is_namespace() {
            None
        } else {
            world.namespace(&request.namespace)
        };
        Self {
            request,
            cluster: world,
            namespace: LazyValue::new(namespace.unwrap_or_default()),
            old: LazyValue::new(request.old_object.clone()),
            value_of_request: OnceCell::new(),
        }
    }

    /// Whether the request lies in a namespace that is not there.
    pub fn namespace_missing(&self) -> bool {
        let named = !self.request.namespace.is_empty() && !self.request.is_namespace();
        named && self.namespace.json.is_null()
    }

    fn request_value(&self) -> Value {
        let describe = || (&self.request.to_json()).into();
        self.value_of_request.get_or_init(describe).clone()
    }
}

/// A variable of a policy.
pub(crate) struct Variable {
    pub name: String,
    pub program: Program,
}

/// The names of one evaluation: of all conditions of an invocation, or of one
/// of its mutations. Variables are worked out at most once in it.
pub(crate) struct PolicyResolver<'a> {
    pub context: &'a RequestContext<'a>,
    pub object: &'a LazyValue,
    pub params: Option<&'a LazyValue>,
    pub variables: &'a [Variable],
    /// Conditions do not see the Namespace.
    pub namespace: bool,
    cache: RefCell<Vec<Option<Result<Value, EvaluationError>>>>,
}

impl<'a> PolicyResolver<'a> {
    pub fn new(
        around: &'a RequestContext<'a>,
        object: &'a LazyValue,
        params: Option<&'a LazyValue>,
        variables: &'a [Variable],
        namespace: bool,
    ) -> Self {
        Self {
            context: around,
            object,
            params,
            variables,
            namespace,
            cache: RefCell::new(vec![None; variables.len()]),
        }
    }

    fn variable(&self, name: &str, budget: &mut Budget) -> Option<Result<Value, EvaluationError>> {
        let i = self.variables.iter().position(|v| v.name == name)?;
        if let Some(known) = &self.cache.borrow()[i] {
            return Some(known.clone());
        }
        let variable = &self.variables[i];
        let value = variable
            .program
            .evaluate(self, budget)
            .map_err(|e| match e {
                EvaluationError::Failed(why) => EvaluationError::Failed(format!(
                    "composited variable {name:?} fails to evaluate: {why}"
                )),
                exhausted => exhausted,
            });
        self.cache.borrow_mut()[i] = Some(value.clone());
        Some(value)
    }

    /// The variables that were used, with their values as JSON.
    pub fn used_variables(&self) -> Vec<(String, Result<Json, String>)> {
        let memo = self.cache.borrow();
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
fn request_resource_check(request: &Request) -> AccessCheck {
    let resource = request
        .request_resource
        .as_ref()
        .unwrap_or(&request.resource);
    AccessCheck::Resource(ResourceCheck {
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

impl Resolver for PolicyResolver<'_> {
    fn resolve(&self, name: &str, budget: &mut Budget) -> Option<Result<Value, EvaluationError>> {
        if let Some(variable) = name.strip_prefix("variables.") {
            return self.variable(variable, budget);
        }
        Some(Ok(match name {
            "object" => self.object.value(),
            "oldObject" => self.context.old.value(),
            "request" => self.context.request_value(),
            "params" => self.params.map_or(Value::Null, LazyValue::value),
            "namespaceObject" if self.namespace => self.context.namespace.value(),
            "namespaceObject" => Value::Null,
            "authorizer" => Value::Authorizer(Arc::new(Subject::Requester)),
            "authorizer.requestResource" => {
                Value::AccessCheck(Arc::new(request_resource_check(self.context.request)))
            }
            _ => return None,
        }))
    }

    fn authorize(&self, check: &AccessCheck, verb: &str) -> Result<Decision, EvaluationError> {
        let around = self.context;
        around.cluster.authorize(around.request, check, verb)
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
            let mut view = LazyValue::new(Arc::new(json!({"a": old, "b": new})));
            for json in [json!({"a": new, "b": new}), json!({"a": new, "b": old})] {
                view.value();
                view.update(&json);
                proptest::prop_assert_eq!(&*view.json, &json);
                let expected: Value = (&json).into();
                proptest::prop_assert_eq!(format!("{:?}", view.value()), format!("{expected:?}"));
            }
        }
    }
}
