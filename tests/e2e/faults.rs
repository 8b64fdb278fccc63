//! Providers, the extender and the API server fail; scheduling continues, and the reasons name
//! the failure.

use anyhow::{Context, Result};
use serde_json::json;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, NodeCost, ProviderError, RuleProvider,
    testkit,
};
use tautline_tests::{PATIENCE, eventually, objects};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    World,
    fixed_costs::FixedCosts,
    placement::{wait_for_offer, wait_for_provider},
};

/// Posts to the extender over TLS without verifying its certificate; returns the body.
pub async fn post(world: &World, verb: &str, body: &str) -> Result<String> {
    let url = format!("https://127.0.0.1:{}/{verb}", world.extender.port);
    let client = tautline_tests::servers::insecure_post(&url, body.as_bytes()).await?;
    Ok(client)
}

/// A provider with bad answers.
#[derive(Clone, Copy)]
enum OddProvider {
    UnknownNodes,
    Duplicates,
    Extremes,
    TenMegabytes,
}

impl RuleProvider for OddProvider {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let mut answer = CostAnswer::default();
        let mut say = |node: &str, cost| {
            answer.push(NodeCost {
                node,
                cost,
                ..NodeCost::default()
            });
        };
        for (i, node) in request.eligible_nodes.iter().enumerate() {
            match self {
                Self::UnknownNodes => say(&format!("{node}-not"), 1),
                Self::Duplicates => {
                    say(node, 1);
                    say(node, if i == 0 { 2 } else { -1 });
                }
                Self::Extremes => say(node, if i == 0 { i64::MAX } else { i64::MIN }),
                Self::TenMegabytes => say(&node.repeat(4 << 20), 1),
            }
        }
        if matches!(self, Self::UnknownNodes) {
            for node in &request.eligible_nodes {
                answer.push(NodeCost {
                    node,
                    cost: 1,
                    ..NodeCost::default()
                });
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Err(ProviderError::Internal("odd".into()))
    }
}

pub async fn wait_for_event(world: &World, pod: &str, text: &str) {
    let client = &world.plane.client;
    let check = async || {
        objects::events(client, "default", pod)
            .await
            .contains(text)
            .then_some(())
    };
    eventually(
        &format!("an event of {pod} says {text}"),
        PATIENCE,
        check,
        async || objects::events(client, "default", pod).await + &world.state(),
    )
    .await;
}

#[tokio::test]
async fn failing_providers_have_reasons() {
    let world = World::start(&["n1"], &[]).await.unwrap();
    let client = &world.plane.client;
    let mut keep = Vec::new();
    // Malformed answers: usable parts are used, the rest has a reason.
    for (app, odd, expected) in [
        ("unknown", OddProvider::UnknownNodes, Ok("n1")),
        ("duplicates", OddProvider::Duplicates, Ok("n1")),
        ("extremes", OddProvider::Extremes, Ok("n1")),
        (
            "huge",
            OddProvider::TenMegabytes,
            Err("huge/ProviderBadAnswer"),
        ),
    ] {
        let running = testkit::start(odd).await.unwrap();
        objects::provider(client, "default", app, running.address.port(), &[app])
            .await
            .unwrap();
        keep.push(running);
        let reject = json!({"providerUnavailable": "Reject"});
        objects::policy(client, "default", app, json!({"name": app}), reject)
            .await
            .unwrap();
        wait_for_provider(&world, app).await;
        objects::pod(client, "default", &format!("{app}-0"), app)
            .await
            .unwrap();
        match expected {
            Ok(node) => assert_eq!(world.bound(&format!("{app}-0")).await, node),
            Err(reason) => wait_for_event(&world, &format!("{app}-0"), reason).await,
        }
    }
    // A provider that does not speak gRPC, and one that does not run.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let noise = listener.local_addr().unwrap().port();
    let noisy = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut some = [0u8; 64];
                _ = stream.read(&mut some).await;
                _ = stream
                    .write_all(b"HTTP/1.1 418 I'm a teapot\r\n\r\nno")
                    .await;
            });
        }
    });
    for (app, port) in [("noise", noise), ("nobody", 1)] {
        objects::provider(client, "default", app, port, &[app])
            .await
            .unwrap();
        let reject = json!({"providerUnavailable": "Reject"});
        objects::policy(client, "default", app, json!({"name": app}), reject)
            .await
            .unwrap();
        wait_for_provider(&world, app).await;
        objects::pod(client, "default", &format!("{app}-0"), app)
            .await
            .unwrap();
        wait_for_event(&world, &format!("{app}-0"), &format!("1 {app}/Provider")).await;
    }
    noisy.abort();
    // TLS is required and none is configured.
    let running = testkit::start(FixedCosts::new(&[("n1", 1)])).await.unwrap();
    let mut service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "secret", "namespace": "default",
                     "labels": {"constraint.ciena.com/provider-secret": "enabled"},
                     "annotations": {"constraint.ciena.com/tls": "required"}},
        "spec": {"type": "ExternalName", "externalName": "localhost",
                 "ports": [{"name": "ruleprovider", "port": running.address.port()}]}});
    objects::apply_one(client, service.clone()).await.unwrap();
    let reject = json!({"providerUnavailable": "Reject"});
    objects::policy(
        client,
        "default",
        "secret",
        json!({"name": "secret"}),
        reject,
    )
    .await
    .unwrap();
    wait_for_provider(&world, "secret").await;
    objects::pod(client, "default", "secret-0", "secret")
        .await
        .unwrap();
    wait_for_event(&world, "secret-0", "secret/ProviderFailed").await;
    let (_, explained) = world
        .extender
        .admin("/explain/default/secret-0")
        .await
        .unwrap();
    assert!(explained.contains("--provider-ca"), "{explained}");
    // The operator drops the requirement: the pending pod is requeued and placed.
    service["metadata"]["annotations"]["constraint.ciena.com/tls"] = "off".into();
    objects::apply_one(client, service).await.unwrap();
    assert_eq!(world.bound("secret-0").await, "n1");

    // A missing policy and a rule without a provider are ignored by default, with an event on
    // the offer.
    objects::policy(
        client,
        "default",
        "alone",
        json!({"name": "none"}),
        json!({}),
    )
    .await
    .unwrap();
    wait_for_offer(&world, "alone").await;
    objects::pod(client, "default", "alone-0", "alone")
        .await
        .unwrap();
    assert_eq!(world.bound("alone-0").await, "n1");
    wait_for_event(&world, "alone", "NoProvider").await;
}

