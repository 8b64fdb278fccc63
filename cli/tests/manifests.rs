//! `-f` of `plan`, `gpu`, `simulate` and `check`: its sources and its warnings.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// The binary with this standard input, from the root of the repository.
fn tautline(input: &str, args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tautline"))
        .args(args)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may have ended.
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn pods(out: &Output) -> Vec<String> {
    let list: Value = serde_json::from_slice(&out.stdout).unwrap();
    let pods = list["pods"].as_array().unwrap().iter();
    pods.map(|p| p["pod"].as_str().unwrap().to_owned())
        .collect()
}

const FILES: [&str; 4] = [
    "1-cluster.yaml",
    "2-providers.yaml",
    "3-policies.yaml",
    "4-pods.yaml",
];

#[test]
fn examples_have_no_warnings() {
    for (args, code) in [
        // Each has a waiting pod.
        (
            &["plan", "-f", "examples/edge-inference", "--strict"][..],
            1,
        ),
        (&["plan", "-f", "examples/gpu-slices", "--strict"], 1),
        (&["gpu", "top", "-f", "examples/gpu-slices", "--strict"], 0),
        (
            &[
                "simulate",
                "-f",
                "examples/gpu-slices",
                "--strict",
                "--seeds",
                "42",
            ],
            0,
        ),
        (
            &[
                "check",
                "mutation",
                "-f",
                "examples/mutation-policies/1-no-gpu.yaml",
                "--object",
                "examples/mutation-policies/pods.yaml",
            ],
            0,
        ),
        (
            &[
                "check",
                "policy",
                "-f",
                "examples/gpu-admission/1-policy.yaml",
                "--pod",
                "examples/gpu-admission/2-pods.yaml",
            ],
            1,
        ),
    ] {
        let out = tautline("", args);
        let printed = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {printed}");
        assert!(!printed.contains("ignored"), "{args:?}: {printed}");
    }
}

/// A folder with these faults: an unknown field, an unreadable quantity, and a wrong
/// apiVersion; and a Deployment without pods, which is none.
fn faulty() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-0, namespace: shop}\nspec:\n  \
               containers:\n  - name: main\n    resources:\n      requets: {cpu: 1}\n      \
               limits: {cpu: two}\n---\napiVersion: apps/v1\nkind: Deployment\n\
               metadata: {name: db, namespace: shop}\nspec: {template: {metadata: {}}}\n";
    std::fs::write(dir.path().join("pods.yaml"), pod).unwrap();
    let offer = "apiVersion: v1\nkind: Node\nmetadata: {name: 'n'}\n\
                 status: {allocatable: {cpu: 4, pods: 10}}\n---\n\
                 apiVersion: constraint.ciena.com/v1\nkind: ConstraintPolicyOffer\n\
                 metadata: {name: o, namespace: shop}\nspec: {targets: []}\n";
    std::fs::write(dir.path().join("offers.yaml"), offer).unwrap();
    dir
}

#[test]
fn ignored_parts_are_named_with_file_and_line() {
    let dir = faulty();
    let path = dir.path().display().to_string();
    let out = tautline("", &["plan", "-f", &path]);
    let printed = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{printed}");
    for expected in [
        format!(
            "{path}/offers.yaml:6: ConstraintPolicyOffer shop/o: apiVersion: \
             \"constraint.ciena.com/v1\" has no ConstraintPolicyOffer, so it is ignored; \
             write constraint.ciena.com/v1alpha1"
        ),
        format!(
            "{path}/pods.yaml:8: Pod shop/web-0: spec.containers[0].resources.requets: \
             unknown field, so it is ignored; correct or remove it"
        ),
        format!("{path}/pods.yaml:9: Pod shop/web-0: spec.containers[0].resources.limits.cpu: "),
    ] {
        assert!(printed.contains(&expected), "{expected}\n{printed}");
    }
    assert_eq!(printed.lines().count(), 3, "{printed}");
    assert!(
        text(&out.stdout).contains("pod shop/db-0 goes to n\n"),
        "of its template"
    );

    for args in [
        &["plan", "-f", &path, "--strict"][..],
        &["gpu", "top", "-f", &path, "--strict"],
        &["simulate", "-f", &path, "--strict"],
    ] {
        let out = tautline("", args);
        let printed = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {printed}");
        assert!(
            printed.contains("requets")
                && printed.contains("error: --strict: faults in the manifests: 3"),
            "{args:?}: {printed}"
        );
        assert_eq!(out.stdout, b"");
    }
    let pods = format!("{path}/pods.yaml");
    let policy = "examples/gpu-admission/1-policy.yaml";
    let out = tautline("", &["check", "policy", "-f", policy, "--pod", &pods]);
    let printed = text(&out.stderr);
    assert!(
        printed.contains(&format!("{pods}:8: Pod shop/web-0")),
        "{printed}"
    );
}

