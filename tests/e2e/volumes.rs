//! Volumes of a live cluster in `tautline plan`, and kube-scheduler's own choice.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tautline_tests::{control_plane::ControlPlane, objects, root, servers};

/// A claim that its binder has bound, a volume that can be in zone b only, and a class whose
/// volumes are made there.
const STORAGE: &str = r#"
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: local},
 provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: made},
 provisioner: example.com/disks, volumeBindingMode: WaitForFirstConsumer,
 allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [b]}]}]}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: disk},
 spec: {storageClassName: local, capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce],
  local: {path: /disk}, claimRef: {namespace: default, name: bound},
  nodeAffinity: {required: {nodeSelectorTerms: [
   {matchExpressions: [{key: zone, operator: In, values: [b]}]}]}}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim,
 metadata: {name: bound, namespace: default, annotations: {pv.kubernetes.io/bind-completed: "yes"}},
 spec: {storageClassName: local, volumeName: disk, accessModes: [ReadWriteOnce],
  resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: waits, namespace: default},
 spec: {storageClassName: made, accessModes: [ReadWriteOnce],
  resources: {requests: {storage: 1Gi}}}}
"#;

fn pod(name: &str, claim: Option<&str>) -> Value {
    let volumes: Vec<Value> = claim
        .map(|claim| json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}}))
        .into_iter()
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"automountServiceAccountToken": false, "volumes": volumes,
            "containers": [{"name": "main", "image": "example.com/app:1"}]}})
}

#[tokio::test]
async fn plan_of_a_cluster_knows_where_volumes_can_be() {
    let mut plane = ControlPlane::start().await.unwrap();
    let client = plane.client.clone();
    objects::apply_kustomization(&client, &root().join("deploy"))
        .await
        .unwrap();
    plane.start_kwok().await.unwrap();
    for (name, zone) in [("a1", "a"), ("b1", "b")] {
        let labels = json!({"zone": zone});
        objects::node(&client, name, labels).await.unwrap();
    }
    objects::apply(&client, STORAGE).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), "default");
    let bound = json!({"status": {"phase": "Bound"}});
    let params = PatchParams::default();
    claims
        .patch_status("bound", &params, &Patch::Merge(&bound))
        .await
        .unwrap();
    for object in [
        pod("of-class", Some("waits")),
        pod("of-volume", Some("bound")),
        pod("without", None),
    ] {
        objects::apply_one(&client, object).await.unwrap();
    }

    let mut plan = tokio::process::Command::new(servers::binary().unwrap());
    plan.args(["plan", "-o", "json", "-n", "default", "--kubeconfig"])
        .arg(plane.kubeconfig("admin"));
    let planned = plan.output().await.unwrap();
    let error = String::from_utf8_lossy(&planned.stderr).into_owned();
    assert_eq!(planned.status.code(), Some(0), "{error}");
    let planned: Value = serde_json::from_slice(&planned.stdout).unwrap();
    let pods = planned["pods"].as_array().unwrap().iter();
    let found: Vec<_> = pods.map(|p| (&p["pod"], &p["node"])).collect();
    let expected = json!([["of-class", "b1"], ["of-volume", "b1"], ["without", "a1"]]);
    assert_eq!(json!(found), expected, "{error}");

    plane.start_scheduler(None).await.unwrap();
    let logs = async || plane.logs();
    let node = objects::wait_until_bound(&client, "default", "of-volume", logs).await;
    assert_eq!(node, "b1");
}
