//! Reports of OpenReports, by a CRD with the fields of theirs that the controller writes.

use kube::{
    Api,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use tautline_tests::{PATIENCE, eventually, objects, root};

use crate::governed_cluster::GovernedCluster;

fn definition() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let count = json!({"type": "integer"});
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required});
    let reference = object(
        json!({"apiVersion": text, "kind": text, "namespace": text, "name": text, "uid": text}),
        &[],
    );
    let one_of = |values: &[&str]| json!({"type": "string", "enum": values});
    let result = object(
        json!({
            "policy": text, "rule": text, "category": text, "message": text, "properties": texts,
            "scored": {"type": "boolean"},
            "severity": one_of(&["critical", "high", "low", "medium", "info"]),
            "result": one_of(&["pass", "fail", "warn", "error", "skip"]),
            "timestamp": object(json!({"seconds": {"type": "integer", "format": "int64"},
                "nanos": {"type": "integer", "format": "int32"}}), &["nanos", "seconds"]),
            "resources": {"type": "array", "items": reference},
        }),
        &["policy"],
    );
    let limits = object(json!({"maxResults": count}), &[]);
    let schema = object(
        json!({
            "apiVersion": text, "kind": text, "metadata": {"type": "object"}, "source": text, "scope": reference,
            "configuration": object(json!({"limits": limits}), &["limits"]),
            "summary": object(json!({"pass": count, "fail": count, "warn": count, "error": count, "skip": count}), &[]),
            "results": {"type": "array", "items": result},
        }),
        &[],
    );
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "reports.openreports.io"},
        "spec": {
            "group": "openreports.io", "scope": "Namespaced",
            "names": {"kind": "Report", "listKind": "ReportList", "plural": "reports", "singular": "report"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Waits for a report of the offer `web` that passes `check`.
async fn report(world: &GovernedCluster, what: &str, check: impl Fn(&Value) -> bool) -> Value {
    let resource = ApiResource {
        group: "openreports.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "openreports.io/v1alpha1".to_owned(),
        kind: "Report".to_owned(),
        plural: "reports".to_owned(),
    };
    let reports: Api<DynamicObject> =
        Api::default_namespaced_with(world.client().clone(), &resource);
    let condition = async || {
        let report = reports.get("tautline-web").await.ok()?;
        let report = serde_json::to_value(&report).ok()?;
        check(&report).then_some(report)
    };
    eventually(what, PATIENCE, condition, async || {
        format!(
            "{:?}\n{}",
            reports.get("tautline-web").await,
            world.state("web").await
        )
    })
    .await
}

#[tokio::test]
async fn controller_reports_the_bindings_of_an_offer() {
    let world = GovernedCluster::start(&[("n1", 1)], &["--open-reports"])
        .await
        .unwrap();
    let role = root().join("deploy/with-open-reports/role.yaml");
    let role = std::fs::read_to_string(role).unwrap();
    objects::apply(world.client(), &role).await.unwrap();
    world.offer("web", json!({})).await;
    world.deployment("web", 2).await;
    world.wait_for_compliance("web", 2, "Compliant").await;
    // The kind is not installed: bindings do not depend on it.
    let failed = r#"tautline_controller_writes_total{what="open-report",outcome="failed"}"#;
    world.wait_for_metric(failed, 1.0).await;
    assert_eq!(world.metric("tautline_controller_open_reports").await, 0.0);

    objects::apply_one(world.client(), definition())
        .await
        .unwrap();
    let both = report(&world, "both bindings pass", |r| r["summary"]["pass"] == 2).await;
    assert_eq!(both["metadata"]["ownerReferences"][0]["name"], "web");
    assert_eq!(both["scope"]["kind"], "ConstraintPolicyOffer");
    let result = &both["results"][1];
    assert_eq!(result["policy"], "near");
    assert_eq!(result["rule"], "near");
    assert_eq!(result["message"], "n1 is near");
    assert_eq!(result["resources"][0]["kind"], "Pod");
    assert_eq!(result["properties"]["provider"], "default/judge");
    assert!(result["timestamp"]["seconds"].is_i64(), "{result}");
    world
        .wait_for_metric("tautline_controller_open_reports", 1.0)
        .await;

    world.judge.set(&[("n1", -1)]);
    let failing = report(&world, "both bindings fail", |r| r["summary"]["fail"] == 2).await;
    assert_eq!(failing["results"][0]["severity"], "high");
}
