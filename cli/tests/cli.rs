//! The real binary, as people and scripts use it.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use serde_json::Value;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tautline"));
    command
        .args(args)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent");
    command
}

fn tautline(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn demo_output() {
    let out = tautline(&["demo"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(text(&out.stderr), "");
    insta::assert_snapshot!(text(&out.stdout));
}

#[test]
fn plan_prints_json_and_sets_the_exit_code() {
    let out = tautline(&["plan", "-f", "examples/edge-inference", "-o", "json"]);
    assert_eq!(
        out.status.code(),
        Some(1),
        "tracker-0 has no node: {}",
        text(&out.stderr)
    );
    let plan: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(plan["apiVersion"], "tautline.io/v1alpha1");
    let of = |pod: &str| {
        plan["pods"]
            .as_array()
            .unwrap()
            .iter()
            .find(|p| p["pod"] == pod)
            .unwrap()
            .clone()
    };
    assert_eq!(of("detector-0")["node"], "north-2");
    assert_eq!(
        of("detector-0")["round"]["rules"][0]["provider"],
        "vision/latency-table"
    );
    assert!(
        of("tracker-0")["message"]
            .as_str()
            .unwrap()
            .contains("3 latency/OverLimit")
    );
    assert_eq!(of("dashboard-0")["round"], Value::Null);

    let one = tautline(&[
        "plan",
        "-f",
        "examples/edge-inference",
        "--pod",
        "vision/detector-1",
        "-o",
        "yaml",
    ]);
    assert_eq!(one.status.code(), Some(0), "{}", text(&one.stderr));
    assert!(
        text(&one.stdout).contains("node: north-2"),
        "alone, it has the best: {}",
        text(&one.stdout)
    );
}

#[test]
fn plan_is_stable_and_compared_with_a_saved_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let example = ["plan", "-f", "examples/edge-inference"];
    let plan = |more: &[&str]| {
        let out = tautline(&[&example[..], more].concat());
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let (_, yaml, _) = plan(&["-o", "yaml"]);
    assert_eq!(plan(&["-o", "yaml"]).1, yaml, "no times");
    assert!(
        !yaml.contains("Millis") && !yaml.contains("Micros"),
        "{yaml}"
    );
    assert!(
        plan(&["-o", "yaml", "--timings"])
            .1
            .contains("atUnixMillis")
    );

    let (saved, moved) = (path("saved"), path("moved"));
    std::fs::write(&saved, &yaml).unwrap();
    let on_moved = ["--fail-on", "moved", "--compare"];
    let (code, out, _) = plan(&[&on_moved[..], &[&saved]].concat());
    assert_eq!(code, Some(0), "{out}");
    assert!(
        out.ends_with(&format!("Changes since {saved}: none\n")),
        "{out}"
    );

    let other = yaml.replace(
        "pod: detector-0\n  node: north-2",
        "pod: detector-0\n  node: core-1",
    );
    std::fs::write(&moved, other).unwrap();
    let (code, out, _) = plan(&[&on_moved[..], &[&moved]].concat());
    assert_eq!(code, Some(1), "{out}");
    assert!(
        out.contains("  pod vision/detector-0 moves: core-1 -> north-2\n"),
        "{out}"
    );
    let (code, out, error) = plan(&[&on_moved[..], &[&moved, "-o", "json"]].concat());
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("moves: core-1 -> north-2"), "{error}");
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["changes"][0]["change"], "moved");

    let (code, _, error) = plan(&["--fail-on", "moved"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("needs --compare FILE"), "{error}");
}

#[test]
fn plan_of_manifests_without_a_cluster_names_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let team = write(
        "team.yaml",
        "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicy\n\
         metadata: {name: p, namespace: shop}\nspec: {rules: [{name: latency, limit: 20ms}]}\n---\n\
         apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicyOffer\n\
         metadata: {name: o, namespace: shop}\n\
         spec: {targets: [{kind: Pod, labelSelector: {matchLabels: {app: w}}}], policies: [p]}\n---\n\
         apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w, namespace: shop}\n\
         spec:\n  replicas: 12\n  selector: {matchLabels: {app: w}}\n  template:\n    \
         metadata: {labels: {app: w}}\n    spec: {containers: [{name: m, image: i}]}\n",
    );
    let nodes = write(
        "nodes.yaml",
        "apiVersion: v1\nkind: List\nitems:\n\
         - {apiVersion: v1, kind: Node, metadata: {name: a1},\n   \
            status: {allocatable: {cpu: '4', pods: '10'}}}\n\
         - {apiVersion: v1, kind: Pod, metadata: {name: other, namespace: x},\n   \
            spec: {containers: [{name: m, image: i}]}}\n",
    );
    let out = tautline(&["plan", "-f", &team]);
    let error = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{error}");
    assert_eq!(
        error.matches("kubectl get nodes,services -A").count(),
        1,
        "{error}"
    );
    assert!(error.contains("--assume-providers plans"), "{error}");
    assert!(!text(&out.stdout).contains("0/0"), "{}", text(&out.stdout));

    let out = tautline(&["plan", "-f", &team, "--nodes", &nodes, "--assume-providers"]);
    let (printed, error) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(error, "", "the providers are there");
    assert!(
        !printed.contains("pod x/other"),
        "only the manifests' pods: {printed}"
    );
    assert!(
        printed.contains("tautline-system/tautline-latency"),
        "{printed}"
    );
    let summary = printed.split("Summary of 12 pods:\n").nth(1).unwrap();
    assert!(summary.contains("goes to a node   10     1"), "{printed}");
    assert!(summary.contains("stays pending    2"), "{printed}");
}

#[test]
fn manifests_show_what_the_console_shows() {
    let run = |args: &[&str], example: &str| {
        let example = format!("examples/{example}");
        let out = tautline(&[args, &["-f", &example]].concat());
        let error = text(&out.stderr);
        assert_eq!(out.status.code(), Some(0), "{args:?}: {error}");
        text(&out.stdout)
    };
    let bindings = run(&["get", "bindings"], "edge-inference");
    assert!(bindings.starts_with("NAMESPACE   NAME"), "{bindings}");
    assert!(
        bindings.contains("Compliant   ") && bindings.contains(" of 20ms between "),
        "{bindings}"
    );
    let offers = run(
        &["get", "offers", "-n", "vision", "-o", "json"],
        "edge-inference",
    );
    let offers: Value = serde_json::from_str(&offers).unwrap();
    assert_eq!(offers["items"][0]["kind"], "ConstraintPolicyOffer");
    assert!(offers["items"][0]["status"].is_object(), "{offers}");
    let out = tautline(&[
        "get",
        "offers",
        "none",
        "-n",
        "vision",
        "-f",
        "examples/edge-inference",
    ]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));

    let binding = run(&["get", "bindings", "-o", "json"], "edge-inference");
    let binding: Value = serde_json::from_str(&binding).unwrap();
    let binding = &binding["items"][0];
    let [offer, name] =
        [&binding["spec"]["offer"], &binding["metadata"]["name"]].map(|v| v.as_str().unwrap());
    let described = run(&["describe", "binding", name], "edge-inference");
    for expected in [name, offer, "Namespace:         vision", "POLICY"] {
        assert!(described.contains(expected), "{expected}: {described}");
    }
    let described = run(
        &["describe", "offer", offer, "-n", "vision"],
        "edge-inference",
    );
    assert!(
        described.contains("Bindings:          1 (") && described.contains("POLICY"),
        "{described}"
    );

    // Its table is that of a tenant.
    let trusted = "--provider-namespaces=vision";
    let matrix = run(
        &["latency", "matrix", "-o", "json", trusted],
        "edge-inference",
    );
    assert!(matrix.contains("north"), "{matrix}");
    let pair = ["latency", "pair", "north-1", "north-2", trusted];
    let pair = run(&pair, "edge-inference");
    assert!(pair.contains("configured"), "{pair}");
    let top = run(&["latency", "top", trusted], "edge-inference");
    assert!(top.contains("LIMIT"), "{top}");

    // The waiting pods are placed, as by plan.
    let plan = tautline(&["plan", "-f", "examples/gpu-slices", "-o", "json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let cards = run(&["gpu", "top"], "gpu-slices");
    let placed = plan["pods"].as_array().unwrap();
    let placed = placed.iter().filter(|p| p["node"] == "slice-1");
    let names: Vec<&str> = placed.filter_map(|p| p["pod"].as_str()).collect();
    assert!(!names.is_empty(), "{plan}");
    for name in names {
        assert!(cards.contains(name), "{name}: {cards}");
    }
}

#[test]
fn plan_and_gpu_explain_agree() {
    let example = ["-f", "examples/gpu-slices", "-o", "json"];
    for pod in ["vision/detector-4", "vision/segmenter-3"] {
        let plan = tautline(&[&["plan", "--pod", pod], &example[..]].concat());
        let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
        let out = tautline(&[&["gpu", "explain", pod], &example[..]].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let explained: Value = serde_json::from_slice(&out.stdout).unwrap();
        let best = &explained["rules"][0]["nodes"][0]["node"];
        assert!(
            best.is_string() && plan["pods"][0]["node"] == *best,
            "{pod}: {plan} {best}"
        );
    }
    let out = tautline(&[&["gpu", "explain", "vision/trainer-3"], &example[..]].concat());
    assert_eq!(
        out.status.code(),
        Some(1),
        "it waits: {}",
        text(&out.stderr)
    );
}

#[test]
fn errors_name_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("offer.yaml");
    std::fs::write(
        &file,
        "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicyOffer\n\
         metadata: {name: o, namespace: shop}\nspec:\n  grace: 10\n  targets: [{kind: Pod}]\n",
    )
    .unwrap();
    let file = file.display().to_string();
    let failure = |args: &[&str]| {
        let out = tautline(args);
        assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
        text(&out.stderr)
    };
    let error = failure(&["plan", "-f", &file]);
    assert!(error.contains("ConstraintPolicyOffer shop/o"), "{error}");
    let error = failure(&["plan", "-f", "nowhere"]);
    assert!(error.contains("nowhere"), "{error}");
    let error = failure(&["plan"]);
    assert!(error.contains("no cluster"), "{error}");
    let error = failure(&["explain", "shop/web-0", "--url", "http://127.0.0.1:1"]);
    assert!(error.contains("cannot be reached"), "{error}");
    let error = failure(&["--log", "a=b=c", "crds"]);
    assert!(error.contains("log filter"), "{error}");
    let error = failure(&["--log", "tautlin=debug", "crds"]);
    assert!(error.contains("write tautline for all of it"), "{error}");
    let error = failure(&["--log", "inf", "crds"]);
    assert!(error.contains("\"inf\" is not a level"), "{error}");
}

/// A pipe without a reader.
fn closed_pipe() -> std::io::PipeWriter {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer
}

#[test]
fn closed_pipe_is_not_an_error() {
    for (args, code) in [
        (&["crds"][..], 0),
        (&["demo"], 0),
        (&["admission", "--render"], 0),
        // `plan` also answers by its exit code.
        (&["plan", "-f", "examples/edge-inference"], 1),
        (&["plan", "-f", "examples/edge-inference", "-o", "json"], 1),
        (&["gpu", "top", "-f", "examples/gpu-slices"], 0),
        (&["plan", "-f", "nowhere"], 2),
    ] {
        let out = command(args).stdout(closed_pipe()).output().unwrap();
        let printed = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {printed}");
        assert!(!printed.contains("panicked"), "{args:?}: {printed}");
        let silent = command(args)
            .stdout(closed_pipe())
            .stderr(closed_pipe())
            .status()
            .unwrap();
        assert_eq!(silent.code(), Some(code), "{args:?} with both closed");
    }
}

#[test]
fn empty_environment_variable_counts_as_unset() {
    let out = command(&["crds"]).env("TAUTLINE_LOG", "").output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let out = command(&["crds"])
        .env("TAUTLINE_LOG", "inf")
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2), "it counts otherwise");
    for (args, name) in [
        (&["explain", "shop/web-0"][..], "TAUTLINE_EXTENDER"),
        (&["latency", "top"], "TAUTLINE_LATENCY"),
    ] {
        // Another process may listen at the default address.
        let out = command(args).env(name, "").output().unwrap();
        let error = text(&out.stderr);
        assert!(!error.contains("is no URL"), "{name}: {error}");
    }
}

