use serde_json::Value;

use crate::{FieldError, error::Errors, field_ref::FieldRef, reference};

/// The field of a binding to one target, up to Kthena v0.1 and from v0.2 on.
const ONE: [&str; 2] = ["scalingConfiguration", "homogeneousTarget"];
/// The field of a binding to several targets, up to Kthena v0.1 and from v0.2 on.
const SEVERAL: [&str; 2] = ["optimizerConfiguration", "heterogeneousTarget"];
/// The field in an error about both forms, by version as above. In some errors Kthena uses the
/// names of Go's fields.
const FORM: [&str; 2] = ["spec.ScalingConfiguration", "spec.homogeneousTarget"];
const POLICY: &str = "spec.PolicyRef";

/// Checks a binding. `former` is true if the object has the former API group, in which the fields
/// of both forms have other names.
pub(crate) fn review(former: bool, spec: &FieldRef<'_>, errors: &mut Errors) {
    let mut given = |names: [&str; 2]| names.map(|n| spec.field(n).object(errors).is_present());
    let (one, several) = (given(ONE), given(SEVERAL));
    let now = usize::from(one[1] || several[1] || !(former || one[0] || several[0]));
    match (one.contains(&true), several.contains(&true)) {
        (false, false) => {
            let detail = format!("set spec.{} or spec.{}", ONE[now], SEVERAL[now]);
            errors.push(FieldError::required(FORM[now], detail));
        }
        (true, true) => {
            let detail = format!("set spec.{} or spec.{}, not both", ONE[now], SEVERAL[now]);
            errors.push(FieldError::forbidden(FORM[now], detail));
        }
        _ => {}
    }
    let policy = spec.field("policyRef").object(errors).field("name");
    if policy.text(errors).is_none_or(str::is_empty) {
        let detail = "name an AutoscalingPolicy of the namespace";
        errors.push(FieldError::required(POLICY, detail));
    }
    // Kthena does not check the name here: a reference without a name has no effect.
    for at in spec.field(SEVERAL[1]).field("params").objects(errors) {
        let (reference, part) = target(&at, errors);
        reference::review_kind(&reference, "ModelServing", errors);
        if part.is_present() {
            let detail = "leave it out: a target among several is a whole ModelServing";
            part.invalid(detail, errors);
        }
    }
    let one = spec.field(ONE[1]);
    if one.is_present() {
        let (reference, part) = target(&one, errors);
        reference::review(&reference, "ModelServing", errors);
        if part.is_present() {
            reference::review(&part, "Role", errors);
        }
    }
}

/// Returns the targetRef and the subTargets of the target below `at`, with their paths as Kthena
/// spells them in errors.
fn target<'a>(at: &FieldRef<'a>, errors: &mut Errors) -> (FieldRef<'a>, FieldRef<'a>) {
    let target = at.field("target").object(errors);
    let mut reference = target.field("targetRef").object(errors);
    let mut part = target.field("subTargets").object(errors);
    reference.path = at.child_path("targetRef");
    part.path = reference.child_path("subTarget");
    (reference, part)
}

/// Returns the name of the binding's AutoscalingPolicy, which is in the binding's namespace; empty
/// if absent.
pub fn policy_ref(binding: &Value) -> &str {
    binding["spec"]["policyRef"]["name"]
        .as_str()
        .unwrap_or_default()
}

/// Returns the error of a binding whose AutoscalingPolicy does not exist.
pub fn missing_policy(binding: &Value) -> FieldError {
    let name = policy_ref(binding);
    let detail = "there is no AutoscalingPolicy of this name in the namespace";
    FieldError::invalid(POLICY, &name.into(), detail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Kind, message};

    fn policy() -> Value {
        json!({"name": "fast"})
    }

    fn one(reference: Value) -> Value {
        json!({"target": {"targetRef": reference}})
    }

    fn errors_of(spec: Value) -> String {
        errors_of_group("workload.serving.volcano.sh", spec)
    }

    fn errors_of_former(spec: Value) -> String {
        errors_of_group("registry.volcano.sh", spec)
    }

    fn errors_of_group(group: &str, spec: Value) -> String {
        let binding = json!({"apiVersion": format!("{group}/v1alpha1"), "spec": spec});
        match crate::review(Kind::AutoscalingPolicyBinding, &binding, None) {
            Ok(()) => String::new(),
            Err(errors) => message(&errors),
        }
    }

    #[test]
    fn binding_has_one_target() {
        for name in [ONE[0], SEVERAL[0]] {
            assert_eq!(errors_of(json!({"policyRef": policy(), name: {}})), "");
        }
        let messages = [
            errors_of(json!({"policyRef": policy()})),
            errors_of(json!({"policyRef": policy(), "scalingConfiguration": null})),
            errors_of(json!({"policyRef": policy(), "scalingConfiguration": {},
                             "optimizerConfiguration": {}})),
            errors_of(
                json!({"policyRef": policy(), "homogeneousTarget": one(json!({"name": "m"})),
                             "heterogeneousTarget": {}}),
            ),
            errors_of(json!({"policyRef": policy(), "scalingConfiguration": "all"})),
            errors_of_former(json!({"policyRef": policy()})),
        ];
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn binding_names_its_policy() {
        for policy in [json!(null), json!({}), json!({"name": ""})] {
            assert_eq!(
                errors_of(json!({"policyRef": policy, "scalingConfiguration": {}})),
                "validation failed:\n  - spec.PolicyRef: Required value: \
                 name an AutoscalingPolicy of the namespace"
            );
        }
    }

    #[test]
    fn targets_have_a_name_and_a_known_kind() {
        let of = |reference: Value| {
            let several = json!({"params": [one(reference.clone())]});
            let several = json!({"policyRef": policy(), "heterogeneousTarget": several});
            let one = json!({"policyRef": policy(), "homogeneousTarget": one(reference)});
            (errors_of(one), errors_of(several))
        };
        for good in [
            json!({"name": "m"}),
            json!({"name": "m", "kind": ""}),
            json!({"name": "m", "kind": "ModelServing"}),
        ] {
            assert_eq!(of(good), (String::new(), String::new()));
        }
        let role = |part: Value| {
            let mut target = one(json!({"name": "m"}));
            target["target"]["subTargets"] = part;
            target
        };
        let with = |part: Value| {
            let one = json!({"policyRef": policy(), "homogeneousTarget": role(part.clone())});
            let several = json!({"params": [role(part)]});
            let several = json!({"policyRef": policy(), "heterogeneousTarget": several});
            [errors_of(one), errors_of(several)]
        };
        // Among several targets a name is not asked for.
        let (no_name, no_names) = of(json!({}));
        assert_eq!(no_names, "");
        let (kind, kinds) = of(json!({"name": "m", "kind": "Deployment"}));
        let mut messages = vec![no_name, kind, kinds];
        messages.extend(with(json!({"name": "prefill", "kind": "Role"})));
        messages.extend(with(json!({"kind": "Pod"})));
        messages.push(errors_of(
            json!({"policyRef": policy(), "homogeneousTarget": {}}),
        ));
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn its_policy() {
        let binding = json!({"spec": {"policyRef": {"name": "fast"}}});
        assert_eq!(policy_ref(&binding), "fast");
        assert_eq!(policy_ref(&json!({"spec": {}})), "");
        assert_eq!(
            missing_policy(&binding).to_string(),
            "spec.PolicyRef: Invalid value: \"fast\": \
             there is no AutoscalingPolicy of this name in the namespace"
        );
    }
}