#[tokio::test]
async fn scheduling_continues_after_kills_and_restarts() {
    let mut world = World::start(&["n1", "n2"], &[]).await.unwrap();
    let client = world.plane.client.clone();
    let slow = FixedCosts::new(&[("n1", 1), ("n2", 2)]);
    // On its own runtime, so that it can end with all its connections.
    let elsewhere = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let start = elsewhere.spawn(testkit::start(slow.clone()));
    let running = start.await.unwrap().unwrap();
    let port = running.address.port();
    objects::provider(&client, "default", "p", port, &["latency"])
        .await
        .unwrap();
    let reject = json!({"providerUnavailable": "Reject"});
    objects::policy(
        &client,
        "default",
        "web",
        json!({"name": "latency"}),
        reject,
    )
    .await
    .unwrap();
    wait_for_provider(&world, "web").await;

    // A provider that dies in the middle of calls, and comes back on its port.
    *slow.delay.lock().unwrap() = std::time::Duration::from_millis(400);
    objects::pod(&client, "default", "web-0", "web")
        .await
        .unwrap();
    let called = async || (slow.request_count() > 0).then_some(());
    eventually("the provider is called", PATIENCE, called, async || {
        world.state()
    })
    .await;
    elsewhere.shutdown_background();
    drop(running);
    *slow.delay.lock().unwrap() = std::time::Duration::ZERO;
    objects::pod(&client, "default", "web-1", "web")
        .await
        .unwrap();
    wait_for_event(&world, "web-1", "latency/Provider").await;
    let config = tautline_sdk::Config {
        listen: ([127, 0, 0, 1], port).into(),
        ..testkit::loopback()
    };
    let running = testkit::start_with(slow.clone(), config).await.unwrap();
    assert_eq!(world.bound("web-1").await, "n1");
    world.bound("web-0").await;

    // The extender is killed: governed and other pods wait, then go on.
    world.extender.process.kill();
    objects::pod(&client, "default", "web-2", "web")
        .await
        .unwrap();
    wait_for_event(&world, "web-2", "connection refused").await;
    world.extender.restart().await.unwrap();
    assert_eq!(world.bound("web-2").await, "n1");

    // The API server is killed: watches restart and deliver changes.
    world.plane.restart_apiserver().await.unwrap();
    objects::pod(&client, "default", "web-3", "web")
        .await
        .unwrap();
    assert_eq!(world.bound("web-3").await, "n1");
    slow.set(&[("n1", -1), ("n2", 2)]);
    objects::pod(&client, "default", "web-4", "web")
        .await
        .unwrap();
    assert_eq!(world.bound("web-4").await, "n2");
    let log = world.extender.process.log();
    assert!(!log.contains("panicked"), "{log}");
    assert_eq!(world.extender.process.exit_code(), None);
    drop(running);
    assert_eq!(
        world.extender.process.terminate(),
        Some(0),
        "{}",
        world.extender.process.tail()
    );
}

