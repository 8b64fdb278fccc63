//! `authorizer`: members build an access check; `check` makes it.

use std::sync::Arc;

use super::declaration::{CallContext, Function};
use crate::error::EvaluationError;
use crate::value::Value;
use crate::value::authorizer::{AccessCheck, ResourceCheck, Subject};
use crate::value::named_format::subdomain;

pub(super) const FUNCTIONS: &[Function] = &[
    (
        &["Authorizer.path(string): PathCheck"],
        |_, arguments| match arguments {
            [Value::Authorizer(_), Value::String(path)] if path.trim().is_empty() => {
                Err(EvaluationError::failed("path must not be empty"))
            }
            [Value::Authorizer(subject), Value::String(path)] => {
                Ok(Value::AccessCheck(Arc::new(AccessCheck::Path {
                    subject: subject.clone(),
                    path: path.clone(),
                })))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["Authorizer.group(string): GroupCheck"],
        |_, arguments| match arguments {
            [Value::Authorizer(subject), Value::String(group)] => {
                Ok(Value::AccessCheck(Arc::new(AccessCheck::Group {
                    subject: subject.clone(),
                    group: group.clone(),
                })))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["Authorizer.serviceAccount(string, string): Authorizer"],
        |_, arguments| match arguments {
            [
                Value::Authorizer(_),
                Value::String(namespace),
                Value::String(name),
            ] => {
                if !subdomain(name).is_empty() {
                    return Err(EvaluationError::failed("Invalid service account name"));
                }
                if namespace.contains('.')
                    || namespace.len() > 63
                    || !subdomain(namespace).is_empty()
                {
                    return Err(EvaluationError::failed("Invalid service account namespace"));
                }
                let subject = Subject::ServiceAccount {
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                Ok(Value::Authorizer(Arc::new(subject)))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["GroupCheck.resource(string): ResourceCheck"],
        |_, arguments| {
            let [Value::AccessCheck(check), Value::String(resource)] = arguments else {
                return Err(EvaluationError::no_overload());
            };
            let AccessCheck::Group { subject, group } = &**check else {
                return Err(EvaluationError::no_overload());
            };
            if resource.trim().is_empty() {
                return Err(EvaluationError::failed("resource must not be empty"));
            }
            let empty: Arc<str> = "".into();
            Ok(Value::AccessCheck(Arc::new(AccessCheck::Resource(
                ResourceCheck {
                    subject: subject.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    subresource: empty.clone(),
                    namespace: empty.clone(),
                    name: empty.clone(),
                    field_selector: empty.clone(),
                    label_selector: empty,
                },
            ))))
        },
    ),
    (
        &["ResourceCheck.subresource(string): ResourceCheck"],
        |_, arguments| with(arguments, |check, text| check.subresource = text),
    ),
    (
        &["ResourceCheck.namespace(string): ResourceCheck"],
        |_, arguments| with(arguments, |check, text| check.namespace = text),
    ),
    (
        &["ResourceCheck.name(string): ResourceCheck"],
        |_, arguments| with(arguments, |check, text| check.name = text),
    ),
    (
        &["ResourceCheck.fieldSelector(string): ResourceCheck"],
        |_, arguments| with(arguments, |check, text| check.field_selector = text),
    ),
    (
        &["ResourceCheck.labelSelector(string): ResourceCheck"],
        |_, arguments| with(arguments, |check, text| check.label_selector = text),
    ),
    (
        &[
            "PathCheck.check(string): Decision",
            "ResourceCheck.check(string): Decision",
        ],
        check,
    ),
    (
        &["Decision.allowed(): bool"],
        |_, arguments| match arguments {
            [Value::Decision(decision)] => Ok(Value::Bool(decision.allowed)),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["Decision.reason(): string"],
        |_, arguments| match arguments {
            [Value::Decision(decision)] => Ok(Value::string(decision.reason.as_str())),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["Decision.errored(): bool"],
        |_, arguments| match arguments {
            [Value::Decision(decision)] => Ok(Value::Bool(decision.error.is_some())),
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &["Decision.error(): string"],
        |_, arguments| match arguments {
            [Value::Decision(decision)] => {
                Ok(Value::string(decision.error.clone().unwrap_or_default()))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
];

fn with(
    arguments: &[Value],
    set: fn(&mut ResourceCheck, Arc<str>),
) -> Result<Value, EvaluationError> {
    let [Value::AccessCheck(check), Value::String(text)] = arguments else {
        return Err(EvaluationError::no_overload());
    };
    let AccessCheck::Resource(check) = &**check else {
        return Err(EvaluationError::no_overload());
    };
    let mut check = check.clone();
    set(&mut check, text.clone());
    Ok(Value::AccessCheck(Arc::new(AccessCheck::Resource(check))))
}

/// Cost of an access check, as in Kubernetes.
const CHECK_UNITS: u64 = 350_000;

fn check(context: &mut CallContext<'_>, arguments: &[Value]) -> Result<Value, EvaluationError> {
    match arguments {
        [Value::AccessCheck(check), Value::String(verb)]
            if !matches!(&**check, AccessCheck::Group { .. }) =>
        {
            context.budget.charge(CHECK_UNITS)?;
            let decision = context.resolver.authorize(check, verb)?;
            context.budget.charge_allocation(
                decision.reason.len() + decision.error.as_ref().map_or(0, String::len),
            )?;
            Ok(Value::Decision(Arc::new(decision)))
        }
        _ => Err(EvaluationError::no_overload()),
    }
}
