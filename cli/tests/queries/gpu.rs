//! `tautline gpu` against an API server.

use serde_json::{Value, json};

use crate::{
    api_server::{Answer, ApiServer},
    refusal, tautline, text,
};

fn items(kind: &str, items: &[Value]) -> Answer {
    let list = json!({
        "apiVersion": "v1", "kind": format!("{kind}List"), "metadata": {"resourceVersion": "9"},
        "items": items,
    });
    Answer::json(200, &list)
}

fn nodes() -> Answer {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n-1", "annotations": {"tautline.io/gpu-cards": "2"}},
        "status": {"allocatable": {"cpu": "8", "pods": "110"}},
    });
    items("Node", &[node])
}

fn pods() -> Answer {
    let pod = |name: &str, node: Option<&str>, devices: &str| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"},
                "annotations": {"tautline.io/gpu-devices": devices}},
            "spec": {"containers": []},
        });
        match node {
            Some(node) => pod["spec"]["nodeName"] = node.into(),
            None => pod["metadata"]["annotations"] = json!({}),
        }
        pod
    };
    items(
        "Pod",
        &[pod("web-0", Some("n-1"), "0:500"), pod("web-1", None, "")],
    )
}

/// A cluster without the custom resource definitions.
fn plain(path: &str) -> Answer {
    match path {
        _ if path.starts_with("/api/v1/nodes") => nodes(),
        _ if path.starts_with("/api/v1/pods") => pods(),
        _ if path.starts_with("/api/v1/namespaces") => items("Namespace", &[]),
        _ => Answer::text(404, "404 page not found\n"),
    }
}

#[test]
fn gpu_works_without_the_crds() {
    let server = ApiServer::start(plain);
    let out = tautline(&server, &["gpu", "top", "-o", "json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(text(&out.stderr), "");
    let top: Value = serde_json::from_slice(&out.stdout).unwrap();
    let card = &top["nodes"][0]["pools"][0]["cards"][0];
    assert_eq!(card["heldMilli"], 500);
    assert_eq!(card["holders"][0]["pod"], "shop/web-0");
    let out = tautline(&server, &["gpu", "fragmentation", "-o", "yaml"]);
    assert!(
        text(&out.stdout).contains("stillFit: 3"),
        "{}",
        text(&out.stdout)
    );
}

#[test]
fn gpu_reads_requests_from_offers() {
    let server = ApiServer::start(|path| {
        let rule = json!({"name": "gpu-slice", "request": "250m"});
        let object = |kind: &str, spec: Value| {
            json!({
                "apiVersion": "constraint.ciena.com/v1alpha1", "kind": kind,
                "metadata": {"name": "web", "namespace": "shop"}, "spec": spec,
            })
        };
        if path.contains("/constraintpolicies") {
            items(
                "ConstraintPolicy",
                &[object("ConstraintPolicy", json!({"rules": [rule]}))],
            )
        } else if path.contains("/constraintpolicyoffers") {
            let targets = json!([{"apiVersion": "v1", "kind": "Pod", "labelSelector": {}}]);
            let spec = json!({"targets": targets, "policies": ["web"]});
            let broken = json!({"targets": targets, "policies": ["web"], "grace": 10});
            let mut odd = object("ConstraintPolicyOffer", broken);
            odd["metadata"]["name"] = "odd".into();
            items(
                "ConstraintPolicyOffer",
                &[object("ConstraintPolicyOffer", spec), odd],
            )
        } else {
            plain(path)
        }
    });
    // The namespace is that of the kubeconfig's context.
    let out = tautline(&server, &["gpu", "explain", "web-1", "--policy", "fgd"]);
    let (printed, warned) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(0), "{warned}");
    assert!(
        printed.contains("policy web, offer web, request 250m"),
        "{printed}"
    );
    assert!(printed.contains("card 1 would have 750m left"), "{printed}");
    assert!(
        warned.contains("ConstraintPolicyOffer shop/odd"),
        "{warned}"
    );
}

#[test]
fn gpu_errors_name_the_fix() {
    let server = ApiServer::start(plain);
    for (args, code, expected) in [
        (
            &["gpu", "top", "--node", "n-9"][..],
            1,
            "node n-9 does not exist; nodes with GPUs are n-1",
        ),
        (
            &["gpu", "explain", "web-0", "-n", "other"],
            1,
            "there is no pod other/web-0; there is shop/web-0",
        ),
        (
            &["gpu", "explain", "web-9"],
            1,
            "there is no pod shop/web-9, nor one of that name",
        ),
        (
            &["gpu", "explain", "shop/web-0", "-n", "other"],
            2,
            "leave one out",
        ),
        (
            &["gpu", "explain", "web-0", "--policy", "best"],
            2,
            "there are tautline, fgd, best-fit",
        ),
        (&["gpu", "explain", "A"], 2, "lower-case"),
        (
            &["gpu", "top", "--sort", "size"],
            2,
            "possible values: name",
        ),
        (&["gpu", "top", "-f", "x"], 2, "cannot be used with"),
    ] {
        let out = tautline(&server, args);
        let error = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn gpu_names_missing_permissions() {
    let server = ApiServer::start(|path| match path {
        _ if path.starts_with("/api/v1/nodes") => nodes(),
        _ if path.starts_with("/api/v1/pods") => {
            refusal(403, "Forbidden", "pods is forbidden", None)
        }
        _ => plain(path),
    });
    let out = tautline(&server, &["gpu", "top"]);
    let error = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{error}");
    assert!(
        error.contains("pods is forbidden; ask for a role with the verbs get, list"),
        "{error}"
    );

    let server = ApiServer::start(|path| match path {
        _ if path.contains("constraintpolicies") => refusal(403, "Forbidden", "not yours", None),
        _ => plain(path),
    });
    let out = tautline(&server, &["gpu", "explain", "web-0"]);
    let warned = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{warned}");
    assert!(
        warned.contains("not yours") && warned.contains("requests of rules are not known"),
        "{warned}"
    );
}

#[test]
fn gpu_accepts_an_empty_cluster() {
    let server = ApiServer::start(|path| match path {
        _ if path.starts_with("/api/v1/") => items("Node", &[]),
        _ => plain(path),
    });
    for args in [&["gpu", "top"][..], &["gpu", "fragmentation"]] {
        let out = tautline(&server, args);
        assert_eq!(out.status.code(), Some(0));
        assert!(
            text(&out.stderr).contains("no node has"),
            "{}",
            text(&out.stderr)
        );
    }
}

#[test]
fn help_has_an_example() {
    let server = ApiServer::start(plain);
    for sub in ["top", "fragmentation", "explain"] {
        let help = text(&tautline(&server, &["gpu", sub, "--help"]).stdout);
        assert!(help.contains(&format!("  tautline gpu {sub}")), "{help}");
    }
}