#[test]
fn strict_plan_refuses_rules_that_cannot_work() {
    let policy = |rules: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: latency, namespace: shop, labels: \
             {{constraint.ciena.com/constraint-latency: enabled}}}}\nspec: {{}}\n---\n\
             apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicy\n\
             metadata: {{name: near, namespace: shop}}\nspec:\n  rules:\n{rules}"
        )
    };
    let faulty = policy("  - {name: latency, limit: 20}\n  - {name: colour}\n");
    let strict = ["plan", "-f", "-", "--strict"];
    let out = tautline(&faulty, &strict);
    let printed = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{printed}");
    for expected in [
        "standard input:11: ConstraintPolicy shop/near: spec.rules[0].limit: ",
        "standard input:12: ConstraintPolicy shop/near: spec.rules[1].name: no Service provides",
        "error: --strict: faults in the manifests: 2",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    let out = tautline(&faulty, &strict[..3]);
    assert_eq!(
        out.status.code(),
        Some(0),
        "warnings: {}",
        text(&out.stderr)
    );
    let out = tautline(&policy("  - {name: latency, limit: 20ms}\n"), &strict);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));

    // `gpu` calls no provider.
    let out = tautline(&faulty, &["gpu", "top", "-f", "-", "--strict"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}

#[test]
fn test_files_are_not_manifests() {
    let out = tautline("", &["test", "examples/near-server", "-o", "tap"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let tap = text(&out.stdout);
    assert!(tap.starts_with("TAP version 13\n1..5\nok 1 - "), "{tap}");
    let plan = [
        "plan",
        "-f",
        "examples/near-server",
        "--strict",
        "-o",
        "json",
    ];
    let out = tautline("", &plan);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(pods(&out), ["client-0", "client-1", "server-0"]);
    let file = "examples/near-server/tests/near.tautline-test.yaml";
    let out = tautline("", &["test", file, "--filter", "nothing"]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
}

#[test]
fn hidden_folders_and_links_back_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let workflows = dir.path().join(".github/workflows");
    std::fs::create_dir_all(&workflows).unwrap();
    std::fs::write(workflows.join("ci.yaml"), "on: [push]\n").unwrap();
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}}";
    std::fs::write(dir.path().join("pod.yaml"), pod).unwrap();
    std::os::unix::fs::symlink(dir.path(), dir.path().join("link")).unwrap();
    let out = tautline(
        "",
        &["plan", "-f", dir.path().to_str().unwrap(), "-o", "json"],
    );
    assert_eq!(pods(&out), ["p"], "{}", text(&out.stderr));
}

/// The shapes of files that others publish, each with its reason in its first lines.
#[test]
fn files_of_others_are_read_as_kubectl_reads_them() {
    let folder = "cli/tests/data/manifests";
    for (file, expected) in [
        (
            "01-jobset-backoff0.yaml",
            &[
                "vision-train-workers-0-0",
                "vision-train-workers-0-1",
                "vision-train-workers-0-2",
                "vision-train-workers-0-3",
            ][..],
        ),
        (
            "03-kai-fractions.yaml",
            &[
                "halves-gpu-worker-0-0",
                "halves-gpu-worker-1-0",
                "halves-head",
            ],
        ),
        (
            "05-lws-exclusive.yaml",
            &[
                "exclusive-0",
                "exclusive-0-1",
                "exclusive-0-2",
                "exclusive-0-3",
                "exclusive-1",
                "exclusive-1-1",
                "exclusive-1-2",
                "exclusive-1-3",
                "exclusive-2",
                "exclusive-2-1",
                "exclusive-2-2",
                "exclusive-2-3",
            ],
        ),
        ("07-dra-firstavailable-generatename.yaml", &[]),
        ("09-pod-level-resources.yaml", &["pod-level"]),
        (
            "11-statefulset-kind-first.yaml",
            &["ring-5", "ring-6", "ring-7"],
        ),
        ("13-dra-extended-resource.yaml", &["one-card"]),
        ("15-helm-output.yaml", &["app-0"]),
        ("17-podlist.json", &["p-0"]),
        ("19-folder", &["web"]),
        ("20-duplicate-keys.yaml", &["app-0"]),
        ("24-crlf.yaml", &["web"]),
        ("24-utf8-bom.yaml", &["web"]),
        ("25-concatenated.json", &["j", "k"]),
    ] {
        let path = format!("{folder}/{file}");
        let out = tautline("", &["plan", "-f", &path, "-o", "json"]);
        assert_ne!(out.status.code(), Some(2), "{file}: {}", text(&out.stderr));
        assert_eq!(pods(&out), expected, "{file}: {}", text(&out.stderr));
    }
    let out = tautline(
        "",
        &["plan", "-f", &format!("{folder}/19-folder"), "--strict"],
    );
    let printed = text(&out.stderr);
    for (file, reason) in [
        ("docker-compose.yml", "has no Kubernetes object"),
        ("kustomization.yaml", "is a kustomization"),
        ("tsconfig.json", "has no Kubernetes object"),
        ("values.yaml", "has no Kubernetes object"),
    ] {
        let line = format!("{folder}/19-folder/{file}: {reason}");
        assert!(printed.contains(&line), "{line}\n{printed}");
    }
    let twice = format!("{folder}/20-duplicate-keys.yaml");
    let out = tautline("", &["plan", "-f", &twice, "--strict"]);
    let printed = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{printed}");
    assert!(
        printed.contains("spec.template.spec.affinity: is there twice"),
        "{printed}"
    );
}

#[test]
fn utf_16_charts_and_null_amounts_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let pod = "\u{feff}apiVersion: v1\r\nkind: Pod\r\nmetadata: {name: p, labels: {a: }}\r\n\
               spec: {containers: [{name: m, resources: {requests: {cpu: null}}}]}\r\n";
    let wide: Vec<u8> = pod.encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(dir.path().join("pod.yaml"), wide).unwrap();
    let chart = dir.path().join("chart");
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    std::fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: c\n").unwrap();
    std::fs::write(chart.join("templates/a.yaml"), "{{ if .x }}\n").unwrap();
    let path = dir.path().to_str().unwrap();
    let out = tautline("", &["plan", "-f", path, "-o", "json"]);
    let printed = text(&out.stderr);
    assert_eq!(pods(&out), ["p"], "{printed}");
    assert!(
        printed.contains("chart: is a Helm chart, so it is left out"),
        "{printed}"
    );
    let out = tautline("", &["plan", "-f", chart.to_str().unwrap()]);
    let printed = text(&out.stderr);
    assert!(
        printed.contains("holds no manifests") && printed.contains("helm template"),
        "{printed}"
    );
}