/// Every file that `args` with a folder write is committed in `folder`.
fn committed(args: &[&str], folder: &str) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display().to_string();
    let out = tautline(&[args, &[&path]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let names = std::fs::read_dir(dir.path()).unwrap();
    let checked = names.map(|entry| {
        let name = entry.unwrap().file_name();
        let read = |dir: &std::path::Path| std::fs::read_to_string(dir.join(&name)).unwrap();
        assert_eq!(
            read(dir.path()),
            read(&root.join(folder)),
            "{name:?}: run tautline {} {folder}",
            args.join(" ")
        );
    });
    checked.count()
}

#[test]
fn committed_manifests_are_up_to_date() {
    assert_eq!(committed(&["crds", "--dir"], "deploy/crds"), 7);
    assert_eq!(
        committed(&["crds", "--output=json-schema", "--dir"], "deploy/schemas"),
        7
    );
    let webhooks = ["admission", "--render", "--dir"];
    assert_eq!(committed(&webhooks, "deploy/webhooks"), 5);
}

#[test]
fn help_has_an_example() {
    for command in [
        "plan",
        "test",
        "simulate",
        "explain",
        "crds",
        "extender",
        "admission",
        "agent latency",
    ] {
        let help = text(&tautline(&[command.split(" ").collect(), vec!["--help"]].concat()).stdout);
        assert!(help.contains("Example"), "{command}: {help}");
    }
}
