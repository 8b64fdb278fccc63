mod targets;

use crate::{
    FieldError,
    error::Errors,
    field_ref::{FieldRef, Nanos},
};

/// The longest duration in a policy, in nanoseconds: 30 minutes.
const MAX_DURATION_NANOS: Nanos = 30 * 60 * 1_000_000_000;

/// Checks a policy. `former` is true if the object has the former API group.
pub(crate) fn review(former: bool, spec: &FieldRef<'_>, errors: &mut Errors) {
    let metrics = spec.field("metrics").objects(errors);
    let names = metric_names(&metrics, errors);
    // Up to v0.4 targets are in bindings, and a metric's name is in the field `metricName`.
    let former = former || metrics.iter().any(|m| m.field("metricName").is_present());
    targets::review(spec, &names, former, errors);
    let behavior = spec.field("behavior").object(errors);
    let scale_down = behavior.field("scaleDown").object(errors);
    let scale_up = behavior.field("scaleUp").object(errors);
    let stable = scale_up.field("stablePolicy").object(errors);
    let panic = scale_up.field("panicPolicy").object(errors);
    for duration in [
        scale_down.field("period"),
        scale_down.field("stabilizationWindow"),
        stable.field("period"),
        stable.field("stabilizationWindow"),
        panic.field("period"),
        panic.field("panicModeHold"),
    ] {
        let nanos = duration.duration(errors);
        if nanos.is_some_and(|nanos| !(0..=MAX_DURATION_NANOS).contains(&nanos)) {
            let detail = "must be from 0s to 30m";
            duration.invalid(detail, errors);
        }
    }
}

