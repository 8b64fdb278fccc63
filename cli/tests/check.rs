//! `tautline check`, as people and scripts use it.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

const POLICY: &str = "examples/gpu-admission/1-policy.yaml";
const PODS: &str = "examples/gpu-admission/2-pods.yaml";
const MODELS: &str = "examples/registry/1-models.yaml";
const REFUSED: &str = "examples/registry/2-refused.yaml";

fn check(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tautline"))
        .arg("check")
        .args(args)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may have ended.
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// The standard output, with this exit code.
fn printed(code: i32, args: &[&str], input: &str) -> String {
    let out = check(args, input);
    let error = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(code), "{args:?}: {error}");
    String::from_utf8(out.stdout).unwrap()
}

/// The standard error of a command that fails.
fn failure(args: &[&str], input: &str) -> String {
    let out = check(args, input);
    assert_eq!(out.status.code(), Some(2), "{args:?}");
    assert_eq!(out.stdout, b"");
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn a_policy_and_its_pods() {
    insta::assert_snapshot!(printed(1, &["policy", "-f", POLICY, "--pod", PODS], ""));
    assert_eq!(
        printed(0, &["policy", "-f", POLICY], ""),
        "policy: 3 rules\n"
    );
}

#[test]
fn a_policy_for_programs() {
    let json = printed(
        1,
        &["policy", "-f", POLICY, "--pod", PODS, "-o", "json"],
        "",
    );
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["rules"], 3);
    let first = &report["pods"][0];
    assert_eq!(first["pod"], "ml-team/trainer");
    assert_eq!(
        (&first["outcome"], &first["ratio"]),
        (&"changed".into(), &4.into())
    );
    assert_eq!(
        first["patch"][0]["path"],
        "/spec/containers/0/resources/limits/nvidia.com~1gpu"
    );
    let yaml = printed(
        1,
        &["policy", "-f", POLICY, "--pod", PODS, "-o", "yaml"],
        "",
    );
    assert!(yaml.contains("outcome: refused"), "{yaml}");
}

#[test]
fn a_policy_alone_from_the_standard_input() {
    let rules = r#"{"rules": [{"namespaces": ["a"], "sliceRatio": 65},
        {"labels": {"gpu": "shared"}, "sliceRatio": 2}, {}]}"#;
    insta::assert_snapshot!(printed(1, &["policy", "-f", "-"], rules), @r#"
    policy: 3 rules
      bad: rules[0]: sliceRatio is 65; write 1 to 64, or leave it out
      warning: rules[1]: "labels" is no field and is ignored; the fields are namespaces, labelSelector, workloadType, sliceRatio
      warning: rules[1] matches every pod, so that no rule behind it is reached (1); put it last, or give it namespaces or a labelSelector
    "#);
}

#[test]
fn workloads_and_namespaces() {
    let made = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  template:\n    \
                spec: {containers: [{name: c, resources: {limits: {amd.com/gpu: 3}}}]}\n---\n\
                kind: Service\nmetadata: {name: s}\n";
    let args = [
        "policy",
        "-f",
        POLICY,
        "--pod",
        "-",
        "-n",
        "gpu-lab",
        "--gpu-resource",
        "amd.com/gpu",
        "--gpu-shared-resource",
        "amd.com/share",
    ];
    let out = check(&args, made);
    assert_eq!(
        String::from_utf8(out.stderr).unwrap(),
        "left out: Service s (-, document 2)\n"
    );
    insta::assert_snapshot!(String::from_utf8(out.stdout).unwrap(), @"
    policy: 3 rules
    Deployment d (-, document 1): changed
      rules[0] matches; the ratio is workloadType of rules[0]
      container c
      - amd.com/gpu: 3
      + amd.com/share: 12
    ");
}

#[test]
fn shares_are_thousandths_of_a_card() {
    let made = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, \
                resources: {limits: {nvidia.com/gpu: 1}}}]}\n";
    let rules = concat!(env!("CARGO_TARGET_TMPDIR"), "/quarter-policy.json");
    std::fs::write(rules, r#"{"rules": [{"sliceRatio": 1}]}"#).unwrap();
    let resource = ["--gpu-shared-resource", "tautline.io/gpu-milli"];
    let args = ["policy", "-f", rules, "--pod", "-"];
    let four = ["--gpu-shares-per-card", "4"];
    let text = printed(0, &[&args[..], &resource, &four].concat(), made);
    assert!(text.contains("+ tautline.io/gpu-milli: 250"), "{text}");
    let out = check(&[&args[..], &resource].concat(), made);
    let error = String::from_utf8(out.stderr).unwrap();
    assert!(
        error.contains("set the number of shares of a card, --gpu-shares-per-card"),
        "{error}"
    );
}

