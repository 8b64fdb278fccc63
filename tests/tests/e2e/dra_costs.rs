//! Costs steer which node gives a pod its device: the scheduler picks the device,
//! we the node. The provider here stands in for gpu-slice, and shows what that one
//! must be told: slices, claims and classes by watches, and the claims of a pod.

use std::sync::{Arc, RwLock};

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
};
use kube::{Api, Client, ResourceExt, core::DeserializeGuard};
use serde_json::json;
use tautline_api::convert;
use tautline_gpu::dra::{Ask, NodeDevices, Pools, ask_of};
use tautline_runtime::{admin::Readiness, tasks::Tasks, watch::list_of};
use tautline_sdk::{
    CostAnswer, CostQuestion, EvaluateQuestion, Evaluation, ProviderError, RuleProvider, testkit,
};
use tautline_tests::{PATIENCE, devices, eventually, objects};

use crate::{World, placing::known};

/// A node costs the use that its cards lose if the scheduler takes what it would.
#[derive(Clone)]
struct Room {
    client: Client,
    pools: Arc<RwLock<Pools>>,
}

impl Room {
    /// Keeps `pools` in step with the cluster for as long as the tasks are kept.
    fn start(client: &Client) -> (Self, Tasks) {
        let pools = Arc::new(RwLock::new(Pools::default()));
        let (readiness, mut tasks) = (Readiness::default(), Tasks::default());
        let to = pools.clone();
        let api: Api<DeserializeGuard<ResourceSlice>> = Api::all(client.clone());
        list_of(api, None, &readiness, &mut tasks, move |list| {
            let slices = list.iter().filter_map(|s| convert::dra::slice(s).ok());
            to.write().unwrap().reset_slices(slices);
        });
        let to = pools.clone();
        let api: Api<DeserializeGuard<ResourceClaim>> = Api::all(client.clone());
        list_of(api, None, &readiness, &mut tasks, move |list| {
            let claims = list.iter().filter_map(|c| convert::dra::claim(c).ok());
            to.write().unwrap().reset_claims(claims);
        });
        let to = pools.clone();
        let api: Api<DeserializeGuard<DeviceClass>> = Api::all(client.clone());
        list_of(api, None, &readiness, &mut tasks, move |list| {
            let classes = list.iter().map(|c| convert::dra::class(c));
            to.write().unwrap().reset_classes(classes);
        });
        let client = client.clone();
        (Self { client, pools }, tasks)
    }

    fn ask(&self, pod: &Pod) -> Ask {
        let named = convert::dra::pod_claims(pod).names;
        let named = named.iter().map(String::as_str);
        let pools = self.pools.read().unwrap();
        let claims = pools.claims_of(&pod.uid().unwrap(), &pod.namespace().unwrap(), named);
        ask_of(&pools, claims)
    }

    fn cost(&self, ask: &Ask, node: &tautline_core::model::Node) -> Option<u64> {
        let mut free = self.pools.read().unwrap().free(node);
        let before = room(&free);
        free.take_likely(ask)?;
        Some(before.saturating_sub(room(&free)))
    }
}

fn room(free: &NodeDevices) -> u64 {
    let cards = free.cards();
    let migs = cards.iter().filter_map(|c| free.mig(c));
    migs.map(|m| m.room(|p| u64::from(!p.media))).sum()
}

impl RuleProvider for Room {
    async fn endpoint_cost(&self, ask: CostQuestion) -> Result<CostAnswer, ProviderError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &ask.source.namespace);
        let nodes: Api<Node> = Api::all(self.client.clone());
        // A probe of the extender asks for a pod that is not there.
        let pod = pods.get_opt(&ask.source.name).await.unwrap();
        let wanted = pod.map(|p| self.ask(&p)).unwrap_or_default();
        let mut answer = CostAnswer::default();
        for name in ask.eligible_nodes {
            let node = convert::node(&nodes.get(&name).await.unwrap());
            match self.cost(&wanted, &node) {
                Some(cost) => answer.usable(name, i64::try_from(cost).unwrap(), ""),
                None => answer.unusable(name, "NoDevice", "no device is free", true),
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluateQuestion) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::compliant("room"))
    }
}

#[tokio::test]
async fn instances_gather_on_a_card_so_that_a_whole_one_is_left() {
    let world = World::start(&["n1", "n2", "n3"], &[]).await.unwrap();
    let client = world.plane.client.clone();
    devices::classes(&client).await.unwrap();
    for node in ["n1", "n2", "n3"] {
        devices::partitionable(&client, node).await.unwrap();
    }
    let (provider, _tasks) = Room::start(&client);
    let running = testkit::start(provider.clone()).await.unwrap();
    let port = running.address.port();
    objects::provider(&client, "default", "p", port, &["room"])
        .await
        .unwrap();
    objects::policy(
        &client,
        "default",
        "gpu",
        json!({"name": "room"}),
        json!({}),
    )
    .await
    .unwrap();
    known(&world, "gpu").await;

    // One card is filled to its end before the next is begun, whatever the
    // scheduler's own scores say; 1g, 2g, 1g, 3g: 3g goes where it still fits.
    let mut nodes = Vec::new();
    for (name, profile) in [
        ("a", "1g.10gb"),
        ("b", "2g.20gb"),
        ("c", "1g.10gb"),
        ("d", "3g.40gb"),
    ] {
        devices::claim(&client, name, devices::instance(profile))
            .await
            .unwrap();
        let seen = async || {
            let pools = provider.pools.read().unwrap();
            pools.claim("default", name).map(|_| ())
        };
        eventually("the claim is seen", PATIENCE, seen, async || "").await;
        devices::pod_of_claim(&client, name, "gpu").await.unwrap();
        nodes.push(world.bound(name).await);
        let seen = async || {
            let pools = provider.pools.read().unwrap();
            pools.claim("default", name)?.allocated.as_ref().map(|_| ())
        };
        eventually("the allocation is seen", PATIENCE, seen, async || "").await;
    }
    assert!(nodes.iter().all(|n| *n == nodes[0]), "{nodes:?}");

    // Two whole cards are left, for one pod each; a third finds none.
    for name in ["e", "f", "g"] {
        devices::claim(&client, name, devices::exactly("gpu", json!({})))
            .await
            .unwrap();
        devices::pod_of_claim(&client, name, "gpu").await.unwrap();
    }
    let check = async || {
        let mut bound = 0;
        for name in ["e", "f", "g"] {
            let node = objects::node_of(&client, "default", name).await;
            bound += usize::from(node.is_some());
        }
        (bound == 2).then_some(())
    };
    eventually("two of three are bound", PATIENCE, check, async || {
        world.state()
    })
    .await;
}
