//! The gate: pods that an offer selects ask for the governed resource; those that
//! waited before it came are told of.

use tautline_api::ConstraintPolicyOffer;

use super::*;

#[tokio::test]
async fn governed_pods_ask_and_older_ones_are_told_of() {
    let world = Admitting::start(&["tautline-governed"], &["--governed"])
        .await
        .unwrap();
    let client = world.client();
    // No scheduler runs: it waits.
    objects::pod(client, "default", "old", "web").await.unwrap();
    objects::policy(client, "default", "web", json!({"name": "far"}), json!({}))
        .await
        .unwrap();
    let pod = |app: &str| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "new", "namespace": "default", "labels": {"app": app}},
            "spec": {"automountServiceAccountToken": false,
                     "containers": [{"name": "main", "image": "example.com/app:1"}]}})
    };
    const RESOURCE: &str = "constraint.ciena.com/governed";
    let check = async || {
        let said = slices::create(&world, &pod("web"), true).await;
        let resources = &said.body["spec"]["containers"][0]["resources"];
        let both = ["requests", "limits"].map(|side| resources[side][RESOURCE] == "1");
        (both == [true, true]).then_some(())
    };
    let what = "a governed pod asks";
    eventually(what, PATIENCE, check, async || world.state()).await;
    let said = slices::create(&world, &pod("db"), true).await;
    assert_eq!(
        said.body["spec"]["containers"][0]["resources"],
        json!({}),
        "{said:?}"
    );

    let offers: Api<ConstraintPolicyOffer> = Api::namespaced(client.clone(), "default");
    let gated = async |state: &str, text: &str| {
        let check = async || {
            let status = offers.get("web").await.ok()?.status?;
            let gated = status.conditions.into_iter().find(|c| c.type_ == "Gated")?;
            (gated.status == state && gated.message.contains(text)).then_some(())
        };
        let what = format!("the offer is gated: {state}");
        eventually(&what, PATIENCE, check, async || world.state()).await;
    };
    gated("False", "old; the scheduler").await;
    let check = async || {
        let told = objects::events(client, "default", "web").await;
        told.contains("PodsBeforeOffer").then_some(())
    };
    eventually("an event says so", PATIENCE, check, async || world.state()).await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), "default");
    let now = kube::api::DeleteParams::default().grace_period(0);
    pods.delete("old", &now).await.unwrap();
    gated("True", "every waiting pod asks").await;
}