#[test]
fn models_in_order_and_refused() {
    insta::assert_snapshot!(printed(0, &["model", "-f", MODELS], ""));
    insta::assert_snapshot!(printed(1, &["model", "-f", MODELS, REFUSED], ""));
}

#[test]
fn models_for_programs() {
    let json = printed(1, &["model", "-f", MODELS, "-f", REFUSED, "-o", "json"], "");
    let all: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(all[0]["object"], "Model llm/qwen");
    assert_eq!(all[0]["accepted"], true);
    assert_eq!(all[0]["defaults"][0]["value"], "30s");
    assert_eq!(all[6]["document"], 1);
    assert_eq!(all[6]["file"], REFUSED);
    assert_eq!(all[6]["errors"].as_array().unwrap().len(), 10);
}

#[test]
fn errors_name_the_fix() {
    let map =
        |data: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\n{data}");
    let printed = [
        failure(
            &["policy", "-f", "-"],
            r#"{"rules": [{"sliceRatio": "8"}]}"#,
        ),
        failure(&["policy", "-f", "-"], r#"{"rules": "#),
        failure(&["policy", "-f", "-"], &map("data: {policy.json: '[]'}")),
        failure(&["policy", "-f", "-"], &map("data: {other: '{}'}")),
        failure(&["policy", "-f", "-"], "kind: ConstraintPolicyOffer"),
        failure(&["policy", "-f", "-"], "kind: [ConfigMap"),
        failure(&["policy", "-f", POLICY, "--pod", "-"], "kind: Service"),
        failure(&["policy", "-f", POLICY, "--gpu-resource", "gpu"], ""),
        failure(&["model", "-f", "-"], "kind: Pod"),
        failure(&["model", "-f", "-"], "a: ["),
        failure(&["model", "-f", "nowhere.yaml"], ""),
    ];
    insta::assert_snapshot!(printed.concat());
}

#[test]
fn folders_are_read_as_by_plan() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../");
    let example = |name: &str| std::fs::read_to_string(format!("{root}{name}")).unwrap();
    write("app/policy.yaml", &example(POLICY));
    write(
        "app/pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, \
         image: i}]}\n",
    );
    write("app/patch.yaml", "spec: {replicas: 2}\n");
    write("app/kustomization.yaml", "patches: [{path: patch.yaml}]\n");
    write("chart/Chart.yaml", "name: web\n");
    write("chart/templates/pod.yaml", "{{ .Values.pod }}\n");
    write("compose.yaml", "services: {}\n");
    let path = dir.path().to_str().unwrap();
    let out = check(&["policy", "-f", path, "--pod", path], "");
    let text = [out.stderr, out.stdout].concat();
    let text = String::from_utf8(text).unwrap().replace(path, "DIR");
    insta::assert_snapshot!(text);

    write("model.yaml", &example(MODELS));
    let models = printed(0, &["model", "-f", path], "");
    assert!(
        models.contains("/model.yaml, document 1): accepted"),
        "{models}"
    );
    write(
        "app/mutation.yaml",
        &example("examples/mutation-policies/1-no-gpu.yaml"),
    );
    let pods = format!("{path}/app");
    let changed = printed(0, &["mutation", "-f", path, "--object", &pods], "");
    assert!(changed.contains("Pod p ("), "{changed}");
}

