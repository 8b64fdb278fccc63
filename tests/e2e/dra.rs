//! Devices of DRA drivers under the real scheduler: the API server and the scheduler handle
//! slices and claims as our model does. Kubernetes 1.36: claims, classes and prioritized lists are GA; partitionable devices,
//! consumable capacity and device taints are betas, and on by default.

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};
use tautline_api::convert;
use tautline_gpu_placement::dra::{DeviceStore, NodeDevices, pending_requests};
use tautline_gpu_slice::dra;
use tautline_tests::{PATIENCE, devices, eventually};

use crate::World;

/// The API server's objects, read as the provider reads them.
async fn read(world: &World) -> DeviceStore {
    let client = &world.plane.client;
    let all = ListParams::default();
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let claims: Api<ResourceClaim> = Api::all(client.clone());
    let classes: Api<DeviceClass> = Api::all(client.clone());
    let slices = slices.list(&all).await.unwrap();
    let claims = claims.list(&all).await.unwrap();
    let classes = classes.list(&all).await.unwrap();
    let mut store = DeviceStore::default();
    store.reset_slices(slices.iter().map(|s| dra::resource_slice(s).unwrap()));
    store.reset_claims(claims.iter().map(|c| dra::resource_claim(c).unwrap()));
    store.reset_classes(classes.iter().map(dra::device_class));
    store
}

async fn free(world: &World, node: &str) -> NodeDevices {
    let nodes: Api<Node> = Api::all(world.plane.client.clone());
    let node = convert::node(&nodes.get(node).await.unwrap());
    read(world).await.node_devices(&node)
}

/// The free thousandths of each card of a node.
async fn milli(world: &World, node: &str) -> Vec<u16> {
    let cards = free(world, node).await.cards();
    cards.iter().map(|c| c.free_milli).collect()
}

async fn get_pod(world: &World, name: &str) -> Pod {
    let pods: Api<Pod> = Api::default_namespaced(world.plane.client.clone());
    pods.get(name).await.unwrap()
}

/// Waits until a pod is bound and its claim reserved for it: its node, and the
/// names of its devices.
async fn given(world: &World, name: &str) -> (String, Vec<String>) {
    let node = world.bound(name).await;
    let pod = get_pod(world, name).await;
    let pools = read(world).await;
    let claims = pools.claims_of(&pod.uid().unwrap(), "default", []);
    assert_eq!(claims.len(), 1, "claims reserved for {name}");
    let held = claims[0].allocated.as_ref().expect("an allocated claim");
    for h in held {
        assert_eq!(pools.fault(h), None);
    }
    let names = held.iter().map(|h| h.device.device.to_string()).collect();
    (node, names)
}

/// The devices that our model expects for a claim on a node, once the claim exists.
async fn expected(world: &World, claim: &str, node: &str) -> Option<Vec<String>> {
    let pools = read(world).await;
    let claims = pools.claims_of("", "default", [claim]);
    assert_eq!(claims.len(), 1);
    let requests = pending_requests(&pools, claims);
    let mut free = free(world, node).await;
    let taken = free.take_likely(&requests).ok()?;
    let name = |i: &usize| free.devices()[*i].id().device.to_string();
    Some(taken.iter().map(name).collect())
}

async fn mig_value(world: &World, node: &str) -> Option<usize> {
    let free = free(world, node).await;
    free.mig_value(&free.cards()[0])
}

/// Creates a claim and then its pod, and compares the allocated devices with those that our
/// model expected.
async fn place(world: &World, name: &str, request: Value) -> (String, Vec<String>) {
    let client = &world.plane.client;
    let mut before = Vec::new();
    devices::claim(client, name, request).await.unwrap();
    for node in ["n1", "n2"] {
        before.push((node, expected(world, name, node).await));
    }
    devices::pod_of_claim(client, name, "gpu").await.unwrap();
    let (node, got) = given(world, name).await;
    let on_node = before.iter().find(|(n, _)| *n == node).unwrap();
    assert_eq!(
        on_node.1.as_ref(),
        Some(&got),
        "{name} on {node}: {before:?}"
    );
    (node, got)
}

