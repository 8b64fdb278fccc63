//! Broken kinds, components, rights, Leases and agents.

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tautline_tests::workloads::scale;

use super::installation::{DEPLOYMENT, Installation, NAMESPACE};

const CRD: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
const ROLE_BINDING: (&str, &str) = ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding");
const LEASE: (&str, &str) = ("coordination.k8s.io/v1", "Lease");

pub async fn kinds(i: &Installation) {
    let name = "costproviders.constraint.ciena.com";
    let fix = "tautline crds | kubectl apply --server-side -f -";
    i.delete(CRD.0, CRD.1, name).await;
    i.finds("problem", "CrdMissing", name, "not installed", fix)
        .await;
    i.apply("crds/costproviders.yaml").await;
    i.mended("CrdMissing", name).await;

    let name = "constraintpolicyoffers.constraint.ciena.com";
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let remove = json!([{"op": "remove", "path": format!("{path}/providerUnavailable")}]);
    i.json_patch(CRD.0, CRD.1, name, remove).await;
    i.finds(
        "problem",
        "CrdOld",
        name,
        "spec.providerUnavailable missing",
        fix,
    )
    .await;
    i.apply("crds/constraintpolicyoffers.yaml").await;
    i.mended("CrdOld", name).await;
}

pub async fn components(i: &Installation) {
    let client = &i.plane.client;
    i.delete(DEPLOYMENT.0, DEPLOYMENT.1, "tautline-controller")
        .await;
    let reapply = "kubectl apply --server-side -k deploy";
    i.finds(
        "problem",
        "ComponentMissing",
        "controller",
        "no Deployment",
        reapply,
    )
    .await;
    i.apply("base/controller.yaml").await;
    i.mended("ComponentMissing", "controller").await;

    let object = "Deployment tautline-scripted";
    i.healthy().await;
    scripted_waits(i, true).await;
    let text = "0 of 1 pods ready; tautline-scripted-";
    i.finds(
        "problem",
        "ComponentNotReady",
        object,
        text,
        "correct the image",
    )
    .await;
    scripted_waits(i, false).await;
    i.mended("ComponentNotReady", object).await;

    let selector = |value: Value| {
        json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null},
                        "template": {"spec": {"nodeSelector": value}}}})
    };
    let name = "tautline-scripted";
    let nowhere = selector(json!({"disk": "none"}));
    i.merge_patch(DEPLOYMENT.0, DEPLOYMENT.1, name, nowhere)
        .await;
    let text = "Pending: 0/3 nodes are available: 3 node(s) didn't match";
    i.finds(
        "problem",
        "ComponentNotReady",
        object,
        text,
        "describe pod tautline-scripted-",
    )
    .await;
    i.merge_patch(DEPLOYMENT.0, DEPLOYMENT.1, name, selector(Value::Null))
        .await;
    i.mended("ComponentNotReady", object).await;

    let object = "Deployment tautline-controller";
    let fix = "kubectl -n tautline-system scale deploy/tautline-controller --replicas=2";
    scale(client, NAMESPACE, "tautline-controller", 0)
        .await
        .unwrap();
    i.finds("problem", "ComponentNotReady", object, "0 replicas", fix)
        .await;
    scale(client, NAMESPACE, "tautline-controller", 2)
        .await
        .unwrap();
    i.mended("ComponentNotReady", object).await;

    let account = "ServiceAccount tautline-system/tautline-controller";
    i.delete(ROLE_BINDING.0, ROLE_BINDING.1, "tautline-controller")
        .await;
    let text = "create constraintpolicybindings.constraint.ciena.com";
    i.finds(
        "problem",
        "RightMissing",
        account,
        text,
        "clusterrolebinding/tautline-controller",
    )
    .await;
    i.apply("base/controller.yaml").await;
    i.mended("RightMissing", account).await;

    let image = |tag: &str| json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": tag}]);
    i.json_patch(DEPLOYMENT.0, DEPLOYMENT.1, name, image("tautline:0.0.9"))
        .await;
    i.finds(
        "warning",
        "VersionsDiffer",
        "images",
        "are of 0.0.9",
        "use tautline 0.0.9",
    )
    .await;
    i.json_patch(DEPLOYMENT.0, DEPLOYMENT.1, name, image("tautline"))
        .await;
    i.mended("VersionsDiffer", "images").await;
}

/// Makes the pod of `scripted` wait for its image as a kubelet reports it, or run again.
async fn scripted_waits(i: &Installation, waits: bool) {
    let pods: Api<Pod> = Api::namespaced(i.plane.client.clone(), NAMESPACE);
    let of = ListParams::default().labels("app.kubernetes.io/name=tautline-scripted");
    let name = pods.list(&of).await.unwrap().items[0].name_any();
    let state = match waits {
        true => json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}),
        false => json!({"running": {}}),
    };
    let ready = if waits { "False" } else { "True" };
    let status = json!({"status": {
        "conditions": [{"type": "Ready", "status": ready}],
        "containerStatuses": [{"name": "tautline", "image": "tautline", "imageID": "",
                               "restartCount": 0, "ready": !waits, "state": state}]}});
    let patch = Patch::Strategic(&status);
    pods.patch_status(&name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

pub async fn leases(i: &Installation) {
    let (name, object) = (
        "tautline-controller",
        "Lease tautline-system/tautline-controller",
    );
    let fix = "kubectl -n tautline-system logs deploy/tautline-controller";
    i.delete(LEASE.0, LEASE.1, name).await;
    i.finds(
        "problem",
        "LeaseMissing",
        object,
        "no controller works",
        fix,
    )
    .await;
    let old = Timestamp::from_second(Timestamp::now().as_second() - 2 * 3600).unwrap();
    i.lease(name, old).await;
    i.finds(
        "problem",
        "LeaseExpired",
        object,
        "a_1 renewed it 120m ago",
        fix,
    )
    .await;
    i.lease(name, Timestamp::now()).await;
    i.mended("LeaseMissing", object).await;
    i.mended("LeaseExpired", object).await;
}

pub async fn agents(i: &Installation) {
    let object = "DaemonSet tautline-latency-agent";
    let fix = "describe ds/tautline-latency-agent";
    i.delete("v1", "Pod", "tautline-latency-agent-n2").await;
    i.finds(
        "problem",
        "AgentsMissing",
        object,
        "no agent on 1 of 3 nodes: n2",
        fix,
    )
    .await;
    i.agent("n2").await;
    i.mended("AgentsMissing", object).await;
    i.healthy().await;
}

pub async fn elsewhere(i: &Installation) {
    let (code, report) = i.doctor("admin", &["-n", "nowhere"]).await;
    assert_eq!(code, Some(1), "{report:#}");
    assert_eq!(
        report["findings"][0]["check"], "NamespaceMissing",
        "{report:#}"
    );
    assert!(
        report["findings"][0]["fix"]
            .as_str()
            .unwrap()
            .contains("--namespace")
    );

    // An account without rights: every part could not be checked, and nothing is claimed.
    let (code, report) = i.doctor("author", &[]).await;
    assert_eq!(code, Some(2), "{report:#}");
    let findings = report["findings"].as_array().unwrap();
    let unchecked = |f: &&Value| f["check"] == "NotChecked" && f["level"] == "warning";
    assert!(findings.iter().all(|f| unchecked(&f)), "{report:#}");
    assert!(findings.len() > 8, "{report:#}");
}
