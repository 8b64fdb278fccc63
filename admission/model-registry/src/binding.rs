use serde_json::Value;

use crate::{FieldError, error::Errors, field_ref::FieldRef};

/// The two forms, by their former and current names.
const ONE: [&str; 2] = ["scalingConfiguration", "homogeneousTarget"];
const SEVERAL: [&str; 2] = ["optimizerConfiguration", "heterogeneousTarget"];

pub(crate) fn review(spec: &FieldRef<'_>, errors: &mut Errors) {
    let mut given = |names: [&str; 2]| names.map(|n| spec.field(n).object(errors).is_present());
    let (one, several) = (given(ONE), given(SEVERAL));
    let now = usize::from(one[1] || several[1]);
    let path = ["spec.ScalingConfiguration", "spec.homogeneousTarget"][now];
    match (one.contains(&true), several.contains(&true)) {
        (false, false) => {
            let detail = format!("set spec.{} or spec.{}", ONE[now], SEVERAL[now]);
            errors.push(FieldError::required(path, detail));
        }
        (true, true) => {
            let detail = format!("set spec.{} or spec.{}, not both", ONE[now], SEVERAL[now]);
            errors.push(FieldError::forbidden(path, detail));
        }
        _ => {}
    }
}

/// Empty if absent; in the binding's namespace.
pub fn policy_ref(binding: &Value) -> &str {
    binding["spec"]["policyRef"]["name"]
        .as_str()
        .unwrap_or_default()
}

pub fn missing_policy(binding: &Value) -> FieldError {
    let name = policy_ref(binding);
    let detail = "there is no AutoscalingPolicy of this name in the namespace";
    FieldError::invalid("spec.PolicyRef", &name.into(), detail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Kind, message};

    fn errors_of(spec: Value) -> String {
        let binding = json!({"spec": spec});
        match crate::review(Kind::AutoscalingPolicyBinding, &binding, None) {
            Ok(()) => String::new(),
            Err(errors) => message(&errors),
        }
    }

    #[test]
    fn exactly_one_way() {
        for name in ONE.into_iter().chain(SEVERAL) {
            assert_eq!(errors_of(json!({name: {}})), "", "{name}");
        }
        let messages = [
            errors_of(json!({})),
            errors_of(json!({"scalingConfiguration": null})),
            errors_of(json!({"scalingConfiguration": {}, "optimizerConfiguration": {}})),
            errors_of(json!({"homogeneousTarget": {}, "heterogeneousTarget": {}})),
            errors_of(json!({"scalingConfiguration": "all"})),
        ];
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
