//! `latency` watches pods only once a policy limits bandwidth, and knows after a restart who kept
//! it.

use std::collections::BTreeMap;

use kube::Client;
use serde_json::{Value, json};
use tautline_core::{binding::binding_name, reference::Reference};
use tautline_proto::ruleprovider::{
    EndpointCostRequest, EvaluateRequest, PolicyRule, Target,
    rule_provider_client::RuleProviderClient,
};
use tautline_tests::{
    PATIENCE, control_plane::ControlPlane, eventually, objects, root, servers::Server,
};

const PODS: &str = "tautline_watch_events_total{kind=\"pods\"}";

#[tokio::test]
async fn latency_provider_watches_pods_once_a_policy_limits_bandwidth() {
    let plane = ControlPlane::start().await.unwrap();
    let client = &plane.client;
    objects::apply_kustomization_except(client, &root().join("deploy"), &["Deployment"])
        .await
        .unwrap();
    for (node, pod) in [("n1", "bulk"), ("n2", "store")] {
        objects::node(client, node, json!({})).await.unwrap();
        objects::apply_one(client, placed(pod, node)).await.unwrap();
    }
    let table = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "carries", "namespace": "default",
            "labels": {"constraint.ciena.com/bandwidth-table": "enabled"}},
        "data": {"t": "n1,n2,1G\n"}});
    objects::apply_one(client, table).await.unwrap();
    let mut provider = Server::start(&plane, "latency", &["provider", "latency"])
        .await
        .unwrap();
    let (_, metrics) = provider.admin("/metrics").await.unwrap();
    let none = format!("{PODS} 0\n");
    assert!(metrics.contains(&none), "ready without pods: {metrics}");

    let rule = json!({"name": "bandwidth", "request": "600M", "limit": "600M"});
    let target = |app| json!({"name": app, "apiVersion": "v1", "kind": "Pod", "labelSelector": {"matchLabels": {"app": app}}});
    let between = json!({"targets": [target("bulk"), target("store")]});
    objects::policy(client, "default", "bulk", rule.clone(), between.clone())
        .await
        .unwrap();
    let come = async || (provider.metric(PODS).await >= 2.0).then_some(());
    let tail = async || provider.process.tail();
    eventually("the policy makes it follow pods", PATIENCE, come, tail).await;
    let question = EndpointCostRequest {
        // The table counts for pods of its namespace.
        source: Some(Target {
            namespace: "default".into(),
            ..Target::default()
        }),
        rule: Some(PolicyRule {
            name: "bandwidth".into(),
            request: "600M".into(),
            limit: "600M".into(),
        }),
        peer_nodes: vec!["n2".into()],
        eligible_nodes: vec!["n1".into()],
        ..EndpointCostRequest::default()
    };
    let says = async || {
        let to = format!("http://127.0.0.1:{}", provider.port);
        let mut client = RuleProviderClient::connect(to).await.ok()?;
        let response = client.endpoint_cost(question.clone()).await.ok()?;
        let line = response.into_inner().node_and_cost.pop()?;
        (line.reason == "TooLittle").then_some(line.detail)
    };
    let tail = async || provider.process.tail();
    let detail = eventually("400 Mbit/s are left", PATIENCE, says, tail).await;
    assert_eq!(
        detail,
        "400 Mbit/s left to n2, by the table; the least is 600 Mbit/s"
    );

    provider.restart().await.unwrap();
    assert!(provider.metric(PODS).await >= 2.0, "not ready before");

    // A second offer asks for as much for pods of its own on the same nodes. Both cannot have it.
    for (node, pod) in [("n1", "sync"), ("n2", "copy")] {
        objects::apply_one(client, placed(pod, node)).await.unwrap();
    }
    let sync = json!({"targets": [target("sync"), target("copy")]});
    objects::policy(client, "default", "sync", rule, sync)
        .await
        .unwrap();
    let offers = [["bulk", "store"], ["sync", "copy"]];
    for (late, kept) in [(offers[0], offers[1]), (offers[1], offers[0])] {
        evaluated(client, late, "Violation").await;
        evaluated(client, kept, "Compliant").await;
        provider.restart().await.unwrap();
        let says = async || {
            let found = [
                compliance(&provider, late).await?,
                compliance(&provider, kept).await?,
            ];
            (found == ["Violation", "Compliant"]).then_some(())
        };
        let state = async || {
            let found = [
                compliance(&provider, late).await,
                compliance(&provider, kept).await,
            ];
            format!("{late:?}, {kept:?}: {found:?}\n{}", provider.process.tail())
        };
        let what = format!("{} keeps what it had", kept[0]);
        eventually(&what, PATIENCE, says, state).await;
    }
}

/// Writes the binding of an offer between two pods with the status that the controller would write.
async fn evaluated(client: &Client, pods: [&str; 2], compliance: &str) {
    let tuple: BTreeMap<_, _> = pods
        .iter()
        .map(|pod| ((*pod).into(), Reference::pod("default", pod)))
        .collect();
    let rule = json!({"rule": "bandwidth", "compliance": compliance});
    let detail = json!({"policy": pods[0], "compliance": compliance, "ruleDetails": [rule]});
    let binding = json!({"apiVersion": "constraint.ciena.com/v1alpha1",
        "kind": "ConstraintPolicyBinding",
        "metadata": {"namespace": "default", "name": binding_name(pods[0], &tuple)},
        "spec": {"offer": pods[0], "targets": tuple},
        "status": {"compliance": compliance, "details": [detail]}});
    objects::apply_one(client, binding).await.unwrap();
}

/// The provider's evaluation of the rule between two pods.
async fn compliance(provider: &Server, pods: [&str; 2]) -> Option<&'static str> {
    let to = format!("http://127.0.0.1:{}", provider.port);
    let mut client = RuleProviderClient::connect(to).await.ok()?;
    let target = |pod: &str| Target {
        namespace: "default".into(),
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.into(),
        ..Target::default()
    };
    let question = EvaluateRequest {
        targets: pods.map(|pod| (pod.to_owned(), target(pod))).into(),
        rule: Some(PolicyRule {
            name: "bandwidth".into(),
            request: "600M".into(),
            limit: "600M".into(),
        }),
        ..EvaluateRequest::default()
    };
    let answer = client.evaluate(question).await.ok()?.into_inner();
    Some(answer.compliance().as_str_name())
}

fn placed(app: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": app, "namespace": "default", "labels": {"app": app}},
        "spec": {"nodeName": node, "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "example.com/app:1"}]}})
}
