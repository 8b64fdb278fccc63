//! Checks the target of a policy, which has one of three forms, and the roles of a disaggregated
//! target.

use super::metric_names;
use crate::{FieldError, error::Errors, field_ref::FieldRef, reference};

const HOMOGENEOUS: &str = "homogeneousTarget";
const HETEROGENEOUS: &str = "heterogeneousTarget";
const DISAGGREGATED: &str = "disaggregatedTarget";

/// A role of a disaggregated target.
struct Role<'a> {
    at: FieldRef<'a>,
    name: &'a str,
    min: i64,
    max: i64,
}

/// Checks the target. `metrics` are the names of the policy's metrics. A policy of the former form
/// may have no target.
pub(super) fn review(spec: &FieldRef<'_>, metrics: &[&str], former: bool, errors: &mut Errors) {
    let forms = [HOMOGENEOUS, HETEROGENEOUS, DISAGGREGATED];
    let given = forms.map(|form| spec.field(form).object(errors));
    let count = given.iter().filter(|t| t.is_present()).count();
    let [homogeneous, heterogeneous, disaggregated] = given;
    if count == 0 && former {
        return;
    }
    if count != 1 {
        let detail =
            format!("set exactly one of {HOMOGENEOUS}, {HETEROGENEOUS} and {DISAGGREGATED}");
        errors.push(FieldError::invalid(&spec.path, &count.into(), detail));
        return;
    }
    if disaggregated.is_present() {
        let reference = disaggregated.field("targetRef").object(errors);
        reference::review(&reference, "ModelServing", errors);
        return roles(&disaggregated, metrics, errors);
    }
    let params = heterogeneous.field("params").objects(errors);
    for at in params
        .iter()
        .chain(homogeneous.is_present().then_some(&homogeneous))
    {
        let target = at.field("target").object(errors);
        let reference = target.field("targetRef").object(errors);
        reference::review(&reference, "ModelServing", errors);
    }
    if metrics.is_empty() {
        let path = spec.child_path("metrics");
        errors.push(FieldError::required(&path, "set at least one metric"));
    }
}

fn roles(target: &FieldRef<'_>, inherited: &[&str], errors: &mut Errors) {
    let at = target.field("roles");
    let entries = at.entries(errors);
    let mut roles = Vec::new();
    for (name, at) in entries {
        if name.is_empty() {
            let detail = "the name of a role must not be empty";
            let path = target.child_path("roles");
            errors.push(FieldError::invalid(&path, &name.into(), detail));
            continue;
        }
        let (min, max) = (
            at.field("minReplicas").int(errors),
            at.field("maxReplicas").int(errors),
        );
        let role = Role { at, name, min, max };
        role.review(inherited, errors);
        roles.push(role);
    }
    let ratio = target.field("ratioConstraint").object(errors);
    if ratio.is_present() {
        ratio_constraint(&ratio, &roles, errors);
    }
}

impl Role<'_> {
    fn review(&self, inherited: &[&str], errors: &mut Errors) {
        let Self { at, min, max, .. } = self;
        if min > max {
            let detail = format!("must not be above maxReplicas, which is {max}");
            let path = at.child_path("minReplicas");
            errors.push(FieldError::invalid(&path, &(*min).into(), detail));
        }
        let own = metric_names(&at.field("metrics").objects(errors), errors);
        let is_fixed = *max > 0 && min == max;
        if is_fixed {
            return;
        }
        let metrics = if own.is_empty() { inherited } else { &own };
        if metrics.is_empty() {
            let detail = "a role that scales needs metrics, its own or those of spec.metrics";
            errors.push(FieldError::required(&at.child_path("metrics"), detail));
            return;
        }
        let sources = at.field("metricSources").entries(errors);
        if sources.is_empty() {
            let detail = "a role that scales needs a source of its metrics";
            errors.push(FieldError::required(
                &at.child_path("metricSources"),
                detail,
            ));
        }
        for (name, source) in sources.iter().filter(|(name, _)| !metrics.contains(name)) {
            let detail = format!(
                "the role has no metric of this name; it has {}",
                metrics.join(", ")
            );
            errors.push(FieldError::invalid(&source.path, &(*name).into(), detail));
        }
    }
}

/// Checks the bounds of the ratio of two roles' replicas.
fn ratio_constraint(at: &FieldRef<'_>, roles: &[Role<'_>], errors: &mut Errors) {
    let mut role = |field: &str| {
        let at = at.field(field);
        let name = at.text(errors).unwrap_or_default();
        let role = roles.iter().find(|role| role.name == name);
        if role.is_none() {
            let detail = "there is no role of this name";
            errors.push(FieldError::invalid(&at.path, &name.into(), detail));
        }
        (name, role)
    };
    let (above, below) = (role("numeratorRole"), role("denominatorRole"));
    if above.0 == below.0 {
        let path = at.child_path("denominatorRole");
        let detail = "must differ from numeratorRole";
        errors.push(FieldError::invalid(&path, &below.0.into(), detail));
    }
    let mut ratio = |field: &str| {
        let at = at.field(field);
        let milli = at.quantity_milli();
        if milli.is_none() {
            let detail = "must be a quantity of at least 0, such as 0.5";
            at.invalid(detail, errors);
        }
        milli
    };
    let (Some(min), Some(max)) = (ratio("minRatio"), ratio("maxRatio")) else {
        return;
    };
    if min > max {
        let at = at.field("minRatio");
        let detail = "must not be above maxRatio";
        at.invalid(detail, errors);
        return;
    }
    let detail = match (above.1, below.1) {
        _ if max <= 0 => "maxRatio must be above 0",
        (Some(above), Some(below)) => match unachievable(above, below, [min, max]) {
            Some(detail) => detail,
            None => return,
        },
        _ => return,
    };
    at.invalid(detail, errors);
}

/// Returns the reason why no numbers of replicas of the two roles have a ratio between `min` and
/// `max`, in thousandths; `None` if there are such numbers.
fn unachievable(above: &Role<'_>, below: &Role<'_>, [min, max]: [i64; 2]) -> Option<&'static str> {
    let (lowest, highest) = (i128::from(above.min) * 1000, i128::from(above.max) * 1000);
    let times = |milli: i64, replicas: i64| i128::from(milli) * i128::from(replicas);
    if (above.min == 0) != (below.min == 0) {
        Some("both roles must be able to scale to zero, or neither")
    } else if below.max > 0 && lowest > times(max, below.max) {
        Some(
            "maxRatio is below the ratio of the roles' replicas at any time: numerator's minReplicas by denominator's maxReplicas",
        )
    } else if below.min > 0 && highest < times(min, below.min) {
        Some(
            "minRatio is above the ratio of the roles' replicas at any time: numerator's maxReplicas by denominator's minReplicas",
        )
    } else {
        None
    }
}
