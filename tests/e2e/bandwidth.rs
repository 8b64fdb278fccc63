//! `latency` watches pods only once a policy limits bandwidth.

use serde_json::{Value, json};
use tautline_proto::ruleprovider::{
    EndpointCostRequest, PolicyRule, Target, rule_provider_client::RuleProviderClient,
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
    objects::policy(client, "default", "bulk", rule, between)
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
}

fn placed(app: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": app, "namespace": "default", "labels": {"app": app}},
        "spec": {"nodeName": node, "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "example.com/app:1"}]}})
}
