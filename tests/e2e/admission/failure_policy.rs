//! Pods while the admission server is down.

use super::{gpu_sharing::SLICES, *};

/// Sets the failurePolicy of a webhook.
pub async fn policy(world: &AdmissionCluster, configuration: &str, webhook: &str, failure: &str) {
    let patch = json!({"webhooks": [{"name": webhook, "failurePolicy": failure}]});
    Api::<MutatingWebhookConfiguration>::all(world.client().clone())
        .patch(
            configuration,
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Strategic(patch),
        )
        .await
        .unwrap();
}

#[tokio::test]
async fn dead_server_admits_or_refuses_by_failure_policy() {
    let mut world = AdmissionCluster::start(SLICES, &[]).await.unwrap();
    let optimize = json!({"castops.io/optimize": "true", "castops.io/slice-ratio": "4"});
    let pod = |namespace: &str, name: &str| {
        gpu_sharing::pod(namespace, name, optimize.clone(), json!({}))
    };
    let limits = |response: &objects::Response| {
        response.body["spec"]["containers"][0]["resources"]["limits"].clone()
    };
    let until =
        async |world: &AdmissionCluster, what: &str, check: &dyn Fn(&objects::Response) -> bool| {
            let condition = async || {
                let response = gpu_sharing::create(world, &pod("default", "probe"), true).await;
                check(&response).then_some(())
            };
            eventually(what, PATIENCE, condition, async || world.state()).await;
        };
    let sliced = |response: &objects::Response| limits(response)["nvidia.com/gpu-shared"] == "8";
    until(&world, "pods get shares", &sliced).await;

    world.server.process.kill();
    let response = gpu_sharing::create(&world, &pod("default", "ignored"), false).await;
    assert_eq!(
        (response.status, &limits(&response)["nvidia.com/gpu"]),
        (201, &json!("2")),
        "{response:?}"
    );
    policy(&world, SLICES[0], "gpu-slices.tautline.io", "Fail").await;
    until(&world, "pods are refused", &|response| {
        response.status >= 400
    })
    .await;
    let response = gpu_sharing::create(&world, &pod("default", "failed"), false).await;
    assert!(
        response.message().contains("gpu-slices.tautline.io"),
        "{response:?}"
    );
    // Webhooks exempt our own namespace and the cluster's, so the server can restart.
    for namespace in ["tautline-system", "kube-system"] {
        let mut ours = pod(namespace, "ours");
        // tautline-system admits only restricted pods.
        ours["spec"]["securityContext"] = json!({"runAsNonRoot": true, "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"}});
        for list in ["containers", "initContainers"] {
            for container in ours["spec"][list].as_array_mut().unwrap() {
                container["securityContext"] = json!({"allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"]}});
            }
        }
        let response = gpu_sharing::create(&world, &ours, false).await;
        assert_eq!(response.status, 201, "{namespace}: {response:?}");
    }

    let before = world.bundles().await.unwrap();
    world.server.restart().await.unwrap();
    until(&world, "pods get shares again", &sliced).await;
    // The certificate outlives the server.
    assert_eq!(world.bundles().await.unwrap(), before);
    assert_eq!(world.server.process.terminate(), Some(0));
}
