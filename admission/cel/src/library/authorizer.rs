//! The functions of `authorizer`, which build an access check, perform it and read its decision.

use std::sync::Arc;

use super::declaration::{CallContext, Module, Overload};
use crate::error::EvaluationError;
use crate::value::Value;
use crate::value::authorizer::{AccessCheck, ResourceCheck, Subject};
use crate::value::named_format::subdomain;

/// The cost units of an access check, as in Kubernetes.
const CHECK_UNITS: u64 = 350_000;

pub(super) const MODULE: Module = (
    "Authorizer.path(string): PathCheck; Authorizer.group(string): GroupCheck
    Authorizer.serviceAccount(string, string): Authorizer
    GroupCheck.resource(string): ResourceCheck
    ResourceCheck.subresource|namespace|name|fieldSelector|labelSelector(string): ResourceCheck
    PathCheck.check(string): Decision; ResourceCheck.check(string): Decision
    Decision.allowed|errored(): bool; Decision.reason|error(): string",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    Ok(match (function.name, arguments) {
        ("path", [Value::Authorizer(_), Value::String(path)]) if path.trim().is_empty() => {
            return Err(EvaluationError::failed("path must not be empty"));
        }
        ("path", [Value::Authorizer(subject), Value::String(path)]) => {
            access_check(AccessCheck::Path {
                subject: subject.clone(),
                path: path.clone(),
            })
        }
        ("group", [Value::Authorizer(subject), Value::String(group)]) => {
            access_check(AccessCheck::Group {
                subject: subject.clone(),
                group: group.clone(),
            })
        }
        (
            "serviceAccount",
            [
                Value::Authorizer(_),
                Value::String(namespace),
                Value::String(name),
            ],
        ) => {
            if !subdomain(name).is_empty() {
                return Err(EvaluationError::failed("Invalid service account name"));
            }
            if namespace.contains('.') || namespace.len() > 63 || !subdomain(namespace).is_empty() {
                return Err(EvaluationError::failed("Invalid service account namespace"));
            }
            Value::Authorizer(Arc::new(Subject::ServiceAccount {
                namespace: namespace.clone(),
                name: name.clone(),
            }))
        }
        (part, [Value::AccessCheck(check), Value::String(text)]) => match (part, &**check) {
            ("check", AccessCheck::Path { .. } | AccessCheck::Resource(_)) => {
                context.budget.charge(CHECK_UNITS)?;
                let decision = context.resolver.authorize(check, text)?;
                context.budget.charge_allocation(
                    decision.reason.len() + decision.error.as_ref().map_or(0, String::len),
                )?;
                Value::Decision(Arc::new(decision))
            }
            ("resource", AccessCheck::Group { subject, group }) => {
                if text.trim().is_empty() {
                    return Err(EvaluationError::failed("resource must not be empty"));
                }
                let empty: Arc<str> = "".into();
                access_check(AccessCheck::Resource(ResourceCheck {
                    subject: subject.clone(),
                    group: group.clone(),
                    resource: text.clone(),
                    subresource: empty.clone(),
                    namespace: empty.clone(),
                    name: empty.clone(),
                    field_selector: empty.clone(),
                    label_selector: empty,
                }))
            }
            (part, AccessCheck::Resource(check)) => {
                let mut check = check.clone();
                let field = match part {
                    "subresource" => &mut check.subresource,
                    "namespace" => &mut check.namespace,
                    "name" => &mut check.name,
                    "fieldSelector" => &mut check.field_selector,
                    "labelSelector" => &mut check.label_selector,
                    _ => return Err(EvaluationError::no_overload()),
                };
                *field = text.clone();
                access_check(AccessCheck::Resource(check))
            }
            _ => return Err(EvaluationError::no_overload()),
        },
        ("allowed", [Value::Decision(decision)]) => Value::Bool(decision.allowed),
        ("errored", [Value::Decision(decision)]) => Value::Bool(decision.error.is_some()),
        ("reason", [Value::Decision(decision)]) => Value::string(decision.reason.as_str()),
        ("error", [Value::Decision(decision)]) => {
            Value::string(decision.error.as_deref().unwrap_or_default())
        }
        _ => return Err(EvaluationError::no_overload()),
    })
}

fn access_check(check: AccessCheck) -> Value {
    Value::AccessCheck(Arc::new(check))
}
