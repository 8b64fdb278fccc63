use serde_json::json;

use super::*;
use crate::tests::fixtures::{POLICY, annotated, mutation, of, patched, pod, policy, refusal};

fn with(pod: &Value, key: &str, value: &str) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["annotations"][key] = json!(value);
    pod
}

fn optimized() -> Value {
    with(&pod("1"), "castops.io/optimize", "true")
}

#[test]
fn opted_in_by_either_domain() {
    for key in ["castops.io/optimize", "tautline.io/optimize"] {
        let mutation = mutation(of(None, &with(&pod("1"), key, "true")));
        assert_eq!(mutation.cause, Cause::Annotation(key.into()));
        assert_eq!(
            (mutation.ratio, mutation.source.clone()),
            (1, Source::Default)
        );
        assert!(!mutation.policy_enforced());
    }
}

#[test]
fn pods_without_opt_in_stay_unchanged() {
    let none = Unchanged::NotAsked { unclear: None };
    assert_eq!(of(None, &pod("1")), Decision::Unchanged(none.clone()));
    let policy = policy(POLICY);
    assert_eq!(of(Some(&policy), &pod("1")), Decision::Unchanged(none));
    // Annotations for the ratio alone do not opt in, even invalid ones.
    let bad = with(&pod("1"), "castops.io/slice-ratio", "x");
    assert!(matches!(of(None, &bad), Decision::Unchanged(_)));
}

#[test]
fn false_opts_out_where_a_rule_matches() {
    let all = policy(r#"{"rules": [{"sliceRatio": 8}]}"#);
    assert_eq!(mutation(of(Some(&all), &pod("1"))).ratio, 8);
    let out = with(&pod("1"), "castops.io/optimize", "false");
    assert_eq!(
        of(Some(&all), &out),
        Decision::Unchanged(Unchanged::OptedOut("castops.io/optimize".into()))
    );
    let unclear = with(&pod("1"), "castops.io/optimize", "yes");
    assert_eq!(mutation(of(Some(&all), &unclear)).cause, Cause::Rule(0));
    assert!(matches!(of(None, &unclear), Decision::Unchanged(_)));
}

#[test]
fn an_opted_in_pod_does_not_consult_the_policy() {
    for text in [
        r#"{"rules": [{"sliceRatio": 8}]}"#,
        r#"{"rules": [{"sliceRatio": 65}]}"#,
    ] {
        let mutation = mutation(of(Some(&policy(text)), &optimized()));
        assert_eq!((mutation.ratio, mutation.source), (1, Source::Default));
    }
}

#[test]
fn a_rule_gives_the_ratio() {
    for (rule, ratio, source) in [
        (json!({"sliceRatio": 8}), 8, Source::RuleRatio(0)),
        (
            json!({"workloadType": "training"}),
            4,
            Source::RuleWorkload(0),
        ),
        (
            json!({"sliceRatio": 8, "workloadType": "training"}),
            8,
            Source::RuleRatio(0),
        ),
        (
            json!({"sliceRatio": 0, "workloadType": "batch"}),
            2,
            Source::RuleWorkload(0),
        ),
        (json!({}), 1, Source::Default),
    ] {
        let policy = policy(&json!({"rules": [rule]}).to_string());
        let mutation = mutation(of(Some(&policy), &pod("1")));
        assert_eq!((mutation.ratio, &mutation.source), (ratio, &source));
        assert!(mutation.policy_enforced());
    }
}

#[test]
fn annotations_are_stronger_than_the_rule() {
    let all = policy(r#"{"rules": [{"sliceRatio": 8, "workloadType": "training"}]}"#);
    let typed = with(&pod("1"), "castops.io/workload-type", "inference");
    assert_eq!(mutation(of(Some(&all), &typed)).ratio, 2);
    let numbered = with(&typed, "castops.io/slice-ratio", "16");
    let mutation = mutation(of(Some(&all), &numbered));
    assert_eq!(mutation.ratio, 16);
    assert!(mutation.policy_enforced());
}

#[test]
fn a_bad_rule_refuses_unless_the_pod_gives_the_ratio() {
    let bad = policy(
        r#"{"rules": [{"namespaces": ["other"], "sliceRatio": 2},
                      {"workloadType": "rendering"}, {"sliceRatio": 4}]}"#,
    );
    assert_eq!(
        refusal(of(Some(&bad), &pod("1"))),
        "the slice policy's rules[1]: workloadType is \"rendering\"; \
         write training, inference, batch or dev"
    );
    let own = with(&pod("1"), "castops.io/workload-type", "dev");
    assert_eq!(mutation(of(Some(&bad), &own)).ratio, 1);
    // Other rules still work, and so do pods without cards.
    let names = Names::default();
    assert_eq!(
        mutation(decide(&names, Some(&bad), "other", &pod("1"))).ratio,
        2
    );
    let none = Decision::Unchanged(Unchanged::NoCards);
    assert_eq!(of(Some(&bad), &pod("0")), none);
}

