//! Operators rebind a rule by relabeling Services, while pods are scheduled.

use std::time::Instant;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tautline_sdk::testkit;
use tautline_tests::{PATIENCE, eventually, objects};

use crate::{World, fixed_costs::FixedCosts, placement::wait_for_provider};

const PODS: usize = 200;
const LABEL: &str = "constraint.ciena.com/constraint-latency";

#[tokio::test]
async fn relabeling_fails_no_scheduling_attempt() {
    let nodes = ["n1", "n2", "n3", "n4"];
    // A provider that is slow on a busy machine is no failure of relabeling.
    let args = ["--provider-unavailable=reject", "--provider-deadline=3s"];
    let world = World::start(&nodes, &args).await.unwrap();
    let client = &world.plane.client;
    let (a, b) = (
        FixedCosts::new(&[("n1", 1), ("n2", 9), ("n3", 9), ("n4", 9)]),
        FixedCosts::new(&[("n1", 9), ("n2", 1), ("n3", 9), ("n4", 9)]),
    );
    let (run_a, run_b) = (
        testkit::start(a.clone()).await.unwrap(),
        testkit::start(b.clone()).await.unwrap(),
    );
    objects::provider(client, "default", "a", run_a.address.port(), &["latency"])
        .await
        .unwrap();
    objects::provider(client, "default", "b", run_b.address.port(), &[])
        .await
        .unwrap();
    objects::policy(
        client,
        "default",
        "web",
        json!({"name": "latency"}),
        json!({}),
    )
    .await
    .unwrap();
    wait_for_provider(&world, "web").await;

    // The extender follows the label, within a second on an idle machine.
    bind(&world, "b", "a").await;
    let start = Instant::now();
    let check = async || {
        let before = b.request_count();
        probe(&world).await;
        (b.request_count() > before).then_some(())
    };
    eventually("the new provider is called", PATIENCE, check, async || {
        world.state()
    })
    .await;
    println!("relabeling acted after {:?}", start.elapsed());

    let stream = async {
        for i in 0..PODS {
            objects::pod(client, "default", &format!("web-{i}"), "web")
                .await
                .unwrap();
        }
    };
    let relabel = async {
        let mut flips = 0;
        let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
        let deadline = Instant::now() + PATIENCE * 4;
        loop {
            match flips % 2 {
                0 => bind(&world, "a", "b").await,
                _ => bind(&world, "b", "a").await,
            }
            flips += 1;
            let list = pods.list(&ListParams::default()).await.unwrap().items;
            let placed = list
                .iter()
                .filter(|p| p.spec.as_ref().is_some_and(|s| s.node_name.is_some()));
            if placed.count() == PODS {
                return flips;
            }
            assert!(
                Instant::now() < deadline,
                "not all pods were placed\n{}",
                world.state()
            );
        }
    };
    let ((), flips) = tokio::join!(stream, relabel);
    println!(
        "{PODS} pods placed during {flips} relabelings; asked a {} b {}",
        a.request_count(),
        b.request_count()
    );
    assert!(flips > 4 && a.request_count() > 0 && b.request_count() > 0);
    let failed = failed_attempts(&world).await;
    assert!(
        failed.is_empty(),
        "failed attempts:\n{failed}\n{}",
        world.state()
    );
}

/// Sets the label on one Service, then removes it from the other, so one Service always has it.
async fn bind(world: &World, to: &str, from: &str) {
    let services: Api<Service> = Api::namespaced(world.plane.client.clone(), "default");
    for (name, value) in [(to, json!("enabled")), (from, Value::Null)] {
        let patch = json!({"metadata": {"labels": {LABEL: value}}});
        services
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }
}

async fn probe(world: &World) {
    let body = json!({"Pod": {"metadata": {"name": "probe", "namespace": "default", "uid": "probe",
                      "labels": {"app": "web"}}}, "NodeNames": ["n1"]});
    _ = crate::faults::post(world, "filter", &body.to_string()).await;
}

async fn failed_attempts(world: &World) -> String {
    let api: Api<k8s_openapi::api::core::v1::Event> =
        Api::namespaced(world.plane.client.clone(), "default");
    let params = ListParams::default().fields("reason=FailedScheduling");
    let list = api.list(&params).await.unwrap();
    list.items
        .iter()
        .filter_map(|e| e.message.clone())
        .collect::<Vec<_>>()
        .join("\n")
}