fn write(dir: &std::path::Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

const WEB: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  \
                   replicas: 2\n  template: {metadata: {labels: {app: web}}, spec: {containers: []}}\n";

/// A repository with the files of many tools.
#[test]
fn files_of_other_tools_are_skipped_with_a_line() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        &[
            ("k8s/deploy.yaml", WEB),
            (
                "skaffold.yaml",
                "apiVersion: skaffold/v4beta1\nkind: Config\n",
            ),
            ("drone.yml", "kind: pipeline\n"),
            ("eslint.json", "{\"kind\":\"eslint\"}"),
            ("jinja.yml", "a: {{ jinja }}\n"),
            ("tsconfig.json", "{ // c\n \"a\": 1,}"),
            ("playbook.yaml", "- hosts: all\n"),
            ("str.yaml", "just a string\n"),
            ("empty.yaml", ""),
            ("chart/Chart.yaml", "apiVersion: v2\nname: c\n"),
            (
                "chart/templates/a.yaml",
                "{{- if .Values.x }}\nkind: Pod\n{{- end }}\n",
            ),
        ],
    );
    let path = dir.path().to_str().unwrap();
    let out = tautline("", &["plan", "-f", path, "--strict", "-o", "json"]);
    let printed = text(&out.stderr);
    assert_ne!(out.status.code(), Some(2), "{printed}");
    assert_eq!(pods(&out), ["web-0", "web-1"], "{printed}");
    let none = "has no Kubernetes object (apiVersion and kind), so it is left out";
    for (file, reason) in [
        ("skaffold.yaml", none),
        ("drone.yml", none),
        ("eslint.json", none),
        ("jinja.yml", "is a template, so it is left out"),
        ("playbook.yaml", none),
        ("str.yaml", none),
    ] {
        let line = format!("{path}/{file}: {reason}\n");
        assert!(printed.contains(&line), "{line}\n{printed}");
    }
    let helm = format!(
        "{path}/chart: is a Helm chart, so it is left out; use helm template chart {path}/chart | \
         tautline plan -f -\n"
    );
    assert!(printed.contains(&helm), "{printed}");

    // The same for paths that the user names.
    let [templates, file, values] =
        ["chart/templates", "chart/templates/a.yaml", "drone.yml"].map(|p| format!("{path}/{p}"));
    let deploy = format!("{path}/k8s");
    let args = [
        "plan", "-f", &templates, "-f", &file, "-f", &values, "-f", &deploy, "--strict",
    ];
    let out = tautline("", &args);
    let printed = text(&out.stderr);
    assert_ne!(out.status.code(), Some(2), "{printed}");
    for part in [&templates, &file] {
        let line = format!(
            "{part}: is part of a Helm chart, so it is left out; use helm template chart \
             {path}/chart | tautline plan -f -\n"
        );
        assert!(printed.contains(&line), "{line}\n{printed}");
    }
}

