//! The functions of `authorizer`, which build an access check, perform it and read its decision.

use std::sync::Arc;

use super::declaration::{CallContext, Function};
use crate::error::EvaluationError;
use crate::value::Value;
use crate::value::authorizer::{AccessCheck, Decision, ResourceCheck, Subject};
use crate::value::named_format::subdomain;

/// Declares a member that sets a part of a resource check.
macro_rules! part {
    ($name:literal, $field:ident) => {
        (
            &[concat!("ResourceCheck.", $name, "(string): ResourceCheck")],
            |_, arguments| with(arguments, |check, text| check.$field = text),
        )
    };
}

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
    (&["Authorizer.group(string): GroupCheck"], |_, arguments| {
        bind!([Value::Authorizer(subject), Value::String(group)] = arguments);
        Ok(Value::AccessCheck(Arc::new(AccessCheck::Group {
            subject: subject.clone(),
            group: group.clone(),
        })))
    }),
    (
        &["Authorizer.serviceAccount(string, string): Authorizer"],
        |_, arguments| {
            bind!(
                [
                    Value::Authorizer(_),
                    Value::String(namespace),
                    Value::String(name)
                ] = arguments
            );
            if !subdomain(name).is_empty() {
                return Err(EvaluationError::failed("Invalid service account name"));
            }
            if namespace.contains('.') || namespace.len() > 63 || !subdomain(namespace).is_empty() {
                return Err(EvaluationError::failed("Invalid service account namespace"));
            }
            let subject = Subject::ServiceAccount {
                namespace: namespace.clone(),
                name: name.clone(),
            };
            Ok(Value::Authorizer(Arc::new(subject)))
        },
    ),
    (
        &["GroupCheck.resource(string): ResourceCheck"],
        |_, arguments| {
            bind!([Value::AccessCheck(check), Value::String(resource)] = arguments);
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
    part!("subresource", subresource),
    part!("namespace", namespace),
    part!("name", name),
    part!("fieldSelector", field_selector),
    part!("labelSelector", label_selector),
    (
        &[
            "PathCheck.check(string): Decision",
            "ResourceCheck.check(string): Decision",
        ],
        check,
    ),
    (&["Decision.allowed(): bool"], |_, arguments| {
        decided(arguments, |decision| Value::Bool(decision.allowed))
    }),
    (&["Decision.reason(): string"], |_, arguments| {
        decided(arguments, |decision| {
            Value::string(decision.reason.as_str())
        })
    }),
    (&["Decision.errored(): bool"], |_, arguments| {
        decided(arguments, |decision| Value::Bool(decision.error.is_some()))
    }),
    (&["Decision.error(): string"], |_, arguments| {
        decided(arguments, |decision| {
            Value::string(decision.error.clone().unwrap_or_default())
        })
    }),
];

fn decided(arguments: &[Value], part: fn(&Decision) -> Value) -> Result<Value, EvaluationError> {
    bind!([Value::Decision(decision)] = arguments);
    Ok(part(decision))
}

fn with(
    arguments: &[Value],
    set: fn(&mut ResourceCheck, Arc<str>),
) -> Result<Value, EvaluationError> {
    bind!([Value::AccessCheck(check), Value::String(text)] = arguments);
    let AccessCheck::Resource(check) = &**check else {
        return Err(EvaluationError::no_overload());
    };
    let mut check = check.clone();
    set(&mut check, text.clone());
    Ok(Value::AccessCheck(Arc::new(AccessCheck::Resource(check))))
}

/// The cost units of an access check, as in Kubernetes.
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
