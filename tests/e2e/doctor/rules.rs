//! Rules without a provider, and a kube-scheduler that does not call.

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};
use tautline_tests::{
    objects,
    workloads::{offer, scale},
};

use super::installation::{Installation, NAMESPACE};

fn service(namespace: &str, name: &str, rule: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": namespace,
                     "labels": {format!("constraint.ciena.com/constraint-{rule}"): "enabled"}},
        "spec": spec})
}

/// A policy of the namespace `default` with one rule, and an offer of it to pods labelled so.
async fn policy(i: &Installation, name: &str, rule: &str) {
    let client = &i.plane.client;
    let rule = json!({"name": rule, "limit": "20ms"});
    objects::policy(
        client,
        "default",
        name,
        rule,
        json!({"providerUnavailable": "Reject"}),
    )
    .await
    .unwrap();
}

pub async fn providers(i: &Installation) {
    let client = &i.plane.client;
    let targets = json!([{"kind": "Pod", "labelSelector": {"matchLabels": {"app": "x"}}}]);
    let spec = json!({"targets": targets, "policies": ["gone"]});
    offer(client, "default", "orphan", spec).await.unwrap();
    let object = "ConstraintPolicyOffer default/orphan";
    let fix = "tautline get policies -n default";
    i.finds(
        "problem",
        "PolicyMissing",
        object,
        "ConstraintPolicy gone",
        fix,
    )
    .await;
    let spec = json!({"targets": targets, "policies": []});
    offer(client, "default", "orphan", spec).await.unwrap();
    i.mended("PolicyMissing", object).await;

    policy(i, "web", "latency").await;
    i.healthy().await;
    let object = "Service tautline-system/tautline-latency";
    let text = "has no ready endpoint";
    scale(client, NAMESPACE, "tautline-latency", 0)
        .await
        .unwrap();
    i.finds(
        "problem",
        "ProviderNotReady",
        object,
        text,
        "describe service tautline-latency",
    )
    .await;
    scale(client, NAMESPACE, "tautline-latency", 2)
        .await
        .unwrap();
    i.mended("ProviderNotReady", object).await;

    let object = "rule latency, namespace default";
    let second = service(
        NAMESPACE,
        "second",
        "latency",
        json!({"ports": [{"port": 5309}]}),
    );
    objects::apply_one(client, second).await.unwrap();
    let fix = "label service second constraint.ciena.com/constraint-latency-";
    i.finds(
        "warning",
        "ProviderAmbiguous",
        object,
        "only age or name decides",
        fix,
    )
    .await;
    i.delete("v1", "Service", "second").await;
    i.mended("ProviderAmbiguous", object).await;

    policy(i, "jittery", "spread").await;
    let object = "rule spread, namespace default";
    let fix = "label service NAME constraint.ciena.com/constraint-spread=enabled";
    let text = "used by jittery; pods stay Pending";
    i.finds("problem", "RuleWithoutProvider", object, text, fix)
        .await;
    let foreign = service(
        "kube-public",
        "spread",
        "spread",
        json!({"ports": [{"port": 5309}]}),
    );
    objects::apply_one(client, foreign).await.unwrap();
    let fix = "--provider-namespaces tautline-system,kube-public";
    let text = "its namespace is not trusted";
    i.finds("problem", "ProviderNotTrusted", object, text, fix)
        .await;
    let external = json!({"type": "ExternalName", "externalName": "spread.example",
                          "ports": [{"port": 5309}]});
    objects::apply_one(client, service("default", "spread", "spread", external))
        .await
        .unwrap();
    i.mended("ProviderNotTrusted", object).await;
    let object = "Service default/spread";
    let fix = "--external-name-providers remote";
    i.finds(
        "problem",
        "ProviderNotAllowed",
        object,
        "type ExternalName",
        fix,
    )
    .await;
    // The scripted provider takes the rule over.
    let label = json!({"metadata": {"labels": {
        "constraint.ciena.com/constraint-spread": "enabled"}}});
    i.merge_patch("v1", "Service", "tautline-scripted", label)
        .await;
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    services
        .delete("spread", &DeleteParams::default())
        .await
        .unwrap();
    i.mended("ProviderNotAllowed", object).await;
    i.mended("RuleWithoutProvider", "rule spread").await;
    i.healthy().await;
}

pub async fn calls_of_kube_scheduler(i: &mut Installation) {
    let client = i.plane.client.clone();
    objects::pod(&client, "default", "web-0", "web")
        .await
        .unwrap();
    let object = "Deployment tautline-extender";
    if i.unchecked() == 0 {
        let text = "kube-scheduler has never called it";
        let fix = "\"kube-scheduler's part\"";
        i.finds("problem", "SchedulerNeverCalls", object, text, fix)
            .await;
    } else {
        i.finds(
            "warning",
            "NotChecked",
            object,
            "cannot be read",
            "pods/proxy",
        )
        .await;
    }
    let url = format!("https://127.0.0.1:{}", i.extender.port);
    let sample = ("all-pods.yaml", &*url, &*i.extender_ca);
    i.plane.start_scheduler(Some(sample)).await.unwrap();
    objects::pod(&client, "default", "web-1", "other")
        .await
        .unwrap();
    objects::wait_until_bound(&client, "default", "web-1", async || i.plane.logs()).await;
    i.mended("SchedulerNeverCalls", object).await;
    i.healthy().await;
}

/// Without a provider and with `Reject` no node is usable.
pub async fn pending_pods(i: &Installation) {
    let client = &i.plane.client;
    policy(i, "strict", "nobody").await;
    i.extender
        .wait_for_rules("default", "strict", |rule| rule["outcome"] == "NoProvider")
        .await;
    objects::pod(client, "default", "strict-0", "strict")
        .await
        .unwrap();
    let object = "1 pending governed pod";
    let text = "default/strict-0: nobody/NoProvider (1)";
    i.finds(
        "warning",
        "PodsPending",
        object,
        text,
        "tautline explain default/strict-0",
    )
    .await;
    i.finds(
        "problem",
        "RuleWithoutProvider",
        "rule nobody",
        "used by strict",
        "label",
    )
    .await;
    let text = i.run("admin", &[]).await.stdout;
    let text = String::from_utf8(text).unwrap();
    println!("{text}");
    let first = "PROBLEM  RuleWithoutProvider  rule nobody, namespace default\n";
    assert!(text.starts_with(first), "{text}");
    assert!(
        text.contains("\nWARNING  PodsPending  1 pending governed pod\n"),
        "{text}"
    );
    assert!(text.ends_with("passed (--all shows them)\n"), "{text}");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete("strict-0", &DeleteParams::default())
        .await
        .unwrap();
    i.mended("PodsPending", object).await;
    let label = json!({"metadata": {"labels": {
        "constraint.ciena.com/constraint-nobody": "enabled"}}});
    i.merge_patch("v1", "Service", "tautline-scripted", label)
        .await;
    i.mended("RuleWithoutProvider", "rule nobody").await;
    i.healthy().await;
}
