//! What becomes of pods when nobody answers.

use super::{slices::SLICES, *};

/// What the API server does when nobody answers for a webhook.
pub async fn policy(world: &Admitting, configuration: &str, webhook: &str, failure: &str) {
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
async fn a_dead_server_lets_pods_through_or_refuses_them_as_the_webhook_says() {
    let mut world = Admitting::start(SLICES, &[]).await.unwrap();
    let optimize = json!({"castops.io/optimize": "true", "castops.io/slice-ratio": "4"});
    let pod =
        |namespace: &str, name: &str| slices::pod(namespace, name, optimize.clone(), json!({}));
    let asks =
        |said: &objects::Said| said.body["spec"]["containers"][0]["resources"]["limits"].clone();
    let until = async |world: &Admitting, what: &str, check: &dyn Fn(&objects::Said) -> bool| {
        let look = async || {
            let said = slices::create(world, &pod("default", "probe"), true).await;
            check(&said).then_some(())
        };
        eventually(what, PATIENCE, look, async || world.state()).await;
    };
    let sliced = |said: &objects::Said| asks(said)["nvidia.com/gpu-shared"] == "8";
    until(&world, "pods get shares", &sliced).await;

    world.server.process.kill();
    let said = slices::create(&world, &pod("default", "ignored"), false).await;
    assert_eq!(
        (said.status, &asks(&said)["nvidia.com/gpu"]),
        (201, &json!("2")),
        "{said:?}"
    );
    policy(&world, SLICES[0], "gpu-slices.tautline.io", "Fail").await;
    until(&world, "pods are refused", &|said| said.status >= 400).await;
    let said = slices::create(&world, &pod("default", "failed"), false).await;
    assert!(
        said.message().contains("gpu-slices.tautline.io"),
        "{said:?}"
    );
    // Our own namespace and the cluster's are not asked about: we can start again.
    for namespace in ["tautline-system", "kube-system"] {
        let mut ours = pod(namespace, "ours");
        // tautline-system takes only restricted pods.
        ours["spec"]["securityContext"] = json!({"runAsNonRoot": true, "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"}});
        for list in ["containers", "initContainers"] {
            for container in ours["spec"][list].as_array_mut().unwrap() {
                container["securityContext"] = json!({"allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"]}});
            }
        }
        let said = slices::create(&world, &ours, false).await;
        assert_eq!(said.status, 201, "{namespace}: {said:?}");
    }

    let before = world.bundles().await.unwrap();
    world.server.restart().await.unwrap();
    until(&world, "pods get shares again", &sliced).await;
    // The certificate outlives the server.
    assert_eq!(world.bundles().await.unwrap(), before);
    assert_eq!(world.server.process.terminate(), Some(0));
}