#[test]
fn bad_annotations_refuse() {
    for key in ["castops.io/slice-ratio", "castops.io/workload-type"] {
        let message = refusal(of(None, &with(&optimized(), key, "lots")));
        assert!(
            message.contains(key) && message.contains("lots"),
            "{message}"
        );
    }
    let contrary = with(&optimized(), "tautline.io/optimize", "false");
    assert!(refusal(of(None, &contrary)).contains("keep one of them"));
    let unquoted = annotated(&json!({"castops.io/optimize": true}));
    let message = refusal(of(None, &unquoted));
    assert_eq!(
        message,
        "annotation castops.io/optimize is true; put it in quotes"
    );
}

#[test]
fn containers_without_cards_stay_unchanged() {
    let mut several = optimized();
    several["spec"]["initContainers"] = json!([
        {"name": "fetch", "resources": {"limits": {"nvidia.com/gpu": 1}}},
        {"name": "wait"},
    ]);
    several["spec"]["containers"] = json!([
        {"name": "none"},
        {"name": "zero", "resources": {"limits": {"nvidia.com/gpu": "0"}}},
        {"name": "two", "resources": {"requests": {"nvidia.com/gpu": "2"}}},
    ]);
    let several = with(&several, "castops.io/slice-ratio", "4");
    let mutation = mutation(of(None, &several));
    let changes: Vec<_> = mutation.changes.iter().collect();
    assert_eq!(
        changes,
        [
            &Change {
                container: "fetch".into(),
                init: true,
                cards: 1,
                units: 4
            },
            &Change {
                container: "two".into(),
                init: false,
                cards: 2,
                units: 8
            },
        ]
    );
    let out = patched(&several, &mutation);
    let shared = |units: &str| json!({"nvidia.com/gpu-shared": units});
    let (init, main) = (&out["spec"]["initContainers"], &out["spec"]["containers"]);
    let both = |units| json!({"limits": shared(units), "requests": shared(units)});
    assert_eq!(init[0]["resources"], both("4"));
    assert_eq!(main[2]["resources"], both("8"));
    assert_eq!(init[1], several["spec"]["initContainers"][1]);
    assert_eq!(main[0], several["spec"]["containers"][0]);
    assert_eq!(main[1], several["spec"]["containers"][1]);
}

