//! The pods of manifests: their namespaces, and workloads without any.

use serde_json::Value;

use crate::{WEB, pods, tautline, text, write};

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