#[tokio::test]
async fn scheduler_allocates_the_devices_that_the_model_expects() {
    let world = World::start(&["n1", "n2"], &[]).await.unwrap();
    let client = world.plane.client.clone();
    devices::classes(&client).await.unwrap();
    devices::cards(&client, "n1", 2, 1, None).await.unwrap();
    devices::partitionable(&client, "n2").await.unwrap();
    assert_eq!(milli(&world, "n1").await, [1000, 1000]);
    assert_eq!(milli(&world, "n2").await, [1000]);

    // Two cards for one claim: only one node has them.
    let two = devices::exactly("gpu", json!({"count": 2}));
    let (node, got) = place(&world, "two", two).await;
    assert_eq!(
        (node.as_str(), got),
        ("n1", vec!["gpu-0".into(), "gpu-1".into()])
    );
    assert_eq!(milli(&world, "n1").await, [0, 0]);

    assert!(mig_value(&world, "n2").await > Some(0));
    // Instances share counters of the card. The allocator takes the first that is published, not
    // the one that leaves most room.
    for (name, device, left) in [("a", "gpu-0-mig-3g-0", 500), ("b", "gpu-0-mig-3g-4", 0)] {
        let (node, got) = place(&world, name, devices::instance("3g.40gb")).await;
        assert_eq!((node.as_str(), got), ("n2", vec![device.into()]));
        assert_eq!(milli(&world, "n2").await, [left]);
    }
    // Compute is free but memory is not: no pod fits, as the model expects.
    devices::claim(&client, "c", devices::instance("1g.10gb"))
        .await
        .unwrap();
    assert_eq!(expected(&world, "c", "n2").await, None);
    devices::pod_of_claim(&client, "c", "gpu").await.unwrap();
    let why = devices::unschedulable(&client, "c", async || world.state()).await;
    assert!(why.contains("cannot allocate all claims"), "{why}");

    // In MIG's terms no instance fits: one compute slice is left, and no memory.
    assert_eq!(mig_value(&world, "n2").await, Some(0));
}

#[tokio::test]
async fn model_follows_shares_taints_and_claim_templates() {
    let mut world = World::start(&["n1", "n2"], &[]).await.unwrap();
    let client = world.plane.client.clone();
    world.plane.start_controller_manager().await.unwrap();
    devices::classes(&client).await.unwrap();
    devices::shared_cards(&client, "n2", 1).await.unwrap();

    // Parts of one card (KEP-5075): rounded up as its policy has it.
    let part = |memory: &str| {
        devices::exactly(
            "shared",
            json!({"capacity": {"requests": {"memory": memory}}}),
        )
    };
    for (name, memory, left) in [("a", "35Gi", 500), ("b", "20Gi", 250)] {
        let (node, got) = place(&world, name, part(memory)).await;
        assert_eq!((node.as_str(), got), ("n2", vec!["gpu-0".into()]));
        assert_eq!(milli(&world, "n2").await, [left]);
    }
    devices::claim(&client, "c", part("30Gi")).await.unwrap();
    assert_eq!(expected(&world, "c", "n2").await, None);
    devices::pod_of_claim(&client, "c", "gpu").await.unwrap();
    devices::unschedulable(&client, "c", async || world.state()).await;

    // A card that its driver declares unhealthy (KEP-5055) is not free.
    devices::cards(&client, "n1", 1, 1, Some("NoSchedule"))
        .await
        .unwrap();
    devices::claim(&client, "d", devices::exactly("gpu", json!({})))
        .await
        .unwrap();
    assert_eq!(expected(&world, "d", "n1").await, None);
    assert_eq!(milli(&world, "n1").await, [0]);
    devices::pod_of_claim(&client, "d", "gpu").await.unwrap();
    devices::unschedulable(&client, "d", async || world.state()).await;
    // Healthy again, with a new generation of the pool, it goes to the pod.
    devices::cards(&client, "n1", 1, 2, None).await.unwrap();
    assert_eq!(
        given(&world, "d").await,
        ("n1".into(), vec!["gpu-0".into()])
    );

    // The devices of a deleted pod go to the pending pod.
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    let freed = async || (milli(&world, "n2").await == [375]).then_some(());
    eventually("the share goes on", PATIENCE, freed, async || world.state()).await;
    assert_eq!(given(&world, "c").await.0, "n2");

    // A claim made from a template is found by its pod's uid.
    devices::pod_with_template(&client, "t", "template", part("30Gi"))
        .await
        .unwrap();
    assert_eq!(given(&world, "t").await.0, "n2");
    assert_eq!(milli(&world, "n2").await, [0]);
    let pod = get_pod(&world, "t").await;
    let named = convert::pod_claims(&pod);
    assert_eq!((named.names.len(), named.to_come), (1, 0));
    let pools = read(&world).await;
    let made = pools.claim("default", &named.names[0]).unwrap();
    assert_eq!(made.owner.as_deref(), pod.uid().as_deref());
}