#[test]
fn patches_of_kustomizations_are_no_objects() {
    let dir = tempfile::tempdir().unwrap();
    let overlay = "resources: [../base]\npatches: [{path: patch.yaml}]\nnamePrefix: prod-\n";
    write(
        dir.path(),
        &[
            ("base/deploy.yaml", WEB),
            ("base/kustomization.yaml", "resources: [deploy.yaml]\n"),
            ("overlay/kustomization.yaml", overlay),
            ("overlay/patch.yaml", &WEB.replace('2', "5")),
        ],
    );
    let path = dir.path().to_str().unwrap();
    let out = tautline("", &["plan", "-f", path, "--strict", "-o", "json"]);
    let printed = text(&out.stderr);
    assert_eq!(pods(&out), ["web-0", "web-1"], "{printed}");
    let line = format!("; use kubectl kustomize {path}/overlay | tautline plan -f -\n");
    assert!(printed.contains(&line), "{printed}");
    let overlay = format!("{path}/overlay");
    let out = tautline("", &["gpu", "top", "-f", &overlay]);
    let printed = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{printed}");
    let line = format!("; use kubectl kustomize {overlay} | tautline gpu top -f -\n");
    assert!(printed.contains(&line), "{printed}");
}

#[test]
fn objects_without_a_namespace_get_that_of_the_flag() {
    let plan = |args: &[&str]| {
        let out = tautline(WEB, &[&["plan", "-f", "-", "-o", "json"], args].concat());
        let plan: Value = serde_json::from_slice(&out.stdout).unwrap();
        let pods = plan["pods"].as_array().unwrap().iter();
        pods.map(|p| p["namespace"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(plan(&["-n", "shop"]), ["shop", "shop"]);
    assert_eq!(plan(&[]), ["default", "default"]);
    for command in [&["gpu", "top"][..], &["gpu", "fragmentation"]] {
        let out = tautline(WEB, &[command, &["-f", "-", "-n", "shop"]].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    }
}

#[test]
fn workloads_without_pods_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let none = WEB.replace("replicas: 2", "replicas: 0");
    let flock = "apiVersion: example.com/v1\nkind: Flock\nmetadata: {name: f}\nspec: {birds: 2, \
                 pod: {spec: {containers: []}}}\n";
    let table = "- {apiVersion: example.com/*, kind: Flock, pods: [{template: spec.pod, counts: \
                 [spec.birds]}]}\n";
    write(dir.path(), &[("table.txt", table)]);
    let table = format!("{}/table.txt", dir.path().display());
    let input = format!("{none}---\n{flock}");
    let out = tautline(
        &input,
        &["plan", "-f", "-", "-o", "json", "--workloads", &table],
    );
    assert_eq!(pods(&out), ["f-0", "f-1"]);
    let printed = text(&out.stderr);
    assert!(
        printed.contains("no pods of Deployment web (spec.replicas is 0)\n"),
        "{printed}"
    );
    write(dir.path(), &[("table.txt", "- {kind: Flock}\n")]);
    let out = tautline(&input, &["plan", "-f", "-", "--workloads", &table]);
    let printed = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{printed}");
    assert!(
        printed.contains("table.txt: line 1: [0]: missing field"),
        "{printed}"
    );
}

#[test]
fn errors_quote_a_part_of_a_large_value() {
    let number = "1".repeat(2_000_000);
    let pod = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  replicas: ";
    let out = tautline(&format!("{pod}{number}\n"), &["plan", "-f", "-"]);
    let printed = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{} bytes", printed.len());
    assert!(printed.len() < 1000, "{} bytes", printed.len());
    assert!(
        printed.contains(":5: Deployment d: spec.replicas: ") && printed.contains("i32"),
        "{printed}"
    );
}

#[test]
fn errors_name_file_line_and_field() {
    let offer = "# one\n---\napiVersion: constraint.ciena.com/v1alpha1\n\
                 kind: ConstraintPolicyOffer\nmetadata: {name: o, namespace: shop}\n\
                 spec: {targets: [{kind: Pod}], grace: tomorrow}\n";
    for (input, expected) in [
        (
            offer,
            "error: standard input:3: ConstraintPolicyOffer shop/o: spec.grace",
        ),
        (
            &offer.replace("tomorrow", "10"),
            "error: standard input:6: ConstraintPolicyOffer shop/o: spec.grace: invalid type",
        ),
        (
            "a: 1",
            "error: standard input: holds no manifests (.yaml, .yml, .json); standard input: has no \
             Kubernetes object (apiVersion and kind), so it is left out",
        ),
        (
            "kind: Pod",
            "error: standard input:1: document 1: apiVersion and kind are missing",
        ),
        (
            "",
            "error: standard input: is empty; did the command before",
        ),
        ("# only", "error: standard input: holds no manifests"),
    ] {
        let out = tautline(input, &["plan", "-f", "-"]);
        let printed = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{printed}");
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
}

#[test]
fn files_and_standard_input_are_read_together() {
    let folder = "examples/edge-inference";
    let paths = FILES.map(|f| format!("{folder}/{f}"));
    let of_folder = tautline("", &["plan", "-f", folder, "-o", "json"]);
    let nodes = |out: &Output| -> Vec<(Value, Value)> {
        let list: Value = serde_json::from_slice(&out.stdout).unwrap();
        let list = list["pods"].as_array().unwrap().iter();
        list.map(|p| (p["pod"].clone(), p["node"].clone()))
            .collect()
    };
    let mut args = vec!["plan", "-o", "json"];
    for path in &paths[..3] {
        args.extend(["-f", path]);
    }
    args.extend(["-f", "-"]);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let input = std::fs::read_to_string(format!("{root}/{}", paths[3])).unwrap();
    let of_files = tautline(&input, &args);
    assert_eq!(
        of_files.status.code(),
        Some(1),
        "{}",
        text(&of_files.stderr)
    );
    assert_eq!(text(&of_files.stderr), "");
    assert_eq!(nodes(&of_files), nodes(&of_folder));
    assert!(nodes(&of_folder).len() > 3);
}

#[test]
fn namespace_flag_selects_pods() {
    let plan = |args: &[&str]| {
        let example = ["plan", "-f", "examples/edge-inference", "-o", "json"];
        tautline("", &[&example, args].concat())
    };
    let one = plan(&["-n", "vision", "--pod", "detector-1"]);
    assert_eq!(one.status.code(), Some(0), "{}", text(&one.stderr));
    assert_eq!(pods(&one), ["detector-1"]);
    assert!(pods(&plan(&["-n", "vision"])).len() > 3);
    let none = plan(&["-n", "shop"]);
    assert_eq!(pods(&none), [""; 0]);
    assert!(
        text(&none.stderr).contains("no pod is pending in namespace shop"),
        "{}",
        text(&none.stderr)
    );
    for (args, code, expected) in [
        (
            &["--pod", "vision/none"][..],
            1,
            "error: there is no pod vision/none, nor one",
        ),
        (
            &["--pod", "detector-1"],
            1,
            "error: there is no pod default/detector-1; there is vision/detector-1",
        ),
        (
            &["--pod", "vision/detector-1", "-n", "shop"],
            2,
            "leave one out",
        ),
        (&["--pod", "A"], 2, "lower-case"),
    ] {
        let out = plan(args);
        let printed = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {printed}");
        assert!(printed.contains(expected), "{args:?}: {printed}");
    }
    let out = tautline("", &["plan", "--strict"]);
    assert_eq!(out.status.code(), Some(2), "--strict is about files");
}