/// Malformed requests are refused, with bounded memory.
#[tokio::test]
async fn extender_refuses_bad_requests_and_serves_the_next() {
    let world = World::start(&["n1"], &["--bind"]).await.unwrap();
    let names: Vec<String> = (0..1_000_000).map(|i| format!("node-{i:07}")).collect();
    objects::policy(
        &world.plane.client,
        "default",
        "web",
        json!({"name": "r"}),
        json!({}),
    )
    .await
    .unwrap();
    wait_for_offer(&world, "web").await;
    let many = json!({"Pod": {"metadata": {"name": "p", "namespace": "default", "uid": "u",
                      "labels": {"app": "web"}}}, "NodeNames": names})
    .to_string();
    let before = world.extender.process.resident_bytes();
    let huge = format!("{{\"Pod\":\"{}\"}}", "x".repeat(100 << 20));
    let nested = format!("{{\"Pod\":{}{}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    for (what, body, expected) in [
        ("empty", "", "400"),
        ("not JSON", "hello", "400"),
        ("null", "null", "400"),
        (
            "nulls",
            r#"{"Pod":null,"Nodes":null,"NodeNames":null}"#,
            "400",
        ),
        ("null fields", r#"{"Pod":{"metadata":null}}"#, "400"),
        ("nested", &nested, "400"),
        ("100 MB", &huge, "413"),
        ("1,000,000 names", &many, "413"),
    ] {
        // Only two of the verbs read the names.
        let verbs = ["filter", "prioritize", "preempt", "bind"];
        for verb in &verbs[..if expected == "413" && body.len() < 32 << 20 {
            2
        } else {
            4
        }] {
            let error = post(&world, verb, body).await.unwrap_err();
            let text = format!("{error:#}");
            let ok = text.contains(expected) || (expected == "413" && text.contains("400"));
            assert!(ok, "{verb} of {what}: {text}");
        }
    }
    let grown = world
        .extender
        .process
        .resident_bytes()
        .saturating_sub(before);
    println!("memory grew by {} MiB", grown >> 20);
    assert!(grown < 600 << 20, "memory grew by {} MiB", grown >> 20);
    // Unknown fields are ignored.
    let fine = r#"{"Pod":{"metadata":{"name":"p","x":[null]},"y":null},"Nodes":null,"NodeNames":["n1"],"z":{}}"#;
    let answer = post(&world, "filter", fine)
        .await
        .context("the next request")
        .unwrap();
    assert_eq!(answer, r#"{"nodenames":["n1"]}"#);
    assert!(!world.extender.process.log().contains("panicked"));
}
