//! Computes the patches that set missing fields of constraint policies and offers to their
//! defaults.

use serde_json::{Value, json};

use crate::response::add_operation;

type Defaults = (Vec<Value>, Vec<String>);

fn fill(object: &Value, at: &str, fields: &[(&str, Value)], filled: &mut Defaults) {
    let Some(map) = object.as_object() else {
        return;
    };
    let missing = |f: &&(&str, Value)| map.get(f.0).is_none_or(Value::is_null);
    for (field, value) in fields.iter().filter(missing) {
        filled
            .0
            .push(add_operation(format!("{at}/{field}"), value.clone()));
        let path = format!("{at}/{field}")
            .trim_start_matches('/')
            .replace('/', ".");
        filled.1.push(path);
    }
}

pub(crate) fn policy(object: &Value) -> Defaults {
    let mut filled = Defaults::default();
    for (i, rule) in rows(&object["spec"]["rules"]) {
        let at = format!("/spec/rules/{i}");
        fill(rule, &at, &[("weight", json!(1))], &mut filled);
    }
    filled
}

pub(crate) fn offer(object: &Value) -> Defaults {
    let mut filled = Defaults::default();
    let own = [
        ("period", json!("1m")),
        ("grace", json!("0s")),
        ("violationPolicy", json!("Ignore")),
    ];
    fill(&object["spec"], "/spec", &own, &mut filled);
    for (i, target) in rows(&object["spec"]["targets"]) {
        let mut own = vec![("name", json!("default"))];
        if target["kind"] == "Pod" {
            own.push(("apiVersion", json!("v1")));
        }
        fill(target, &format!("/spec/targets/{i}"), &own, &mut filled);
    }
    filled
}

fn rows(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_values_stay() {
        let (patch, filled) = offer(&json!({"spec": {
            "grace": "10m", "period": null,
            "targets": [{"kind": "Pod"}, {"name": "b", "kind": "Cluster"}],
        }}));
        let expected = [
            "spec.period",
            "spec.violationPolicy",
            "spec.targets.0.name",
            "spec.targets.0.apiVersion",
        ];
        assert_eq!(filled, expected);
        assert_eq!(patch[0], add_operation("/spec/period".into(), json!("1m")));
        let (patch, _) =
            policy(&json!({"spec": {"rules": [{"name": "a", "weight": 0}, {"name": "b"}]}}));
        assert_eq!(
            patch,
            [add_operation("/spec/rules/1/weight".into(), json!(1))]
        );
    }

    #[test]
    fn malformed_objects_do_not_panic() {
        for object in [
            json!(null),
            json!({"spec": 1}),
            json!({"spec": {"targets": [1], "rules": "x"}}),
        ] {
            assert!(policy(&object).0.is_empty());
            let (patch, _) = offer(&object);
            assert!(patch.iter().all(|op| op["path"] != "/spec/targets/0/name"));
        }
    }
}
