//! The harness itself, for the controller's tests: Deployments become running pods, budgets
//! hold, and owned objects are deleted with their owners.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::Pod, discovery::v1::EndpointSlice, policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::{EvictParams, ListParams},
};
use serde_json::json;
use tautline_api::constraint::ConstraintPolicyOffer;
use tautline_tests::{
    PATIENCE,
    control_plane::ControlPlane,
    eventually, objects, root,
    workloads::{bindings, deployment, pdb, pods_of, scale},
};

use crate::manifests::may;

#[tokio::test]
async fn harness_runs_deployments_budgets_and_garbage_collection() {
    let mut plane = ControlPlane::start().await.unwrap();
    let client = plane.client.clone();
    objects::apply_kustomization_except(&client, &root().join("deploy"), &["Deployment"])
        .await
        .unwrap();
    plane.start_kwok().await.unwrap();
    plane.start_controller_manager().await.unwrap();
    plane.start_scheduler(None).await.unwrap();
    for name in ["n1", "n2"] {
        objects::node(&client, name, json!({})).await.unwrap();
    }

    deployment(&client, "default", "web", "web", 3)
        .await
        .unwrap();
    let first = running(&plane, 3).await;
    endpoints(&plane, &first).await;
    refused_then_allowed(&plane, &first).await;
    scale(&client, "default", "web", 1).await.unwrap();
    running(&plane, 1).await;
    collected(&plane).await;
    aggregated(&plane).await;
}

/// The pods of the Deployment, once there are `count` of them, bound and ready.
async fn running(plane: &ControlPlane, count: usize) -> Vec<Pod> {
    let check = async || {
        let pods = pods_of(&plane.client, "default", "web").await;
        let ready = pods.iter().all(|p| {
            let bound = p.spec.as_ref().is_some_and(|s| s.node_name.is_some());
            bound && phase(p) == "Running"
        });
        (ready && pods.len() == count).then_some(pods)
    };
    let what = format!("{count} pods of the Deployment run");
    eventually(&what, PATIENCE, check, async || plane.logs()).await
}

fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status.and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

/// A Service's EndpointSlice names each pod with its node.
async fn endpoints(plane: &ControlPlane, pods: &[Pod]) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    objects::apply_one(&plane.client, service).await.unwrap();
    let nodes: BTreeMap<String, String> = pods
        .iter()
        .map(|p| (p.name_any(), p.spec.clone().unwrap().node_name.unwrap()))
        .collect();
    let slices: Api<EndpointSlice> = Api::default_namespaced(plane.client.clone());
    let check = async || {
        let of = ListParams::default().labels("kubernetes.io/service-name=web");
        let list = slices.list(&of).await.ok()?.items;
        let endpoints = list
            .into_iter()
            .flat_map(|s| s.endpoints.unwrap_or_default());
        let seen: BTreeMap<String, String> = endpoints
            .filter(|e| e.conditions.as_ref().is_some_and(|c| c.ready == Some(true)))
            .filter_map(|e| Some((e.target_ref?.name?, e.node_name?)))
            .collect();
        (seen == nodes).then_some(())
    };
    let what = "the EndpointSlice names the pods";
    eventually(what, PATIENCE, check, async || plane.logs()).await;
}

/// A budget that allows no disruption refuses an eviction; loosened, it lets the
/// pod go, and another takes its place.
async fn refused_then_allowed(plane: &ControlPlane, pods: &[Pod]) {
    let client = &plane.client;
    let evicting: Api<Pod> = Api::default_namespaced(plane.client_as("admin").await.unwrap());
    let gone = pods[0].name_any();
    pdb(client, "default", "web", "web", 3).await.unwrap();
    allowed(plane, 0).await;
    let error = evicting
        .evict(&gone, &EvictParams::default())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 429),
        "{error}"
    );
    pdb(client, "default", "web", "web", 2).await.unwrap();
    allowed(plane, 1).await;
    evicting
        .evict(&gone, &EvictParams::default())
        .await
        .unwrap();
    let check = async || {
        let found = evicting.get_opt(&gone).await.ok()?;
        found.is_none().then_some(())
    };
    eventually("the evicted pod goes", PATIENCE, check, async || {
        plane.logs()
    })
    .await;
    running(plane, 3).await;
}

async fn allowed(plane: &ControlPlane, disruptions: i32) {
    let pdbs: Api<PodDisruptionBudget> = Api::default_namespaced(plane.client.clone());
    let check = async || {
        let pdb = pdbs.get("web").await.ok()?;
        let seen = pdb.status.as_ref()?.observed_generation == pdb.metadata.generation;
        (seen && pdb.status?.disruptions_allowed == Some(disruptions)).then_some(())
    };
    let what = format!("the budget allows {disruptions} disruptions");
    eventually(&what, PATIENCE, check, async || plane.logs()).await;
}

/// A binding of the controller's account is deleted with the offer that owns it.
async fn collected(plane: &ControlPlane) {
    let client = &plane.client;
    objects::policy(client, "default", "web", json!({"name": "r"}), json!({}))
        .await
        .unwrap();
    let offers: Api<ConstraintPolicyOffer> = Api::default_namespaced(client.clone());
    let uid = offers.get("web").await.unwrap().uid().unwrap();
    let api_version = "constraint.ciena.com/v1alpha1";
    let owner = json!({"apiVersion": api_version, "kind": "ConstraintPolicyOffer",
        "name": "web", "uid": uid, "controller": true, "blockOwnerDeletion": true});
    let owned = json!({"apiVersion": api_version, "kind": "ConstraintPolicyBinding",
        "metadata": {"name": "web-x", "namespace": "default", "ownerReferences": [owner]},
        "spec": {"offer": "web", "targets": {}}});
    let controller = plane.client_as("controller").await.unwrap();
    objects::apply_one(&controller, owned).await.unwrap();
    assert_eq!(bindings(client, "default", "web").await.len(), 1);
    offers.delete("web", &Default::default()).await.unwrap();
    let check = async || {
        let left = bindings(client, "default", "web").await;
        left.is_empty().then_some(())
    };
    let what = "the owned binding goes";
    eventually(what, PATIENCE, check, async || plane.logs()).await;
}

/// A labelled ClusterRole of an operator grants its kind to the controller.
async fn aggregated(plane: &ControlPlane) {
    let list = "list networkservices.networkservicemesh.io default/";
    assert!(!may(&plane.client, "controller", list).await);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "kinds", "labels": {"tautline.io/aggregate-to-controller": "true"}},
        "rules": [{"apiGroups": ["networkservicemesh.io"], "resources": ["networkservices"],
                   "verbs": ["list", "watch"]}]});
    objects::apply_one(&plane.client, role).await.unwrap();
    let check = async || may(&plane.client, "controller", list).await.then_some(());
    let what = "the controller may list the kind";
    eventually(what, PATIENCE, check, async || plane.logs()).await;
}
