//! Rules with a countable resource: reserve, bind in one write, confirm; release if the bind
//! fails.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;
use tautline_proto::{
    allocator::{self as wire, allocator_server},
    ruleprovider::{
        CostUpdate, CostWatch, EndpointCostRequest, EndpointCostResponse, EvaluateRequest,
        EvaluateResponse, NodeCost, rule_provider_server,
    },
};
use tautline_tests::{PATIENCE, eventually, objects};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming, codegen::BoxStream};

use crate::{World, placement::wait_for_provider};

/// Allocates one device per node, and records the calls.
#[derive(Clone, Default)]
struct Devices {
    calls: Arc<Mutex<Vec<String>>>,
    held: Arc<Mutex<BTreeMap<String, String>>>,
}

#[tonic::async_trait]
impl rule_provider_server::RuleProvider for Devices {
    type WatchCostsStream = BoxStream<CostUpdate>;

    async fn watch_costs(
        &self,
        _: Request<Streaming<CostWatch>>,
    ) -> Result<Response<Self::WatchCostsStream>, Status> {
        Err(Status::unimplemented("each pod is asked for"))
    }

    async fn endpoint_cost(
        &self,
        request: Request<EndpointCostRequest>,
    ) -> Result<Response<EndpointCostResponse>, Status> {
        // Costs ignore the device's state: only the reservation can refuse.
        let cost = |node| NodeCost {
            node,
            cost: 1,
            ..NodeCost::default()
        };
        let node_and_cost = request
            .into_inner()
            .eligible_nodes
            .into_iter()
            .map(cost)
            .collect();
        Ok(Response::new(EndpointCostResponse {
            node_and_cost,
            ..EndpointCostResponse::default()
        }))
    }

    async fn evaluate(
        &self,
        _: Request<EvaluateRequest>,
    ) -> Result<Response<EvaluateResponse>, Status> {
        Ok(Response::new(EvaluateResponse::default()))
    }
}

#[tonic::async_trait]
impl allocator_server::Allocator for Devices {
    async fn reserve(
        &self,
        request: Request<wire::ReserveRequest>,
    ) -> Result<Response<wire::ReserveResponse>, Status> {
        let request = request.into_inner();
        let pod = request.workload.unwrap_or_default().name;
        let mut held = self.held.lock().unwrap();
        if held
            .get(&request.node)
            .is_some_and(|uid| *uid != request.uid)
        {
            self.calls.lock().unwrap().push(format!("refused {pod}"));
            return Err(Status::failed_precondition(format!(
                "{} has no device left",
                request.node
            )));
        }
        held.insert(request.node.clone(), request.uid.clone());
        self.calls.lock().unwrap().push(format!("reserved {pod}"));
        let annotations = [(
            "tautline.io/device".to_owned(),
            format!("dev-0@{}", request.node),
        )]
        .into();
        Ok(Response::new(wire::ReserveResponse {
            id: request.uid,
            annotations,
            expires: None,
        }))
    }

    async fn confirm(
        &self,
        _: Request<wire::ConfirmRequest>,
    ) -> Result<Response<wire::ConfirmResponse>, Status> {
        self.calls.lock().unwrap().push("confirmed".into());
        Ok(Response::new(wire::ConfirmResponse {}))
    }

    async fn release(
        &self,
        request: Request<wire::ReleaseRequest>,
    ) -> Result<Response<wire::ReleaseResponse>, Status> {
        let id = request.into_inner().id;
        self.held.lock().unwrap().retain(|_, uid| *uid != id);
        self.calls.lock().unwrap().push("released".into());
        Ok(Response::new(wire::ReleaseResponse {}))
    }
}

#[tokio::test]
async fn reservation_is_confirmed_after_bind_and_released_when_it_fails() {
    let world = World::with(
        "gated-gpu.yaml",
        &["n1"],
        &[
            "--bind",
            "--allocator-annotations=device=tautline.io/device",
        ],
    )
    .await
    .unwrap();
    let client = &world.plane.client;
    let devices = Devices::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = tonic::transport::Server::builder()
        .add_service(rule_provider_server::RuleProviderServer::new(
            devices.clone(),
        ))
        .add_service(allocator_server::AllocatorServer::new(devices.clone()));
    let server = tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    objects::apply_one(
        client,
        json!({"apiVersion": "v1", "kind": "Service",
               "metadata": {"name": "devices", "namespace": "default",
                            "labels": {"constraint.ciena.com/constraint-device": "enabled"},
                            "annotations": {"constraint.ciena.com/allocator": "enabled"}},
               "spec": {"type": "ExternalName", "externalName": "localhost",
                        "ports": [{"name": "ruleprovider", "port": port}]}}),
    )
    .await
    .unwrap();
    objects::policy(
        client,
        "default",
        "web",
        json!({"name": "device"}),
        json!({}),
    )
    .await
    .unwrap();
    wait_for_provider(&world, "web").await;

    crate::placement::gated_pod(client, "web-0", "web").await;
    assert_eq!(world.bound("web-0").await, "n1");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let bound = pods.get("web-0").await.unwrap();
    assert_eq!(
        bound.metadata.annotations.unwrap()["tautline.io/device"],
        "dev-0@n1"
    );
    // The extender confirms after the bind that the pod shows.
    let confirmed = async || {
        let calls = devices.calls.lock().unwrap();
        (*calls == ["reserved web-0", "confirmed"]).then_some(())
    };
    let state = async || format!("{:?}", devices.calls.lock().unwrap());
    eventually("the bind is confirmed", PATIENCE, confirmed, state).await;

    // The device is taken: the second pod is refused at bind, with a reason.
    crate::placement::gated_pod(client, "web-1", "web").await;
    let check = async || {
        let events = objects::events(client, "default", "web-1").await;
        events.contains("n1 has no device left").then_some(())
    };
    eventually(
        "the refusal is in the events",
        PATIENCE,
        check,
        async || objects::events(client, "default", "web-1").await + &world.state(),
    )
    .await;
    assert_eq!(objects::node_of(client, "default", "web-1").await, None);

    // A bind that the API server refuses (the pod is bound already) releases.
    devices.held.lock().unwrap().clear();
    let placed: Pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-2", "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "example.com/app:1"}]}}))
    .unwrap();
    let placed = pods.create(&Default::default(), &placed).await.unwrap();
    let uid = placed.metadata.uid.unwrap();
    let wrong = json!({"PodName": "web-2", "PodNamespace": "default", "PodUID": uid, "Node": "n2"});
    let answer = crate::faults::post(&world, "bind", &wrong.to_string())
        .await
        .unwrap();
    assert!(answer.contains("\"error\":\"pod default/web-2"), "{answer}");
    let released = async || {
        devices
            .calls
            .lock()
            .unwrap()
            .contains(&"released".to_owned())
            .then_some(())
    };
    eventually(
        "the reservation is released",
        PATIENCE,
        released,
        async || format!("{:?}", devices.calls.lock().unwrap()),
    )
    .await;
    // With n1's device free, the waiting pod is bound.
    assert_eq!(world.bound("web-1").await, "n1");
    server.abort();
}
