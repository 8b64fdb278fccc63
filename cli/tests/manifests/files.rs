//! The files that are read, and those of other tools, which are left out.

use std::process::Output;

use serde_json::Value;

use crate::{WEB, pods, tautline, text, write};

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
            ("daemon-values.yaml", "kind: DaemonSet\nreplicas: 2\n"),
            ("chart/Chart.yaml", "apiVersion: v2\nname: c\n"),
            (
                "chart/templates/a.yaml",
                "{{- if .Values.x }}\nkind: Pod\n{{- end }}\n",
            ),
        ],
    );
    let path = dir.path().to_str().unwrap();
    std::fs::write(dir.path().join("binary.yaml"), b"\x7fELF\0\xff").unwrap();
    std::fs::write(dir.path().join("latin.yaml"), b"name: caf\xe9\n").unwrap();
    std::os::unix::fs::symlink("nothing.yaml", dir.path().join("link.yaml")).unwrap();
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
        ("daemon-values.yaml", none),
        ("latin.yaml", none),
        ("binary.yaml", "is not a text, so it is left out"),
        (
            "link.yaml",
            "is a link to a file that does not exist, so it is left out",
        ),
    ] {
        let line = format!("{path}/{file}: {reason}\n");
        assert!(printed.contains(&line), "{line}\n{printed}");
    }
    let helm = format!(
        "{path}/chart: is a Helm chart, so it is left out; use helm template chart {path}/chart | \
         tautline plan -f -\n"
    );
    assert!(printed.contains(&helm), "{printed}");

    let values = format!("{path}/daemon-values.yaml");
    let out = tautline("", &["plan", "-f", &values]);
    let printed = text(&out.stderr);
    assert!(
        printed.contains("apiVersion and kind are missing"),
        "{printed}"
    );

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

const FILES: [&str; 4] = [
    "1-cluster.yaml",
    "2-providers.yaml",
    "3-policies.yaml",
    "4-pods.yaml",
];

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
