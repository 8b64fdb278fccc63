//! A restarted replica answers nothing until it knows the parameters of policies that may
//! refuse.

use std::sync::atomic::{AtomicBool, Ordering};

use tautline_tests::objects::post;

use super::{mutation_policies::*, *};

/// More ConfigMaps than the parameter, so that listing takes some time.
const MAPS: usize = 200;
const RESTARTS: usize = 3;

#[tokio::test]
async fn replica_admits_no_pod_before_it_knows_the_parameters() {
    let mut world = AdmissionCluster::start(JOBS, &[]).await.unwrap();
    let client = world.client().clone();
    for i in 0..MAPS {
        let mut map = map("other");
        map["metadata"]["name"] = format!("map-{i}").into();
        map["data"]["filler"] = "x".repeat(10_000).into();
        let path = "/api/v1/namespaces/default/configmaps";
        assert_eq!(post(&client, path, &map).await.unwrap().status, 201);
    }
    in_force(&world).await;
    // A policy with an unserved paramKind: it refuses its objects, and delays no start.
    let mut later = policy(
        "later",
        "Object{data: {\"seen\": \"yes\"}}",
        json!({
        "paramKind": {"apiVersion": "mutations.example.com/v1",
            "kind": "RdmaResourcesAndAnnotationsInsertingParam"}}),
    );
    let rule = &mut later["spec"]["matchConstraints"]["resourceRules"][0];
    rule["resources"] = json!(["configmaps"]);
    rule["resourceNames"] = json!(["limited"]);
    let response = create(&world, "mutationpolicies", &later).await;
    assert_eq!(response.status, 201, "{response:?}");
    let reference =
        json!({"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"});
    bind(&world, "later", reference).await;
    refused(&world).await;

    for _ in 0..RESTARTS {
        world.server.process.kill();
        let (going, labelled) = (AtomicBool::new(true), AtomicBool::new(false));
        let creations = async {
            let path = "/api/v1/namespaces/default/pods?dryRun=All";
            while going.load(Ordering::Relaxed) || !labelled.load(Ordering::Relaxed) {
                let response = post(&client, path, &small_pod("default")).await.unwrap();
                if response.status == 201 {
                    assert_eq!(
                        response.body["metadata"]["labels"]["team"], "vision",
                        "{response:?}"
                    );
                    labelled.store(true, Ordering::Relaxed);
                } else {
                    // Refused by the API server, not by a replica with incomplete data.
                    assert!(
                        response.message().contains("failed calling webhook"),
                        "{response:?}"
                    );
                }
            }
        };
        let restart = async {
            world.server.restart().await.unwrap();
            going.store(false, Ordering::Relaxed);
        };
        tokio::time::timeout(PATIENCE, async { tokio::join!(creations, restart) })
            .await
            .expect("the server comes back");
    }
    let log = world.server.process.log();
    assert!(!log.contains("are not listed in time"), "{log}");

    refused(&world).await;
    objects::apply(&client, crate::mutation::PARAMS)
        .await
        .unwrap();
    let group = "mutations.example.com";
    lets_read_params(&client, "*", "*").await;
    let limits = json!({"apiVersion": format!("{group}/v1"),
        "kind": "RdmaResourcesAndAnnotationsInsertingParam",
        "metadata": {"name": "limits", "namespace": "default"}});
    objects::apply_one(&client, limits).await.unwrap();
    let check = async || (limited(&world).await.body["data"]["seen"] == "yes").then_some(());
    let what = "the kind is served, and taken up";
    eventually(what, PATIENCE, check, async || world.state()).await;
}

/// An object that matches only the policy with the missing paramKind.
async fn limited(world: &AdmissionCluster) -> objects::Response {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "limited", "namespace": "default"}});
    let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
    post(world.client(), path, &map).await.unwrap()
}

async fn refused(world: &AdmissionCluster) {
    let check = async || {
        let response = limited(world).await;
        let why = "failed to find resource referenced by paramKind";
        response.message().contains(why).then_some(())
    };
    let what = "the kind is missing";
    eventually(what, PATIENCE, check, async || world.state()).await;
}