#[test]
fn help_has_an_example() {
    for command in ["policy", "model"] {
        let help = printed(0, &[command, "--help"], "");
        assert!(help.contains("Example"), "{help}");
    }
}

const MUTATION: &str = "examples/mutation-policies";

/// `tautline check mutation` of one example on its pods.
fn mutated(code: i32, policy: &str, more: &[&str]) -> String {
    let (policy, pods) = (
        format!("{MUTATION}/{policy}.yaml"),
        format!("{MUTATION}/pods.yaml"),
    );
    let args = ["mutation", "-f", &policy, "--object", &pods];
    printed(code, &[&args[..], more].concat(), "")
}

#[test]
fn mutation_policies_step_by_step() {
    insta::assert_snapshot!("no_gpu", mutated(0, "1-no-gpu", &[]));
    insta::assert_snapshot!("rdma", mutated(0, "2-rdma", &[]));
    insta::assert_snapshot!("labels", mutated(0, "3-labels", &[]));
    insta::assert_snapshot!("refused", mutated(1, "refused", &[]));
}

#[test]
fn mutation_policies_for_programs() {
    let report: Value = serde_json::from_str(&mutated(0, "3-labels", &["-o", "json"])).unwrap();
    let trainer = &report["objects"][0];
    assert_eq!(trainer["outcome"], "changed");
    assert_eq!(trainer["patch"][0]["path"], "/metadata/labels");
    let step = &trainer["invocations"][0]["steps"][0];
    let extended = serde_json::json!(["nvidia.com/gpu", "preferred.jp/rdma"]);
    assert_eq!(step["variables"]["extended"]["value"], extended);
    assert_eq!(report["objects"][1]["invocations"][0]["end"], "unchanged");
}

#[test]
fn a_request_stands_for_itself() {
    let review = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "UPDATE", "kind": {"version": "v1", "kind": "Pod"},
        "resource": {"version": "v1", "resource": "pods"}, "namespace": "default",
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}}}"#;
    let policy = format!("{MUTATION}/1-no-gpu.yaml");
    let printed = printed(0, &["mutation", "-f", &policy, "--object", "-"], review);
    assert!(
        printed.contains("no-gpu: not evaluated, none of its resourceRules matches"),
        "{printed}"
    );
}

#[test]
fn files_without_a_policy_are_reported() {
    let pods = format!("{MUTATION}/pods.yaml");
    let printed = failure(&["mutation", "-f", &pods], "");
    assert!(
        printed.contains("no object is a MutationPolicy"),
        "{printed}"
    );
    let policy = format!("{MUTATION}/1-no-gpu.yaml");
    let printed = failure(&["mutation", "-f", &policy, "--object", "-"], "{a: 1}");
    assert!(
        printed.contains("has no Kubernetes object (apiVersion and kind)"),
        "{printed}"
    );
}

#[test]
fn objects_of_a_list_are_checked_one_by_one() {
    let list = r#"{"apiVersion": "v1", "kind": "PodList", "items": [
        {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}},
        {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}]}"#;
    let policy = format!("{MUTATION}/1-no-gpu.yaml");
    let args = ["mutation", "-f", &policy, "--object", "-", "-o", "json"];
    let report: Value = serde_json::from_str(&printed(0, &args, list)).unwrap();
    let objects = report["objects"].as_array().unwrap();
    let of = |i: usize| (&objects[i]["object"], &objects[i]["outcome"]);
    assert_eq!(objects.len(), 2);
    assert_eq!(of(1), (&"Pod b".into(), &"changed".into()));
}