/// Checks metrics and returns their names.
fn metric_names<'a>(metrics: &[FieldRef<'a>], errors: &mut Errors) -> Vec<&'a str> {
    let mut names = Vec::new();
    for metric in metrics {
        let target = metric.field("targetValue");
        if target.quantity_milli().is_none_or(|milli| milli <= 0) {
            let detail = "must be a quantity above 0 and finite";
            target.invalid(detail, errors);
        }
        let old = metric.field("metricName");
        let name = if old.is_present() {
            old
        } else {
            metric.field("name")
        };
        let text = name.text(errors).unwrap_or_default();
        if names.contains(&text) {
            let detail = "another metric has this name";
            errors.push(FieldError::invalid(&name.path, &text.into(), detail));
        }
        names.push(text);
    }
    names
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{Kind, message, review};

    fn errors_of(spec: Value) -> String {
        let policy = json!({"spec": spec});
        match review(Kind::AutoscalingPolicy, &policy, None) {
            Ok(()) => String::new(),
            Err(errors) => message(&errors),
        }
    }

    fn target(value: Value) -> String {
        errors_of(json!({"metrics": [{"metricName": "m", "targetValue": value}]}))
    }

    /// A policy for one ModelServing.
    fn whole(mut spec: Value) -> Value {
        let reference = json!({"kind": "ModelServing", "name": "m"});
        spec["homogeneousTarget"] = json!({"target": {"targetRef": reference}});
        spec
    }

    #[test]
    fn targets_are_positive_and_finite() {
        for good in [
            json!(1),
            json!("10"),
            json!("500m"),
            json!(0.5),
            json!("1n"),
        ] {
            assert_eq!(target(good.clone()), "", "{good}");
        }
        for bad in [
            json!(0),
            json!("0"),
            json!(-1),
            json!("-500m"),
            json!("inf"),
            json!("NaN"),
            json!("1e400"),
            json!("many"),
            Value::Null,
            json!([1]),
        ] {
            let messages = target(bad.clone());
            assert_eq!(
                messages,
                format!(
                    "validation failed:\n  - spec.metrics[0].targetValue: Invalid value: {bad}: \
                     must be a quantity above 0 and finite"
                )
            );
        }
    }

    #[test]
    fn metrics_have_names_of_their_own() {
        let two = |key: &str, a: &str, b: &str| {
            let metric = |name: &str| json!({key: name, "targetValue": 1});
            errors_of(whole(json!({"metrics": [metric(a), metric(b)]})))
        };
        assert_eq!(two("name", "a", "b"), "");
        assert_eq!(two("metricName", "a", "b"), "");
        for key in ["name", "metricName"] {
            assert_eq!(
                two(key, "a", "a"),
                format!(
                    "validation failed:\n  - spec.metrics[1].{key}: Invalid value: \"a\": \
                     another metric has this name"
                )
            );
        }
    }

    fn behavior(period: &str, other: &str) -> Value {
        let stable = json!({"period": period, "stabilizationWindow": other});
        json!({"metrics": [{"metricName": "m", "targetValue": 1}],
               "behavior": {"scaleDown": stable, "scaleUp": {
            "stablePolicy": stable,
            "panicPolicy": {"period": period, "panicModeHold": other},
        }}})
    }

    #[test]
    fn durations_within_half_an_hour() {
        assert_eq!(errors_of(behavior("0s", "30m")), "");
        assert_eq!(errors_of(behavior("30m0s", "0")), "");
        insta::assert_snapshot!(errors_of(behavior("-1s", "30m0.000000001s")));
        assert_eq!(errors_of(behavior("1h", "1m")).lines().count(), 4);
        assert_eq!(errors_of(behavior("soon", "1m")).lines().count(), 4);
    }

    #[test]
    fn policy_has_one_target() {
        let metrics = json!([{"name": "m", "targetValue": 1}]);
        assert_eq!(errors_of(whole(json!({"metrics": metrics}))), "");
        let several = json!({"target": {"targetRef": {"name": "m"}}});
        let several = json!({"params": [several, several]});
        let several = json!({"metrics": metrics, "heterogeneousTarget": several});
        assert_eq!(errors_of(several), "");
        let messages = [
            errors_of(json!({})),
            errors_of(json!({"metrics": metrics})),
            errors_of(whole(json!({}))),
            errors_of(whole(
                json!({"metrics": metrics, "disaggregatedTarget": {}}),
            )),
            errors_of(json!({"metrics": metrics, "homogeneousTarget": {}})),
            errors_of(json!({"metrics": metrics, "heterogeneousTarget": {
                "params": [{"target": {"targetRef": {"kind": "Pod", "name": "m"}}}]}})),
        ];
        insta::assert_snapshot!(messages.join("\n"));
    }

    /// A disaggregated policy with these roles, and a ratio of prefill to decode.
    fn disaggregated(prefill: Value, decode: Value, ratio: Option<[&str; 2]>) -> Value {
        let ratio = ratio.map(|[min, max]| {
            json!({"numeratorRole": "prefill", "denominatorRole": "decode",
                   "minRatio": min, "maxRatio": max})
        });
        json!({"metrics": [{"name": "queue", "targetValue": 5}], "disaggregatedTarget": {
            "targetRef": {"name": "m"}, "roles": {"prefill": prefill, "decode": decode},
            "ratioConstraint": ratio}})
    }

    /// A role that scales by the policy's metric.
    fn role(min: i64, max: i64) -> Value {
        json!({"minReplicas": min, "maxReplicas": max, "metricSources": {"queue": {"pod": {}}}})
    }

    #[test]
    fn roles_of_a_disaggregated_target() {
        let fixed = json!({"minReplicas": 2, "maxReplicas": 2});
        let own = json!({"minReplicas": 0, "maxReplicas": 9, "metricSources": {"kv": {}},
                         "metrics": [{"name": "kv", "targetValue": "0.8"}]});
        assert_eq!(
            errors_of(disaggregated(role(1, 4), fixed.clone(), None)),
            ""
        );
        assert_eq!(errors_of(disaggregated(own, role(0, 1), None)), "");
        let mut bare = disaggregated(role(1, 4), fixed.clone(), None);
        bare["metrics"] = json!([]);
        let without = |field: &str| {
            let mut role = role(1, 4);
            role.as_object_mut().unwrap().remove(field);
            errors_of(disaggregated(role, fixed.clone(), None))
        };
        let mut other = role(1, 4);
        other["metricSources"] = json!({"latency": {}});
        let mut twice = role(1, 4);
        let metric = json!({"name": "queue", "targetValue": 0});
        twice["metrics"] = json!([metric, metric]);
        let messages = [
            errors_of(bare),
            without("metricSources"),
            errors_of(disaggregated(other, fixed.clone(), None)),
            errors_of(disaggregated(twice, fixed.clone(), None)),
            errors_of(disaggregated(role(5, 4), fixed.clone(), None)),
            errors_of(json!({"disaggregatedTarget": {"targetRef": {"kind": "Pod"},
                "roles": {"": fixed}}})),
        ];
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn ratios_are_achievable() {
        let of = |prefill: Value, decode: Value, ratio: [&str; 2]| {
            errors_of(disaggregated(prefill, decode, Some(ratio)))
        };
        for (prefill, decode, ratio) in [
            (role(1, 4), role(1, 4), ["0.5", "2"]),
            (role(0, 4), role(0, 4), ["0", "1"]),
            (role(1, 4), role(2, 8), ["500m", "500m"]),
            // At the bounds: 2 of 8, and 4 of 1.
            (role(2, 4), role(1, 8), ["250m", "250m"]),
            (role(2, 4), role(1, 8), ["4", "4"]),
        ] {
            assert_eq!(of(prefill, decode, ratio), "", "{ratio:?}");
        }
        let mut names = disaggregated(role(1, 4), role(1, 4), Some(["1", "1"]));
        names["disaggregatedTarget"]["ratioConstraint"]["numeratorRole"] = json!("decode");
        let mut unknown = names.clone();
        unknown["disaggregatedTarget"]["ratioConstraint"]["numeratorRole"] = json!("server");
        let messages = [
            errors_of(names),
            errors_of(unknown),
            of(role(1, 4), role(1, 4), ["3", "2"]),
            of(role(1, 4), role(1, 4), ["-1", "2"]),
            of(role(1, 4), role(1, 4), ["0", "0"]),
            of(role(1, 4), role(1, 4), ["0", "inf"]),
            of(role(0, 4), role(1, 4), ["0", "1"]),
            of(role(2, 4), role(1, 8), ["0", "249m"]),
            of(role(2, 4), role(1, 8), ["4001m", "9"]),
        ];
        insta::assert_snapshot!(messages.join("\n"));
    }
}
