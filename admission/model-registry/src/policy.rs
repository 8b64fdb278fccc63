use std::collections::HashSet;

use tautline_core::quantity;

use crate::{
    FieldError,
    error::Errors,
    field_ref::{FieldRef, Nanos},
};

const MOST: Nanos = 30 * 60 * 1_000_000_000;

pub(crate) fn review(spec: &FieldRef<'_>, errors: &mut Errors) {
    let metrics = spec.field("metrics").objects(errors);
    let mut names = HashSet::new();
    for metric in &metrics {
        let target = metric.field("targetValue");
        if !is_positive(&target) {
            let detail = "must be a quantity above 0 and finite";
            errors.push(FieldError::invalid(&target.path, &target.value(), detail));
        }
        let old = metric.field("metricName");
        let name = if old.is_present() {
            old
        } else {
            metric.field("name")
        };
        let text = name.text(errors).unwrap_or_default();
        if !names.insert(text) {
            let detail = "another metric has this name";
            errors.push(FieldError::invalid(&name.path, &text.into(), detail));
        }
    }
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
        if nanos.is_some_and(|nanos| !(0..=MOST).contains(&nanos)) {
            let detail = "must be from 0s to 30m";
            errors.push(FieldError::invalid(
                &duration.path,
                &duration.value(),
                detail,
            ));
        }
    }
}

fn is_positive(target: &FieldRef<'_>) -> bool {
    let Some(text) = target.scalar() else {
        return false;
    };
    let infinite = text.parse::<f64>().is_ok_and(f64::is_infinite);
    !infinite && quantity::parse_milli(&text).is_ok_and(|milli| milli > 0)
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
        errors_of(json!({"metrics": [{"name": "m", "targetValue": value}]}))
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
            errors_of(json!({"metrics": [metric(a), metric(b)]}))
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
        json!({"behavior": {"scaleDown": stable, "scaleUp": {
            "stablePolicy": stable,
            "panicPolicy": {"period": period, "panicModeHold": other},
        }}})
    }

    #[test]
    fn durations_within_half_an_hour() {
        assert_eq!(errors_of(json!({})), "");
        assert_eq!(errors_of(behavior("0s", "30m")), "");
        assert_eq!(errors_of(behavior("30m0s", "0")), "");
        insta::assert_snapshot!(errors_of(behavior("-1s", "30m0.000000001s")));
        assert_eq!(errors_of(behavior("1h", "1m")).lines().count(), 4);
        assert_eq!(errors_of(behavior("soon", "1m")).lines().count(), 4);
    }
}
