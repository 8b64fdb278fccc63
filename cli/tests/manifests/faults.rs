//! Faults of manifests: warnings, `--strict` and errors.

use crate::{tautline, text};

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
