//! Failed binds, deleted pods and nodes: no card stays reserved. After each case a pod gets the
//! same whole card.

use k8s_openapi::api::core::v1::{Binding, Node, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use tautline_tests::{PATIENCE, eventually, objects, servers::Server};

use crate::{
    World,
    gpu::{self, CARDS, create, expect_devices, gpu_pod},
    gpu_audit::Audit,
    gpu_interceptor::Interceptor,
};

struct LeakTest {
    world: World,
    provider: Server,
    between: Interceptor,
}

#[tokio::test]
async fn gpu_reservations_end_when_binds_fail_and_pods_and_nodes_go() {
    // The event between reserve and bind writes to the API server.
    let extender = ["--bind", "--provider-deadline=3s"];
    let world = World::with("gated-gpu.yaml", &[], &extender).await.unwrap();
    let client = world.plane.client.clone();
    let provider = gpu::provider(&world.plane).await;
    let between = Interceptor::start(provider.port).await;
    gpu::service(&client, between.port).await;
    for node in ["n1", "n2"] {
        gpu::node(&client, node, json!({CARDS: "1"})).await;
    }
    gpu::policy(&world, "whole", "1").await;
    gpu::wait_until_reserving(provider.port, "n1", async || provider.process.tail()).await;
    let leaks = LeakTest {
        world,
        provider,
        between,
    };

    leaks.bound_elsewhere().await;
    leaks.deleted_before_the_bind().await;
    leaks.deleted_while_bound().await;
    leaks.node_gone_before_the_bind().await;
    leaks.node_gone_before_the_reserve().await;
    leaks.answer_lost().await;
    let audit = Audit::read(&client).await;
    assert_eq!(audit.faults(), Vec::<String>::new());
}

impl LeakTest {
    fn client(&self) -> Client {
        self.world.plane.client.clone()
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client())
    }

    fn state(&self) -> String {
        self.between.call_log() + "\n" + &self.provider.process.tail() + &self.world.state()
    }

    async fn happened(&self) {
        let check = async || self.between.has_run().then_some(());
        let what = "it happens between reserve and bind";
        eventually(what, PATIENCE, check, async || self.state()).await;
    }

    /// Nothing is reserved, and the card of `node` goes to `pod`; then both are free.
    async fn free(&self, node: &str, pod: &str) {
        gpu::wait_until_released(&self.provider).await;
        gpu::pod(&self.client(), pod, "whole", node).await;
        expect_devices(&self.world, pod, node, "0:1000").await;
        gpu::delete(&self.client(), pod).await;
    }

    /// The extender's answer to a bind request, for a pod of another scheduler.
    async fn bind(&self, pod: &str, node: &str) -> String {
        let mut waiting = gpu_pod(pod, "whole", json!({}), Some(node));
        waiting.spec.as_mut().unwrap().scheduler_name = Some("nobody".into());
        let uid = create(&self.client(), &waiting).await;
        let args = json!({"PodName": pod, "PodNamespace": "default", "PodUID": uid, "Node": node});
        let posted = crate::faults::post(&self.world, "bind", &args.to_string()).await;
        posted.unwrap()
    }

    /// The API server refuses, because the pod has another node by then.
    async fn bound_elsewhere(&self) {
        let (pods, client) = (self.pods(), self.client());
        self.between.on_reserve("elsewhere", async move || {
            let elsewhere: Binding = serde_json::from_value(json!({
                "metadata": {"name": "elsewhere"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n2"},
            }))
            .unwrap();
            let params = PostParams::default();
            pods.create_subresource::<Binding, k8s_openapi::apimachinery::pkg::apis::meta::v1::Status>(
                "binding", "elsewhere", &params, &elsewhere,
            )
            .await
            .unwrap();
        });
        gpu::pod(&client, "elsewhere", "whole", "n1").await;
        self.happened().await;
        assert_eq!(self.world.bound("elsewhere").await, "n2");
        self.free("n1", "after-elsewhere").await;
        gpu::delete(&client, "elsewhere").await;
        self.free("n2", "after-elsewhere-too").await;
    }

    async fn deleted_before_the_bind(&self) {
        let (pods, client) = (self.pods(), self.client());
        self.between.on_reserve("hasty", async move || {
            let now = DeleteParams::default().grace_period(0);
            pods.delete("hasty", &now).await.unwrap();
        });
        gpu::pod(&client, "hasty", "whole", "n1").await;
        self.happened().await;
        self.free("n1", "after-hasty").await;
        assert!(self.pods().get_opt("hasty").await.unwrap().is_none());
    }

    async fn deleted_while_bound(&self) {
        let client = self.client();
        gpu::pod(&client, "short", "whole", "n1").await;
        expect_devices(&self.world, "short", "n1", "0:1000").await;
        // Another pod waits for the card, and gets it after this one is deleted.
        gpu::pod(&client, "next", "whole", "n1").await;
        crate::faults::wait_for_event(&self.world, "next", "gpu-slice/GpuBusy").await;
        let params = DeleteParams::default();
        self.pods().delete("short", &params).await.unwrap();
        expect_devices(&self.world, "next", "n1", "0:1000").await;
        gpu::delete(&client, "next").await;
        self.free("n1", "after-short").await;
    }

    /// The API server does not check that the node exists: the pod is bound to a deleted node, and
    /// then deleted too.
    async fn node_gone_before_the_bind(&self) {
        let client = self.client();
        gpu::node(&client, "n3", json!({CARDS: "1"})).await;
        let nodes: Api<Node> = Api::all(client.clone());
        self.between.on_reserve("stranded", async move || {
            nodes.delete("n3", &DeleteParams::default()).await.unwrap();
        });
        gpu::pod(&client, "stranded", "whole", "n3").await;
        self.happened().await;
        assert_eq!(self.world.bound("stranded").await, "n3");
        gpu::wait_until_released(&self.provider).await;
        gpu::delete(&client, "stranded").await;
        gpu::node(&client, "n3", json!({CARDS: "1"})).await;
        self.free("n3", "after-stranded").await;
    }

    /// The scheduler has chosen a node that was just deleted.
    async fn node_gone_before_the_reserve(&self) {
        let client = self.client();
        let nodes: Api<Node> = Api::all(client.clone());
        let params = DeleteParams::default();
        nodes.delete("n3", &params).await.unwrap();
        let answer = self.bind("late", "n3").await;
        println!("bind to a node that has just gone: {answer}");
        gpu::wait_until_released(&self.provider).await;
        gpu::wait_until_forgotten(self.provider.port, "n3", async || self.state()).await;
        let answer = self.bind("later", "n3").await;
        let why = "node n3: not in the provider's view";
        assert!(answer.contains(why), "{answer}\n{}", self.state());
        for pod in ["late", "later"] {
            gpu::delete(&client, pod).await;
        }
        gpu::node(&client, "n3", json!({CARDS: "1"})).await;
        self.free("n3", "after-late").await;
    }

    /// A Reserve whose answer is lost: the reservation lasts until its deadline, and no longer.
    async fn answer_lost(&self) {
        self.between.lose_answers("unheard");
        let answer = self.bind("unheard", "n1").await;
        assert!(answer.contains("the answer is lost"), "{answer}");
        gpu::wait_until_reserved(&self.provider).await;
        gpu::pod(&self.client(), "patient", "whole", "n1").await;
        expect_devices(&self.world, "patient", "n1", "0:1000").await;
        gpu::delete(&self.client(), "patient").await;
        assert_eq!(
            objects::node_of(&self.client(), "default", "unheard").await,
            None
        );
        gpu::delete(&self.client(), "unheard").await;
        self.free("n1", "after-unheard").await;
    }
}
