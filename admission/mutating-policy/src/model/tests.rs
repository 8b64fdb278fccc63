use serde_json::{Value, json};

use super::*;

const GPU_NONE: &str = include_str!("../../tests/pfn/gpu-none.yaml");
const RDMA: &str = include_str!("../../tests/pfn/rdma.yaml");

fn documents(yaml: &str) -> Vec<Value> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_multiple_with_options(yaml, options).unwrap()
}

fn policy(manifest: &Value) -> Policy {
    match parse(manifest).unwrap().document {
        Document::Policy(policy) => policy,
        Document::Binding(_) => panic!("a binding"),
    }
}

fn today() -> Value {
    json!({
        "apiVersion": "tautline.io/v1alpha1", "kind": "MutationPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["pods"]}]},
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}],
        },
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "tautline.io/v1alpha1", "kind": "MutationPolicyBinding",
        "metadata": {"name": "b"},
        "spec": {"policyName": "p", "paramRef": {"name": "x", "parameterNotFoundAction": "Allow"}},
    })
}

/// The faults of `manifest` once `value` stands at `pointer`, the last token of
/// which may be a new field.
fn faults(mut manifest: Value, pointer: &str, value: Value) -> String {
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    manifest.pointer_mut(parent).unwrap()[last] = value;
    let faults = parse(&manifest).expect_err("it was taken");
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    faults.join("\n")
}

#[test]
fn layout_of_2024_equals_the_current_one() {
    let manifests = documents(GPU_NONE);
    let read = policy(&manifests[0]);
    assert_eq!(read.reinvocation, Reinvocation::IfNeeded);
    assert_eq!(read.failure, FailurePolicy::Fail);
    assert_eq!(read.mutations[0].patch, PatchType::ApplyConfiguration);
    assert_eq!(
        read.mutations[0].source.field,
        "spec.mutations[0].expression"
    );
    assert!(is_policy_or_binding(&manifests[1]) && !is_policy_or_binding(&json!({"kind": "Pod"})));

    // The same in today's layout.
    let mut moved = manifests[0].clone();
    let expression = moved["spec"]["mutations"][0]["expression"].take();
    moved["spec"]["mutations"] = json!([{"patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": expression}}]);
    moved["spec"]["reinvocationPolicy"] = "IfNeeded".into();
    moved["apiVersion"] = "tautline.io/v1alpha1".into();
    moved["kind"] = "MutationPolicy".into();
    let mut today = policy(&moved);
    let field = &mut today.mutations[0].source.field;
    assert_eq!(field, "spec.mutations[0].applyConfiguration.expression");
    *field = "spec.mutations[0].expression".into();
    assert_eq!(today, read);
}

#[test]
fn both_layouts_at_once_must_agree() {
    let mut manifest = documents(GPU_NONE).remove(0);
    let expression = manifest["spec"]["mutations"][0]["expression"].clone();
    manifest["spec"]["mutations"][0]["applyConfiguration"] = json!({"expression": expression});
    policy(&manifest);
    let at = "/spec/mutations/0/expression";
    let text = faults(manifest.clone(), at, json!("Object{}"));
    assert!(
        text.ends_with("differs from spec.mutations[0].applyConfiguration.expression; keep one"),
        "{text}"
    );
    let at = "/spec/reinvocationPolicy";
    let text = faults(manifest, at, json!("Never"));
    assert!(text.ends_with("spec.mutations[0].reinvocationPolicy: differs from spec.reinvocationPolicy; keep one for all"), "{text}");
}

#[test]
fn missing_not_found_action_denies_with_a_warning() {
    let manifests = documents(RDMA);
    let parsed = parse(&manifests[2]).unwrap();
    let Document::Binding(binding) = parsed.document else {
        panic!("a policy");
    };
    assert!(binding.params.unwrap().deny_if_missing);
    let warning = &parsed.warnings[0];
    assert_eq!(warning.field, "spec.paramRef.parameterNotFoundAction");
    assert!(warning.message.contains("Deny"), "{warning}");
}

#[test]
fn defaults_are_those_of_the_server() {
    let policy = policy(&today());
    assert_eq!(policy.failure, FailurePolicy::Fail);
    assert_eq!(policy.constraints.policy, MatchPolicy::Equivalent);
    assert_eq!(policy.constraints.rules[0].scope, ScopeType::All);
    assert_eq!(policy.param_kind, None);
}

#[test]
fn policy_faults_name_field_and_fix() {
    let bad = |pointer: &str, value: Value| faults(today(), pointer, value);
    let all = [
        bad("/metadata/name", json!("A b")),
        bad("/spec/validations", json!([])),
        bad("/spec/failurePolicy", json!("Maybe")),
        bad("/spec/reinvocationPolicy", Value::Null),
        bad("/spec/mutations", json!([])),
        bad("/spec/mutations/0/patchType", json!("Merge")),
        bad("/spec/mutations/0/patchType", Value::Null),
        bad("/spec/mutations/0/patchType", json!("ApplyConfiguration")),
        bad("/spec/mutations/0/jsonPatch/expression", json!(" ")),
        bad("/spec/mutations/0/jsonPatch", json!(7)),
        bad("/spec/matchConstraints", Value::Null),
        bad("/spec/matchConstraints/resourceRules", json!([])),
        bad(
            "/spec/matchConstraints/resourceRules/0/operations",
            json!(["DELETE"]),
        ),
        bad(
            "/spec/matchConstraints/resourceRules/0/operations",
            json!(["GET"]),
        ),
        bad(
            "/spec/matchConstraints/resourceRules/0/resources",
            json!(["*", "pods"]),
        ),
        bad(
            "/spec/matchConstraints/resourceRules/0/apiGroups",
            json!(["", "*"]),
        ),
        bad("/spec/matchConstraints/matchPolicy", json!("Fuzzy")),
        bad(
            "/spec/matchConstraints/objectSelector",
            json!({"matchExpressions":
            [{"key": "a", "operator": "In"}]}),
        ),
        bad(
            "/spec/matchConditions",
            json!([{"name": "a b", "expression": "true"},
            {"name": "c", "expression": "true"}, {"name": "c", "expression": "true"}]),
        ),
        bad(
            "/spec/variables",
            json!([{"name": "for", "expression": "1"}, {"name": "x"}]),
        ),
        bad("/spec/paramKind", json!({"apiVersion": "a/b/c"})),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn binding_faults_name_field_and_fix() {
    let bad = |pointer: &str, value: Value| faults(binding(), pointer, value);
    let all = [
        bad("/kind", json!("MutatingAdmissionPolicy")),
        bad("/spec/policyName", Value::Null),
        bad("/spec/paramRef", json!({"parameterNotFoundAction": "Deny"})),
        bad("/spec/paramRef/selector", json!({})),
        bad("/spec/paramRef/parameterNotFoundAction", json!("Skip")),
        bad(
            "/spec/matchResources",
            json!({"namespaceSelector": {"matchLabels": {"a": 1}}}),
        ),
    ];
    insta::assert_snapshot!(all.join("\n"));
}