#[test]
fn built_in_admission_comes_before_policies() {
    // The policy sees the token's mount, and its own container gets one.
    let rules = r#"{resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}"#;
    let expression = r#"[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "side",
        image: "x:" + object.spec.containers[0].volumeMounts[0].name + "-" + string(object.spec.priority)}}]"#;
    let expression = Value::from(expression);
    let policy = format!(
        "apiVersion: tautline.io/v1alpha1\nkind: MutationPolicy\nmetadata: {{name: side}}\n\
         spec:\n  reinvocationPolicy: Never\n  matchConstraints: {rules}\n  mutations:\n  \
         - {{patchType: JSONPatch, jsonPatch: {{expression: {expression}}}}}\n---\n\
         apiVersion: tautline.io/v1alpha1\nkind: MutationPolicyBinding\nmetadata: {{name: side}}\n\
         spec: {{policyName: side}}\n"
    );
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/side.yaml");
    std::fs::write(file, policy).unwrap();
    let pod = |more: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n\
             spec: {{containers: [{{name: c, image: x}}]{more}}}\n"
        )
    };
    let args = ["mutation", "-f", file, "--object", "-"];
    let json = printed(0, &[&args[..], &["-o", "json"]].concat(), &pod(""));
    let report: Value = serde_json::from_str(&json).unwrap();
    let added = &report["objects"][0]["patch"][0]["value"];
    assert_eq!(added["image"], "x:kube-api-access-xxxxx-0");
    let path = "/var/run/secrets/kubernetes.io/serviceaccount";
    assert_eq!(added["volumeMounts"][0]["mountPath"], path);

    let printed_of = |code: i32, more: &str| printed(code, &args, &pod(more));
    let unknown = printed_of(1, ", priorityClassName: high");
    let note = "note: PriorityClass high is not given, so the pod has no priority here; name its file by -f";
    assert!(unknown.contains(note), "{unknown}");
    let refused = printed_of(1, ", priority: 5");
    let why = "403 Forbidden: pods \"a\" is forbidden: the integer value of priority (5) must not be provided";
    assert!(refused.contains(why), "{refused}");
}

#[test]
fn pod_that_a_limit_range_forbids_is_refused() {
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/limits.yaml");
    let limits = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: a, namespace: default}\n\
                  spec: {limits: [{type: Container, max: {cpu: 1}}]}\n";
    std::fs::write(file, limits).unwrap();
    let policy = format!("{MUTATION}/3-labels.yaml");
    let args = ["mutation", "-f", &policy, file, "--object", "-"];
    let pod = |cpu: u8| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{containers: [{{name: c, \
             image: x, resources: {{limits: {{cpu: {cpu}, nvidia.com/gpu: 1}}}}}}]}}\n"
        )
    };
    let admitted = printed(0, &args, &pod(1));
    assert!(admitted.contains(": changed, "), "{admitted}");
    let refused = printed(1, &args, &pod(4));
    let why = "403 Forbidden: pods \"a\" is forbidden: maximum cpu usage per Container is 1";
    assert!(
        refused.contains(": refused, ") && refused.contains(why),
        "{refused}"
    );
    let review = serde_json::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": "CREATE", "kind": {"version": "v1", "kind": "Pod"},
            "resource": {"version": "v1", "resource": "pods"}, "namespace": "default",
            "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "4"}}}]}}}});
    let refused = printed(1, &args, &review.to_string());
    assert!(refused.contains(why), "{refused}");
}

#[test]
fn policy_without_its_parameters_is_reported() {
    let text = std::fs::read_to_string(format!(
        "{}/../{MUTATION}/2-rdma.yaml",
        env!("CARGO_MANIFEST_DIR")
    ));
    let text = text.unwrap();
    let (policy, _) = text.rsplit_once("---").unwrap();
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/rdma.yaml");
    let pods = format!("{MUTATION}/pods.yaml");
    let check = |code: i32, policy: String| {
        std::fs::write(file, policy).unwrap();
        printed(code, &["mutation", "-f", file, "--object", &pods], "")
    };
    let allow = check(
        0,
        policy.replace(
            "parameterNotFoundAction: Deny",
            "parameterNotFoundAction: Allow",
        ),
    );
    let why = "rdma / rdma: not evaluated, no parameter matches its paramRef; \
               name the file of the parameter by -f";
    assert!(allow.contains(why), "{allow}");
    let start = policy.find("  paramRef:").unwrap();
    let null = check(1, policy[..start].to_owned());
    let warning = "warning: binding rdma: spec.paramRef: is missing, so params is null, although policy \
                   \"rdma\" has a paramKind";
    assert!(null.contains(warning), "{null}");
}
