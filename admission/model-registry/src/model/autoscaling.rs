//! Checks the autoscaling of a model: by a policy of the model, by policies of its backends, or
//! off.

use super::{Backend, has_policy};
use crate::{FieldError, error::Errors, field_ref::FieldRef};

const COST: &str = "cost";
const GRACE: &str = "scaleToZeroGracePeriod";
const RATE: &str = "costExpansionRatePercent";

/// Checks a model of the list form.
pub(super) fn review(spec: &FieldRef<'_>, backends: &[Backend<'_>], errors: &mut Errors) {
    for at in backends.iter().map(|b| &b.at).chain([spec]) {
        for policy in ["autoscalingPolicy", "autoscalingPolicyRef"] {
            at.field(policy).object(errors);
        }
    }
    let rate = spec.field(RATE);
    rate.int(errors);
    let of_a_backend = backends.iter().any(|b| has_policy(&b.at));
    match (has_policy(spec), of_a_backend) {
        (false, _) => no_model_policy(&rate, backends, of_a_backend, errors),
        (true, false) => model_policy(&rate, backends, errors),
        (true, true) => errors.push(FieldError::forbidden(
            "spec.autoscalingPolicyRef",
            "the model and a backend both have an autoscaling policy; keep it on one level",
        )),
    }
}

/// Checks a model of the ranged form. Its backend cannot have a policy, only the model can.
pub(super) fn review_single(spec: &FieldRef<'_>, backends: &[Backend<'_>], errors: &mut Errors) {
    let policy = spec.field("autoscalingPolicy").object(errors);
    for backend in backends {
        if policy.is_present() {
            not_negative(backend, errors);
        } else {
            equal_bounds(backend, errors);
        }
    }
}

fn equal_bounds(backend: &Backend<'_>, errors: &mut Errors) {
    if backend.min != backend.max {
        let bounds = format!("minReplicas={}, maxReplicas={}", backend.min, backend.max);
        errors.push(FieldError::invalid(
            &backend.at.path,
            &bounds.into(),
            "minReplicas and maxReplicas must be equal where there is no autoscaling policy",
        ));
    }
}

fn not_negative(backend: &Backend<'_>, errors: &mut Errors) {
    if backend.min < 0 {
        errors.push(FieldError::invalid(
            &backend.at.child_path("minReplicas"),
            &backend.min.into(),
            "must be at least 0",
        ));
    }
}

fn no_model_policy(
    rate: &FieldRef<'_>,
    backends: &[Backend<'_>],
    of_a_backend: bool,
    errors: &mut Errors,
) {
    let forbid = |path: &str, field: &str| {
        let detail = format!("{field} needs an autoscaling policy of the model; leave it out");
        FieldError::forbidden(path, detail)
    };
    for backend in backends {
        if backend.at.field("scalingCost").int(errors) != 0 {
            errors.push(forbid(&backend.at.child_path(COST), "scalingCost"));
        }
        if backend.at.field(GRACE).is_present() {
            errors.push(forbid(&backend.at.child_path(GRACE), GRACE));
        }
    }
    if rate.is_present() {
        errors.push(forbid(&rate.path, RATE));
    }
    for backend in backends.iter().filter(|b| b.min < 1 && has_policy(&b.at)) {
        errors.push(FieldError::invalid(
            &backend.at.child_path("minReplicas"),
            &backend.min.into(),
            "must be at least 1, as the backend has an autoscaling policy of its own",
        ));
    }
    if !of_a_backend {
        backends.iter().for_each(|b| equal_bounds(b, errors));
    }
}

fn model_policy(rate: &FieldRef<'_>, backends: &[Backend<'_>], errors: &mut Errors) {
    let require = |path: &str, field: &str| {
        let detail = format!("set {field}, as the model has an autoscaling policy");
        FieldError::required(path, detail)
    };
    for backend in backends {
        not_negative(backend, errors);
        if backend.at.field("scalingCost").int(errors) == 0 {
            errors.push(require(&backend.at.child_path(COST), "scalingCost"));
        }
        if !backend.at.field(GRACE).is_present() {
            errors.push(require(&backend.at.child_path(GRACE), GRACE));
        }
    }
    let sum = backends.iter().fold(0i64, |s, b| s.saturating_add(b.min));
    if sum < 1 {
        let detail = "minReplicas of all backends must be at least 1 together";
        errors.push(FieldError::invalid("spec.backends", &sum.into(), detail));
    }
    if !rate.is_present() {
        errors.push(require(&rate.path, RATE));
    }
}
