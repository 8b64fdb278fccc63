//! `authorizer`: a question is put together member by member; `check` asks it.

use std::sync::Arc;

use super::super::authorizer::{Check, ResourceCheck, Subject};
use super::super::declaration::{Row, Scope};
use super::super::error::RunError;
use super::super::value::Value;
use super::named::subdomain;

pub(super) const ROWS: &[Row] = &[
    (
        &["Authorizer.path(string): PathCheck"],
        |_, arguments| match arguments {
            [Value::Authorizer(_), Value::String(path)] if path.trim().is_empty() => {
                Err(RunError::failed("path must not be empty"))
            }
            [Value::Authorizer(subject), Value::String(path)] => {
                Ok(Value::Check(Arc::new(Check::Path {
                    subject: subject.clone(),
                    path: path.clone(),
                })))
            }
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["Authorizer.group(string): GroupCheck"],
        |_, arguments| match arguments {
            [Value::Authorizer(subject), Value::String(group)] => {
                Ok(Value::Check(Arc::new(Check::Group {
                    subject: subject.clone(),
                    group: group.clone(),
                })))
            }
            _ => Err(RunError::no_overload()),
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
                    return Err(RunError::failed("Invalid service account name"));
                }
                if namespace.contains('.')
                    || namespace.len() > 63
                    || !subdomain(namespace).is_empty()
                {
                    return Err(RunError::failed("Invalid service account namespace"));
                }
                let subject = Subject::ServiceAccount {
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                Ok(Value::Authorizer(Arc::new(subject)))
            }
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["GroupCheck.resource(string): ResourceCheck"],
        |_, arguments| {
            let [Value::Check(check), Value::String(resource)] = arguments else {
                return Err(RunError::no_overload());
            };
            let Check::Group { subject, group } = &**check else {
                return Err(RunError::no_overload());
            };
            if resource.trim().is_empty() {
                return Err(RunError::failed("resource must not be empty"));
            }
            let empty: Arc<str> = "".into();
            Ok(Value::Check(Arc::new(Check::Resource(ResourceCheck {
                subject: subject.clone(),
                group: group.clone(),
                resource: resource.clone(),
                subresource: empty.clone(),
                namespace: empty.clone(),
                name: empty.clone(),
                field_selector: empty.clone(),
                label_selector: empty,
            }))))
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
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["Decision.reason(): string"],
        |_, arguments| match arguments {
            [Value::Decision(decision)] => Ok(Value::string(decision.reason.as_str())),
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["Decision.errored(): bool"],
        |_, arguments| match arguments {
            [Value::Decision(decision)] => Ok(Value::Bool(decision.error.is_some())),
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["Decision.error(): string"],
        |_, arguments| match arguments {
            [Value::Decision(decision)] => {
                Ok(Value::string(decision.error.clone().unwrap_or_default()))
            }
            _ => Err(RunError::no_overload()),
        },
    ),
];

fn with(arguments: &[Value], set: fn(&mut ResourceCheck, Arc<str>)) -> Result<Value, RunError> {
    let [Value::Check(check), Value::String(text)] = arguments else {
        return Err(RunError::no_overload());
    };
    let Check::Resource(check) = &**check else {
        return Err(RunError::no_overload());
    };
    let mut check = check.clone();
    set(&mut check, text.clone());
    Ok(Value::Check(Arc::new(Check::Resource(check))))
}

/// Units of a question: Kubernetes counts as many.
const QUESTION_UNITS: u64 = 350_000;

fn check(scope: &mut Scope<'_>, arguments: &[Value]) -> Result<Value, RunError> {
    match arguments {
        [Value::Check(check), Value::String(verb)] if !matches!(&**check, Check::Group { .. }) => {
            scope.budget.charge(QUESTION_UNITS)?;
            let decision = scope.names.authorize(check, verb)?;
            scope.budget.charge_made(
                decision.reason.len() + decision.error.as_ref().map_or(0, String::len),
            )?;
            Ok(Value::Decision(Arc::new(decision)))
        }
        _ => Err(RunError::no_overload()),
    }
}