#[test]
fn nothing_to_share() {
    let none = Decision::Unchanged(Unchanged::NoCards);
    let opted_in = |mut pod: Value| {
        pod["metadata"]["annotations"]["castops.io/optimize"] = json!("true");
        pod
    };
    assert_eq!(of(None, &opted_in(pod("0"))), none);
    let mig = json!({"spec": {"containers": [
        {"resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}}]}});
    for pod in [json!({}), json!({"spec": {"containers": null}}), mig] {
        assert_eq!(of(None, &opted_in(pod)), none);
    }
    // Values that are not pods are no error either.
    for pod in [Value::Null, json!([]), json!({"spec": 1}), json!("pod")] {
        assert_eq!(of(None, &pod), none);
    }
}

#[test]
fn the_patch_as_it_is_sent() {
    let asks = with(&optimized(), "castops.io/workload-type", "training");
    let mutation = mutation(of(None, &asks));
    let lines: Vec<String> = mutation.patch.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"op":"remove","path":"/spec/containers/0/resources/limits/nvidia.com~1gpu"}
    {"op":"add","path":"/spec/containers/0/resources/limits/nvidia.com~1gpu-shared","value":"4"}
    {"op":"remove","path":"/spec/containers/0/resources/requests/nvidia.com~1gpu"}
    {"op":"add","path":"/spec/containers/0/resources/requests/nvidia.com~1gpu-shared","value":"4"}
    "#);
}

#[test]
fn requested_units_are_added() {
    let mut both = with(&optimized(), "castops.io/slice-ratio", "4");
    let resources = &mut both["spec"]["containers"][0]["resources"];
    resources["limits"]["nvidia.com/gpu-shared"] = json!("3");
    let mutation = mutation(of(None, &both));
    let out = patched(&both, &mutation);
    let resources = &out["spec"]["containers"][0]["resources"];
    assert_eq!(
        resources["limits"],
        json!({"cpu": "1", "nvidia.com/gpu-shared": "7"})
    );
    assert_eq!(resources["requests"], json!({"nvidia.com/gpu-shared": "7"}));
}

#[test]
fn requests_that_the_server_refuses() {
    let resources = |limits: Value, requests: Value| {
        let mut pod = with(&optimized(), "castops.io/slice-ratio", "64");
        pod["spec"]["containers"][0]["resources"] = json!({"limits": limits, "requests": requests});
        refusal(of(None, &pod))
    };
    let gpu = |n: Value| json!({"nvidia.com/gpu": n});
    let messages = [
        resources(gpu(json!("500m")), json!({})),
        resources(json!({}), gpu(json!("-1"))),
        resources(gpu(json!("two")), json!({})),
        resources(gpu(json!([])), json!({})),
        resources(gpu(json!("2")), gpu(json!("1"))),
        resources(gpu(json!("10P")), json!({})),
        resources(
            json!({"nvidia.com/gpu": 1, "nvidia.com/gpu-shared": "x"}),
            json!({}),
        ),
    ];
    insta::assert_snapshot!(messages.join("\n"));
    // No error without an opt-in.
    assert!(matches!(of(None, &pod("500m")), Decision::Unchanged(_)));
}

#[test]
fn other_resources() {
    let names = Names::new("amd.com/gpu", "amd.com/gpu-shared", None).unwrap();
    let nvidia = with(&optimized(), "castops.io/slice-ratio", "2");
    let none = Decision::Unchanged(Unchanged::NoCards);
    assert_eq!(decide(&names, None, "default", &nvidia), none);
    let text = nvidia.to_string().replace("nvidia.com", "amd.com");
    let amd: Value = serde_json::from_str(&text).unwrap();
    let out = patched(&amd, &mutation(decide(&names, None, "default", &amd)));
    let limits = &out["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits, &json!({"cpu": "1", "amd.com/gpu-shared": "2"}));
}

#[test]
fn messages_and_audit() {
    let all = policy(r#"{"rules": [{"namespaces": ["x"]}, {"workloadType": "training"}]}"#);
    let mut messages = Vec::new();
    for pod in [
        pod("1"),
        with(&pod("1"), "tautline.io/slice-ratio", "16"),
        optimized(),
    ] {
        let audit = mutation(of(Some(&all), &pod)).audit();
        messages.extend(
            audit
                .into_iter()
                .map(|(key, value)| format!("{key}: {value}")),
        );
    }
    for pod in [
        pod("0"),
        pod("1"),
        with(&pod("1"), "castops.io/optimize", "yes"),
        with(&pod("1"), "castops.io/optimize", "false"),
    ] {
        match of(None, &pod) {
            Decision::Unchanged(why) => messages.push(format!("unchanged: {why}")),
            other => panic!("{other:?}"),
        }
    }
    insta::assert_snapshot!(messages.join("\n"));
}
