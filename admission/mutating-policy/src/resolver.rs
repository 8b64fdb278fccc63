//! Resolves the names in expressions to values, which are evaluated at first use and cached.

use std::cell::RefCell;
use std::sync::Arc;

use serde_json::Value as Json;
use tautline_cel::{
    AccessCheck, Budget, Decision, EvaluationError, Program, Resolver, ResourceCheck, Subject,
    Value,
};

use crate::lazy_value::LazyValue;
use crate::request::Request;
use crate::request_context::RequestContext;

pub(crate) struct Variable {
    pub name: String,
    pub program: Program,
}

/// Resolves the names of an invocation's conditions, or of one of its mutations.
pub(crate) struct PolicyResolver<'a> {
    pub context: &'a RequestContext<'a>,
    pub object: &'a LazyValue,
    pub params: Option<&'a LazyValue>,
    pub variables: &'a [Variable],
    /// True if `namespaceObject` is set. It is null in conditions.
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

    /// Returns the variables that were evaluated, with their values as JSON.
    pub fn used_variables(&self) -> Vec<(String, Result<Json, EvaluationError>)> {
        let memo = self.cache.borrow();
        let used = self.variables.iter().zip(memo.iter());
        used.filter_map(|(variable, value)| {
            let json = value.clone()?.and_then(|value| value.to_json());
            Some((variable.name.clone(), json))
        })
        .collect()
    }
}

/// Returns the access check of the request itself, `authorizer.requestResource`.
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
            "oldObject" => self.context.old_object.value(),
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
