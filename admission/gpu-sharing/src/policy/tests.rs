use serde_json::json;

use super::*;

fn parse(text: &str) -> Policy {
    Policy::parse(text).unwrap()
}

fn place(policy: &Policy, namespace: &str, labels: &Value) -> Option<usize> {
    policy.matching(namespace, labels).map(|(at, _)| at)
}

#[test]
fn the_first_match_wins() {
    let policy = parse(crate::tests::fixtures::POLICY);
    let none = json!({});
    let inference = json!({"cast-slice/workload": "inference", "gpu": "shared"});
    assert_eq!(place(&policy, "gpu-lab", &none), Some(0));
    assert_eq!(place(&policy, "ml-team", &inference), Some(0));
    assert_eq!(place(&policy, "dev", &inference), Some(1));
    assert_eq!(place(&policy, "dev", &json!({"gpu": "shared"})), Some(2));
    assert_eq!(place(&policy, "dev", &none), None);
    assert_eq!(place(&policy, "shop", &json!({"gpu": "shared"})), None);
    assert_eq!(place(&policy, "shop", &Value::Null), None);
    assert!(policy.bad_rules().is_empty() && policy.warnings().is_empty());
}

#[test]
fn a_label_must_be_there() {
    let policy = parse(r#"{"rules": [{"labelSelector": {"team": ""}}]}"#);
    assert_eq!(place(&policy, "a", &json!({"team": ""})), Some(0));
    assert_eq!(place(&policy, "a", &json!({"team": "x"})), None);
    assert_eq!(place(&policy, "a", &json!({})), None);
    assert_eq!(place(&policy, "a", &Value::Null), None);
}

#[test]
fn an_empty_condition_matches_all() {
    for rule in [
        "{}",
        r#"{"namespaces": [], "labelSelector": {}}"#,
        r#"{"namespaces": null, "labelSelector": null, "sliceRatio": null}"#,
    ] {
        let policy = parse(&format!(r#"{{"rules": [{rule}]}}"#));
        assert_eq!(place(&policy, "any", &Value::Null), Some(0), "{rule}");
    }
    for empty in ["{}", "null", r#"{"rules": null}"#, r#"{"rules": []}"#] {
        assert_eq!(place(&parse(empty), "any", &Value::Null), None, "{empty}");
    }
}

#[test]
fn field_names_in_any_case() {
    let policy = parse(r#"{"Rules": [{"Namespaces": ["a"], "sliceratio": 4}]}"#);
    assert_eq!(policy.matching("a", &Value::Null).unwrap().1.ratio, 4);
    assert_eq!(place(&policy, "b", &Value::Null), None);
    assert!(policy.warnings().is_empty());
    let both = parse(r#"{"rules": [{"SLICERATIO": 2, "sliceRatio": 4}]}"#);
    assert_eq!(both.matching("a", &Value::Null).unwrap().1.ratio, 4);
}

#[test]
fn bad_rules_are_reported() {
    let policy = parse(
        r#"{"rules": [
            {"namespaces": ["a"], "sliceRatio": -1},
            {"namespaces": ["b"], "sliceRatio": 65},
            {"namespaces": ["c"], "workloadType": "rendering"},
            {"namespaces": ["d"], "workloadType": "rendering", "sliceRatio": 4},
            {"namespaces": ["e"], "sliceRatio": 64},
            {"namespaces": ["f"], "sliceRatio": 0, "workloadType": ""}
        ]}"#,
    );
    let messages: Vec<String> = policy.bad_rules().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(messages.join("\n"), @r#"
    rules[0]: sliceRatio is -1; write 1 to 64, or leave it out
    rules[1]: sliceRatio is 65; write 1 to 64, or leave it out
    rules[2]: workloadType is "rendering"; write training, inference, batch or dev
    rules[3]: workloadType is "rendering"; write training, inference, batch or dev
    "#);
    assert_eq!(policy.rules(), 6);
    assert_eq!(place(&policy, "b", &Value::Null), Some(1));
}

#[test]
fn no_policy() {
    let texts = [
        "",
        "{",
        "[]",
        "\"rules\"",
        r#"{"rules": {}}"#,
        r#"{"rules": ["a"]}"#,
        r#"{"rules": [null]}"#,
        r#"{"rules": [{}, {"namespaces": "a"}]}"#,
        r#"{"rules": [{"namespaces": ["a", 1]}]}"#,
        r#"{"rules": [{"labelSelector": ["a"]}]}"#,
        r#"{"rules": [{"labelSelector": {"gpu": true}}]}"#,
        r#"{"rules": [{"workloadType": 4}]}"#,
        r#"{"rules": [{"sliceRatio": "4"}]}"#,
        r#"{"rules": [{"sliceRatio": 4.5}]}"#,
        r#"{"rules": [{"sliceRatio": 99999999999999999999}]}"#,
        r#"{"rules": []} {}"#,
    ];
    let messages = texts.map(|text| Policy::parse(text).unwrap_err().to_string());
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn warnings_name_ignored_parts() {
    let policy = parse(
        r#"{"version": 1, "rules": [
            {"namespaces": ["a"]}, {"labels": {"gpu": "shared"}}, {"sliceRatio": 2}
        ]}"#,
    );
    insta::assert_snapshot!(policy.warnings().join("\n"), @r#"
    the policy: "version" is no field and is ignored; the fields are rules
    rules[1]: "labels" is no field and is ignored; the fields are namespaces, labelSelector, workloadType, sliceRatio
    rules[1] matches every pod, so that no rule behind it is reached (1); put it last, or give it namespaces or a labelSelector
    "#);
}

#[test]
fn so_many_warnings_and_no_more() {
    let keys: Map<String, Value> = (0..100).map(|i| (format!("k{i}"), json!(1))).collect();
    let policy = parse(&json!({"rules": [keys]}).to_string());
    assert_eq!(policy.warnings().len(), MAX_WARNINGS);
}
